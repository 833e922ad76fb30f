// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

using namespace chunkmem::activation;

/// Tries every action for every block but the last, which is kept. The oracle of the other planners.
///
///     const activation_plan plan = exhaustive{}.plan(chain, budget);
///
/// Good for chains of up to ten blocks, as a check. Cost: 4^(blocks - 1) plans on virtual clocks.
class exhaustive {
 public:
  using policy_kind = chunkmem::activation_kind;
  static constexpr std::string_view name = "exhaustive";

  static constexpr std::uint32_t most_blocks = 11;

  /// @throws config_error   more than `most_blocks` blocks; an impossible chain or budget
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    if (chain.size() > most_blocks)
      throw chunkmem::config_error{chunkmem::error_text{} << "chunkmem: every action of " << chain.size()
                                                          << " blocks cannot be tried: the most is " << most_blocks
                                                          << " (take karma)"};
    std::vector<block_action> actions(chain.size(), block_action::keep);
    activation_plan best = plan_of(name, chain, budget, actions);
    while (advance(actions)) {
      activation_plan tried = plan_of(name, chain, budget, actions);
      if (is_better(tried.costs, best.costs)) best = std::move(tried);
    }
    return best;
  }

 private:
  /// The next actions, as a number with a digit for each block but the last. @return   false after the last one
  [[nodiscard]] static bool advance(std::vector<block_action>& actions)
  {
    for (std::size_t block = 0; block + 1 < actions.size(); ++block) {
      const auto next = static_cast<std::size_t>(actions[block]) + 1;
      actions[block] = static_cast<block_action>(next % block_action_count);
      if (next < block_action_count) return true;
    }
    return false;
  }
};

static_assert(activation_planner<exhaustive>);

}  // namespace support
