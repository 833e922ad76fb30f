// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/timed_kernel.hpp>

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <support/catch.hpp>

#include <cstdint>

namespace timed_kernel_test {

using namespace chunkmem;

namespace {

struct timed : optimizer::adam {
  [[nodiscard]] std::uint64_t update_takes(at, std::uint64_t elements) const noexcept { return 3 * elements; }
  [[nodiscard]] std::uint64_t measure_takes(at, std::uint64_t elements) const noexcept { return elements; }
};

}  // namespace

TEST_CASE("a kernel is timed where it says what its work takes", "[optimizer]")
{
  STATIC_REQUIRE(timed_kernel<timed>);
  STATIC_REQUIRE_FALSE(timed_kernel<optimizer::adam>);
}

TEST_CASE("time passes for whoever updates: the calling thread, or an agent of the device", "[optimizer]")
{
  backend::simulated clocks{{.host_runs_ahead = true}};
  optimizer::detail::let_pass(clocks, at::host, 70);
  optimizer::detail::let_pass(clocks, agent::compute, 30);
  CHECK(clocks.now() == 70);
  CHECK(clocks.clock(agent::compute) == 100);  // it was asked for after the first
  CHECK(optimizer::detail::place_of(at::host) == at::host);
  CHECK(optimizer::detail::place_of(agent::compute) == at::device);
}

}  // namespace timed_kernel_test
