// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

/// Marks a function that device code may call as well. Empty for host compilers.
#if defined(__CUDACC__)
#define CHUNKMEM_HOST_DEVICE __host__ __device__
#else
#define CHUNKMEM_HOST_DEVICE
#endif

namespace chunkmem::inline v0 {

/// The bits of a value as another type: `std::bit_cast` for functions that device code calls too.
template <class To, class From>
  requires(sizeof(To) == sizeof(From))
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr To bits_as(const From& from) noexcept
{
  return __builtin_bit_cast(To, from);
}

}  // namespace chunkmem::inline v0
