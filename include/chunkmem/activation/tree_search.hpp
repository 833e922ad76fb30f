// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/chain_timeline.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/splitmix64.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// A tree of recomputation: for each block its splits, in descending order.
///
/// A segment of blocks begins with block i. For the first split s of block i, the blocks i to s - 1 pass, then the
/// segment from s on runs both ways, and the segment from i to s - 1 is left, with the next split. Without a split in
/// the segment, block i saves, and the segment from i + 1 on follows. A split beyond its segment is ignored.
///
/// Cost: O(steps) to read and to write.
///
/// Use:
///
///     recompute_tree tree{chain.size()};
///     tree.read(plan.steps);
///     tree.splits(3).assign(1, 4);   // block 3 passes first, and later runs again by itself
///     tree.write(plan.steps);
class recompute_tree {
 public:
  /// Each block saves in its only run.
  explicit recompute_tree(std::uint32_t blocks) : splits_(blocks) {}

  [[nodiscard]] std::vector<std::uint32_t>& splits(std::uint32_t block) noexcept { return splits_[block]; }

  /// @pre the steps are those of a tree, as all planners of the library make them
  void read(const std::vector<chain_step>& steps)
  {
    for (std::vector<std::uint32_t>& each : splits_) each.clear();
    std::vector<std::size_t> passed(splits_.size(), steps.size());  // by block: its last passing run
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const auto [run, block] = steps[step];
      if (run == chain_run::backward) continue;
      // A block that runs again after a backward run has passed before, as the first block of its segment.
      if (passed[block] < step && steps[step - 1].run == chain_run::backward)
        splits_[block].push_back(steps[step - 1].block);
      passed[block] = run == chain_run::passing ? step : steps.size();
    }
  }
  void write(std::vector<chain_step>& steps) const
  {
    steps.clear();
    append(0, static_cast<std::uint32_t>(splits_.size()) - 1, steps);
  }

 private:
  void append(std::uint32_t first, std::uint32_t last, std::vector<chain_step>& steps) const
  {
    for (const std::uint32_t split : splits_[first]) {
      if (split <= first || split > last) continue;
      for (std::uint32_t block = first; block < split; ++block) steps.push_back({chain_run::passing, block});
      append(split, last, steps);
      last = split - 1;
    }
    steps.push_back({chain_run::saving, first});
    if (first < last) append(first + 1, last, steps);
    steps.push_back({chain_run::backward, first});
  }

  std::vector<std::vector<std::uint32_t>> splits_;  // by block
};

/// Improves a plan: other splits, other tensors that leave. Each guess runs on virtual clocks.
///
/// Simulated annealing from the plan, as in `karma`, then each tensor that leaves or stays is tried the other way. The
/// same plan and chain give the same result on every machine. Cost: `moves` plans on virtual clocks, then some for each
/// block.
///
/// Use:
///
///     tree_search search{chain, budget};
///     const activation_plan better = search.improved(plan, 5'000);
class tree_search {
 public:
  /// @param chain, budget   outlive the search, and passed `budget.check(chain)`
  tree_search(const layer_chain& chain, const activation_budget& budget)
      : chain_{chain}, timeline_{chain, budget}, blocks_{chain.size()}
  {
  }

  /// @pre expect_plan_fits(from, chain.size()) does not throw
  /// @return   a plan that is no worse, with the costs of the clocks; `from` where none was better
  [[nodiscard]] activation_plan improved(const activation_plan& from, std::uint32_t moves)
  {
    guess now{recompute_tree{blocks_}, from.inner_leaves, from.input_leaves, from.skips_leave};
    if (!chain_.skips.empty()) now.skips_leave.resize(blocks_, 0);
    now.tree.read(from.steps);
    plan_ = from;
    best_ = now;
    best_costs_ = from.costs;
    const auto is_at_bound = [&] { return best_costs_.fits && best_costs_.seconds <= from.costs.bound_seconds; };
    bool found = false;
    double now_score = searched_seconds(chain_, costs_of(now));
    guess next = now;
    for (std::uint32_t move = 0; move < moves && !is_at_bound(); ++move) {
      const double heat =
          first_heat * chain_.unlimited_seconds() * std::pow(last_heat / first_heat, double(move) / moves);
      next = now;
      do change(next);
      while (numbers_.next() % 3 == 0);
      found |= attempt(next);
      const double score = searched_seconds(chain_, costs_);
      if (score > now_score && unit() >= std::exp((now_score - score) / heat)) continue;
      std::swap(now, next);
      now_score = score;
    }
    while (!is_at_bound() && turn_each()) found = true;
    if (!found) return from;
    best_.tree.write(plan_.steps);
    plan_.inner_leaves = best_.inner_leaves;
    plan_.input_leaves = best_.input_leaves;
    plan_.skips_leave = best_.skips_leave;
    plan_.costs = best_costs_;
    plan_.costs.bound_seconds = from.costs.bound_seconds;
    return plan_;
  }

 private:
  struct guess {
    recompute_tree tree;
    std::vector<std::uint8_t> inner_leaves;
    std::vector<std::uint8_t> input_leaves;
    std::vector<std::uint8_t> skips_leave;
  };
  static constexpr double first_heat = 0.02;  // of a step with enough memory
  static constexpr double last_heat = 0.0001;

  plan_costs costs_of(const guess& it)
  {
    it.tree.write(plan_.steps);
    plan_.inner_leaves = it.inner_leaves;
    plan_.input_leaves = it.input_leaves;
    plan_.skips_leave = it.skips_leave;
    return costs_ = timeline_.run(plan_);
  }
  /// @return   whether it is the best now
  bool attempt(const guess& it)
  {
    if (!is_better(costs_of(it), best_costs_)) return false;
    best_ = it;
    best_costs_ = costs_;
    return true;
  }
  /// Tries each tensor the other way. @return   whether one of these was better
  bool turn_each()
  {
    bool found = false;
    for (std::uint32_t block = 0; block < blocks_; ++block)
      for (std::vector<std::uint8_t> guess::*const leaves : {&guess::inner_leaves, &guess::input_leaves}) {
        guess next = best_;
        (next.*leaves)[block] ^= 1U;
        found |= attempt(next);
      }
    for (const chain_skip& skip : chain_.skips) {
      guess next = best_;
      next.skips_leave[skip.from] ^= 1U;
      found |= attempt(next);
    }
    return found;
  }

  [[nodiscard]] std::uint32_t below(std::uint32_t end) noexcept
  {
    return static_cast<std::uint32_t>(numbers_.next() % end);
  }
  [[nodiscard]] double unit() noexcept { return static_cast<double>(numbers_.next() >> 11) * 0x1p-53; }

  void change(guess& it)
  {
    if (const auto skips = static_cast<std::uint32_t>(chain_.skips.size()); skips > 0 && below(4) == 0) {
      it.skips_leave[chain_.skips[below(skips)].from] ^= 1U;
      return;
    }
    const std::uint32_t block = below(blocks_);
    std::vector<std::uint32_t>& splits = it.tree.splits(block);
    const std::uint32_t after = blocks_ - 1 - block;  // blocks after this one
    switch (numbers_.next() % 6) {
      case 0: it.inner_leaves[block] ^= 1U; return;
      case 1: it.input_leaves[block] ^= 1U; return;
      case 2:  // an action of the block alone: it saves, or runs again with its input here or on the host
        splits.clear();
        if (after > 0 && below(2) == 0) splits.push_back(block + 1);
        it.inner_leaves[block] = below(2) == 0 ? 1 : 0;
        it.input_leaves[block] = below(2) == 0 ? 1 : 0;
        return;
      case 3:  // all actions of two neighbours change places
        if (after == 0) return;
        std::swap(it.inner_leaves[block], it.inner_leaves[block + 1]);
        std::swap(it.input_leaves[block], it.input_leaves[block + 1]);
        return;
      case 4:
        if (!splits.empty()) splits.erase(splits.begin() + below(static_cast<std::uint32_t>(splits.size())));
        return;
      default: add_split(splits, block, after);
    }
  }
  void add_split(std::vector<std::uint32_t>& splits, std::uint32_t block, std::uint32_t after)
  {
    if (after == 0) return;
    const std::uint32_t far = below(2) == 0 ? after : std::min(after, 4U);
    const std::uint32_t split = block + 1 + below(far);
    const auto place = std::ranges::find_if(splits, [&](std::uint32_t each) { return each <= split; });
    if (place == splits.end() || *place != split) splits.insert(place, split);
  }

  const layer_chain& chain_;
  chain_timeline timeline_;
  std::uint32_t blocks_;
  activation_plan plan_;  // of the guess that runs
  plan_costs costs_;      // of it
  guess best_{recompute_tree{0}, {}, {}, {}};
  plan_costs best_costs_;
  splitmix64 numbers_;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
