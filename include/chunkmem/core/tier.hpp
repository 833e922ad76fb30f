// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// Where bytes live. `disk` is reserved: no backend has it yet.
enum class tier : std::uint8_t { device, host, disk };

inline constexpr std::size_t tier_count = 3;

/// The tiers that a backend has, from the fastest to the largest: `for (const tier where : all_tiers)`.
inline constexpr std::array all_tiers{tier::device, tier::host};

[[nodiscard]] constexpr std::string_view name_of(tier where) noexcept
{
  constexpr std::string_view names[tier_count] = {"device", "host", "disk"};
  return names[static_cast<std::size_t>(where)];
}

/// One value for each tier, indexed by the tier itself.
template <class Value>
struct per_tier {
  Value values[tier_count] = {};

  [[nodiscard]] constexpr Value& operator[](tier where) noexcept { return values[static_cast<std::size_t>(where)]; }
  [[nodiscard]] constexpr const Value& operator[](tier where) const noexcept
  {
    return values[static_cast<std::size_t>(where)];
  }
};

}  // namespace chunkmem::inline v0
