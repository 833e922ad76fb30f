// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/chain_timeline.hpp>
#include <support/oracles/chain_replay.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace support {

/// All trees of recomputation of the blocks `first` to `last`, as steps: a block saves, then comes a tree of the
/// others; or some blocks pass, then comes a tree of the blocks after them, then a tree of the passed ones. Their
/// number is Schroeder's: 394 for six blocks.
inline std::vector<std::vector<chunkmem::activation::chain_step>> all_trees(std::uint32_t first, std::uint32_t last)
{
  using chunkmem::activation::chain_run;
  using steps = std::vector<chunkmem::activation::chain_step>;
  if (first == last) return {{{chain_run::saving, first}, {chain_run::backward, first}}};
  std::vector<steps> all;
  for (const steps& rest : all_trees(first + 1, last)) {
    steps tree{{chain_run::saving, first}};
    tree.insert(tree.end(), rest.begin(), rest.end());
    tree.push_back({chain_run::backward, first});
    all.push_back(std::move(tree));
  }
  for (std::uint32_t split = first + 1; split <= last; ++split) {
    const std::vector<steps> lefts = all_trees(first, split - 1);
    for (const steps& right : all_trees(split, last))
      for (const steps& left : lefts) {
        steps tree;
        for (std::uint32_t block = first; block < split; ++block) tree.push_back({chain_run::passing, block});
        tree.insert(tree.end(), right.begin(), right.end());
        tree.insert(tree.end(), left.begin(), left.end());
        all.push_back(std::move(tree));
      }
  }
  return all;
}

/// A tree of recomputation as a plan in which no tensor leaves, without costs.
inline chunkmem::activation::activation_plan plan_of_tree(std::vector<chunkmem::activation::chain_step> tree,
                                                          std::uint32_t blocks)
{
  chunkmem::activation::activation_plan plan;
  plan.planner = "tree";
  plan.steps = std::move(tree);
  plan.inner_leaves.assign(blocks, 0);
  plan.input_leaves.assign(blocks, 0);
  return plan;
}

/// The least seconds of all trees of recomputation, each run by chain_replay; infinity where none fits.
inline double least_seconds_without_swaps(const chunkmem::activation::layer_chain& chain,
                                          const chunkmem::activation::activation_budget& budget)
{
  double least = std::numeric_limits<double>::infinity();
  for (std::vector<chunkmem::activation::chain_step>& tree : all_trees(0, chain.size() - 1)) {
    const auto plan = plan_of_tree(std::move(tree), chain.size());
    const chain_replay replay{chain, budget, plan};
    if (replay.fits()) least = std::min(least, replay.seconds());
  }
  return least;
}

/// The best plan of all trees of recomputation with all sets of tensors that leave, inputs too, on virtual clocks.
///
///     const plan_costs best = widest_search(chain, budget).costs;
///
/// For up to six blocks. Cost: 2^n plans for each tree with n tensors at the end of the forward pass.
inline chunkmem::activation::activation_plan widest_search(const chunkmem::activation::layer_chain& chain,
                                                           const chunkmem::activation::activation_budget& budget)
{
  using namespace chunkmem::activation;
  chain_rows rows{chain, budget};
  chain_timeline clocks{chain, budget};
  activation_plan best;
  for (std::vector<chain_step>& tree : all_trees(0, chain.size() - 1)) {
    activation_plan plan = plan_of_tree(std::move(tree), chain.size());
    plan.inner_leaves.assign(chain.size(), 1);
    plan.input_leaves.assign(chain.size(), 1);
    rows.read(plan);
    std::vector<std::uint8_t*> leaves;  // of the tensors that may leave
    for (const tensor_life& life : rows.tensors()) {
      if (life.leaves == tensor_life::never) continue;
      const bool is_inner = life.part == tensor_part::inner;
      leaves.push_back(is_inner ? &plan.inner_leaves[life.block]
                                : &plan.input_leaves[life.block + 1]);  // of the input: 0
    }
    for (std::size_t set = 0; set < std::size_t{1} << leaves.size(); ++set) {
      plan.inner_leaves.assign(chain.size(), 0);
      plan.input_leaves.assign(chain.size(), 0);
      for (std::size_t index = 0; index < leaves.size(); ++index) *leaves[index] = (set >> index & 1U) != 0 ? 1 : 0;
      plan.costs = clocks.run(plan);
      if (best.steps.empty() || is_better(plan.costs, best.costs)) best = plan;
    }
  }
  return best;
}

}  // namespace support
