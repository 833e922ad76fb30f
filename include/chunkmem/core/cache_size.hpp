// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstdint>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

namespace chunkmem::inline v0 {

namespace detail {

/// Bytes of the second cache of a core, as the system says, read once; 1 MiB where it does not say.
///
///     const std::uint64_t elements = second_cache_bytes() / bytes_of_element;  // of a part of a pass
[[nodiscard]] inline std::uint64_t second_cache_bytes() noexcept
{
  static const std::uint64_t bytes = [] {
#if defined(_SC_LEVEL2_CACHE_SIZE)
    if (const long said = ::sysconf(_SC_LEVEL2_CACHE_SIZE); said > 0) return static_cast<std::uint64_t>(said);
#endif
    return std::uint64_t{1} << 20;
  }();
  return bytes;
}

}  // namespace detail

}  // namespace chunkmem::inline v0
