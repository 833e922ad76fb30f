// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <support/catch.hpp>
#include <support/fake_device.hpp>

namespace without_bytes_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Calls and gradients of two weights whose bytes the calling thread cannot read.
template <class Backend>
void look_at_gradients(Backend& memory)
{
  cm::manager<Backend, cm::checks::full> m{memory, {.chunk_bytes = 4_KiB}};
  cm::optimizer::sgd sgd;
  m.use(sgd);
  const auto weights = m.template add_stacked<float>(2, {64}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 2; ++index)
    m.acquire(weights.slice(index), cm::access::write, cm::memory_location::host).release();
  const auto scope = m.iteration();
  auto gradient = m.gradient(weights.slice(1), cm::agent::compute);
  CHECK_THROWS_WITH(m.gradient_done(std::move(gradient)),
                    ContainsSubstring("the beta() of tensor 1 (gradient) was not read"));
  CHECK(gradient.beta() == 0.0F);
  m.gradient_done(std::move(gradient));
  CHECK_THROWS_WITH(cm::optimizer::step(m, sgd), ContainsSubstring("1 of 2 parameters have no gradient: tensor.0"));
  m.without_gradient(weights.slice(0));
  CHECK_NOTHROW(cm::optimizer::step(m, sgd, {.skip_nonfinite = false}));
  CHECK_NOTHROW(m.verify());
}

}  // namespace

TEST_CASE("where the calling thread cannot read bytes, calls and gradients are looked at", "[checks]")
{
  cm::backend::simulated timed{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  look_at_gradients(timed);
  support::fake_device device{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  look_at_gradients(device);
}

}  // namespace without_bytes_test
