// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/rank_settings.hpp>

#include <support/catch.hpp>

namespace rank_settings_test {

using namespace chunkmem;
using namespace chunkmem::planner;

namespace {

workload::rank_share share_of(double peer, double network)
{
  return {8, 4, bytes{10'000'000'000}, bytes{40'000'000'000}, {1e12, 3e9, 2e9, peer, network, 1e10, 1e9, 1e10}};
}

}  // namespace

TEST_CASE("a rank has what context, process and reserve leave", "[planner]")
{
  const per_tier<bytes> left = capacities_of(share_of(1, 0), {});
  CHECK(left[tier::device] == bytes{8'800'000'000});
  CHECK(left[tier::host] == bytes{36'800'000'000});  // 0.97 of 40 GB, less 2
  const per_tier<bytes> none = capacities_of(share_of(1, 0), {.device_context = 11_GiB, .host_process = 40_GiB});
  CHECK(none[tier::device] == bytes{});
  CHECK(none[tier::host] == bytes{});
}

TEST_CASE("a rank never has more than there is, whatever rounding says", "[planner]")
{
  const rank_settings nothing_taken{.device_context = bytes{}, .host_process = bytes{}, .host_reserve = 0};
  for (const std::uint64_t host :
       {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 1024, (std::uint64_t{1} << 53) + 3, std::uint64_t{1} << 63}) {
    workload::rank_share share = share_of(1, 0);
    share.host_bytes = bytes{host};
    const bytes left = capacities_of(share, nothing_taken)[tier::host];
    CAPTURE(host, left.count());
    CHECK(left <= share.host_bytes);
    CHECK(left.count() >= host - 1024);  // a double's step there
    CHECK(capacities_of(share, {.host_process = bytes{}, .host_reserve = 0.5})[tier::host].count() / 2 <=
          host / 4 + 1024);
  }
}

TEST_CASE("links have the rates of the rank", "[planner]")
{
  const backend::cost_table costs = costs_of(share_of(1, 0), {.link_latency_nanoseconds = 7});
  CHECK(costs.to_device.nanoseconds_for(bytes{3'000}) == 1'007);
  CHECK(costs.to_host.nanoseconds_for(bytes{3'000}) == 1'507);
  CHECK(costs.host_memory_bytes_per_second == 1e10);
  CHECK(update_rates_of(share_of(1, 0), {}).host_measured_per_second == 14e9);
}

TEST_CASE("an optimizer with fewer states has faster updates, and takes fewer bytes of the host", "[planner]")
{
  const workload::rank_share share = share_of(1, 0);
  const auto rates = [&](const optimizer::listed_states& states) { return update_rates_of(share, {.states = states}); };
  CHECK(rates({}).host_parameters_per_second == 1e9);
  CHECK(rates({.lists = 0}).host_parameters_per_second == Catch::Approx(28e9 / 12));
  CHECK(rates({.lists = 1}).device_parameters_per_second == Catch::Approx(28e10 / 20));
  CHECK(rates({.lists = 1}).host_measured_per_second == rates({}).host_measured_per_second);
  const auto bytes_each = [](const optimizer::listed_states& states) {
    return host_bytes_each({.gradient = planned_gradient{gradient::separate{}}, .states = states});
  };
  CHECK(bytes_each({}) == 16);
  CHECK(bytes_each({.bytes_each = 2}) == 12);
  CHECK(bytes_each({.lists = 1}) == 12);
  CHECK(bytes_each({.lists = 0}) == 8);
}

TEST_CASE("collectives are those that the settings have, for as many ranks, or one ring", "[planner]")
{
  workload::rank_share share = share_of(5e9, 2e9);
  share.ranks = 16;
  share.of_node = 8;
  CHECK(exchange_of(share, {}).network == group_times::ring_of(share).network);
  const group_times eight{{.of_node = 8, .peer_bytes_per_second = 1e9}};
  CHECK_THROWS_AS(exchange_of(share, {.exchange = eight}), config_error);
  share.ranks = 8;
  CHECK(exchange_of(share, {.exchange = eight}).network == eight.network);
}

TEST_CASE("settings out of their range are refused", "[planner]")
{
  CHECK_NOTHROW(rank_settings{}.check());
  CHECK_THROWS_AS(rank_settings{.chunk_elements = 0}.check(), config_error);
  CHECK_THROWS_AS(rank_settings{.chunk_elements = UINT64_MAX}.check(), config_error);
  for (const double share : {0.0, 1.1, -1.0})
    CHECK_THROWS_AS(rank_settings{.reached_share = share}.check(), config_error);
  for (const double share : {1.0, -0.1}) CHECK_THROWS_AS(rank_settings{.host_reserve = share}.check(), config_error);
  for (const double share : {1.1, -0.1})
    CHECK_THROWS_AS(rank_settings{.device_update_share = share}.check(), config_error);
  CHECK_THROWS_AS(rank_settings{.most_iterations = 4}.check(), config_error);
  CHECK_THROWS_AS(rank_settings{.states = {.lists = 4}}.check(), config_error);
}

}  // namespace rank_settings_test
