// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>

#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

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

  /// @throws config_error   the chain or the budget cannot be
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

}  // namespace activation

}  // namespace chunkmem::inline v0
