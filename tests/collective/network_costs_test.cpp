// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/network_costs.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <cstdint>
#include <limits>

namespace network_costs_test {

using namespace chunkmem;
using collective::network_costs;
using collective::shares;
using route = network_costs::route;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A byte takes 1 ns inside a node and 4 ns between nodes.
constexpr network_costs round_numbers(std::uint32_t of_node, std::uint32_t nodes, route way = route::by_node)
{
  return {.of_node = of_node,
          .nodes = nodes,
          .peer_bytes_per_second = 1e9,
          .network_bytes_per_second = 0.25e9,
          .start_nanoseconds = 1'000,
          .peer_nanoseconds = 10,
          .network_nanoseconds = 100,
          .segment = bytes{512},
          .way = way};
}
constexpr shares over(const network_costs& costs, std::uint64_t size)
{
  return shares::of(bytes{size}, costs.ranks());
}

network_costs random_costs(support::dice& dice)
{
  return {.of_node = dice.between(1, 16),
          .nodes = dice.between(1, 16),
          .peer_bytes_per_second = 1e6 * dice.between(1, 500'000),
          .network_bytes_per_second = 1e6 * dice.between(1, 500'000),
          .start_nanoseconds = dice.below(20'000),
          .peer_nanoseconds = dice.below(20'000),
          .network_nanoseconds = dice.below(20'000),
          .segment = bytes{dice.between(1, 1 << 20)}};
}
network_costs by(network_costs costs, route way)
{
  costs.way = way;
  return costs;
}

}  // namespace

TEST_CASE("operations in one node cost what the closed formulas of a ring say", "[collective]")
{
  for (const route way : {route::ring, route::by_node})
    for (const std::uint64_t ranks : {2U, 3U, 8U, 64U}) {
      CAPTURE(ranks);
      const network_costs costs = round_numbers(static_cast<std::uint32_t>(ranks), 1, way);
      const std::uint64_t size = ranks * 256 * 5;
      const std::uint64_t ring = (ranks - 1) * (10 + size / ranks);
      CHECK(costs.all_gather(over(costs, size)) == 1'000 + ring);
      CHECK(costs.reduce_scatter(over(costs, size)) == 1'000 + ring);
      CHECK(costs.all_reduce(over(costs, size)) == 1'000 + 2 * ring);
      CHECK(costs.broadcast(bytes{size}) == 1'000 + (ranks - 1) * 10 + size + (ranks - 2) * 512);
      CHECK(costs.broadcast(bytes{300}) == 1'000 + (ranks - 1) * (10 + 300));
      CHECK(costs.send(bytes{size}, true) == 1'000 + 10 + size);
    }
  CHECK(round_numbers(8, 1).barrier() == 1'000 + 3 * 10);
  CHECK(round_numbers(9, 1).barrier() == 1'000 + 4 * 10);
}

TEST_CASE("operations over several nodes cost what the closed formulas of all routes say", "[collective]")
{
  const network_costs ring = round_numbers(4, 3, route::ring);
  const network_costs by_node = round_numbers(4, 3);
  const std::uint64_t share = 256 * 7;
  const std::uint64_t size = 12 * share;
  CHECK(ring.all_gather(over(ring, size)) == 1'000 + 9 * 10 + 2 * 100 + 11 * share * 4);
  CHECK(by_node.all_gather(over(by_node, size)) == 1'000 + 2 * (100 + share * 4) + 3 * (10 + 3 * share));
  CHECK(by_node.all_reduce(over(by_node, size)) == 1'000 + 2 * (2 * (100 + share * 4) + 3 * (10 + 3 * share)));
  CHECK(ring.broadcast(bytes{size}) == 1'000 + 9 * 10 + 2 * 100 + (size + 10 * 512) * 4);
  CHECK(by_node.broadcast(bytes{size}) == 1'000 + 3 * 10 + 2 * 100 + (size + 4 * 512) * 4);
  CHECK(by_node.send(bytes{size}, false) == 1'000 + 100 + size * 4);
  CHECK(by_node.barrier() == 1'000 + 2 * 10 + 2 * 100);
  const network_costs direct = by(by_node, route::direct);  // a device sends 3 shares inside its node, and 8 to others
  CHECK(direct.all_gather(over(direct, size)) == 1'000 + 100 + (8 * 4 + 3) * share);
  CHECK(direct.all_reduce(over(direct, size)) == 1'000 + 2 * (100 + (8 * 4 + 3) * share));
  CHECK(direct.broadcast(bytes{size}) == by_node.broadcast(bytes{size}));

  const network_costs only_network = round_numbers(1, 5);
  CHECK(only_network.all_gather(shares::of(bytes{5 * 256}, 5)) == 1'000 + 4 * (100 + 256 * 4));
  const shares uneven = shares::of(bytes{5 * 256 + 1}, 5);  // as equal ones of 512 B
  CHECK(only_network.all_gather(uneven) == 1'000 + 4 * (100 + 512 * 4));
}

TEST_CASE("the bus bandwidth of large operations is the rate of the link", "[collective]")
{
  for (const std::uint32_t ranks : {2U, 8U, 16U}) {
    network_costs costs{.of_node = ranks, .peer_bytes_per_second = 300e9};
    const std::uint64_t size = std::uint64_t{1} << 34;
    const double moved = static_cast<double>(size) * (ranks - 1) / ranks;
    const auto reached = [&](std::uint64_t nanoseconds, double bytes) {
      return bytes / static_cast<double>(nanoseconds) * 1e9;
    };
    CHECK(reached(costs.all_gather(over(costs, size)), moved) == Catch::Approx(300e9).epsilon(0.01));
    CHECK(reached(costs.all_reduce(over(costs, size)), 2 * moved) == Catch::Approx(300e9).epsilon(0.01));
    CHECK(reached(costs.broadcast(bytes{size}), static_cast<double>(size)) == Catch::Approx(300e9).epsilon(0.01));
  }
}

TEST_CASE("more bytes or more ranks never cost less", "[collective]")
{
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
    INFO("seed " << seed);
    support::dice dice{seed};
    const network_costs costs = by(random_costs(dice), dice.one_in(2) ? route::ring : route::by_node);
    const std::uint64_t size = dice.below(1U << 30);
    const std::uint64_t more = size + dice.below(1U << 30);
    REQUIRE(costs.all_gather(over(costs, size)) <= costs.all_gather(over(costs, more)));
    REQUIRE(costs.all_reduce(over(costs, size)) <= costs.all_reduce(over(costs, more)));
    REQUIRE(costs.broadcast(bytes{size}) <= costs.broadcast(bytes{more}));
    const network_costs direct = by(costs, route::direct);
    REQUIRE(direct.all_gather(over(direct, size)) <= direct.all_gather(over(direct, more)));
    REQUIRE(costs.all_gather(over(costs, size)) <= costs.all_reduce(over(costs, size)));

    network_costs wider = costs;
    ++wider.nodes;
    // Shares are rounded up to 256 B: only of a size that both divide is the formula itself compared.
    const std::uint64_t fits = std::uint64_t{256} * costs.ranks() * wider.nodes * dice.between(1, 1'000);
    REQUIRE(costs.all_gather(over(costs, fits)) <= wider.all_gather(over(wider, fits)));
    REQUIRE(costs.broadcast(bytes{fits}) <= wider.broadcast(bytes{fits}));
    REQUIRE(costs.barrier() <= wider.barrier());
    network_costs fuller = by(costs, route::ring);
    ++fuller.of_node;
    const network_costs before = by(costs, route::ring);
    const std::uint64_t fits_too = std::uint64_t{256} * costs.ranks() * fuller.of_node * dice.between(1, 1'000);
    REQUIRE(before.all_gather(over(before, fits_too)) <= fuller.all_gather(over(fuller, fits_too)));
  }
}

TEST_CASE("a route by node is never slower than one ring over the slowest link", "[collective]")
{
  std::uint64_t faster = 0;
  for (std::uint64_t seed = 1; seed <= 5'000; ++seed) {
    INFO("seed " << seed);
    support::dice dice{seed};
    const network_costs by_node = random_costs(dice);
    const network_costs ring = by(by_node, route::ring);
    const std::uint64_t size = dice.below(1U << 31);
    // sums in another order
    const auto rounding = [](std::uint64_t time) { return time + 1 + time / (std::uint64_t{1} << 50); };
    REQUIRE(by_node.all_gather(over(by_node, size)) <= rounding(ring.all_gather(over(ring, size))));
    REQUIRE(by_node.all_reduce(over(by_node, size)) <= rounding(ring.all_reduce(over(ring, size))));
    REQUIRE(by_node.broadcast(bytes{size}) <= rounding(ring.broadcast(bytes{size})));
    faster += by_node.all_gather(over(by_node, size)) < ring.all_gather(over(ring, size)) ? 1U : 0U;
    if (by_node.nodes == 1 || by_node.of_node == 1)
      REQUIRE(by_node.all_gather(over(by_node, size)) == ring.all_gather(over(ring, size)));
  }
  CHECK(faster > 2'500);
}

TEST_CASE("one rank costs nothing, and no bytes cost nothing", "[collective]")
{
  const network_costs one = round_numbers(1, 1);
  CHECK(one.all_gather(over(one, 1'000'000)) == 0);
  CHECK(one.all_reduce(over(one, 1'000'000)) == 0);
  CHECK(one.broadcast(bytes{1'000'000}) == 0);
  CHECK(one.barrier() == 0);
  network_costs without_links;
  without_links.check();
  CHECK(without_links.all_gather(over(without_links, 1'000'000)) == 0);
  const network_costs many = round_numbers(4, 4);
  CHECK(many.all_gather(over(many, 0)) == 0);
  CHECK(many.reduce_scatter(over(many, 0)) == 0);
  CHECK(many.all_reduce(over(many, 0)) == 0);
  CHECK(many.broadcast(bytes{}) == 0);
  CHECK(many.send(bytes{}, true) == 0);
}

TEST_CASE("times are rounded up, and saturate where 64 bits do not hold them", "[collective]")
{
  network_costs thirds = round_numbers(2, 1);
  thirds.peer_bytes_per_second = 3e9;
  CHECK(thirds.send(bytes{1}, true) == 1'000 + 10 + 1);
  network_costs slow = round_numbers(4, 4);
  slow.peer_bytes_per_second = 1e-3;
  CHECK(slow.all_gather(over(slow, std::uint64_t{1} << 40)) == UINT64_MAX);
}

TEST_CASE("network costs come from a machine, and of its parts", "[collective]")
{
  const workload::machine machine{.name = "two nodes",
                                  .nodes = 2,
                                  .devices = 8,
                                  .device_bytes = bytes{1},
                                  .host_bytes = bytes{1},
                                  .rates = {1, 1, 1, 450e9, 50e9, 1, 1, 1}};
  const network_costs costs = network_costs::of(machine);
  costs.check();
  CHECK(costs.ranks() == 16);
  CHECK(costs.peer_bytes_per_second == 450e9);
  CHECK(costs.network_bytes_per_second == 50e9);
  CHECK(costs.inside_node().ranks() == 8);
  CHECK(costs.across_nodes().ranks() == 2);
  CHECK(costs.across_nodes().send(bytes{50}, false) == costs.send(bytes{50}, false));
  workload::machine wrong = machine;
  wrong.nodes = 0;
  CHECK_THROWS_AS(network_costs::of(wrong), config_error);
}

TEST_CASE("network costs that cannot be are refused", "[collective]")
{
  const auto refused = [](network_costs costs, const char* text) {
    CHECK_THROWS_AS(costs.check(), config_error);
    CHECK_THROWS_WITH(costs.check(), ContainsSubstring(text));
  };
  refused({.of_node = 0}, "no ranks");
  refused({.nodes = 0}, "no ranks");
  refused({.of_node = 1 << 11, .nodes = 1 << 10}, "more than 2^20 ranks");
  refused({.of_node = 2}, "peer_bytes_per_second");
  refused({.nodes = 2, .peer_bytes_per_second = 1}, "network_bytes_per_second");
  refused({.of_node = 2, .peer_bytes_per_second = std::numeric_limits<double>::infinity()}, "peer_bytes_per_second");
  refused({.of_node = 2, .peer_bytes_per_second = std::numeric_limits<double>::quiet_NaN()}, "peer_bytes_per_second");
}

}  // namespace network_costs_test
