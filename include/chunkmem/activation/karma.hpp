// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/core/splitmix64.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// Limits of the search of `karma`. The same numbers give the same plan on every machine.
///
///     const activation_plan plan = karma{{.rounds = 1, .moves = 500}}.plan(chain, budget);
struct karma_effort {
  std::uint32_t rounds = 4;     ///< of simulated annealing
  std::uint32_t moves = 3'000;  ///< in one round
  std::uint32_t last = 3'000;   ///< changes of the best guess at the end, or all of one block where those are more
};

namespace detail {

/// Searches for the best actions of a chain's blocks. Each guess runs on virtual clocks.
class action_search {
 public:
  /// @throws size_overflow   the blocks save more bytes than 64 bits count: `check` of a budget refuses such a chain
  action_search(std::string_view planner, const layer_chain& chain, const activation_budget& budget)
      : chain_{chain}, timeline_{chain, budget}, blocks_{chain.size()}, best_(blocks_, block_action::keep)
  {
    guess_.planner = planner;
    best_costs_ = costs_of(best_);
  }

  [[nodiscard]] const std::vector<block_action>& best() const noexcept { return best_; }

  /// Tries prefixes of one period: a swapped block, then some recomputed blocks; or all blocks recomputed; from inputs
  /// on the device, or on the host. Some lengths of a long chain are left out.
  void try_periods()
  {
    const std::uint32_t stride = 1 + blocks_ / most_lengths;
    std::vector<block_action> actions;
    for (const block_action again : {block_action::recompute, block_action::recompute_from_host})
      for (std::uint32_t period = 0; period <= most_period; ++period) {
        actions.assign(blocks_, block_action::keep);
        for (std::uint32_t block = 0; block + 1 < blocks_; ++block) {
          actions[block] = period > 0 && block % period == 0 ? block_action::swap : again;
          if (block % stride == 0 || block + 2 == blocks_) attempt(actions);
        }
      }
  }

  /// Simulated annealing (Kirkpatrick et al. 1983) from the best guess so far, or from any guess: worse guesses are
  /// accepted with a probability that falls to 0.
  void anneal(std::uint32_t moves, bool from_best)
  {
    if (blocks_ < 2) return;
    std::vector<block_action> now = best_;
    if (!from_best)
      for (std::uint32_t block = 0; block + 1 < blocks_; ++block)
        now[block] = actions_of_a_block[numbers_.next() % block_action_count];
    double now_score = searched_seconds(chain_, attempt(now));
    std::vector<block_action> next;
    for (std::uint32_t move = 0; move < moves; ++move) {
      const double heat =
          first_heat * chain_.unlimited_seconds() * std::pow(last_heat / first_heat, double(move) / moves);
      next = now;
      change(next);
      const double score = searched_seconds(chain_, attempt(next));
      if (score > now_score && unit() >= std::exp((now_score - score) / heat)) continue;
      now.swap(next);
      now_score = score;
    }
  }

  /// Tries changes of one block, and of two, neighbours or not, until none is better or `most` were tried.
  void descend(std::uint32_t most)
  {
    std::uint32_t tried = 0;
    bool found = true;
    while (std::exchange(found, false) && tried < most)
      for (std::uint32_t distance = 0; distance < blocks_ - 1; ++distance)
        for (std::uint32_t block = 0; block + distance < blocks_ - 1; ++block)
          if (distance == 0 || tried < most) {
            constexpr std::uint32_t count = block_action_count;
            tried += distance == 0 ? count : count * count;
            found |= change_at(block, block + distance);
          }
  }

 private:
  static constexpr std::uint32_t most_period = 6;
  static constexpr std::uint32_t most_lengths = 64;
  static constexpr std::uint32_t most_remembered = 11;  // blocks: 4^10 guesses
  static constexpr double first_heat = 0.02;            // of a step with enough memory
  static constexpr double last_heat = 0.0001;
  static constexpr block_action actions_of_a_block[] = {block_action::keep, block_action::swap, block_action::recompute,
                                                        block_action::recompute_from_host};

  /// Tries every action of two blocks, or of one. @return   whether one of them was better
  [[nodiscard]] bool change_at(std::uint32_t first, std::uint32_t second)
  {
    bool found = false;
    for (const block_action left : actions_of_a_block)
      for (const block_action right : actions_of_a_block) {
        if (first == second && left != right) continue;
        near_ = best_;
        near_[first] = left;
        near_[second] = right;
        if (near_ == best_) continue;
        attempt(near_);
        found |= near_ == best_;
      }
    return found;
  }

  /// A short chain has few guesses, and the search comes back to them: their costs are remembered.
  [[nodiscard]] plan_costs costs_of(const std::vector<block_action>& actions)
  {
    const auto run = [&] {
      set_actions(guess_, actions);
      return timeline_.run(guess_);
    };
    if (blocks_ > most_remembered) return run();
    std::size_t number = 0;
    for (std::uint32_t block = 0; block + 1 < blocks_; ++block)  // the last one is kept in every guess
      number = number * block_action_count + static_cast<std::size_t>(actions[block]);
    if (place_of_guess_.size() <= number) place_of_guess_.resize(number + 1, UINT32_MAX);
    if (place_of_guess_[number] == UINT32_MAX) {
      place_of_guess_[number] = static_cast<std::uint32_t>(remembered_.size());
      remembered_.push_back(run());
    }
    return remembered_[place_of_guess_[number]];
  }
  plan_costs attempt(const std::vector<block_action>& actions)
  {
    const plan_costs costs = costs_of(actions);
    if (!is_better(costs, best_costs_)) return costs;
    best_ = actions;
    best_costs_ = costs;
    return costs;
  }
  /// Another action for one block or two, or two neighbours exchanged. The last block stays.
  void change(std::vector<block_action>& actions)
  {
    const auto any = [&] { return static_cast<std::size_t>(numbers_.next() % (blocks_ - 1)); };
    const auto turn = [&](std::size_t block) {
      const std::size_t action =
          static_cast<std::size_t>(actions[block]) + 1 + numbers_.next() % (block_action_count - 1);
      actions[block] = static_cast<block_action>(action % block_action_count);
    };
    const std::size_t block = any();
    switch (numbers_.next() % 4) {
      case 0: std::swap(actions[block], actions[any()]); break;
      case 1: turn(any()); [[fallthrough]];
      default: turn(block);
    }
  }

  [[nodiscard]] double unit() noexcept { return static_cast<double>(numbers_.next() >> 11) * 0x1p-53; }

  const layer_chain& chain_;
  chain_timeline timeline_;
  std::uint32_t blocks_;
  activation_plan guess_;
  std::vector<std::uint32_t> place_of_guess_;  // in the costs that are remembered, by the number of a guess
  std::vector<plan_costs> remembered_;
  std::vector<block_action> best_;
  std::vector<block_action> near_;  // a guess that differs from the best one in two blocks
  plan_costs best_costs_;
  splitmix64 numbers_;
};

}  // namespace detail

/// Merges blocks, then keeps, swaps or recomputes each merged block: swaps fill the links, runs fill the rest.
///
///     const activation_plan plan = karma{}.plan(chain, budget);
///
/// A chain of more than `most_unmerged` blocks is tried with several numbers of merged blocks, and as it is. Each
/// search starts from prefixes with a period; then come simulated annealing and descent. The plans of swap_all,
/// capacity_prefix and recompute_all are tried too, with the same merges. The last block is always kept. Good for
/// chains of some 5 to 300 blocks with a link of any speed. Poor where a recomputed block would need a checkpoint
/// inside: see rotor and pofo. Source: the two remedies of KARMA (Wahib et al. 2020, arXiv 2008.11421), in a
/// formulation of our own. Cost: some 10^4 plans on virtual clocks, 0.9 s for 200 blocks; no plan of at most 11 blocks
/// runs twice.
class karma {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "karma";
  static constexpr std::uint32_t most_unmerged = 7;  ///< a chain of at most this many blocks is not merged

  karma() = default;
  explicit karma(const karma_effort& effort) : effort_{effort} {}

  /// @throws config_error   the chain or the budget is invalid
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    budget.check(chain);
    if (chain.size() <= most_unmerged) return search(chain, budget, effort_);
    const std::vector<std::uint32_t> counts = block_counts(chain);
    activation_plan best = best_blocking(chain, budget, counts, [&](const layer_chain& coarse) {
      return search(coarse, budget, shared_effort(coarse.size()));
    });
    const auto consider = [&](const auto& other) {
      activation_plan tried = plan_blocked(other, chain, budget);
      if (is_better(tried.costs, best.costs)) best = std::move(tried);
    };
    consider(swap_all{});
    consider(capacity_prefix{});
    consider(recompute_all{});
    best.planner = name;
    return best;
  }

 private:
  /// Long chains get fewer guesses, since each costs more.
  [[nodiscard]] karma_effort shared_effort(std::uint32_t blocks) const
  {
    const double part = std::min(1.0, 17.0 / blocks);
    const auto of = [&](std::uint32_t count) { return static_cast<std::uint32_t>(count * part); };
    return {1, of(effort_.rounds * effort_.moves), of(effort_.last)};
  }
  [[nodiscard]] static activation_plan search(const layer_chain& chain, const activation_budget& budget,
                                              const karma_effort& effort)
  {
    detail::action_search found{name, chain, budget};
    found.try_periods();
    for (std::uint32_t round = 0; round < effort.rounds; ++round) found.anneal(effort.moves, round == 0);
    found.descend(effort.last);
    return plan_of(name, chain, budget, found.best());
  }

  karma_effort effort_;
};

static_assert(activation_planner<karma>);

}  // namespace activation

}  // namespace chunkmem::inline v0
