// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/transfer_policy.hpp>

#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Demand paging: loads a chunk when it is acquired, and evicts when there is no room.
///
///     manager<Backend, transfer::no_prefetch> m{memory, options};
///
/// Good as a baseline, and for programs whose iterations never repeat. Otherwise poor: the program waits for every
/// load. Cost: none.
struct no_prefetch {
  using policy_kind = transfer_kind;
  static constexpr std::string_view name = "no_prefetch";
  static constexpr bool plans = false;

  void schedule(const schedule_input&, std::vector<move>& actions) const noexcept { actions.clear(); }
};

static_assert(transfer_policy<no_prefetch>);

}  // namespace transfer

}  // namespace chunkmem::inline v0
