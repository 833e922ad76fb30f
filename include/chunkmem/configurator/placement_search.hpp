// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/placement_cost.hpp>
#include <chunkmem/core/splitmix64.hpp>
#include <chunkmem/pipeline/interruption.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

namespace configurator {

/// A placement, and the seconds that links take under it in a batch.
///
///     const double seconds = place_ranks(links, plan).best.seconds;
struct timed_placement {
  rank_placement places{};
  double seconds = 0;
};

/// The result of a search: placements of one problem.
///
///     std::cout << found.identity.seconds / found.best.seconds << " times faster than without a search";
struct found_placements {
  timed_placement best{};
  timed_placement identity{};
  timed_placement worst{};
  bool is_exact = false;  ///< every placement was tried
};

/// The effort of a search.
///
///     const placement_effort quick{.trials = 10'000};
struct placement_effort {
  std::uint32_t trials = 400'000;  ///< changes that annealing tries, for the best and for the worst placement
  std::uint32_t exact_nodes = 8;   ///< clusters of at most as many nodes have every placement tried
  bool finds_worst = true;         ///< else `worst` is the identity
  pipeline::interruption stop{};   ///< ends the search
};

/// Finds the node of each rank of a pipeline with replicas, on links that differ.
///
/// Small clusters: every placement. Others: simulated annealing from the identity, from a placement in which each rank
/// is near to those before it, and from random ones. A change swaps two ranks, two replicas or two stages, or reverses
/// some stages of a replica. The best placement is never slower than the identity.
///
///     const found_placements found = place_ranks(links, {.stages = 4, .replicas = 16, .boundary = 8_MiB});
///     const std::uint32_t node = found.best.places[replica * 4 + stage];
///
/// @throws config_error   as placement_cost   @throws pipeline::interrupted   the caller stops it
/// Cost: O(nodes! (stages + replicas)) for at most `exact_nodes`; else O(trials (stages + replicas)), and O(stages
/// replicas) for one trial in ten
/// Source: worker dedication of Pipette (Yim et al. 2024, arXiv 2405.18093).
[[nodiscard]] found_placements place_ranks(const link_matrix& links, const placed_transfers& plan,
                                           const placement_effort& effort = {});

namespace detail {

/// Searches the placement with the least (sign 1) or the most (sign -1) seconds.
class placement_annealing {
 public:
  /// @param links, effort   outlive this
  placement_annealing(const link_matrix& links, const placed_transfers& plan, double sign,
                      const placement_effort& effort)
      : links_{links}, plan_{plan}, sign_{sign}, effort_{effort}
  {
  }

  [[nodiscard]] timed_placement run()
  {
    splitmix64 dice;
    rank_placement start = identity_placement(links_.nodes());
    best_ = {start, placement_cost{links_, plan_, start}.seconds()};
    const std::uint32_t trials = effort_.trials / 6;
    anneal(start, {.trials = trials}, dice);
    if (sign_ > 0) anneal(nearest(), {.trials = trials}, dice);
    // Cold runs with the mean find orders of many ranks, hot runs without it find the best of few.
    for (const heat_of_run& heat : {heat_of_run{trials, 0.003, 2}, {trials, 0.02, 0.5}, {trials, 0.1, 0.05}}) {
      for (std::uint32_t left = links_.nodes(); left > 1; --left) std::swap(start[left - 1], start[dice.next() % left]);
      anneal(start, heat, dice);
    }
    anneal(best_.places, {.trials = trials, .weight_of_mean = 0.05}, dice);
    return best_;
  }

 private:
  struct heat_of_run {
    std::uint32_t trials = 0;
    double hottest = 0.001;     // of the first cost
    double weight_of_mean = 2;  // the seconds alone are a maximum, which most changes leave as it is
  };
  enum class kind : std::uint8_t { ranks, replicas, stages, segment };
  /// A change of two ranks, replicas or stages, or of the stages from the first to the second in a replica.
  struct change {
    kind what = kind::ranks;
    std::uint32_t first = 0;
    std::uint32_t second = 0;
    std::uint32_t replica = 0;
  };

  void consider(const placement_cost& it)
  {
    if (sign_ * it.seconds() < sign_ * best_.seconds) best_ = {it.places(), it.seconds()};
  }
  /// The best of three: near in its pipeline and its ring, in its pipeline alone, and in its ring alone.
  [[nodiscard]] rank_placement nearest() const
  {
    timed_placement found{};
    for (const auto& [of_pipeline, of_ring] : {std::pair{1.0, 1.0}, {1.0, 0.0}, {0.0, 1.0}}) {
      rank_placement places = nearest(of_pipeline * plan_.round_trips, of_ring * 2 * (plan_.replicas - 1));
      const double seconds = placement_cost{links_, plan_, places}.seconds();
      if (found.places.empty() || seconds < found.seconds) found = {std::move(places), seconds};
    }
    return found.places;
  }
  /// Each rank takes the free node with the least seconds to the ranks before it.
  [[nodiscard]] rank_placement nearest(double round_trips, double ring_steps) const
  {
    rank_placement places;
    rank_placement free = identity_placement(links_.nodes());
    const auto boundary = static_cast<double>(plan_.boundary.count());
    const double piece = static_cast<double>(plan_.gradients.count()) / plan_.replicas;
    for (std::uint32_t rank = 0; rank < plan_.stages * plan_.replicas; ++rank) {
      effort_.stop.look();
      const auto seconds_to = [&](std::uint32_t node) {
        double seconds = 0;
        if (rank % plan_.stages > 0)
          seconds += round_trips * (links_(places[rank - 1], node).seconds(boundary) +
                                    links_(node, places[rank - 1]).seconds(boundary));
        if (rank >= plan_.stages) seconds += ring_steps * links_(places[rank - plan_.stages], node).seconds(piece);
        return seconds;
      };
      const auto chosen = std::ranges::min_element(free, {}, seconds_to);
      places.push_back(*chosen);
      free.erase(chosen);
    }
    places.insert(places.end(), free.begin(), free.end());
    return places;
  }
  void anneal(const rank_placement& start, const heat_of_run& how, splitmix64& dice)
  {
    placement_cost now{links_, plan_, start};
    consider(now);
    const auto cost_now = [&] { return sign_ * (now.seconds() + how.weight_of_mean * now.mean_seconds()); };
    double cost = cost_now();
    const double hottest = how.hottest * std::abs(cost);
    for (std::uint32_t trial = 0; trial < how.trials; ++trial) {
      if (trial % 256 == 0) effort_.stop.look();
      const double heat = hottest * (1 - static_cast<double>(trial) / how.trials);
      const change it = draw(dice);
      const double chance = static_cast<double>(dice.next() >> 11U) * 0x1p-53;
      if (it.first == it.second) continue;
      apply(now, it);
      const double next = cost_now();
      if (next <= cost || (heat > 0 && chance < std::exp((cost - next) / heat))) {
        cost = next;
        consider(now);
      } else {
        apply(now, it);  // back
      }
    }
  }
  [[nodiscard]] change draw(splitmix64& dice) const
  {
    const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(dice.next() % end); };
    const std::uint32_t which = below(20);
    if (which == 0) return {kind::replicas, below(plan_.replicas), below(plan_.replicas)};
    if (which == 1) return {kind::stages, below(plan_.stages), below(plan_.stages)};
    if (which < 6) {
      const auto [first, second] = std::minmax({below(plan_.stages), below(plan_.stages)});
      return {kind::segment, first, second, below(plan_.replicas)};
    }
    return {kind::ranks, below(plan_.stages * plan_.replicas), below(links_.nodes())};
  }
  /// A change that is made twice leaves everything as it was.
  static void apply(placement_cost& to, const change& it)
  {
    switch (it.what) {
      case kind::ranks: return to.swap(it.first, it.second);
      case kind::replicas: return to.swap_replicas(it.first, it.second);
      case kind::stages: return to.swap_stages(it.first, it.second);
      case kind::segment: return to.reverse(it.replica, it.first, it.second);
    }
  }

  const link_matrix& links_;
  placed_transfers plan_;
  double sign_;
  const placement_effort& effort_;
  timed_placement best_{};
};

/// Every placement, by Heap's order of swaps (1963).
inline void try_all(placement_cost& cost, found_placements& found)
{
  const auto nodes = static_cast<std::uint32_t>(cost.places().size());
  rank_placement counts(nodes, 0);
  for (std::uint32_t index = 0; index < nodes;) {
    if (counts[index] == index) {
      counts[index++] = 0;
      continue;
    }
    cost.swap(index % 2 == 0 ? 0 : counts[index], index);
    ++counts[index];
    index = 0;
    if (cost.seconds() < found.best.seconds) found.best = {cost.places(), cost.seconds()};
    if (cost.seconds() > found.worst.seconds) found.worst = {cost.places(), cost.seconds()};
  }
}

}  // namespace detail

inline found_placements place_ranks(const link_matrix& links, const placed_transfers& plan,
                                    const placement_effort& effort)
{
  placement_cost cost{links, plan, identity_placement(links.nodes())};
  const timed_placement identity{cost.places(), cost.seconds()};
  found_placements found{identity, identity, identity, links.nodes() <= effort.exact_nodes};
  if (found.is_exact) {
    detail::try_all(cost, found);
  } else {
    found.best = detail::placement_annealing{links, plan, 1, effort}.run();
    if (effort.finds_worst) found.worst = detail::placement_annealing{links, plan, -1, effort}.run();
  }
  return found;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
