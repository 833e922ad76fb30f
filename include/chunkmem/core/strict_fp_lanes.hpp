// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/strict_fp.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// A SIMD vector of `Count` elements, a type of the compiler. The functions of strict_fp take vectors of 4, 8 or 16
/// singles like a scalar, and give each lane the same bits.
///
///     const lanes<16> twice = strict_fp::product(2.0F, values);
///
/// For loops that are compiled for a processor whose vectors have `Count` singles: all functions are inlined into them.
/// From eight lanes on, that processor has fused multiply-add.
template <class Element, std::size_t Count>
struct vector_of {
  using type [[gnu::vector_size(sizeof(Element) * Count)]] = Element;
};
template <std::size_t Count>
using lanes = typename vector_of<float, Count>::type;
template <std::size_t Count>
using lane_bits = typename vector_of<std::uint32_t, Count>::type;

/// Number of lanes of a vector type; else 0.
template <class Type>
inline constexpr std::size_t lane_count = 0;
template <>
inline constexpr std::size_t lane_count<lanes<4>> = 4;
template <>
inline constexpr std::size_t lane_count<lanes<8>> = 8;
template <>
inline constexpr std::size_t lane_count<lanes<16>> = 16;

// Vectors go by value into functions that are always inlined: no calling convention matters.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

/// The same single in each lane. Goes through memory, since g++ makes one instruction of it only in code that is
/// compiled for these vectors: for values that loops share.
template <class Real>
[[nodiscard, gnu::always_inline]] inline Real in_all_lanes(float value) noexcept
{
  float all[lane_count<Real>];
  for (float& each : all) each = value;
  return __builtin_bit_cast(Real, all);
}

namespace strict_fp {

/// over / under, for each lane.
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real quotient(const Real& over, const Real& under) noexcept
{
  return over / under;
}

/// left * right + added, rounded once, for each lane.
///
/// By the instruction for g++, whose builtins of vectors are there only in code for one processor. clang contracts this
/// one expression, whatever it was told about others.
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real fused(const Real& left, const Real& right, const Real& added) noexcept
{
  Real result;
  if constexpr (lane_count<Real> < 8) {
    for (std::size_t lane = 0; lane < lane_count<Real>; ++lane)
      result[lane] = __builtin_fmaf(left[lane], right[lane], added[lane]);
  } else {
#if defined(__clang__)
#pragma clang fp contract(on)
    result = left * right + added;
#elif defined(__x86_64__)
    asm("vfmadd213ps %3, %2, %0" : "=v"(result) : "%0"(left), "v"(right), "vm"(added));
#endif
  }
  return result;
}

#if defined(__x86_64__) && !defined(__clang__)
/// The same where nothing else reads `added`: the sum takes its register, and `right` may stay in memory.
template <class Real>
  requires(lane_count<Real> >= 8)
[[nodiscard, gnu::always_inline]] inline Real fused(const Real& left, const Real& right, Real&& added) noexcept
{
  Real result = added;
  asm("vfmadd231ps %2, %1, %0" : "+v"(result) : "v"(left), "vm"(right));
  return result;
}
#endif

/// left * right, for each lane. @pre as for one single: it feeds no sum except through `fused`
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real product(const Real& left, const Real& right) noexcept
{
  return left * right;
}

/// -value, for each lane.
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real negative(const Real& value) noexcept
{
  return -value;
}

/// `value`, or +0 where its magnitude is below `least`. NaN stays as it is.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float zero_if_small(float value, float least) noexcept
{
  const std::uint32_t keep = is_less(magnitude(value), least) ? 0U : ~0U;
  return bits_as<float>(bits_as<std::uint32_t>(value) & keep);
}
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real zero_if_small(const Real& value, const Real& least) noexcept
{
  using words = lane_bits<lane_count<Real>>;
  words magnitude{};  // nvcc 13 fails at sums of constants here
  magnitude += 0x7fffffffU;
  return __builtin_bit_cast(Real, __builtin_bit_cast(words, value) & magnitude) < least ? Real{} : value;
}

/// `value`, or +0 where it is less than `least`. NaN stays as it is.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float zero_if_less(float value, float least) noexcept
{
  const std::uint32_t keep = is_less(value, least) ? 0U : ~0U;
  return bits_as<float>(bits_as<std::uint32_t>(value) & keep);
}
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real zero_if_less(const Real& value, const Real& least) noexcept
{
  return value < least ? Real{} : value;
}

/// `value`, or the NaN 0x7fc00000 for every NaN: processors and compilers pass on different ones.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float with_one_nan(float value) noexcept
{
  return (bits_as<std::uint32_t>(value) & 0x7fffffffU) > 0x7f800000U ? bits_as<float>(0x7fc00000U) : value;
}
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real with_one_nan(const Real& value) noexcept
{
  Real nan{};
  nan += __builtin_nanf("");
  return value != value ? nan : value;
}

/// `value` as it is stored: +0 where it is small, and one NaN. Both tests are independent, for a short dependency
/// chain.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float stored(float value, float least) noexcept
{
  return with_one_nan(zero_if_small(value, least));
}
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real stored(const Real& value, const Real& least) noexcept
{
  Real nan{};
  nan += __builtin_nanf("");
  return value != value ? nan : zero_if_small(value, least);
}

/// left + right, where both may be products: each is rounded first, whatever a compiler contracts.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float sum_of_products(float left, float right) noexcept
{
#if !defined(__CUDA_ARCH__)
#if defined(__x86_64__)
  asm("" : "+x"(left), "+x"(right));
#elif defined(__aarch64__)
  asm("" : "+w"(left), "+w"(right));
#else
  asm("" : "+m"(left), "+m"(right));
#endif
#endif
  return sum(left, right);
}

/// `value` in [least, most]; NaN stays NaN.
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real cut_to(const Real& value, const Real& least, const Real& most) noexcept
{
  const Real below = most < value ? most : value;
  return below < least ? least : below;
}

}  // namespace strict_fp

#pragma GCC diagnostic pop

}  // namespace chunkmem::inline v0
