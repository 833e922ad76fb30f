// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/update_kernel.hpp>

#include <chunkmem/optimizer/step_options.hpp>
#include <support/catch.hpp>

#include <cstring>

namespace device_step_state_test {

using namespace chunkmem::optimizer;

TEST_CASE("the state of a loss scale has the bytes of the loss scale itself", "[optimizer]")
{
  loss_scale scale = loss_scale::dynamic({.initial = 8.0F, .window = 3});
  scale.updated();
  scale.skipped();
  scale.updated();
  scale.updated();
  loss_scale_state state;
  REQUIRE(scale.bytes().size() == sizeof state);
  std::memcpy(&state, scale.bytes().data(), sizeof state);
  CHECK(state.updates == 3);
  CHECK(state.skips == 1);
  CHECK(state.scale == 4.0F);
  CHECK(state.in_a_row == 2);
}

TEST_CASE("a fresh state multiplies gradients by one and has decided nothing", "[optimizer]")
{
  const device_step_state state;
  CHECK(state.number == 0);
  CHECK(state.loss.scale == 1.0F);
  CHECK(state.factor == 1.0F);
  CHECK(state.decision == step_decision::open);
}

}  // namespace device_step_state_test
