// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/placement/placement_policy.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace placement {

/// A static partition: all that works on the device stays there, and a fixed share of the optimizer states with it.
///
///     manager<backend::host_arena, placement::fixed_split> m{memory, {}, placement::fixed_split{.device_share = 0.5}};
///
/// Refuses what does not fit at once instead of moving it: the largest model is the one whose parameters, gradients and
/// leases lie on the device together. Gradients count in bytes of their own until an iteration, or a rehearsal, has
/// shown that they lie in their weights. Good as a baseline, and where nothing may ever move; poor for anything larger.
/// Source: ZeRO-Offload (Ren et al. 2021, arXiv 2101.06840). Cost: O(parameters) for each assignment.
struct fixed_split {
  using policy_kind = placement_kind;
  static constexpr std::string_view name = "fixed_split";

  /// Share of the bytes of states that lives on the device, 0 to 1: the first parameters'.
  double device_share = 0.0;

  [[nodiscard]] constexpr tier preferred_tier(role part, bytes) const noexcept
  {
    return part == role::optimizer_state ? tier::host : tier::device;
  }

  /// @throws usage_error   the share is not from 0 to 1; config_error   the device is too small
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    expects(device_share >= 0 && device_share <= 1, "the device_share of fixed_split is not from 0 to 1");
    bytes all;
    for (const bytes each : now.states) all += each;
    const auto wanted = static_cast<std::uint64_t>(static_cast<double>(all.count()) * device_share);
    bytes given;
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      const bytes with_this = given + now.states[index];
      tiers[index] = with_this.count() <= wanted ? tier::device : tier::host;
      if (tiers[index] == tier::device) given = with_this;
    }
    const bytes need = now.working + now.tide + given;
    if (need <= now.device) return;
    throw config_error{error_text{} << "chunkmem: a static partition of this model needs " << need.count()
                                    << " B on the device, whose capacity is " << now.device.count()
                                    << " B (raise it, make device_share smaller, or take placement::device_margin)"};
  }
};

static_assert(profiled_placement<fixed_split>);

}  // namespace placement

}  // namespace chunkmem::inline v0
