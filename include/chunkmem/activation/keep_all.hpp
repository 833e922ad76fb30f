// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>

#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// Keeps every activation on the device.
///
///     const activation_plan plan = keep_all{}.plan(chain, budget);
///
/// Good where the device has room for the whole forward pass. Elsewhere the plan does not fit, and tells the bytes that
/// are missing. Cost: O(blocks).
class keep_all {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "keep_all";

  /// @throws config_error   the chain or the budget cannot be
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    return plan_of(name, chain, budget, std::vector<block_action>(chain.size(), block_action::keep));
  }
};

static_assert(activation_planner<keep_all>);

}  // namespace activation

}  // namespace chunkmem::inline v0
