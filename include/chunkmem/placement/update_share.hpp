// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/placement/placement_policy.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace placement {

/// A share of the optimizer's states is updated on the device, the first parameters'; the rest on the host.
///
///     const placement::update_share quarter{.device_share = 0.25};
///     manager<backend::host_arena, placement::update_share> m{memory, {}, quarter};
///
/// Says where updates work, not where bytes stay: states of the device come and go like any other chunk, so any share
/// fits that leaves the host no more states than it holds. Good with a share that planner::plan_memory settled, and
/// where the device updates faster than the link brings states; poor by guess. What cannot come and go, fixed_split
/// refuses instead. The first parameters, because their gradients are the last to come: the host has then had the
/// others. Source: interleaved updates of Deep Optimizer States (Maurya et al. 2024, arXiv 2410.21316). Cost:
/// O(parameters) for each assignment.
struct update_share {
  using policy_kind = placement_kind;
  static constexpr std::string_view name = "update_share";

  double device_share = 0.0;  ///< of the bytes of states, 0 to 1

  [[nodiscard]] constexpr tier preferred_tier(role part, bytes) const noexcept
  {
    return part == role::optimizer_state ? tier::host : tier::device;
  }

  /// @throws usage_error   the share is not from 0 to 1
  void assign(const placement::outlook& now, std::span<tier> tiers) const
  {
    expects(device_share >= 0 && device_share <= 1, "the device_share of update_share is not from 0 to 1");
    double all = 0;
    for (const bytes each : now.states) all += static_cast<double>(each.count());
    double given = 0;
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      given += static_cast<double>(now.states[index].count());
      tiers[index] = given <= all * device_share ? tier::device : tier::host;
    }
  }
};

static_assert(profiled_placement<update_share>);

}  // namespace placement

}  // namespace chunkmem::inline v0
