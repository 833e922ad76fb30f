// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/activation/pofo.hpp>
#include <chunkmem/activation/rotor.hpp>
#include <chunkmem/activation/tree_search.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

namespace activation {

/// The fastest plan of keep_all, karma, rotor and pofo, and of a search from each of the last three. The default.
///
///     const activation_plan plan = planned{}.plan(chain, budget);
///
/// The search changes which blocks are recomputed from which inputs, and which tensors leave, inputs of recomputed
/// blocks included. Good wherever a trainer has no reason for a particular planner. pofo has few slots here, and merged
/// blocks where a chain is long. Cost: two to three seconds for 200 blocks.
class planned {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "planned";

  /// @throws config_error   the chain or the budget is invalid
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    activation_plan best = keep_all{}.plan(chain, budget);
    if (best.costs.fits) return best;
    const auto consider = [&](activation_plan tried) {
      if (is_better(tried.costs, best.costs)) best = std::move(tried);
    };
    tree_search search{chain, budget};
    const auto consider_merged = [&](const auto& planner, std::uint32_t most) {
      consider(search.improved(best_blocking(chain, budget, {std::min(chain.size(), most)},
                                             [&](const layer_chain& coarse) { return planner.plan(coarse, budget); }),
                               moves_for(chain.size())));
    };
    consider(search.improved(karma{}.plan(chain, budget), moves_for(chain.size())));
    consider_merged(rotor{}, most_for_rotor);
    consider_merged(pofo{slots_of_pofo}, most_for_pofo);
    return best;  // its `planner` names the planner that made it
  }

 private:
  static constexpr std::uint32_t most_for_rotor = 100;
  static constexpr std::uint32_t most_for_pofo = 24;
  static constexpr std::uint32_t slots_of_pofo = 30;

  /// A number of guesses that takes up to a fifth of a second.
  [[nodiscard]] static std::uint32_t moves_for(std::uint32_t blocks)
  {
    return std::min(200 * blocks, std::max(500'000U / blocks, 2'000U));
  }
};

static_assert(activation_planner<planned>);

}  // namespace activation

}  // namespace chunkmem::inline v0
