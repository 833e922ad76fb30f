// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/pofo_table.hpp>
#include <chunkmem/activation/recompute_all.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace activation {

/// Swaps inputs and saved tensors, and recomputes segments between them, by a dynamic program over memory and links.
///
///     const activation_plan plan = pofo{}.plan(chain, budget);
///
/// Sizes are rounded up to slots, fewer than rotor has. The program counts seconds in slots; the plan has the seconds
/// of the virtual clocks. Good for short chains, as a reference. Poor above some 60 blocks: the slots are few then.
/// Source: POFO (Beaumont et al. 2021, NeurIPS). Cost: O(blocks^2 slots^3), half a minute for 200 blocks.
class pofo {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "pofo";

  pofo() = default;
  /// @param slots   that the budget is divided into, at most; 0: by the number of blocks
  explicit pofo(std::uint32_t slots) : slots_{slots} {}

  /// @throws config_error   the chain or the budget cannot be
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    budget.check(chain);
    const chain_slots slots{chain, budget, slots_ > 0 ? slots_ : slots_for(chain.size())};
    activation_plan plan;
    plan.planner = name;
    if (slots.input[0] <= slots.budget) {
      const pofo_table table{slots, budget.to_host_bytes_per_second / slots.bytes_per_slot,
                             budget.to_device_bytes_per_second / slots.bytes_per_slot};
      if (table.seconds() < pofo_table::never) {
        table.append_steps(plan);
        cost_plan(plan, chain, budget);
        return plan;
      }
    }
    return recompute_every_block(name, chain, budget);
  }

  /// As many slots as take half a minute for 200 blocks, and less for fewer blocks; 30 to 120.
  [[nodiscard]] static std::uint32_t slots_for(std::uint32_t blocks)
  {
    return static_cast<std::uint32_t>(std::clamp(std::cbrt(2e9 / (double(blocks) * blocks)), 30.0, 120.0));
  }

 private:
  std::uint32_t slots_ = 0;
};

static_assert(activation_planner<pofo>);

}  // namespace activation

}  // namespace chunkmem::inline v0
