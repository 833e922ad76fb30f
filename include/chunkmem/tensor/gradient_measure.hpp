// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// The measures of a gradient for clipping and loss scaling: of its stored values, denormals as zero.
///
///     gradient_measure all = first;
///     all.add(second);
///     const double norm = std::sqrt(all.squares);
///
/// Where a value is infinite or no number, `finite` is false and the two sums are infinite. `largest` is then NaN where
/// a value is no number, else infinite.
struct gradient_measure {
  double squares = 0;     ///< sum of the squares: the 2-norm is its root
  double magnitudes = 0;  ///< sum of the magnitudes: the 1-norm
  float largest = 0;      ///< magnitude: the infinity-norm
  bool finite = true;

  /// Adds the measure of later values: the bits of the sums depend on the order of calls.
  CHUNKMEM_HOST_DEVICE constexpr void add(const gradient_measure& next) noexcept
  {
    squares = strict_fp::constant_sum(squares, next.squares);
    magnitudes = strict_fp::constant_sum(magnitudes, next.magnitudes);
    const auto mine = bits_as<std::int32_t>(largest), others = bits_as<std::int32_t>(next.largest);
    largest = mine < others ? next.largest : largest;  // the bits of magnitudes are in order, infinity and NaN last
    finite = finite && next.finite;
  }
};

/// Elements that are added up in lanes before their sum joins the others.
inline constexpr std::size_t measure_block = 4096;

namespace detail {

inline constexpr std::size_t measure_lanes = 32;

[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr std::int32_t larger(std::int32_t left,
                                                                                     std::int32_t right) noexcept
{
  return left < right ? right : left;
}

/// sum + number * number, where the product is exact, as the square of a single is in double: fused or not, the bits
/// are the same.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline double with_square(double sum, double number) noexcept
{
#if defined(__CUDA_ARCH__)
  double result;
  asm("fma.rn.f64 %0, %1, %1, %2;" : "=d"(result) : "d"(number), "d"(sum));
  return result;
#else
  return sum + number * number;  // one expression, which clang contracts
#endif
}

/// References to the numbers of one lane.
struct measure_lane {
  double& squares;
  double& magnitudes;
  std::int32_t& largest;  ///< bits of a magnitude: in its order, infinity and NaN last

  template <class Element>
  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE void add(Element value) const noexcept
  {
    const std::int32_t bits = bits_as<std::int32_t>(flush(to_float(value))) & 0x7fffffff;
    largest = larger(largest, bits);
    const double number = strict_fp::to_double(bits_as<float>(bits));
    squares = with_square(squares, number);
    magnitudes = strict_fp::sum(magnitudes, number);
  }

  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE void add(const measure_lane& other) const noexcept
  {
    squares = strict_fp::sum(squares, other.squares);
    magnitudes = strict_fp::sum(magnitudes, other.magnitudes);
    largest = larger(largest, other.largest);
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE gradient_measure measure() const noexcept
  {
    if (largest < static_cast<std::int32_t>(infinity_bits)) return {squares, magnitudes, bits_as<float>(largest), true};
    const double infinite = bits_as<double>(std::uint64_t{0x7ff0000000000000U});
    const bool is_nan = largest > static_cast<std::int32_t>(infinity_bits);
    return {infinite, infinite, bits_as<float>(choose(is_nan, nan_bits, infinity_bits)), false};
  }
};

/// One number for each lane of a block.
struct measure_rows {
  alignas(64) double squares[measure_lanes] = {};
  alignas(64) double magnitudes[measure_lanes] = {};
  alignas(64) std::int32_t largest[measure_lanes] = {};

  template <class Element>
  [[gnu::always_inline]] void add(const Element* values, std::size_t count) noexcept
  {
    std::size_t index = 0;
    for (; index + measure_lanes <= count; index += measure_lanes) add_row(values + index, measure_lanes);
    add_row(values + index, count - index);
  }

  [[nodiscard]] gradient_measure folded() noexcept
  {
    for (std::size_t half = measure_lanes / 2; half > 0; half /= 2)
      for (std::size_t index = 0; index < half; ++index) lane(index).add(lane(index + half));
    return lane(0).measure();
  }

 private:
  [[nodiscard, gnu::always_inline]] measure_lane lane(std::size_t index) noexcept
  {
    return {squares[index], magnitudes[index], largest[index]};
  }

  template <class Element>
  [[gnu::always_inline]] void add_row(const Element* values, std::size_t count) noexcept
  {
    for (std::size_t index = 0; index < count; ++index) lane(index).add(values[index]);
  }
};

#if defined(__x86_64__)
template <class Element>
[[gnu::target("avx2")]] void add_with_avx2(measure_rows& rows, const Element* values, std::size_t count) noexcept
{
  rows.add(values, count);
}

template <class Element>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void add_with_avx512(measure_rows& rows, const Element* values,
                                                                           std::size_t count) noexcept
{
  rows.add(values, count);
}
#endif

/// Adds with the widest instructions of this processor: all compile the same source and give the same bits.
template <class Element>
void add_fast(measure_rows& rows, const Element* values, std::size_t count) noexcept
{
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return add_with_avx512(rows, values, count);
  if (__builtin_cpu_supports("avx2")) return add_with_avx2(rows, values, count);
#endif
  rows.add(values, count);
}

}  // namespace detail

/// The measure of at most `measure_block` elements.
///
/// Element i is added in double to lane i mod 32, in order; then lane j takes lane j + 16, then + 8, 4, 2 and 1. So the
/// bits depend on the values alone, under a float_environment. Cost: one pass, near the speed of memory.
/// @pre   at most `measure_block` elements
template <real_element Element>
[[nodiscard]] gradient_measure measure_one_block(std::span<const Element> values) noexcept
{
  detail::measure_rows rows;
  detail::add_fast(rows, values.data(), values.size());
  return rows.folded();
}

/// The measure of a whole gradient: blocks of `measure_block` elements, their sums added in order, rounded to nearest
/// under all settings of the caller.
template <real_element Element>
[[nodiscard]] gradient_measure measure(std::span<const Element> values) noexcept
{
  const float_environment standard;
  gradient_measure total;
  for (; values.size() > measure_block; values = values.subspan(measure_block))
    total.add(measure_one_block(values.first(measure_block)));
  total.add(measure_one_block(values));
  return total;
}

/// Words that carry a measure to another rank.
inline constexpr std::size_t words_of_measure = 3;

/// A measure as words. Words of zeros are the measure of zeros.
[[nodiscard]] inline std::array<std::uint64_t, words_of_measure> words_of(const gradient_measure& from) noexcept
{
  return {std::bit_cast<std::uint64_t>(from.squares), std::bit_cast<std::uint64_t>(from.magnitudes),
          std::uint64_t{std::bit_cast<std::uint32_t>(from.largest)} << 1U | (from.finite ? 0U : 1U)};
}
/// The measure with these words. @param words   words_of_measure of them
[[nodiscard]] inline gradient_measure measure_in(const std::uint64_t* words) noexcept
{
  return {std::bit_cast<double>(words[0]), std::bit_cast<double>(words[1]),
          std::bit_cast<float>(static_cast<std::uint32_t>(words[2] >> 1U)), (words[2] & 1U) == 0};
}

}  // namespace chunkmem::inline v0
