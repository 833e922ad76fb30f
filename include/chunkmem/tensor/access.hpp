// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/version.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace chunkmem::inline v0 {

/// The three ways to use the bytes of a pin, as a number: what logs, records and switches hold.
enum class access_mode : std::uint8_t { read, read_write, write };

class write_access;

/// What the holder of a pin will do with the bytes.
///
/// `access::read` and every variable of this type give a const pin. `access::read_write` and `access::write` have
/// another type, so the compiler knows that their pins are writable. Where a variable holds a mode that writes,
/// `pin::writable()` gives the elements. A template parameter takes `access_mode`, and its pins are const too.
class access {
 public:
  static const access read;              ///< bytes stay as they are; a valid copy elsewhere stays valid
  static const write_access read_write;  ///< updated: every other copy becomes invalid
  static const write_access write;       ///< overwritten from the first byte to the last; nothing is loaded

  /// @throws usage_error   the number is none of the three modes
  constexpr access(access_mode mode) : mode_{mode}
  {
    if (mode > access_mode::write) throw usage_error{"an access that is none of read, read_write and write"};
  }
  constexpr operator access_mode() const noexcept { return mode_; }

 private:
  access_mode mode_;
};

/// The type of `access::read_write` and `access::write`, and of a choice between the two at run time.
///
///     const write_access how = adds ? access::read_write : access::write;
class write_access : public access {
  friend class access;
  constexpr explicit write_access(access_mode mode) : access{mode} {}
};

inline constexpr access access::read{access_mode::read};
inline constexpr write_access access::read_write{access_mode::read_write};
inline constexpr write_access access::write{access_mode::write};

/// `access` or `write_access`.
template <class Access>
concept access_choice = std::is_convertible_v<Access, access>;

/// The element type of a pin: const, unless every mode that `Access` can hold writes.
template <class Element, access_choice Access>
using pinned_as = std::conditional_t<std::is_same_v<Access, write_access>, Element, const Element>;

/// Where the bytes of a pin lie.
enum class memory_location : std::uint8_t { device, host };

/// The part of a training step that the trainer says it is in.
enum class pass : std::uint8_t { none, forward, backward };

[[nodiscard]] constexpr std::string_view name_of(access_mode mode) noexcept
{
  constexpr std::string_view names[] = {"read", "read_write", "write"};
  return names[static_cast<int>(mode)];
}

[[nodiscard]] constexpr bool writes(access_mode mode) noexcept
{
  return mode != access_mode::read;
}

}  // namespace chunkmem::inline v0
