// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/simulated.hpp>

#include <support/catch.hpp>

#include <limits>

namespace cost_table_test {

using namespace chunkmem;
using backend::cost_table;
using backend::link_cost;

TEST_CASE("a link costs its latency and then its rate, rounded up", "[backend]")
{
  constexpr link_cost link{.latency_nanoseconds = 100, .bytes_per_second = 1e9};
  STATIC_REQUIRE(link.nanoseconds_for(bytes{0}) == 100);
  STATIC_REQUIRE(link.nanoseconds_for(bytes{1'000}) == 1'100);
  constexpr link_cost fast{.latency_nanoseconds = 0, .bytes_per_second = 3e9};
  STATIC_REQUIRE(fast.nanoseconds_for(bytes{1}) == 1);
  STATIC_REQUIRE(fast.nanoseconds_for(bytes{4}) == 2);
}

TEST_CASE("a cost that 64 bits do not hold saturates", "[backend]")
{
  constexpr link_cost slow{.latency_nanoseconds = 5, .bytes_per_second = 1e-9};
  STATIC_REQUIRE(slow.nanoseconds_for(bytes{UINT64_MAX}) == UINT64_MAX);
  constexpr link_cost late{.latency_nanoseconds = UINT64_MAX, .bytes_per_second = 1e9};
  STATIC_REQUIRE(late.nanoseconds_for(bytes{1}) == UINT64_MAX);
}

TEST_CASE("more bytes never cost less", "[backend]")
{
  const link_cost link{.latency_nanoseconds = 3, .bytes_per_second = 24.7e9};
  std::uint64_t before = 0;
  for (std::uint64_t size = 1; size < (std::uint64_t{1} << 62); size = size * 2 + 1) {
    CHECK(link.nanoseconds_for(bytes{size}) >= before);
    before = link.nanoseconds_for(bytes{size});
  }
}

TEST_CASE("each direction has its own cost", "[backend]")
{
  const cost_table costs{
      .to_device = {1, 1e9}, .to_host = {2, 1e9}, .within_device = {3, 1e9}, .within_host = {4, 1e9}};
  CHECK(costs.between(tier::host, tier::device).latency_nanoseconds == 1);
  CHECK(costs.between(tier::device, tier::host).latency_nanoseconds == 2);
  CHECK(costs.between(tier::device, tier::device).latency_nanoseconds == 3);
  CHECK(costs.between(tier::host, tier::host).latency_nanoseconds == 4);
}

TEST_CASE("a rate that is not above zero is a config_error", "[backend]")
{
  CHECK_NOTHROW(backend::require_usable(cost_table{}));
  for (const double rate : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_AS(backend::require_usable(cost_table{.to_host = {1, rate}}), config_error);
  }
  CHECK_NOTHROW(backend::require_usable(cost_table{.host_memory_bytes_per_second = 1e9}));
  for (const double rate : {-1.0, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS_AS(backend::require_usable(cost_table{.host_memory_bytes_per_second = rate}), config_error);
}

TEST_CASE("a copy touches host memory once for each of its ends that lies there", "[backend]")
{
  STATIC_REQUIRE(cost_table::host_bytes(tier::host, tier::device, bytes{5}) == bytes{5});
  STATIC_REQUIRE(cost_table::host_bytes(tier::device, tier::host, bytes{5}) == bytes{5});
  STATIC_REQUIRE(cost_table::host_bytes(tier::host, tier::host, bytes{5}) == bytes{10});
  STATIC_REQUIRE(cost_table::host_bytes(tier::device, tier::device, bytes{5}) == bytes{0});
}

}  // namespace cost_table_test
