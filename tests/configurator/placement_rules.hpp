// SPDX-License-Identifier: Apache-2.0
// The cost of a placement, computed a second time, and rules by which people place ranks.
#pragma once

#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/placement_cost.hpp>

#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace placement_test {

using namespace chunkmem;
using namespace chunkmem::configurator;

/// Rates within a factor of `spread`, and latencies of 1 to 20 microseconds. No two directions are alike.
inline link_matrix random_links(std::uint32_t nodes, double spread, support::dice& dice)
{
  link_matrix links{nodes};
  for (std::uint32_t from = 0; from < nodes; ++from)
    for (std::uint32_t to = 0; to < nodes; ++to) {
      const double share = dice.below(1'000'001) / 1e6;
      links(from, to) = {.latency = 1e-6 * dice.between(1, 20), .bytes_per_second = 1e9 * (1 + share * (spread - 1))};
    }
  return links;
}

/// Racks of four nodes: links are ten times as fast within a rack. The racks' nodes are shuffled.
inline link_matrix racks(std::uint32_t nodes, support::dice& dice)
{
  rank_placement order = identity_placement(nodes);
  for (std::uint32_t left = nodes; left > 1; --left) std::swap(order[left - 1], order[dice.below(left)]);
  link_matrix links = random_links(nodes, 1.2, dice);
  for (std::uint32_t from = 0; from < nodes; ++from)
    for (std::uint32_t to = 0; to < nodes; ++to)
      if (from / 4 == to / 4) links(order[from], order[to]).bytes_per_second *= 10;
  return links;
}

/// The seconds of a placement, computed only from the links.
inline double seconds_of(const link_matrix& links, const placed_transfers& plan, const rank_placement& places)
{
  const auto time = [&](std::uint32_t from, std::uint32_t to, double size) {
    return links(from, to).latency + size / links(from, to).bytes_per_second;
  };
  const auto at = [&](std::uint32_t replica, std::uint32_t stage) { return places[replica * plan.stages + stage]; };
  double slowest_trip = 0;
  for (std::uint32_t replica = 0; replica < plan.replicas; ++replica) {
    double trip = 0;
    for (std::uint32_t stage = 1; stage < plan.stages; ++stage) {
      trip += time(at(replica, stage - 1), at(replica, stage), static_cast<double>(plan.boundary.count()));
      trip += time(at(replica, stage), at(replica, stage - 1), static_cast<double>(plan.boundary.count()));
    }
    slowest_trip = std::max(slowest_trip, trip);
  }
  double slowest_ring = 0;
  for (std::uint32_t stage = 0; stage < plan.stages; ++stage)
    for (std::uint32_t replica = 0; replica < plan.replicas; ++replica) {
      if (plan.replicas == 1) continue;
      const double piece = static_cast<double>(plan.gradients.count()) / plan.replicas;
      const double step = time(at(replica, stage), at((replica + 1) % plan.replicas, stage), piece);
      slowest_ring = std::max(slowest_ring, 2.0 * (plan.replicas - 1) * step);
    }
  return plan.round_trips * slowest_trip + slowest_ring;
}

/// Each rank takes the node with the fastest round trip to the stage before it, or to the same stage of the replica
/// before.
inline rank_placement greedy_rule(const link_matrix& links, const placed_transfers& plan)
{
  const std::uint32_t nodes = links.nodes();
  std::vector<bool> is_taken(nodes, false);
  rank_placement places;
  const auto size = static_cast<double>(plan.boundary.count());
  for (std::uint32_t rank = 0; rank < nodes; ++rank) {
    const std::uint32_t before = rank % plan.stages > 0 ? 1 : plan.stages;
    std::uint32_t chosen = nodes;
    double least = 0;
    for (std::uint32_t node = 0; node < nodes; ++node) {
      if (is_taken[node]) continue;
      const double trip = rank < before ? 0
                                        : links(places[rank - before], node).seconds(size) +
                                              links(node, places[rank - before]).seconds(size);
      if (chosen == nodes || trip < least) chosen = node, least = trip;
    }
    is_taken[chosen] = true;
    places.push_back(chosen);
  }
  return places;
}

/// Halves the nodes again and again, so that each half has fast links: the node with the slowest links to the first one
/// begins the other half, and each node joins the one it is nearer to, until that is full.
inline rank_placement bisection_rule(const link_matrix& links, rank_placement nodes)
{
  if (nodes.size() <= 2) return nodes;
  const auto distance = [&](std::uint32_t left, std::uint32_t right) {
    return 1 / links(left, right).bytes_per_second + 1 / links(right, left).bytes_per_second;
  };
  const std::uint32_t first = nodes.front();
  const std::uint32_t second =
      *std::ranges::max_element(nodes, {}, [&](std::uint32_t it) { return it == first ? 0 : distance(first, it); });
  std::ranges::stable_sort(nodes, {}, [&](std::uint32_t it) {
    if (it == first || it == second) return it == first ? -1e300 : 1e300;
    return distance(first, it) - distance(second, it);
  });
  const auto middle = nodes.begin() + static_cast<std::ptrdiff_t>(nodes.size() / 2);
  rank_placement left = bisection_rule(links, {nodes.begin(), middle});
  const rank_placement right = bisection_rule(links, {middle, nodes.end()});
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

}  // namespace placement_test
