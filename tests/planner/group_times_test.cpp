// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/group_times.hpp>

#include <support/catch.hpp>

#include <cstdint>

namespace group_times_test {

using namespace chunkmem;
using planner::group_exchange;
using planner::group_times;

workload::rank_share share_of(std::uint64_t ranks, std::uint32_t of_node, double peer, double network)
{
  workload::rank_share share{.ranks = ranks, .of_node = of_node, .device_bytes = {}, .host_bytes = {}, .rates = {}};
  share.rates.peer_bytes_per_second = peer;
  share.rates.network_bytes_per_second = network;
  return share;
}

TEST_CASE("a ring passes on all shares but one over its slowest link", "[planner]")
{
  constexpr bytes group{8'000};
  CHECK(group_times::ring_of(share_of(8, 8, 1e9, 0)).nanoseconds(group) == 7'000);
  CHECK(group_times::ring_of(share_of(8, 1, 0, 2e9)).nanoseconds(group) == 3'500);
  CHECK(group_times::ring_of(share_of(8, 4, 1e9, 0.5e9)).nanoseconds(group) == 14'000);
  CHECK(group_times::ring_of(share_of(8, 4, 0.25e9, 0.5e9)).nanoseconds(group) == 28'000);
  CHECK(group_times::ring_of(share_of(8, 3, 1e9, 0.5e9)).nanoseconds(group) == 14'000);  // nodes that are not full
  CHECK(group_times::ring_of(share_of(1, 1, 0, 0)).nanoseconds(group) == 0);
}

TEST_CASE("shares cost what the network says of an all_gather, rounded up to whole shares", "[planner]")
{
  const group_times times{{.of_node = 4, .nodes = 2, .peer_bytes_per_second = 1e9, .network_bytes_per_second = 1e9}};
  CHECK(times.nanoseconds(bytes{8'001}) == times.network.all_gather({8'001, 1'001, 8}));
  CHECK(times.nanoseconds(bytes{}) == 0);
}

TEST_CASE("broadcasts are of the whole group, or of its tensors one by one", "[planner]")
{
  group_times times{{.of_node = 8, .peer_bytes_per_second = 1e9}, group_exchange::broadcasts};
  CHECK(times.nanoseconds(bytes{1'000'000}) == times.network.broadcast(bytes{1'000'000}));
  CHECK(times.nanoseconds(bytes{1'000'000}) > group_times{times.network}.nanoseconds(bytes{1'000'000}));
  times.pieces = {bytes{600'000}, bytes{400'000}};
  const std::uint64_t one_of_each = times.network.broadcast(bytes{600'000}) + times.network.broadcast(bytes{400'000});
  CHECK(times.nanoseconds(bytes{1'000'000}) == one_of_each);
  CHECK(times.nanoseconds(bytes{3'000'000}) == 3 * one_of_each);
  CHECK(times.nanoseconds(bytes{500'000}) == (one_of_each + 1) / 2);
}

TEST_CASE("costs of another number of ranks are refused", "[planner]")
{
  const group_times times{{.of_node = 8, .peer_bytes_per_second = 1e9}};
  CHECK_NOTHROW(times.check(8));
  CHECK_THROWS_AS(times.check(4), config_error);
  CHECK_THROWS_AS((group_times{{.of_node = 8}}.check(8)), config_error);
}

}  // namespace group_times_test
