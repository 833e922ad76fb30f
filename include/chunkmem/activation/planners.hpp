// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/layer_chain.hpp>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

// The simple planners keep_all, swap_all, recompute_all and capacity_prefix, then best_blocking(), which plans a
// chain with fewer blocks. Planners with programs of their own: rotor.hpp, pofo.hpp, karma.hpp.

namespace chunkmem::inline v0 {

namespace activation {

/// Keeps every activation on the device.
///
///     const activation_plan plan = keep_all{}.plan(chain, budget);
///
/// Good where the device has room for the whole forward pass. Elsewhere the plan does not fit, and has the number of
/// missing bytes. Cost: O(blocks).
class keep_all {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "keep_all";

  /// @throws config_error   the chain or the budget is invalid
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    return plan_of(name, chain, budget, std::vector<block_action>(chain.size(), block_action::keep));
  }
};

static_assert(activation_planner<keep_all>);

/// Swaps the activations of every block but the last, whether they would have room or not.
///
///     const activation_plan plan = swap_all{}.plan(chain, budget);
///
/// Good only as a baseline: the last blocks leave the device and are needed right away. Source: vDNN (Rhu et al. 2016,
/// arXiv 1602.08124). Cost: O(blocks).
class swap_all {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "swap_all";

  /// @throws config_error   the chain or the budget is invalid
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    std::vector<block_action> actions(chain.size(), block_action::swap);
    if (!actions.empty()) actions.back() = block_action::keep;
    return plan_of(name, chain, budget, actions);
  }
};

static_assert(activation_planner<swap_all>);

/// The plan in which every block but the last runs forward again, in the name of a planner: also the last resort of
/// planners whose slots are too few. @throws config_error   the chain or the budget is invalid
[[nodiscard]] inline activation_plan recompute_every_block(std::string_view planner, const layer_chain& chain,
                                                           const activation_budget& budget)
{
  std::vector<block_action> actions(chain.size(), block_action::recompute);
  if (!actions.empty()) actions.back() = block_action::keep;
  return plan_of(planner, chain, budget, actions);
}

/// Keeps only the input of each block, and runs every block but the last forward again.
///
///     const activation_plan plan = recompute_all{}.plan(chain, budget);
///
/// Good where the links are slow. A step takes up to 4/3 of the time of a step with enough memory, where a backward run
/// takes twice as long as a forward run. Source: Chen et al. 2016 (arXiv 1604.06174). Cost: O(blocks).
class recompute_all {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "recompute_all";

  /// @throws config_error   the chain or the budget is invalid
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    return recompute_every_block(name, chain, budget);
  }
};

static_assert(activation_planner<recompute_all>);

/// Swaps the first blocks and keeps the others: as many as are fastest.
///
///     const activation_plan plan = capacity_prefix{}.plan(chain, budget);
///
/// The backward pass needs the first blocks last. They are the victims that the rule of Belady (1966) chooses. Good
/// where the links keep up with the forward pass. Cost: O(blocks) plans on virtual clocks.
class capacity_prefix {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "capacity_prefix";

  /// @throws config_error   the chain or the budget is invalid
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    std::vector<block_action> actions(chain.size(), block_action::keep);
    activation_plan best = plan_of(name, chain, budget, actions);
    for (std::uint32_t swapped = 1; swapped < chain.size(); ++swapped) {
      actions[swapped - 1] = block_action::swap;
      activation_plan tried = plan_of(name, chain, budget, actions);
      if (is_better(tried.costs, best.costs)) best = std::move(tried);
    }
    return best;
  }
};

static_assert(activation_planner<capacity_prefix>);

/// Makes a plan of the blocks from a plan of merged blocks: a run of a merged block is a run of each of its blocks.
/// @param begins   the first block of each merged block, as for merged()   @complexity O(steps of the result)
[[nodiscard]] inline activation_plan expanded(const activation_plan& coarse, const std::vector<std::uint32_t>& begins,
                                              const layer_chain& chain)
{
  activation_plan plan;
  plan.planner = coarse.planner;
  plan.inner_leaves.assign(chain.size(), 0);
  plan.input_leaves.assign(chain.size(), 0);
  if (!coarse.skips_leave.empty()) plan.skips_leave.assign(chain.size(), 0);
  const auto end_of = [&](std::uint32_t group) { return group + 1 < begins.size() ? begins[group + 1] : chain.size(); };
  for (const auto& [run, group] : coarse.steps) {
    if (run == chain_run::backward)
      for (std::uint32_t block = end_of(group); block-- > begins[group];) plan.steps.push_back({run, block});
    else
      for (std::uint32_t block = begins[group]; block < end_of(group); ++block) plan.steps.push_back({run, block});
  }
  for (std::uint32_t group = 0; group < begins.size(); ++group) {
    plan.input_leaves[begins[group]] = coarse.input_leaves[group];
    for (std::uint32_t block = begins[group]; block < end_of(group); ++block) {
      plan.inner_leaves[block] = coarse.inner_leaves[group];
      if (coarse.skips_of_leave(group)) plan.skips_leave[block] = 1;
      if (block > begins[group]) plan.input_leaves[block] = coarse.inner_leaves[group];
    }
  }
  return plan;
}

/// Numbers of blocks that are worth a plan: up to 40, and the chain as it is.
[[nodiscard]] inline std::vector<std::uint32_t> block_counts(const layer_chain& chain)
{
  std::vector<std::uint32_t> counts;
  for (const std::uint32_t count : {4U, 6U, 8U, 10U, 12U, 16U, 20U, 24U, 32U, 40U})
    if (count < chain.size()) counts.push_back(count);
  counts.push_back(chain.size());
  return counts;
}

/// The best plan that a planner makes for a chain whose neighbours are merged to fewer blocks, or for the chain itself.
///
/// A recomputed merged block keeps one input for all its blocks. Where every block keeps its own input, too little room
/// may be left. The result is a plan of the chain, with costs of the chain.
/// Cost: a plan for each of `counts`.
/// @param  plan_chain   makes the plan of a chain; its costs are not used
/// @throws config_error   the chain or the budget is invalid
template <class PlanChain>
[[nodiscard]] activation_plan best_blocking(const layer_chain& chain, const activation_budget& budget,
                                            const std::vector<std::uint32_t>& counts, const PlanChain& plan_chain)
{
  budget.check(chain);
  activation_plan best;
  for (const std::uint32_t count : counts) {
    const std::vector<std::uint32_t> begins = equal_cuts(chain, count);
    activation_plan tried = expanded(plan_chain(merged(chain, begins)), begins, chain);
    cost_plan(tried, chain, budget);
    if (best.steps.empty() || is_better(tried.costs, best.costs)) best = std::move(tried);
  }
  return best;
}

/// best_blocking() of a planner.
///
///     const activation_plan plan = plan_blocked(recompute_all{}, chain, budget);
template <activation_planner Planner>
[[nodiscard]] activation_plan plan_blocked(const Planner& planner, const layer_chain& chain,
                                           const activation_budget& budget)
{
  return best_blocking(chain, budget, block_counts(chain),
                       [&](const layer_chain& coarse) { return planner.plan(coarse, budget); });
}

}  // namespace activation

}  // namespace chunkmem::inline v0
