// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/simulated_ranks.hpp>

#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace collective_counts_test {

using chunkmem::collective::collective_counts;
using chunkmem::collective::operation;

TEST_CASE("counts are kept by operation and add up", "[collective]")
{
  collective_counts counts;
  counts[operation::all_gather] += {1, 2, 3, 4};
  counts[operation::exchange] += {10, 20, 30, 40};
  counts[operation::all_gather] += {100, 200, 300, 400};
  CHECK(counts[operation::all_gather] == collective_counts::entry{101, 202, 303, 404});
  CHECK(counts[operation::barrier] == collective_counts::entry{});
  CHECK(counts.total() == collective_counts::entry{111, 222, 333, 444});
  CHECK(!(counts == collective_counts{}));
}

}  // namespace collective_counts_test

namespace simulated_ranks_test {

using namespace chunkmem;
using backend::simulated;
using collective::network_costs;
using collective::operation;
using collective::ring_traffic;
using collective::shares;
using collective::simulated_ranks;
using collective::sum;

namespace {

constexpr network_costs round_numbers{.of_node = 4,
                                      .nodes = 2,
                                      .peer_bytes_per_second = 1e9,
                                      .network_bytes_per_second = 0.25e9,
                                      .start_nanoseconds = 1'000,
                                      .peer_nanoseconds = 10,
                                      .network_nanoseconds = 100};

simulated machine()
{
  return simulated{{.device_capacity = bytes{1'000'000}, .host_capacity = bytes{1'000'000}, .host_runs_ahead = true}};
}

}  // namespace

TEST_CASE("each operation lets its agent's clock go on by what it costs, and nobody else's", "[collective]")
{
  simulated mem = machine();
  simulated_ranks ranks{round_numbers};
  std::byte* const place = mem.allocate(tier::device, bytes{80'000});
  const shares parts = shares::of(bytes{80'000}, 8);
  std::uint64_t time = 0;
  const auto took = [&](std::uint64_t cost) {
    CHECK(cost > 0);
    CHECK(mem.clock(agent::compute) == time + cost);
    CHECK(mem.clock(agent::to_device) == 0);
    CHECK(mem.now() == 0);
    time = mem.clock(agent::compute);
  };
  ranks.all_gather(mem, agent::compute, place, parts, 0);
  took(round_numbers.all_gather(parts));
  ranks.reduce_scatter(mem, agent::compute, place, parts, sum{}, 0);
  took(round_numbers.reduce_scatter(parts));
  ranks.all_reduce(mem, agent::compute, place, parts, sum{}, 0);
  took(round_numbers.all_reduce(parts));
  ranks.broadcast(mem, agent::compute, place, bytes{80'000}, rank_id{3}, 0);
  took(round_numbers.broadcast(bytes{80'000}));
  ranks.send(mem, agent::compute, place, bytes{80'000}, rank_id{3}, 0);
  took(round_numbers.send(bytes{80'000}, true));
  ranks.receive(mem, agent::compute, place, bytes{80'000}, rank_id{4}, 0);
  took(round_numbers.send(bytes{80'000}, false));
  ranks.barrier(mem, agent::compute, 0);
  took(round_numbers.barrier());
  CHECK(ranks.counts().total().busy_nanoseconds == time);
  CHECK(ranks.counts().total().calls == 7);
}

TEST_CASE("operations of two agents queue at the link, and a wait for it is not busy time", "[collective]")
{
  simulated mem = machine();
  simulated_ranks ranks{round_numbers};
  const shares parts = shares::of(bytes{80'000}, 8);
  const std::uint64_t one = round_numbers.all_gather(parts);
  const agent fifth = mem.adopt();
  mem.advance(agent::compute, 300);
  ranks.all_gather(mem, agent::compute, nullptr, parts, 0);
  ranks.all_gather(mem, fifth, nullptr, parts, 1);
  CHECK(mem.clock(agent::compute) == 300 + one);
  CHECK(mem.clock(fifth) == 300 + 2 * one);
  mem.wait(agent::host, mem.record(fifth));
  mem.advance(agent::host, 5'000);
  ranks.all_gather(mem, agent::compute, nullptr, parts, 2);  // nothing starts before the caller asked for it
  CHECK(mem.clock(agent::compute) == 5'300 + 3 * one);
  CHECK(ranks.counts()[operation::all_gather].busy_nanoseconds == 3 * one);
}

TEST_CASE("groups of one rank share its links: two in the node queue, one across nodes works beside them",
          "[collective]")
{
  simulated mem = machine();
  simulated_ranks all{round_numbers};
  simulated_ranks node{round_numbers.inside_node(), rank_id{0}, all};
  simulated_ranks again{round_numbers.inside_node(), rank_id{0}, node};
  simulated_ranks across{round_numbers.across_nodes(), rank_id{0}, all};
  const std::uint64_t inside = node.costs().all_gather(shares::of(bytes{80'000}, 4));
  const std::uint64_t outside = across.costs().all_gather(shares::of(bytes{10'000}, 2));
  const agent fifth = mem.adopt();
  node.all_gather(mem, agent::compute, nullptr, shares::of(bytes{80'000}, 4), 0);
  across.all_gather(mem, agent::to_host, nullptr, shares::of(bytes{10'000}, 2), 0);
  again.all_gather(mem, fifth, nullptr, shares::of(bytes{80'000}, 4), 0);
  CHECK(mem.clock(agent::compute) == inside);
  CHECK(mem.clock(agent::to_host) == outside);
  CHECK(mem.clock(fifth) == 2 * inside);
  all.barrier(mem, agent::to_host, 0);  // uses both links, so it comes behind all of them
  CHECK(mem.clock(agent::to_host) == 2 * inside + round_numbers.barrier());
  CHECK(all.counts().total().calls == 1);
  // the barrier keeps the network, too
  across.all_gather(mem, agent::to_device, nullptr, shares::of(bytes{10'000}, 2), 0);
  CHECK(mem.clock(agent::to_device) == mem.clock(agent::to_host) + outside);
  across.barrier(mem, agent::to_host, 0);  // the network alone is busy longer than the node's link
  CHECK(mem.clock(agent::to_host) == mem.clock(agent::to_device) + across.costs().barrier());
}

TEST_CASE("messages take the caller's time, and the link is busy for as long as without", "[collective]")
{
  network_costs costs = round_numbers;
  costs.of_node = 1, costs.nodes = 4;
  costs.work = {.seconds_per_message = 1e-6, .seconds_per_byte = 1e-9};
  simulated mem = machine();
  simulated_ranks ranks{costs};
  std::byte* const place = mem.allocate(tier::device, bytes{80'000});
  const shares parts = shares::of(bytes{65'536}, 4);
  ranks.all_gather(mem, agent::compute, place, parts, 0);
  // Two rounds of agreement and three other ranks, a message each way; three shares come, and three go.
  CHECK(mem.now() == 10'000 + 2 * 49'152);
  CHECK(mem.clock(agent::compute) == costs.all_gather(parts));
  ranks.send(mem, agent::to_host, place, bytes{1'000}, rank_id{1}, 0);
  CHECK(mem.now() == 108'304 + 3'000 + 1'000);
  costs.work = {};
  simulated_ranks{costs}.all_gather(mem, agent::compute, place, parts, 0);
  CHECK(mem.now() == 112'304);
}

TEST_CASE("bytes are counted as a ring moves them", "[collective]")
{
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    CAPTURE(rank);
    simulated mem = machine();
    simulated_ranks ranks{round_numbers, rank_id{rank}};
    CHECK(ranks.rank() == rank_id{rank});
    const shares parts = shares::of(bytes{7 * 256 + 4}, 8);
    ranks.all_gather(mem, agent::compute, nullptr, parts, 0);
    ranks.all_gather(mem, agent::compute, nullptr, parts, 0);
    ranks.reduce_scatter(mem, agent::compute, nullptr, parts, sum{}, 0);
    ranks.all_reduce(mem, agent::compute, nullptr, parts, sum{}, 0);
    ranks.broadcast(mem, agent::compute, nullptr, bytes{100}, rank_id{5}, 0);
    ranks.send(mem, agent::compute, nullptr, bytes{11}, rank_id{rank ^ 1U}, 0);
    ranks.receive(mem, agent::compute, nullptr, bytes{12}, rank_id{rank ^ 1U}, 0);
    const auto is = [&](operation what, std::uint64_t calls, ring_traffic moved) {
      INFO(name_of(what));
      CHECK(ranks.counts()[what].calls == calls);
      CHECK(ranks.counts()[what].sent == moved.sent);
      CHECK(ranks.counts()[what].received == moved.received);
    };
    const ring_traffic gather = ring_traffic::of_all_gather(parts, rank);
    is(operation::all_gather, 2, {2 * gather.sent, 2 * gather.received});
    is(operation::reduce_scatter, 1, ring_traffic::of_reduce_scatter(parts, rank));
    is(operation::all_reduce, 1, ring_traffic::of_all_reduce(parts, rank));
    is(operation::broadcast, 1, ring_traffic::of_broadcast(bytes{100}, rank, 5, 8));
    is(operation::send, 1, {11, 0});
    is(operation::receive, 1, {0, 12});
    ranks.clear_counts();
    CHECK(ranks.counts() == collective::collective_counts{});
  }
}

TEST_CASE("a simulated group of one costs nothing", "[collective]")
{
  simulated mem = machine();
  simulated_ranks alone{network_costs{}};
  alone.all_gather(mem, agent::compute, nullptr, shares::of(bytes{1'000'000}, 1), 0);
  alone.all_reduce(mem, agent::compute, nullptr, shares::of(bytes{1'000'000}, 1), sum{}, 0);
  alone.broadcast(mem, agent::compute, nullptr, bytes{1'000'000}, rank_id{0}, 0);
  alone.barrier(mem, agent::compute, 0);
  CHECK(mem.clock(agent::compute) == 0);
  CHECK(alone.counts().total() == collective::collective_counts::entry{4, 0, 0, 0});
}

TEST_CASE("an exchange answers as if all ranks said the same, and nothing ever fails", "[collective]")
{
  simulated_ranks ranks{round_numbers};
  const std::vector<std::uint64_t> mine{7, 9};
  std::vector<std::uint64_t> all(16);
  ranks.exchange(mine, all);
  for (std::size_t index = 0; index < all.size(); ++index) CHECK(all[index] == mine[index % 2]);
  CHECK(ranks.counts()[operation::exchange].calls == 1);
  all.resize(15);
  CHECK_THROWS_AS(ranks.exchange(mine, all), usage_error);
  ranks.revoke();
  ranks.check();
}

TEST_CASE("a mistake takes no time and is not counted", "[collective]")
{
  simulated mem = machine();
  simulated_ranks ranks{round_numbers};
  const shares parts = shares::of(bytes{80'000}, 8);
  CHECK_THROWS_AS(ranks.all_gather(mem, agent::compute, nullptr, shares::of(bytes{80'000}, 4), 0), usage_error);
  CHECK_THROWS_AS(ranks.all_gather(mem, agent{7}, nullptr, parts, 0), usage_error);
  CHECK_THROWS_AS(ranks.reduce_scatter(mem, agent::compute, nullptr, parts, sum{.type = dtype::uint8}, 0), usage_error);
  CHECK_THROWS_AS(ranks.all_reduce(mem, agent::compute, nullptr, shares::of(bytes{2}, 8), sum{}, 0), usage_error);
  CHECK_THROWS_AS(ranks.broadcast(mem, agent::compute, nullptr, bytes{1}, rank_id{8}, 0), usage_error);
  CHECK_THROWS_AS(ranks.send(mem, agent::compute, nullptr, bytes{1}, rank_id{8}, 0), usage_error);
  CHECK_THROWS_AS(ranks.receive(mem, agent::compute, nullptr, bytes{1}, rank_id{0}, 0), usage_error);
  CHECK(mem.clock(agent::compute) == 0);
  CHECK(ranks.counts() == collective::collective_counts{});
  CHECK_THROWS_AS((simulated_ranks{round_numbers, rank_id{8}}), usage_error);
  CHECK_THROWS_AS(simulated_ranks{network_costs{.of_node = 2}}, config_error);
}

}  // namespace simulated_ranks_test
