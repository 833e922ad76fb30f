// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/policy_choice.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// One transfer policy out of a list, chosen when the program runs.
///
///     using choice = transfer::any_transfer<transfer::lookahead, transfer::no_prefetch>;
///     manager<Backend, choice> m{memory, {}, choice{"no_prefetch"}};
///
/// The type of the manager says whether iterations are planned. A list with a policy that plans is therefore always
/// planned. A chosen policy that plans nothing then plans demand paging: each move at the access that needs it. This
/// moves the same bytes as demand paging and hides none of them. It costs a replay wherever an iteration starts from
/// another place. Good and poor: see policy_choice.
template <transfer_policy... Policies>
class any_transfer : public policy_choice<Policies...> {
 public:
  static constexpr std::string_view name = "any_transfer";
  static constexpr bool plans = (Policies::plans || ...);
  using policy_choice<Policies...>::policy_choice;

  void schedule(const schedule_input& input, std::vector<move>& actions)
  {
    this->ask([&]<class Chosen>(Chosen& chosen) {
      if constexpr (Chosen::plans || !plans)
        chosen.schedule(input, actions);
      else
        stay_in_place(input, actions);
    });
  }

  /// The early loads of a stored plan, by the policy of the list that finds them.
  [[nodiscard]] static std::vector<early_load> early_of(const access_record& record,
                                                        std::span<const std::uint32_t> chunk_of_slot,
                                                        const retention& plan, bytes device, bytes frame)
    requires(early_loading_transfer<Policies> || ...)
  {
    std::vector<early_load> early;
    const auto ask = [&]<class Policy>() {
      if constexpr (early_loading_transfer<Policy>)
        early = Policy::early_of(record, chunk_of_slot, plan, device, frame);
    };
    (ask.template operator()<Policies>(), ...);
    return early;
  }

  /// The answer of the chosen policy; no plan where the policy decides nothing.
  [[nodiscard]] retention retain(const retention_request& request)
    requires(retaining_transfer<Policies> || ...)
  {
    retention answer;
    this->ask([&]<class Chosen>(Chosen& chosen) {
      if constexpr (retaining_transfer<Chosen>) answer = chosen.retain(request);
    });
    return answer;
  }

 private:
  static void stay_in_place(const schedule_input& input, std::vector<move>& actions)
  {
    actions.clear();
    for (const move& wanted : input.demand)
      if (wanted.kind != move_kind::vacate) actions.push_back(wanted);
  }
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
