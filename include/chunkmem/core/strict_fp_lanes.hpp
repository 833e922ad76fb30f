// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/strict_fp.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// `Count` elements side by side in a register, a type of the compiler. The functions of strict_fp take 4, 8 or 16
/// singles like one, and give each of them the same bits.
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

/// How many, of a type that is `lanes`; else 0.
template <class Type>
inline constexpr std::size_t lane_count = 0;
template <>
inline constexpr std::size_t lane_count<lanes<4>> = 4;
template <>
inline constexpr std::size_t lane_count<lanes<8>> = 8;
template <>
inline constexpr std::size_t lane_count<lanes<16>> = 16;

// Vectors go by value into functions that are always inlined: no calling convention has a say.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

/// The same single in each lane. By way of memory, since g++ makes one instruction of it only in code that is compiled
/// for these vectors: for what loops share.
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

/// left * right, for each lane. @pre as for one single: it feeds no sum except through `fused`
///
/// By `fused` with -0, which has the same bits: Zen 4 takes twice as long to multiply where a denormal comes in or out,
/// and no longer where it adds as well.
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real product(const Real& left, const Real& right) noexcept
{
#if defined(__x86_64__)
  if constexpr (lane_count<Real> >= 8) {
#if defined(__clang__)
    float zero = -0.0F;
    asm("" : "+x"(zero));  // else clang multiplies all the same
    return fused(left, right, zero - Real{});
#else
    return fused(left, right, __builtin_bit_cast(Real, lane_bits<lane_count<Real>>{} + 0x80000000U));
#endif
  }
#endif
  return left * right;
}

/// -value, for each lane.
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real negative(const Real& value) noexcept
{
  return -value;
}

/// `value`, or 0 where left < right. NaN is not less.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float zero_where_less(float left, float right,
                                                                                    float value) noexcept
{
  const std::uint32_t keep = is_less(left, right) ? 0U : ~0U;
  return bits_as<float>(bits_as<std::uint32_t>(value) & keep);
}
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real zero_where_less(const Real& left, const Real& right,
                                                              const Real& value) noexcept
{
  return left < right ? Real{} : value;
}

/// Which quotients, multiplied by one factor and added to a number, are too small to change that number.
///
///     const auto limits = lost_quotients_of(factor);
///     sum = fused(factor, quotient_unless_lost(over, under, sum, limits), sum);
///
/// The word of a positive normal number is 2^23 times its logarithm plus a bias of 127, to a tenth of an octave. The
/// word of `over` less that of `under` is that of the quotient, without a bias. A quotient is lost below `least`, if it
/// is also below the exponent of the sum, as a word, plus `distance`. Both are signed words. With a factor below 2^o,
/// and a sum from 2^e on, quotients below 2^(e - o - 27) are lost.
template <class Real>
struct lost_quotients {
  Real distance, least;
};

/// The limits of a factor.
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline lost_quotients<float> lost_quotients_of(float factor) noexcept
{
  const std::uint32_t octave = (bits_as<std::uint32_t>(factor) >> 23U & 0xffU) + 1;  // the factor is below it
  if (octave > 227) return {0.0F, bits_as<float>(0x80000000U)};                      // none
  // A number in [2^e, 2^(e+1)) is 2^(e-24) or more away from its neighbours. A product below 2^(e-26) is no half of
  // that, also where the quotient is a denormal that was rounded up. Beside a zero or a denormal only quotients that
  // are zeros themselves are lost: they are below 2^-150.
  const std::uint32_t octaves = octave < 124 ? 151 : octave + 27;
  return {bits_as<float>(0U - (octaves << 23U)), bits_as<float>(0U - (125U << 23U))};
}

/// over / under. Where that is lost, a zero of the same sign may stand for it: processors take longer to divide where a
/// denormal comes out. A single is divided in any case.
/// Cost: a denormal beside a sum that is 0 or about as small is divided, which takes two or three times as long.
/// @pre `under` is positive, or NaN; `over` is no denormal
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float quotient_unless_lost(
    float over, float under, float, const lost_quotients<float>&) noexcept
{
  return quotient(over, under);
}
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real quotient_unless_lost(const Real& over, const Real& under, const Real& sum,
                                                                   const lost_quotients<Real>& limits) noexcept
{
  using words = lane_bits<lane_count<Real>>;
  using counts = typename vector_of<std::int32_t, lane_count<Real>>::type;
  words magnitude{}, sign{}, exponent{};  // nvcc 13 fails at sums of constants here
  magnitude += 0x7fffffffU;
  sign += 0x80000000U;
  exponent += 0x7f800000U;
  const words bits = __builtin_bit_cast(words, over);
  const words size = (bits & magnitude) - __builtin_bit_cast(words, under);
  const words room = (__builtin_bit_cast(words, sum) & exponent) + __builtin_bit_cast(words, limits.distance);
  const counts least = __builtin_bit_cast(counts, limits.least);
  counts most = __builtin_bit_cast(counts, room);
#if defined(__x86_64__) && !defined(__clang__)
  if constexpr (lane_count<Real> >= 8)
    asm("vpminsd %1, %0, %0" : "+v"(most) : "v"(least));  // g++ 12 compares and blends
  else
#endif
    most = most < least ? most : least;
  const words felt = __builtin_bit_cast(counts, size) < most ? bits & sign : bits;
  return quotient(__builtin_bit_cast(Real, felt), under);
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
