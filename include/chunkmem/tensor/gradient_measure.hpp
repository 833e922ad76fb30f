#pragma once

#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/tensor/half.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

namespace chunkmem::inline v0 {

/// What clipping and loss scaling ask of a gradient: of its values as they are stored, denormals as zero.
///
/// Where one of them is infinite or no number, `finite` is false and all three sums are infinite.
struct gradient_measure {
  double squares = 0;     ///< sum of the squares: the 2-norm is its root
  double magnitudes = 0;  ///< sum of the magnitudes: the 1-norm
  float largest = 0;      ///< magnitude: the infinity-norm
  bool finite = true;

  /// Takes in what follows: the order of calls is part of the sums' bits.
  constexpr void add(const gradient_measure& next) noexcept
  {
    squares += next.squares;
    magnitudes += next.magnitudes;
    largest = largest < next.largest ? next.largest : largest;
    finite = finite && next.finite;
  }
};

/// Elements that are added up in lanes before their sum joins the others.
inline constexpr std::size_t measure_block = 4096;

namespace detail {

inline constexpr std::size_t measure_lanes = 32;

/// One number for each lane of a block.
struct measure_rows {
  alignas(64) double squares[measure_lanes] = {};
  alignas(64) double magnitudes[measure_lanes] = {};
  alignas(64) std::int32_t largest[measure_lanes] = {};  ///< bits of a magnitude: in its order, infinity and NaN last

  template <class Element>
  [[gnu::always_inline]] void add(const Element* values, std::size_t count) noexcept
  {
    std::size_t at = 0;
    for (; at + measure_lanes <= count; at += measure_lanes) add_row(values + at, measure_lanes);
    add_row(values + at, count - at);
  }

  [[nodiscard]] gradient_measure folded() noexcept
  {
    for (std::size_t half = measure_lanes / 2; half > 0; half /= 2) {
      for (std::size_t lane = 0; lane < half; ++lane) {
        squares[lane] += squares[lane + half];
        magnitudes[lane] += magnitudes[lane + half];
        largest[lane] = larger(largest[lane], largest[lane + half]);
      }
    }
    constexpr double infinite = std::numeric_limits<double>::infinity();
    constexpr float infinite_single = std::numeric_limits<float>::infinity();
    if (std::bit_cast<std::int32_t>(infinite_single) <= largest[0]) return {infinite, infinite, infinite_single, false};
    return {squares[0], magnitudes[0], std::bit_cast<float>(largest[0]), true};
  }

 private:
  [[gnu::always_inline]] static std::int32_t larger(std::int32_t left, std::int32_t right) noexcept
  {
    return left < right ? right : left;
  }

  /// The square of a single is exact in double, so that a fused multiply-add cannot change a bit.
  template <class Element>
  [[gnu::always_inline]] void add_row(const Element* values, std::size_t count) noexcept
  {
    for (std::size_t lane = 0; lane < count; ++lane) {
      const auto bits = std::bit_cast<std::int32_t>(flush(to_float(values[lane]))) & 0x7fffffff;
      largest[lane] = larger(largest[lane], bits);
      const auto number = static_cast<double>(std::bit_cast<float>(bits));
      squares[lane] += number * number;
      magnitudes[lane] += number;
    }
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

/// Adds with the widest instructions of this processor: they share one text and so give the same bits.
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
/// whatever the caller's settings are.
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

}  // namespace chunkmem::inline v0
