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

/// One transfer policy out of a list, chosen when the program runs: `any_transfer<lookahead,
/// no_prefetch>{"no_prefetch"}`.
///
/// Whether iterations are planned is part of the manager's type, so a list with one that plans is planned whatever was
/// chosen: for one that plans nothing the plan is demand paging itself, each move at the moment that asks for it. It
/// moves the same bytes and hides none of them; what differs from the policy named by type is the planning alone, which
/// costs a replay wherever an iteration starts from another place. Good and poor as policy_choice says.
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

  /// As the chosen one; no plan where it has none.
  /// As planned has it.
  [[nodiscard]] static std::vector<early_load> early_of(const access_record& record,
                                                        std::span<const std::uint32_t> chunk_of_slot,
                                                        const retention& plan, bytes device, bytes frame)
  {
    std::vector<early_load> early;
    const auto ask = [&]<class Policy>() {
      if constexpr (requires { Policy::early_of(record, chunk_of_slot, plan, device, frame); })
        early = Policy::early_of(record, chunk_of_slot, plan, device, frame);
    };
    (ask.template operator()<Policies>(), ...);
    return early;
  }
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
