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

/// Optimizer states ride on the device in what the tide leaves free there, and are updated there; the rest on the host.
///
///     manager<backend::host_arena, placement::device_margin> m{memory, {}, placement::device_margin{.share = 0.5}};
///
/// The margin is the device without all other chunks and without the highest tide, so that what rides there pushes
/// nothing else out. The first parameters get it, as far as it goes. Good when the device is larger than parameters,
/// gradients and leases together; where it is smaller this is `host_first`. Before an iteration was rehearsed or
/// recorded all states stay on the host; when the tide turns out higher, tiers are given again, and the next iteration
/// is a divergence. Source: PatrickStar's margin placement (Fang et al. 2021, arXiv 2108.05818). Cost: O(parameters)
/// for each assignment.
struct device_margin {
  using policy_kind = placement_kind;
  static constexpr std::string_view name = "device_margin";

  /// How much of the margin states may take, 0 to 1; what is left covers chunks that the last state shares with others.
  double share = 0.8;

  [[nodiscard]] constexpr tier preferred_tier(role part, bytes) const noexcept
  {
    return part == role::optimizer_state ? tier::host : tier::device;
  }

  /// @throws usage_error   the share is not from 0 to 1
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    expects(share >= 0 && share <= 1, "the share of device_margin is not from 0 to 1");
    const bytes taken = now.working + now.tide;
    const std::uint64_t margin = now.is_measured && now.device > taken ? (now.device - taken).count() : 0;
    auto left = static_cast<std::uint64_t>(static_cast<double>(margin) * share);
    bool fits = true;
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      fits = fits && now.states[index].count() <= left;
      tiers[index] = fits ? tier::device : tier::host;
      if (fits) left -= now.states[index].count();
    }
  }
};

static_assert(profiled_placement<device_margin>);

}  // namespace placement

}  // namespace chunkmem::inline v0
