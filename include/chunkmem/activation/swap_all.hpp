// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>

#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// Swaps the activations of every block but the last, whether they would have room or not.
///
///     const activation_plan plan = swap_all{}.plan(chain, budget);
///
/// Good as a baseline alone: the last blocks leave the device and are wanted at once. Source: vDNN (Rhu et al. 2016,
/// arXiv 1602.08124). Cost: O(blocks).
class swap_all {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "swap_all";

  /// @throws config_error   the chain or the budget cannot be
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    std::vector<block_action> actions(chain.size(), block_action::swap);
    if (!actions.empty()) actions.back() = block_action::keep;
    return plan_of(name, chain, budget, actions);
  }
};

static_assert(activation_planner<swap_all>);

}  // namespace activation

}  // namespace chunkmem::inline v0
