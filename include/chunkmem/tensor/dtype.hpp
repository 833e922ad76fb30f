// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/core/strict_fp.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

// dtype and the concepts of elements, the classes bf16 and fp16, then rounding, flush() and widen().

namespace chunkmem::inline v0 {

class bf16;
class fp16;

/// Element types that a tensor may have.
enum class dtype : std::uint8_t { float32, bfloat16, float16, int32, int64, uint8 };

[[nodiscard]] constexpr std::size_t size_of(dtype type) noexcept
{
  constexpr std::size_t sizes[] = {4, 2, 2, 4, 8, 1};
  return sizes[static_cast<std::size_t>(type)];
}

[[nodiscard]] constexpr std::string_view name_of(dtype type) noexcept
{
  constexpr std::string_view names[] = {"float32", "bfloat16", "float16", "int32", "int64", "uint8"};
  return names[static_cast<std::size_t>(type)];
}

namespace detail {
template <class Element>
struct dtype_for {};
template <dtype Type>
using dtype_constant = std::integral_constant<dtype, Type>;
template <>
struct dtype_for<float> : dtype_constant<dtype::float32> {};
template <>
struct dtype_for<bf16> : dtype_constant<dtype::bfloat16> {};
template <>
struct dtype_for<fp16> : dtype_constant<dtype::float16> {};
template <>
struct dtype_for<std::int32_t> : dtype_constant<dtype::int32> {};
template <>
struct dtype_for<std::int64_t> : dtype_constant<dtype::int64> {};
template <>
struct dtype_for<std::uint8_t> : dtype_constant<dtype::uint8> {};
}  // namespace detail

/// A C++ type that stands for one of the element types above.
template <class Element>
concept element = requires { detail::dtype_for<Element>::value; };

template <element Element>
inline constexpr dtype dtype_of = detail::dtype_for<Element>::value;

/// An element type that stands for a real number.
template <class Element>
concept real_element = std::same_as<Element, float> || std::same_as<Element, bf16> || std::same_as<Element, fp16>;

[[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr bool is_16_bit(dtype type) noexcept
{
  return type == dtype::bfloat16 || type == dtype::float16;
}

namespace detail {

inline constexpr std::uint32_t sign_bit = 0x80000000U;
inline constexpr std::uint32_t infinity_bits = 0x7f800000U;
inline constexpr std::uint32_t nan_bits = 0x7fc00000U;           ///< replaces every NaN where bits must be the same
inline constexpr std::uint32_t least_normal_fp16 = 113U << 23U;  ///< 2^-14
inline constexpr std::uint32_t fp16_overflow = 0x477ff000U;      ///< 65520, half an ulp above the largest fp16

/// `condition ? yes : no` as a mask: g++ makes a branch of the operator, and does not vectorize the loop around it.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr std::uint32_t choose(bool condition, std::uint32_t yes,
                                                                                      std::uint32_t no) noexcept
{
  return no ^ ((yes ^ no) & (0U - static_cast<std::uint32_t>(condition)));
}

/// A magnitude in fp16: `small` below 2^-14, else with `low` (less than an ulp) added before the cut.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr std::uint32_t fp16_magnitude(
    std::uint32_t magnitude, std::uint32_t low, std::uint32_t small) noexcept
{
  const std::uint32_t normal = (magnitude - (112U << 23U) + low) >> 13U;
  const std::uint32_t in_range = choose(magnitude < least_normal_fp16, small, normal);
  const std::uint32_t finite = choose(magnitude >= fp16_overflow, 0x7c00U, in_range);
  return choose(magnitude > infinity_bits, 0x7e00U | (magnitude >> 13U & 0x3ffU), finite);
}

/// |x| in units of `1 / scale`, at most 2^-14 * scale: exact, and truncated by the conversion in every rounding mode.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float small_in_units(std::uint32_t magnitude,
                                                                                      float scale) noexcept
{
  const std::uint32_t least = choose(magnitude < least_normal_fp16, magnitude, least_normal_fp16);
  return strict_fp::constant_product(bits_as<float>(least), scale);
}

/// The nearest bf16 as bits, the even one of two equally near. NaN becomes quiet and keeps the upper bits of its
/// payload.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr std::uint16_t nearest_bf16(float value) noexcept
{
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U;
  const bool is_nan = (bits & ~sign_bit) > infinity_bits;
  return static_cast<std::uint16_t>(choose(is_nan, bits >> 16U | 0x40U, rounded));
}

/// The same of an fp16.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr std::uint16_t nearest_fp16(float value) noexcept
{
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & ~sign_bit;
  const float units = small_in_units(magnitude, 0x1p24F);
  const std::int32_t whole = strict_fp::cut(units);
  const float rest = strict_fp::constant_sum(units, strict_fp::negative(static_cast<float>(whole)));
  const auto floor = static_cast<std::uint32_t>(whole);
  const std::uint32_t tie = choose(strict_fp::is_equal(rest, 0.5F), floor & 1U, 0U);
  const std::uint32_t up = choose(strict_fp::is_less(0.5F, rest), 1U, tie);
  const std::uint32_t nearest = fp16_magnitude(magnitude, 0xfffU + (magnitude >> 13U & 1U), floor + up);
  return static_cast<std::uint16_t>(nearest | (bits >> 16U & 0x8000U));
}

/// The number that the bits of a bf16 stand for.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float widened_bf16(std::uint16_t bits) noexcept
{
  return bits_as<float>(static_cast<std::uint32_t>(bits) << 16U);
}

/// The same of an fp16. A signalling NaN becomes quiet, as with the conversion instructions of x86.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float widened_fp16(std::uint16_t stored) noexcept
{
  const std::uint32_t magnitude = stored & 0x7fffU;
  const float denormal =
      strict_fp::constant_product(static_cast<float>(static_cast<std::int32_t>(magnitude)), 0x1p-24F);
  const std::uint32_t rebias = (112U << 23U) + choose(magnitude >= 0x7c00U, 112U << 23U, 0U);
  const std::uint32_t quiet = choose(magnitude > 0x7c00U, 0x400000U, 0U);
  const std::uint32_t others = ((magnitude << 13U) + rebias) | quiet;
  const std::uint32_t bits = choose(magnitude < 0x400U, bits_as<std::uint32_t>(denormal), others);
  const std::uint32_t sign = static_cast<std::uint32_t>(stored & 0x8000U) << 16U;
  return bits_as<float>(bits | sign);
}

}  // namespace detail

/// A brain floating-point number: the upper 16 bits of a float, with eight bits of exponent.
///
///     const bf16 third{1.0F / 3};                      // to nearest
///     const float number = static_cast<float>(third);  // 0.333984375
///
/// For storage: a value is made from a float, rounded to the nearest as `round_to` does, and converts back exactly.
/// Both conversions are explicit, and there is no arithmetic. An integer or a double does not convert: `from_bits`
/// takes bits, and a double is first converted to float.
class bf16 {
 public:
  constexpr bf16() noexcept = default;  ///< zero
  template <std::same_as<float> Number>
  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr explicit bf16(Number value) noexcept
      : bits_{detail::nearest_bf16(value)}
  {
  }

  [[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE static constexpr bf16 from_bits(std::uint16_t bits) noexcept
  {
    bf16 made;
    made.bits_ = bits;
    return made;
  }
  [[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr std::uint16_t bits() const noexcept { return bits_; }
  [[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr explicit operator float() const noexcept
  {
    return detail::widened_bf16(bits_);
  }

 private:
  std::uint16_t bits_ = 0;
};

/// An IEEE half, with five bits of exponent: as bf16 otherwise. The largest number is 65504, and the smallest is 2^-24.
///
///     const fp16 third{1.0F / 3};                      // to nearest
///     const float number = static_cast<float>(third);  // 0.333251953
class fp16 {
 public:
  constexpr fp16() noexcept = default;  ///< zero
  template <std::same_as<float> Number>
  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr explicit fp16(Number value) noexcept
      : bits_{detail::nearest_fp16(value)}
  {
  }

  [[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE static constexpr fp16 from_bits(std::uint16_t bits) noexcept
  {
    fp16 made;
    made.bits_ = bits;
    return made;
  }
  [[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr std::uint16_t bits() const noexcept { return bits_; }
  [[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr explicit operator float() const noexcept
  {
    return detail::widened_fp16(bits_);
  }

 private:
  std::uint16_t bits_ = 0;
};

/// The same number in single precision. Exact, denormals included; a NaN stays a NaN and keeps its payload.
/// None of the functions here depends on the rounding mode or on the processor's handling of denormals.
///
///     const float number = to_float(bf16{0.1F});  // 0.100097656
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float to_float(float value) noexcept
{
  return value;
}
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float to_float(bf16 value) noexcept
{
  return static_cast<float>(value);
}
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float to_float(fp16 value) noexcept
{
  return static_cast<float>(value);
}

/// The nearest `Element`, the even one of two equally near; from half an ulp above the largest on, infinity.
/// NaN becomes a quiet NaN with the upper bits of its payload; `float` stays as it is.
///
///     const auto half = round_to<fp16>(0.1F);  // 0.0999755859; for any element type, float too
template <real_element Element>
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr Element round_to(float value) noexcept
{
  return Element{value};
}

/// One of the two neighbours in `Element`: the one away from zero with a probability of the remainder in ulps.
///
/// `random` is uniform in its low 16 bits. bf16 uses all of them and fp16 13, which is exact; where the result is a
/// denormal fp16, 16 bits are used and what lies below 2^-40 is cut. What `Element` can hold stays. Above the largest
/// `Element` there is no second neighbour: rounded as `round_to` does. NaN becomes quiet; `float` stays as it is.
template <real_element Element>
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr Element round_stochastic(float value,
                                                                                          std::uint32_t random) noexcept
{
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & ~detail::sign_bit;
  if constexpr (std::same_as<Element, float>) {
    return value;
  } else if constexpr (std::same_as<Element, bf16>) {
    const std::uint32_t low = detail::choose(magnitude >= 0x7f7f0000U, 0x8000U, random & 0xffffU);
    const bool is_nan = magnitude > detail::infinity_bits;
    return bf16::from_bits(
        static_cast<std::uint16_t>(detail::choose(is_nan, bits >> 16U | 0x40U, (bits + low) >> 16U)));
  } else {
    const std::int32_t units = strict_fp::cut(detail::small_in_units(magnitude, 0x1p40F));
    const std::uint32_t small = (static_cast<std::uint32_t>(units) + (random & 0xffffU)) >> 16U;
    const std::uint32_t low = detail::choose(magnitude >= 0x477fe000U, 0U, random & 0x1fffU);
    const std::uint32_t rounded = detail::fp16_magnitude(magnitude, low, small);
    return fp16::from_bits(static_cast<std::uint16_t>(rounded | (bits >> 16U & 0x8000U)));
  }
}

/// Numbers below the least normal one [2^-126] as zero of the same sign; all others, infinity and NaN as they are.
/// In integers, so independent of the processor's handling of denormals.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float flush(float value) noexcept
{
  const auto bits = bits_as<std::uint32_t>(value);
  const bool is_small = (bits & detail::infinity_bits) == 0;
  return bits_as<float>(detail::choose(is_small, bits & detail::sign_bit, bits));
}

namespace detail {

/// A constant number of elements at once, so that compilers vectorize it at -O2.
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

/// Writes 16-bit numbers in single precision, as `to_float`.
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
