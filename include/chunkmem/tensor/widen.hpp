// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/half.hpp>

#include <cstddef>
#include <span>

namespace chunkmem::inline v0 {

namespace detail {

/// A constant number of elements at once, so that compilers at -O2 make vector code of it.
template <class Element>
[[gnu::always_inline]] inline void widen_all(const Element* __restrict from, float* __restrict to,
                                             std::size_t count) noexcept
{
  constexpr std::size_t step = 64;
  std::size_t index = 0;
  for (; index + step <= count; index += step)
    for (std::size_t each = 0; each < step; ++each) to[index + each] = to_float(from[index + each]);
  for (; index < count; ++index) to[index] = to_float(from[index]);
}

#if defined(__x86_64__)
template <class Element>
[[gnu::target("avx2")]] void widen_with_avx2(const Element* __restrict from, float* __restrict to,
                                             std::size_t count) noexcept
{
  widen_all(from, to, count);
}
#endif

}  // namespace detail

/// Writes 16-bit numbers in single precision, as `to_float` does it.
///
///     widen(std::span<const bf16>{weight}, master);
///
/// Cost: one pass, near the speed of memory where the processor has AVX2. Any thread.
/// @pre as many of each; they do not overlap
template <real_element Element>
void widen(std::span<const Element> from, std::span<float> to) noexcept
{
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return detail::widen_with_avx2(from.data(), to.data(), from.size());
#endif
  detail::widen_all(from.data(), to.data(), from.size());
}

}  // namespace chunkmem::inline v0
