#pragma once

#include <chunkmem/core/version.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// What the holder of a pin will do with the bytes.
enum class access : std::uint8_t {
  read,        ///< bytes stay as they are; a valid copy elsewhere stays valid
  read_write,  ///< updated: every other copy becomes invalid
  write,       ///< overwritten from the first byte to the last; what was there need not be loaded
};

/// Where the bytes of a pin lie.
enum class at : std::uint8_t { device, host };

/// The part of a training step that the trainer says it is in.
enum class pass : std::uint8_t { none, forward, backward };

[[nodiscard]] constexpr std::string_view name_of(access how) noexcept
{
  constexpr std::string_view names[] = {"read", "read_write", "write"};
  return names[static_cast<int>(how)];
}

[[nodiscard]] constexpr bool writes(access how) noexcept
{
  return how != access::read;
}

}  // namespace chunkmem::inline v0
