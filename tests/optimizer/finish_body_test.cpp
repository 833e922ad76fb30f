// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/finish_body.hpp>

#include <chunkmem/optimizer/loop_launcher.hpp>
#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <cstring>

namespace finish_body_test {

using namespace chunkmem::optimizer;

namespace {

void goes_on_like(loss_scale scale, std::uint64_t key)
{
  device_step_state state;
  state.number = 100;
  std::memcpy(&state.loss, scale.bytes().data(), sizeof state.loss);
  const finish_body body{&state, rule_of(scale)};
  for (std::uint64_t step = 0; step < 300; ++step) {
    const bool updates = support::scrambled(key + step) % 7 != 0;
    state.decision = updates ? step_decision::update : step_decision::skip;
    loop_launcher::run(body);
    updates ? scale.updated() : scale.skipped();
    REQUIRE(std::memcmp(&state.loss, scale.bytes().data(), sizeof state.loss) == 0);
    REQUIRE(state.number == 100 + scale.updates());
    REQUIRE(state.decision == step_decision::open);
  }
}

}  // namespace

TEST_CASE("a loss scale goes on as on the host, byte by byte", "[optimizer]")
{
  goes_on_like(loss_scale::fixed(128.0F), 1);
  goes_on_like(loss_scale::dynamic({.window = 3}), 2);
  goes_on_like(loss_scale::dynamic({.initial = 3.0F, .window = 1, .growth = 1.7F, .backoff = 0.3F, .largest = 100.0F}),
               3);
  goes_on_like(loss_scale::dynamic({.initial = 1e-39F, .window = 2, .smallest = 1e-40F, .largest = 1e-38F}), 4);
}

TEST_CASE("the end of a step that decided nothing counts nothing", "[optimizer]")
{
  device_step_state state;
  loop_launcher::run(finish_body{&state, {}});
  CHECK(state.number == 0);
  CHECK((state.loss.updates == 0 && state.loss.skips == 0));
}

}  // namespace finish_body_test
