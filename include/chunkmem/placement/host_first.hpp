// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/placement/placement_policy.hpp>

#include <string_view>

namespace chunkmem::inline v0 {

namespace placement {

/// Optimizer states stay on the host and are updated there; all else works on the device.
///
///     manager<backend::host_arena, placement::host_first> m{memory};
///
/// The device then never sees two thirds of the model data. Good when the device is small; poor when it has room left.
/// Source: ZeRO-Offload (Ren et al. 2021, arXiv 2101.06840). Cost: none.
struct host_first {
  using policy_kind = placement_kind;
  static constexpr std::string_view name = "host_first";

  [[nodiscard]] constexpr tier preferred_tier(role part, bytes) const noexcept
  {
    return part == role::optimizer_state ? tier::host : tier::device;
  }
};

static_assert(placement_policy<host_first>);

}  // namespace placement

}  // namespace chunkmem::inline v0
