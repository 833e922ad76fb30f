// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/activation/rotor.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace out_of_core {

enum class planner_choice : std::uint8_t { planned, karma, rotor, recompute_all, swap_all, keep_all };

/// In the order of planner_choice.
inline constexpr std::array<std::string_view, 6> planner_names{
    chunkmem::activation::planned::name,  chunkmem::activation::karma::name,
    chunkmem::activation::rotor::name,    chunkmem::activation::recompute_all::name,
    chunkmem::activation::swap_all::name, chunkmem::activation::keep_all::name,
};

/// The planner that the command line names. A trainer with a fixed planner passes its type as a template argument.
class chosen_planner {
 public:
  using policy_kind = chunkmem::activation_kind;
  static constexpr std::string_view name = "chosen";

  explicit chosen_planner(planner_choice choice) noexcept : choice_{choice} {}

  [[nodiscard]] chunkmem::activation::activation_plan plan(const chunkmem::activation::layer_chain& chain,
                                                           const chunkmem::activation::activation_budget& budget) const
  {
    using namespace chunkmem::activation;
    switch (choice_) {
      case planner_choice::planned: return planned{}.plan(chain, budget);
      case planner_choice::karma: return karma{}.plan(chain, budget);
      case planner_choice::rotor: return rotor{}.plan(chain, budget);
      case planner_choice::recompute_all: return recompute_all{}.plan(chain, budget);
      case planner_choice::swap_all: return swap_all{}.plan(chain, budget);
      case planner_choice::keep_all: break;
    }
    return keep_all{}.plan(chain, budget);
  }

 private:
  planner_choice choice_;
};

static_assert(chunkmem::activation::activation_planner<chosen_planner>);

}  // namespace out_of_core
