// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/policy_choice.hpp>
#include <chunkmem/placement/placement_policy.hpp>

#include <cstddef>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace placement {

/// One placement out of a list, chosen when the program runs: `any_placement<host_first,
/// device_margin>{"device_margin"}`.
///
/// Where one of the list looks at what was measured, so does this; a chosen one that does not gives the tiers of its
/// `preferred_tier` again. Good and poor as policy_choice says. Cost: one indirect call for each assignment, or each
/// parameter.
template <placement_policy... Policies>
class any_placement : public policy_choice<Policies...> {
 public:
  static constexpr std::string_view name = "any_placement";
  using policy_choice<Policies...>::policy_choice;

  [[nodiscard]] tier preferred_tier(role part, bytes size) const
  {
    return this->ask([&](const auto& chosen) { return chosen.preferred_tier(part, size); });
  }

  void assign(const outlook& now, std::span<tier> tiers) const
    requires(profiled_placement<Policies> || ...)
  {
    this->ask([&]<class Chosen>(const Chosen& chosen) {
      if constexpr (profiled_placement<Chosen>)
        chosen.assign(now, tiers);
      else
        for (std::size_t index = 0; index < tiers.size(); ++index)
          tiers[index] = chosen.preferred_tier(role::optimizer_state, now.states[index]);
    });
  }
};

}  // namespace placement

}  // namespace chunkmem::inline v0
