// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The transfers of a batch that depend on the place of each rank.
///
///     const placed_transfers plan{.stages = 4, .replicas = 2, .boundary = 8_MiB, .gradients = 1_GiB};
struct placed_transfers {
  std::uint32_t stages = 1;
  std::uint32_t replicas = 1;
  bytes boundary{};        ///< from a stage to the next one, and back as a gradient, for each micro-batch
  double round_trips = 1;  ///< of a batch that wait for links: m / d for 1F1B, 1 where transfers are hidden
  bytes gradients{};       ///< of a stage, summed over its replicas once in a batch
};

/// A node for each rank: element replica * stages + stage. Nodes after the last rank have no work.
using rank_placement = std::vector<std::uint32_t>;

/// The placement of each rank on the node of its number.
///
///     const rank_placement places = identity_placement(4);  // 0, 1, 2, 3
///
/// Cost: O(nodes)
[[nodiscard]] inline rank_placement identity_placement(std::uint32_t nodes)
{
  rank_placement all(nodes);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

/// The seconds that links take in a batch under a placement, and under its neighbours.
///
/// A pipeline takes a round trip: each of its links once in each direction. A stage sums gradients in a ring of its
/// replicas, in their order: 2 (w - 1) steps, each as slow as the slowest link of the ring. The batch pays for the
/// slowest pipeline, `round_trips` times, and for the slowest ring. After a change only the pipelines and rings that it
/// touches are computed again.
///
///     placement_cost cost{links, plan, identity_placement(links.nodes())};
///     const double before = cost.seconds();
///     cost.swap(0, 5);                                  // nodes of two ranks
///     if (cost.seconds() > before) cost.swap(0, 5);     // back
///
/// Cost: O(stages + replicas) for a swap of two ranks.
/// Source: the objective of Pipette (Yim et al. 2024, arXiv 2405.18093), with latencies, both directions, and the rings
/// of all stages.
class placement_cost {
 public:
  /// @param links   outlives this   @param places   each node once
  /// @throws config_error   no stage, no replica, more ranks than nodes, a negative number of round trips, or a
  ///   placement that does not name each node once
  placement_cost(const link_matrix& links, const placed_transfers& plan, rank_placement places)
      : links_{links}, plan_{plan}, places_{std::move(places)}
  {
    links.check();
    if (plan.stages == 0 || plan.replicas == 0 ||
        std::uint64_t{plan.stages} * plan.replicas > std::uint64_t{links.nodes()})
      throw config_error{error_text{} << "chunkmem: " << plan.stages << " stages and " << plan.replicas
                                      << " replicas do not fit " << links.nodes()
                                      << " nodes (give one or more of each, and a node for each rank)"};
    if (!(plan.round_trips >= 0 && plan.round_trips <= std::numeric_limits<double>::max()))
      throw config_error{"round trips of a batch are negative, or no finite number"};
    rank_placement sorted = places_;
    std::ranges::sort(sorted);
    if (sorted != identity_placement(links.nodes()))
      throw config_error{"a rank_placement does not name each node once (start with identity_placement)"};
    pipelines_.resize(plan.replicas);
    rings_.resize(plan.stages);
    for (std::uint32_t replica = 0; replica < plan.replicas; ++replica) renew_pipeline(replica);
    for (std::uint32_t stage = 0; stage < plan.stages; ++stage) renew_ring(stage);
  }

  /// The seconds of a batch.
  [[nodiscard]] double seconds() const
  {
    return plan_.round_trips * std::ranges::max(pipelines_) + std::ranges::max(rings_);
  }
  /// The same for the mean pipeline and the mean ring: compares placements with equal seconds().
  [[nodiscard]] double mean_seconds() const
  {
    const auto mean = [](const std::vector<double>& of) {
      return std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(of.size());
    };
    return plan_.round_trips * mean(pipelines_) + mean(rings_);
  }
  [[nodiscard]] const rank_placement& places() const noexcept { return places_; }
  [[nodiscard]] const placed_transfers& plan() const noexcept { return plan_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return plan_.stages * plan_.replicas; }

  /// Swaps the nodes of two elements of the placement. @pre both are below the number of nodes
  void swap(std::uint32_t left, std::uint32_t right)
  {
    std::swap(places_[left], places_[right]);
    renew(left);
    renew(right);
  }
  /// Reverses the nodes of a replica's ranks from stage `first` to stage `last`.
  /// @pre first <= last, which is below `stages`
  void reverse(std::uint32_t replica, std::uint32_t first, std::uint32_t last)
  {
    const std::uint32_t begin = replica * plan_.stages;
    for (std::uint32_t left = first, right = last; left < right; ++left, --right)
      std::swap(places_[begin + left], places_[begin + right]);
    for (std::uint32_t stage = first; stage <= last; ++stage) renew_ring(stage);
    renew_pipeline(replica);
  }
  /// Swaps the nodes of two replicas. @pre both are below `replicas`
  void swap_replicas(std::uint32_t left, std::uint32_t right)
  {
    for (std::uint32_t stage = 0; stage < plan_.stages; ++stage) {
      std::swap(places_[left * plan_.stages + stage], places_[right * plan_.stages + stage]);
      renew_ring(stage);
    }
    std::swap(pipelines_[left], pipelines_[right]);
  }
  /// Swaps the nodes of two stages, in every replica. @pre both are below `stages`
  void swap_stages(std::uint32_t left, std::uint32_t right)
  {
    for (std::uint32_t replica = 0; replica < plan_.replicas; ++replica) {
      std::swap(places_[replica * plan_.stages + left], places_[replica * plan_.stages + right]);
      renew_pipeline(replica);
    }
    std::swap(rings_[left], rings_[right]);
  }

 private:
  [[nodiscard]] const pair_link& link(std::uint32_t from, std::uint32_t to) const
  {
    return links_(places_[from], places_[to]);
  }
  void renew(std::uint32_t rank)
  {
    if (rank >= ranks()) return;
    renew_pipeline(rank / plan_.stages);
    renew_ring(rank % plan_.stages);
  }
  void renew_pipeline(std::uint32_t replica)
  {
    const auto size = static_cast<double>(plan_.boundary.count());
    double round_trip = 0;
    const std::uint32_t first = replica * plan_.stages;
    for (std::uint32_t rank = first; rank + 1 < first + plan_.stages; ++rank)
      round_trip += link(rank, rank + 1).seconds(size) + link(rank + 1, rank).seconds(size);
    pipelines_[replica] = round_trip;
  }
  void renew_ring(std::uint32_t stage)
  {
    const double replicas = plan_.replicas;
    const double piece = static_cast<double>(plan_.gradients.count()) / replicas;
    double slowest = 0;
    for (std::uint32_t replica = 0; replica < plan_.replicas && plan_.replicas > 1; ++replica) {
      const std::uint32_t next = replica + 1 == plan_.replicas ? 0 : replica + 1;
      slowest = std::max(slowest, link(replica * plan_.stages + stage, next * plan_.stages + stage).seconds(piece));
    }
    rings_[stage] = 2 * (replicas - 1) * slowest;
  }

  const link_matrix& links_;
  placed_transfers plan_;
  rank_placement places_;
  std::vector<double> pipelines_;  // by replica: a round trip
  std::vector<double> rings_;      // by stage
};

}  // namespace configurator

}  // namespace chunkmem::inline v0
