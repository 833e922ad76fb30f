// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/update_site.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/sanitized.hpp>

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace measure_parameter_test {

using namespace chunkmem;

namespace {

template <class Element>
std::vector<Element> random_elements(std::size_t count, std::uint64_t seed)
{
  support::dice dice{seed};
  std::vector<Element> all(count);
  constexpr std::size_t different = 98'303;  // no factor of a piece: then they come again
  for (std::size_t index = 0; index < count; ++index)
    all[index] = index < different ? round_to<Element>((static_cast<float>(dice.below(2'000'001)) - 1e6F) * 1e-5F)
                                   : all[index - different];
  return all;
}

template <class Element>
gradient_measure measured(const std::vector<Element>& all, auto& workers)
{
  return optimizer::measure_parameter(reinterpret_cast<const std::byte*>(all.data()), dtype_of<Element>, all.size(),
                                      workers);
}

bool same_bits(const gradient_measure& left, const gradient_measure& right)
{
  return std::bit_cast<std::uint64_t>(left.squares) == std::bit_cast<std::uint64_t>(right.squares) &&
         std::bit_cast<std::uint64_t>(left.magnitudes) == std::bit_cast<std::uint64_t>(right.magnitudes) &&
         std::bit_cast<std::uint32_t>(left.largest) == std::bit_cast<std::uint32_t>(right.largest) &&
         left.finite == right.finite;
}

}  // namespace

TEMPLATE_TEST_CASE("norms of a gradient do not depend on who takes them", "[optimizer]", float, bf16, fp16)
{
  optimizer::thread_pool two{2}, three{3};
  const serial one;
  for (const std::size_t count : {1UL, 4'095UL, 4'097UL, 32'768UL, 32'769UL, 600'001UL,
                                  support::sanitized ? 1'700'001UL : 4'300'000UL}) {  // more pieces than threads
    INFO(count << " elements");
    const auto all = random_elements<TestType>(count, count);
    const gradient_measure expected = measure(std::span<const TestType>{all});
    CHECK(expected.squares > 0.0);
    CHECK(same_bits(measured(all, one), expected));
    CHECK(same_bits(measured(all, two), expected));
    CHECK(same_bits(measured(all, three), expected));
  }
}

TEST_CASE("one infinity or NaN anywhere is found by every number of threads", "[optimizer]")
{
  optimizer::thread_pool three{3};
  for (const std::size_t where : {0UL, 40'000UL, 524'288UL, 700'000UL - 1}) {
    auto all = random_elements<float>(700'000, 1);
    all[where] = where % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
    CHECK_FALSE(measured(all, three).finite);
    all[where] = 0.0F;
    CHECK(measured(all, three).finite);
  }
}

}  // namespace measure_parameter_test

namespace update_site_test {

using namespace chunkmem;
using optimizer::detail::calling_thread_site;
using optimizer::detail::virtual_time_site;

namespace {

struct timed : optimizer::adam {
  [[nodiscard]] work_cost update_takes(memory_location place, std::uint64_t elements) const noexcept
  {
    return {(place == memory_location::device ? 2 : 3) * elements, host_bytes};
  }
  [[nodiscard]] work_cost measure_takes(memory_location, std::uint64_t elements) const noexcept { return {elements}; }

  bytes host_bytes{};
};

}  // namespace

static_assert(optimizer::detail::update_site<calling_thread_site<const serial>>);
static_assert(optimizer::detail::update_site<virtual_time_site<backend::simulated>>);
static_assert(!optimizer::detail::update_site<int>);

TEST_CASE("steps run where their backend has bytes for the calling thread, else in virtual time", "[optimizer]")
{
  using on_host = optimizer::detail::caller_site<manager<backend::host_arena>, const serial>;
  using simulated = optimizer::detail::caller_site<manager<backend::simulated>, const serial>;
  STATIC_REQUIRE(std::is_same_v<on_host, calling_thread_site<const serial>>);
  STATIC_REQUIRE(std::is_same_v<simulated, virtual_time_site<backend::simulated>>);
}

TEST_CASE("time passes where the parameter is updated: on the calling thread, or on the device", "[optimizer]")
{
  backend::simulated clocks{{.host_runs_ahead = true}};
  const virtual_time_site<backend::simulated> site{clocks, on_this_thread};
  timed kernel;
  optimizer::parameter_bytes all;
  all.elements = 15;
  const auto work = [&](auto place) {
    (void)site.measure(kernel, nullptr, dtype::float32, 10, place);
    site.update(kernel, all, {}, place);
  };
  site.at_place(memory_location::host, work);
  CHECK(clocks.now() == 10 + 45);
  site.at_place(memory_location::device, work);
  CHECK(clocks.now() == 55);
  CHECK(clocks.clock(agent::compute) == 55 + 10 + 30);  // it was asked for after the first
  site.await_measures();
  CHECK(clocks.now() == 95);
}

TEST_CASE("an update on the host is slower while copies take the memory of the host", "[optimizer]")
{
  backend::cost_table costs;
  costs.to_device = {0, 5e8};
  costs.host_memory_bytes_per_second = 1e9;
  backend::simulated clocks{{.device_capacity = 4_KiB, .host_capacity = 4_KiB, .costs = costs}};
  const virtual_time_site<backend::simulated> site{clocks, on_this_thread};
  timed kernel;
  kernel.host_bytes = bytes{600};
  optimizer::parameter_bytes all;
  all.elements = 200;
  site.update(kernel, all, {}, memory_location::host);
  CHECK(clocks.now() == 600);
  std::byte* const there = clocks.allocate(tier::device, 2_KiB);
  clocks.copy(there, clocks.allocate(tier::host, 2_KiB), 2_KiB, agent::to_device);  // half of the memory's rate
  site.update(kernel, all, {}, memory_location::host);
  CHECK(clocks.now() == 600 + 1'200);
}

TEST_CASE("no time passes for a kernel that does not say how long its work takes", "[optimizer]")
{
  backend::simulated clocks{{.host_runs_ahead = true}};
  const virtual_time_site<backend::simulated> site{clocks, on_this_thread};
  optimizer::adam kernel;
  optimizer::parameter_bytes all;
  all.elements = 15;
  site.at_place(memory_location::host, [&](auto place) { site.update(kernel, all, {}, place); });
  CHECK(clocks.now() == 0);
}

TEST_CASE("the calling thread measures and updates the bytes that it is given", "[optimizer]")
{
  int backend = 0;
  const calling_thread_site<const serial> site{backend, on_this_thread};
  optimizer::adam kernel;
  std::vector<float> value(8, 1.0F), gradient(8, 3.0F), momentum(8), variance(8);
  const auto measured = site.measure(kernel, reinterpret_cast<const std::byte*>(gradient.data()), dtype::float32, 8,
                                     memory_location::host);
  CHECK(measured.squares == 72.0);
  optimizer::parameter_bytes all;
  all.value = reinterpret_cast<std::byte*>(value.data());
  all.gradient = reinterpret_cast<const std::byte*>(gradient.data());
  for (float* list : {momentum.data(), variance.data()})
    all.lists[all.list_count++] = {reinterpret_cast<std::byte*>(list), dtype::float32, list_use::state};
  all.elements = 8;
  site.update(kernel, all, {{0.5F, 0.0F}, {0.25F, 1, group_id{0}}, 0}, memory_location::host);
  CHECK(momentum[7] != 0.0F);
  CHECK(value[7] < 1.0F);
}

}  // namespace update_site_test
