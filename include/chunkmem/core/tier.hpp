// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// The tiers of memory, from the fastest to the largest. Bytes are copied over a link between neighbours.
enum class tier : std::uint8_t { device, host };

inline constexpr std::size_t tier_count = 2;

/// All tiers, from the fastest to the largest: `for (const tier where : all_tiers)`.
inline constexpr std::array<tier, tier_count> all_tiers{tier::device, tier::host};

/// The largest tier, which holds all bytes without room elsewhere.
inline constexpr tier last_tier = all_tiers.back();

/// The next larger tier, or no_tier.
[[nodiscard]] constexpr tier next_tier(tier where) noexcept
{
  return static_cast<tier>(static_cast<std::uint8_t>(where) + 1);
}

/// A value that names no tier, such as one that is not set yet. It indexes nothing.
inline constexpr tier no_tier{tier_count};

[[nodiscard]] constexpr bool is_tier(tier where) noexcept
{
  return where < no_tier;
}

[[nodiscard]] constexpr std::string_view name_of(tier where) noexcept
{
  constexpr std::string_view names[tier_count] = {"device", "host"};
  return is_tier(where) ? names[static_cast<std::size_t>(where)] : "unknown";
}

/// One value for each tier, indexed by the tier itself.
///
///     per_tier<bytes> capacity{{64_MiB, 1_GiB}};
///     capacity[tier::host] = 2_GiB;
template <class Value>
struct per_tier {
  Value values[tier_count] = {};

  [[nodiscard]] constexpr Value& operator[](tier where) noexcept { return values[static_cast<std::size_t>(where)]; }
  [[nodiscard]] constexpr const Value& operator[](tier where) const noexcept
  {
    return values[static_cast<std::size_t>(where)];
  }
  /// Only where values can be compared.
  [[nodiscard]] constexpr bool operator==(const per_tier& other) const noexcept
  {
    for (std::size_t index = 0; index < tier_count; ++index)
      if (!(values[index] == other.values[index])) return false;
    return true;
  }
};

/// The same value for each tier.
template <class Value>
[[nodiscard]] constexpr per_tier<Value> filled_tiers(const Value& value) noexcept
{
  per_tier<Value> all;
  for (Value& each : all.values) each = value;
  return all;
}

}  // namespace chunkmem::inline v0
