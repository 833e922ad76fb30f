// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>

#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// The plan in which every block but the last runs forward again, in the name of a planner: also the last resort of
/// planners that find no room in slots. @throws config_error   the chain or the budget cannot be
[[nodiscard]] inline activation_plan recompute_every_block(std::string_view planner, const layer_chain& chain,
                                                           const activation_budget& budget)
{
  std::vector<block_action> actions(chain.size(), block_action::recompute);
  if (!actions.empty()) actions.back() = block_action::keep;
  return plan_of(planner, chain, budget, actions);
}

/// Keeps the input of each block alone, and runs every block but the last forward again.
///
///     const activation_plan plan = recompute_all{}.plan(chain, budget);
///
/// Good where the links are slow. A step takes up to 4/3 of the time of a step with enough memory, where a backward run
/// takes twice as long as a forward run. Source: Chen et al. 2016 (arXiv 1604.06174). Cost: O(blocks).
class recompute_all {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "recompute_all";

  /// @throws config_error   the chain or the budget cannot be
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    return recompute_every_block(name, chain, budget);
  }
};

static_assert(activation_planner<recompute_all>);

}  // namespace activation

}  // namespace chunkmem::inline v0
