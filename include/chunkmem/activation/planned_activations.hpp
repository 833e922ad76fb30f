// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/activation/rotor.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// The fastest plan of keep_all, karma and rotor. The default.
///
///     const activation_plan plan = planned{}.plan(chain, budget);
///
/// Good wherever a trainer has no reason for a planner of its own. pofo may be faster for short chains, and takes much
/// longer to plan. Cost: as karma and rotor, a second for 200 blocks.
class planned {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "planned";

  /// @throws config_error   the chain or the budget cannot be
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    activation_plan best = keep_all{}.plan(chain, budget);
    if (best.costs.fits) return best;
    const auto consider = [&](activation_plan tried) {
      if (is_better(tried.costs, best.costs)) best = std::move(tried);
    };
    consider(karma{}.plan(chain, budget));
    const std::uint32_t blocks = std::min(chain.size(), most_for_rotor);
    consider(best_blocking(chain, budget, {blocks},
                           [&](const layer_chain& coarse) { return rotor{}.plan(coarse, budget); }));
    return best;  // its `planner` tells which one made it
  }

 private:
  static constexpr std::uint32_t most_for_rotor = 100;
};

static_assert(activation_planner<planned>);

}  // namespace activation

}  // namespace chunkmem::inline v0
