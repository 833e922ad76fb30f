// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/layer_chain.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// A plan of merged blocks as a plan of the blocks themselves: a run of a merged block is a run of each of its blocks.
/// @param begins   the first block of each merged block, as for merged()   @complexity O(steps of the result)
[[nodiscard]] inline activation_plan expanded(const activation_plan& coarse, const std::vector<std::uint32_t>& begins,
                                              const layer_chain& chain)
{
  activation_plan plan;
  plan.planner = coarse.planner;
  plan.inner_leaves.assign(chain.size(), 0);
  plan.input_leaves.assign(chain.size(), 0);
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
/// Merged blocks that are recomputed want one input between them. Where every block keeps its own input, too little
/// room may be left. The result is a plan of the chain, with costs of the chain.
/// Cost: a plan for each of `counts`.
/// @param  plan_chain   a chain to its plan, without costs of merged chains being of use
/// @throws config_error   the chain or the budget cannot be
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
