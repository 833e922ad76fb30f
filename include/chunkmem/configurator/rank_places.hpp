// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/placement_search.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/pipeline/interruption.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The most groups of ranks for which every order is tried.
inline constexpr std::uint32_t all_tried = 5;

/// The ways to place the ranks of a plan. Ranks that share layers are a group, on consecutive devices.
///
///     const group_places places{whole, plan, parts_of(shape, plan)};
///     for (const std::vector<std::uint32_t>& devices : places.promising({.trials = 20'000})) {
///       plan.devices = devices;
///       seconds = std::min(seconds, latency.of(plan).step);
///     }
class group_places {
 public:
  using devices_type = std::vector<std::uint32_t>;

  /// @param whole   outlives this   @param parts   of the plan
  /// @param plan    its devices are placed, in any order; without devices the first ones of the cluster are
  group_places(const cluster& whole, const parallel_plan& plan, const std::vector<model_part>& parts)
      : whole_{whole},
        node_of_{whole.nodes_of_ranks()},
        devices_{plan.devices.empty() ? identity_placement(plan.ranks()) : plan.devices},
        tensor_{plan.tensor},
        transfers_{.stages = plan.stages,
                   .replicas = plan.replicas,
                   .boundary = parts.front().boundary,
                   .round_trips = static_cast<double>(plan.micro_batches) / plan.stages},
        links_{groups()}
  {
    std::ranges::sort(devices_);
    std::uint64_t parameters = 0;
    for (const model_part& it : parts) parameters = std::max(parameters, it.parameters);
    transfers_.gradients = bytes{2 * plan.parts * parameters};
    for (std::uint32_t from = 0; from < groups(); ++from)
      for (std::uint32_t to = 0; to < groups(); ++to)
        if (from != to) links_(from, to) = slowest_link(from, to);
  }

  /// The ways that are worth a simulation. For few groups, every order. Else three: stages of a pipeline near to each
  /// other, replicas of a stage near to each other, and the best one of `place_ranks`. Where speeds differ, two more
  /// have groups of similar speed in one pipeline, and in one stage. Equal devices with equal links have one order.
  /// Cost: that of place_ranks for as many nodes as there are groups
  [[nodiscard]] std::vector<devices_type> promising(const placement_effort& effort) const
  {
    const rank_placement in_order = identity_placement(groups());
    std::vector<devices_type> all{devices_of(in_order)};
    if (are_equal()) return all;
    if (groups() <= all_tried) {
      rank_placement order = in_order;
      while (std::ranges::next_permutation(order).found) all.push_back(devices_of(order));
      return all;
    }
    const rank_placement fast_first = by_speed(in_order);
    placement_effort best_alone = effort;
    best_alone.finds_worst = false;
    for (const rank_placement& it : {replicas_near(in_order), place_ranks(links_, transfers_, best_alone).best.places,
                                     fast_first, replicas_near(fast_first)})
      if (devices_type devices = devices_of(it); std::ranges::find(all, devices) == all.end())
        all.push_back(std::move(devices));
    return all;
  }
  /// The way that `place_ranks` finds with the slowest links. Speeds of devices do not count.
  [[nodiscard]] devices_type worst(const placement_effort& effort) const
  {
    return devices_of(place_ranks(links_, transfers_, effort).worst.places);
  }

 private:
  [[nodiscard]] std::uint32_t groups() const noexcept { return transfers_.stages * transfers_.replicas; }
  [[nodiscard]] std::uint32_t node(std::uint32_t group, std::uint32_t member) const
  {
    return node_of_[devices_[group * tensor_ + member]];
  }
  [[nodiscard]] devices_type devices_of(const rank_placement& group_of) const
  {
    devices_type devices;
    for (std::uint32_t rank = 0; rank < groups(); ++rank)
      for (std::uint32_t member = 0; member < tensor_; ++member)
        devices.push_back(devices_[group_of[rank] * tensor_ + member]);
    return devices;
  }
  /// Makes consecutive groups replicas of a stage.
  [[nodiscard]] rank_placement replicas_near(const rank_placement& groups_in_order) const
  {
    rank_placement order(groups());
    for (std::uint32_t rank = 0; rank < groups(); ++rank)
      order[rank] = groups_in_order[rank % transfers_.stages * transfers_.replicas + rank / transfers_.stages];
    return order;
  }
  /// Sorts groups, the fastest first. A group is as fast as its slowest device.
  [[nodiscard]] rank_placement by_speed(rank_placement order) const
  {
    const auto flops = [&](std::uint32_t group) {
      double slowest = whole_.nodes[node(group, 0)].device_flops_per_second;
      for (std::uint32_t member = 1; member < tensor_; ++member)
        slowest = std::min(slowest, whole_.nodes[node(group, member)].device_flops_per_second);
      return slowest;
    };
    std::ranges::stable_sort(order, std::greater{}, flops);
    return order;
  }
  /// A transfer between two groups takes the slowest of the links between their members.
  [[nodiscard]] pair_link slowest_link(std::uint32_t from, std::uint32_t to) const
  {
    pair_link slowest = whole_.link(node(from, 0), node(to, 0));
    for (std::uint32_t member = 1; member < tensor_; ++member) {
      const pair_link& it = whole_.link(node(from, member), node(to, member));
      slowest.latency = std::max(slowest.latency, it.latency);
      slowest.bytes_per_second = std::min(slowest.bytes_per_second, it.bytes_per_second);
    }
    return slowest;
  }
  [[nodiscard]] bool are_equal() const
  {
    for (std::uint32_t from = 0; from < groups(); ++from) {
      for (std::uint32_t member = 0; member < tensor_; ++member)
        if (whole_.nodes[node(from, member)] != whole_.nodes[node(0, 0)]) return false;
      for (std::uint32_t to = 0; to < groups(); ++to)
        if (from != to && (links_(from, to).latency != links_(0, 1).latency ||
                           links_(from, to).bytes_per_second != links_(0, 1).bytes_per_second))
          return false;
    }
    return true;
  }

  const cluster& whole_;
  std::vector<std::uint32_t> node_of_;
  devices_type devices_;  // that are placed, in the order of their numbers
  std::uint32_t tensor_;
  placed_transfers transfers_;
  link_matrix links_;
};

/// Exchanges the places of two groups of ranks that share layers, as long as `cost(plan)` falls.
///
///     const double seconds = improve_places(plan, 1'000, [&](const auto& it) { return latency.of(it).step; });
///
/// @param most   calls of `cost`
/// @return   the cost of `plan`, with its new devices
/// Cost: `most` calls of `cost`
template <class Cost>
[[nodiscard]] double improve_places(parallel_plan& plan, std::uint32_t most, Cost cost)
{
  const std::uint32_t groups = plan.stages * plan.replicas;
  const auto exchange = [&](std::uint32_t one, std::uint32_t other) {
    for (std::uint32_t member = 0; member < plan.tensor; ++member)
      std::swap(plan.devices[one * plan.tensor + member], plan.devices[other * plan.tensor + member]);
  };
  double best = cost(plan);
  std::uint32_t one = 0, other = 0;
  for (std::uint32_t since = 0, tried = 1; since < groups * (groups - 1) / 2 && tried < most; ++since, ++tried) {
    if (++other >= groups) other = ++one + 1;
    if (other >= groups) one = 0, other = 1;
    exchange(one, other);
    const double next = cost(plan);
    if (next < best) {
      best = next;
      since = 0;
    } else {
      exchange(one, other);
    }
  }
  return best;
}

/// The seconds of the slowest places that a search by `seconds(plan)` finds. For few groups, every order is tried.
///
///     const double worst = slowest_places(places, plan, 200, [&](const auto& it) { return latency.of(it).step; });
///
/// No place that `promising` names is slower, nor are the places of `plan`. @param places   of the plan
/// @param most   simulations of the exchange
/// @param stop   ends the search with the slowest so far; `seconds` may look at it too, and throw
/// @throws pipeline::interrupted   before `plan` was simulated
/// Cost: that of `promising`, `worst` and improve_places
template <class Seconds>
[[nodiscard]] double slowest_places(const group_places& places, parallel_plan plan, std::uint32_t most, Seconds seconds,
                                    const pipeline::interruption& stop = {})
{
  stop.look();
  parallel_plan slowest = plan;
  double longest = seconds(plan);
  const auto cost = [&](const parallel_plan& it) {
    stop.look();
    const double of_these = seconds(it);
    if (of_these > longest) {
      longest = of_these;
      slowest = it;
    }
    return -of_these;
  };
  try {
    placement_effort effort{.trials = 24'000, .exact_nodes = 6};
    effort.stop = stop;
    std::vector<group_places::devices_type> tried = places.promising(effort);
    tried.push_back(places.worst(effort));
    for (group_places::devices_type& devices : tried) {
      plan.devices = std::move(devices);
      (void)cost(plan);
    }
    plan = slowest;
    if (plan.stages * plan.replicas > all_tried) (void)improve_places(plan, most, cost);
  } catch (const pipeline::interrupted&) {  // the slowest so far
  }
  return longest;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
