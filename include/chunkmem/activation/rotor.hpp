// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/recompute_all.hpp>
#include <chunkmem/activation/rotor_table.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace activation {

/// Recomputes without swaps, in the least time that memory allows: a run forward may start from any input that was
/// kept.
///
///     const activation_plan plan = rotor{}.plan(chain, budget);
///
/// Sizes are rounded up to slots: the budget has 500 of them, and fewer for chains of more than 50 blocks. A plan that
/// fits may therefore be missed by a slot for each block. Good where the links are slow, or busy. Poor where the links
/// have time to spare: see pofo. Source: rotor (Beaumont et al. 2019, arXiv 1911.13214). Cost: O(blocks^3 slots), 0.3 s
/// for 200 blocks.
class rotor {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "rotor";

  rotor() = default;
  /// @param slots   that the budget is divided into, at most; 0: by the number of blocks
  explicit rotor(std::uint32_t slots) : slots_{slots} {}

  /// @throws config_error   the chain or the budget cannot be
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    budget.check(chain);
    const chain_slots slots{chain, budget, slots_ > 0 ? slots_ : slots_for(chain.size())};
    const rotor_table table{slots};
    const std::int64_t room = std::int64_t{slots.budget} - slots.input[0];
    if (table.seconds(0, chain.size() - 1, room) == rotor_table::never)
      return recompute_every_block(name, chain, budget);
    activation_plan plan;
    plan.planner = name;
    plan.inner_leaves.assign(chain.size(), 0);
    plan.input_leaves.assign(chain.size(), 0);
    table.append_steps(0, chain.size() - 1, room, plan.steps);
    cost_plan(plan, chain, budget);
    return plan;
  }

  /// Slots that take about a third of a second.
  [[nodiscard]] static std::uint32_t slots_for(std::uint32_t blocks)
  {
    const double cubes = std::pow(double(blocks), 3) / 6;
    return static_cast<std::uint32_t>(std::clamp(2e8 / cubes, 50.0, 500.0));
  }

 private:
  std::uint32_t slots_ = 0;
};

static_assert(activation_planner<rotor>);

}  // namespace activation

}  // namespace chunkmem::inline v0
