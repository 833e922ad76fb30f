// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/placement_search.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/core/bytes.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// Groups of ranks of which `places_of` gives every order.
inline constexpr std::uint32_t all_tried = 5;

/// The ways to place the ranks of a plan that are worth a simulation.
///
/// Ranks that share layers take devices that follow each other. Few of these groups have every order. Others have
/// three: stages of a pipeline near to each other, replicas of a stage near to each other, and what `place_ranks` finds
/// on links that differ. Equal devices with equal links between all of them have one order.
///
///     for (const std::vector<std::uint32_t>& devices : places_of(whole, plan, parts, {.trials = 20'000}))
///       seconds = std::min(seconds, latency.of(placed(plan, devices)).step);
///
/// @param parts   of the plan   Cost: that of place_ranks for as many nodes as there are groups
[[nodiscard]] inline std::vector<std::vector<std::uint32_t>> places_of(const cluster& whole, const parallel_plan& plan,
                                                                       const std::vector<model_part>& parts,
                                                                       const placement_effort& effort)
{
  const std::uint32_t groups = plan.stages * plan.replicas;
  const std::vector<std::uint32_t> node_of = whole.nodes_of_ranks();
  const auto devices_of = [&](const rank_placement& group_of) {
    std::vector<std::uint32_t> devices;
    for (std::uint32_t rank = 0; rank < groups; ++rank)
      for (std::uint32_t member = 0; member < plan.tensor; ++member)
        devices.push_back(group_of[rank] * plan.tensor + member);
    return devices;
  };
  const rank_placement identity = identity_placement(groups);
  std::vector<std::vector<std::uint32_t>> all{devices_of(identity)};
  const auto node = [&](std::uint32_t group) { return node_of[group * plan.tensor]; };
  link_matrix links{groups};
  bool are_equal = true;
  for (std::uint32_t from = 0; from < groups; ++from)
    for (std::uint32_t to = 0; to < groups; ++to) {
      if (from == to) continue;
      links(from, to) = whole.link(node(from), node(to));
      const pair_link& first = links(0, 1);
      are_equal = are_equal && links(from, to).latency == first.latency &&
                  links(from, to).bytes_per_second == first.bytes_per_second &&
                  whole.nodes[node(from)] == whole.nodes[node(0)];
    }
  if (are_equal) return all;
  if (groups <= all_tried) {
    rank_placement order = identity;
    while (std::ranges::next_permutation(order).found) all.push_back(devices_of(order));
    return all;
  }
  rank_placement by_stage(groups);
  for (std::uint32_t rank = 0; rank < groups; ++rank)
    by_stage[rank] = rank % plan.stages * plan.replicas + rank / plan.stages;
  if (by_stage != identity) all.push_back(devices_of(by_stage));
  std::uint64_t parameters = 0;
  for (const model_part& it : parts) parameters = std::max(parameters, it.parameters);
  const placed_transfers transfers{.stages = plan.stages,
                                   .replicas = plan.replicas,
                                   .boundary = parts.front().boundary,
                                   .round_trips = static_cast<double>(plan.micro_batches) / plan.stages,
                                   .gradients = bytes{2 * plan.parts * parameters}};
  const rank_placement found = place_ranks(links, transfers, effort).best.places;
  if (found != identity && found != by_stage) all.push_back(devices_of(found));
  return all;
}

/// Exchanges the places of two groups of ranks that share layers, as long as the simulated step becomes shorter.
///
///     const double seconds = improve_places(latency, plan, 1'000);
///
/// @param most   simulations   @return   the seconds of a step of `plan`, with its new devices
[[nodiscard]] inline double improve_places(const step_latency& latency, parallel_plan& plan, std::uint32_t most)
{
  const std::uint32_t groups = plan.stages * plan.replicas;
  const auto exchange = [&](std::uint32_t one, std::uint32_t other) {
    for (std::uint32_t member = 0; member < plan.tensor; ++member)
      std::swap(plan.devices[one * plan.tensor + member], plan.devices[other * plan.tensor + member]);
  };
  double best = latency.of(plan).step;
  std::uint32_t one = 0, other = 0;
  for (std::uint32_t since = 0, tried = 0; since < groups * (groups - 1) / 2 && tried < most; ++since, ++tried) {
    if (++other >= groups) other = ++one + 1;
    if (other >= groups) one = 0, other = 1;
    exchange(one, other);
    const double seconds = latency.of(plan).step;
    if (seconds < best) {
      best = seconds;
      since = 0;
    } else {
      exchange(one, other);
    }
  }
  return best;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
