// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/host_device.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/philox.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

namespace detail {

/// high * 2^64 + low
struct two_words {
  std::uint64_t high, low;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE friend constexpr bool operator<=(two_words left, two_words right) noexcept
  {
    return left.high != right.high ? left.high < right.high : left.low <= right.low;
  }
};
[[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr two_words whole_product(std::uint64_t left, std::uint64_t right) noexcept
{
  const std::uint64_t low = 0xffff'ffffU, of_left = left >> 32U, of_right = right >> 32U;
  const std::uint64_t ends = (left & low) * (right & low);
  const std::uint64_t middle = of_left * (right & low) + (ends >> 32U);
  const std::uint64_t other = (left & low) * of_right + (middle & low);
  return {of_left * of_right + (middle >> 32U) + (other >> 32U), other << 32U | (ends & low)};
}

/// Weights as integer numbers of one unit, each with its row in one word: a key. All units add up to less than 2^62.
///
/// The unit is a power of two, from the largest weight. A weight above 0 has 1 unit at least.
class row_keys {
 public:
  /// bits_of a weight that is negative, NaN or infinite is at least this.
  static constexpr std::uint64_t no_weight = 0x7ff0'0000'0000'0000U;
  static constexpr int bits = 62;

  /// The bits of a weight, in the order of weights.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE static std::uint64_t bits_of(double weight) noexcept
  {
    const auto all = bits_as<std::uint64_t>(weight);
    return all << 1U == 0 ? 0 : all;  // -0
  }

  /// @param largest   bits of the largest weight. @pre it is below no_weight
  CHUNKMEM_HOST_DEVICE row_keys(std::uint64_t largest, std::uint64_t rows) noexcept : last_{rows - 1}
  {
    while (last_ >> row_bits_ != 0) ++row_bits_;
    std::uint64_t digits = digits_of(largest);
    int lead = 0;
    while ((digits >>= 1U) != 0) ++lead;
    exponent_ = bits - row_bits_ - 1 - lead - exponent_of(largest);
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t key_of(std::uint64_t weight, std::uint64_t row) const noexcept
  {
    return units_in(weight) << static_cast<unsigned>(row_bits_) | (last_ - row);
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t units_of(std::uint64_t key) const noexcept
  {
    return key >> static_cast<unsigned>(row_bits_);
  }
  /// Rows of equal weight are in their order when keys descend.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t row_of(std::uint64_t key) const noexcept
  {
    return last_ - (key & ((std::uint64_t{1} << static_cast<unsigned>(row_bits_)) - 1));
  }
  /// To compare two: a unit is 2 to the power of this, up to a constant.
  [[nodiscard]] int exponent() const noexcept { return exponent_ + 1075; }

 private:
  [[nodiscard]] CHUNKMEM_HOST_DEVICE static constexpr int exponent_of(std::uint64_t weight) noexcept
  {
    return weight >> 52U == 0 ? 1 : static_cast<int>(weight >> 52U);
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE static constexpr std::uint64_t digits_of(std::uint64_t weight) noexcept
  {
    const std::uint64_t hidden = std::uint64_t{1} << 52U;
    return (weight & (hidden - 1)) | (weight >> 52U == 0 ? 0 : hidden);
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t units_in(std::uint64_t weight) const noexcept
  {
    if (weight == 0) return 0;
    const int shift = exponent_of(weight) + exponent_;
    const std::uint64_t digits = digits_of(weight);
    if (shift >= 0) return digits << static_cast<unsigned>(shift);
    const std::uint64_t units = shift > -64 ? digits >> static_cast<unsigned>(-shift) : 0;
    return units == 0 ? 1 : units;
  }

  std::uint64_t last_;
  int row_bits_ = 0;
  int exponent_ = 0;
};

/// The score of a number of rows that are kept for certain.
struct division_score {
  double score = 0;
  std::uint64_t always = 0;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE bool is_before(const division_score& other) const noexcept
  {
    return score < other.score || (score == other.score && always < other.always);
  }
};

/// A kept row and its scale as one word. When words descend, rows are in their order, and larger scales come first.
struct kept_place {
  CHUNKMEM_HOST_DEVICE kept_place(std::uint64_t row, float scale) noexcept
      : word{(0xffff'ffffU - row) << 32U | bits_as<std::uint32_t>(scale)}
  {
  }
  CHUNKMEM_HOST_DEVICE explicit kept_place(std::uint64_t from) noexcept : word{from} {}

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::int32_t row() const noexcept
  {
    return static_cast<std::int32_t>(0xffff'ffffU - (word >> 32U));
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE float scale() const noexcept
  {
    return bits_as<float>(static_cast<std::uint32_t>(word));
  }

  std::uint64_t word;
};

/// Rows in a line, from the largest weight to the smallest, each as long as its units.
struct row_line {
  const std::uint64_t* keys;  ///< by place in this order
  const std::uint64_t* sums;  ///< of the units before each place, and of all
  std::uint64_t rows, kept;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t rest(std::uint64_t always) const noexcept
  {
    return sums[rows] - sums[always];
  }
  /// (1 - P)^2 / (k - c) in units, for c = always. 0 where nothing is left.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE double score(std::uint64_t always) const noexcept
  {
    const std::uint64_t left = rest(always);
    if (left == 0) return 0;
    const auto length = static_cast<double>(left);
    return strict_fp::quotient(strict_fp::product(length, length), static_cast<double>(kept - always));
  }
  /// The same, infinite where c = always is not allowed. @pre always is at most kept
  [[nodiscard]] CHUNKMEM_HOST_DEVICE division_score score_of(std::uint64_t always) const noexcept
  {
    const std::uint64_t left = rest(always);
    // P >= c / k
    const bool may = left == 0 || whole_product(left, kept) <= whole_product(sums[rows], kept - always);
    return {may ? score(always) : bits_as<double>(row_keys::no_weight), always};
  }
  /// @param at   of the k places: those of rows that are kept for certain come first
  [[nodiscard]] CHUNKMEM_HOST_DEVICE kept_place place(std::uint64_t at, std::uint64_t always, const row_keys& by,
                                                      const chunkmem::detail::rounding_stream& random) const noexcept
  {
    if (at < always) return {by.row_of(keys[at]), 1.0F};
    const std::uint64_t left = rest(always);
    if (left == 0) return {rows - 1, 0.0F};
    const std::uint64_t drawn = kept - always, draw = at - always;
    const std::uint64_t target = sums[always] + target_of(draw, drawn, left, random.draw(draw));
    std::uint64_t first = always, last = rows - 1;  // finds the last row whose units begin at the target or before
    while (first < last) {
      const std::uint64_t middle = last - (last - first) / 2;
      if (sums[middle] <= target)
        first = middle;
      else
        last = middle - 1;
    }
    const std::uint64_t key = keys[first];
    const double share = strict_fp::quotient(static_cast<double>(left), static_cast<double>(by.units_of(key)));
    return {by.row_of(key), strict_fp::to_single(strict_fp::quotient(share, static_cast<double>(drawn)))};
  }

 private:
  /// The unit under (draw + u) / drawn of `left`: all of them are cut into `drawn` parts of a unit, so that a place has
  /// a whole number of parts, `left`, and u is one of them, by 128 random bits.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE static std::uint64_t target_of(
      std::uint64_t draw, std::uint64_t drawn, std::uint64_t left,
      const chunkmem::detail::philox_words& random) noexcept
  {
    const two_words high = whole_product(std::uint64_t{random.word[1]} << 32U | random.word[0], left);
    const std::uint64_t low = whole_product(std::uint64_t{random.word[3]} << 32U | random.word[2], left).high;
    const std::uint64_t part = high.high + (high.low + low < low ? 1 : 0);
    return draw * (left / drawn) + (draw * (left % drawn) + part) / drawn;
  }
};

}  // namespace detail

/// Chooses the rows of a sum of products that are kept, and the scale of each.
///
/// The gradient of a linear layer's weight is G = sum over the rows i of g_i = h_i^T d_i. With k kept rows and any
/// weights a_i >= 0, p_i = a_i / sum of a: the c rows of largest weight (the set C, whose p add up to P) count once.
/// The other T = k - c places are drawn from the rest: the shares q_i = p_i / (1 - P) lie one after another on [0, 1),
/// and place j has the row under (j + u_j) / T, each u_j uniform and by itself. A drawn row counts 1 / (T q_i) times.
///
///     row_choice choice{rows};                                  // its memory, for any number of calls
///     choice.choose(weights, indices, scales, key);             // k = indices.size(), rows in their order
///     // the sum over j of scales[j] * g of row indices[j] is the estimate of G
///
/// **Unbiased** for any weights that do not depend on the draws, and that are above 0 wherever g_i is not 0: with o_ij
/// the length that q_i has in common with [j / T, (j + 1) / T), place j has row i with the probability T o_ij, so all
/// places together are expected to hold sum over i and j of T o_ij g_i / (T q_i), the part of G outside of C. Old
/// norms, norms of a part of the rows, and no norms at all only cost variance.
///
/// **Variance.** With R = G - sum over C of g_i, and m_j = sum over i of o_ij g_i / q_i, the expectation of place j,
/// summed over all elements:
///
///     V = sum over i not in C of |g_i|^2 / (T q_i) - sum over j of |m_j|^2
///       <= V(c) = ((1 - P) * sum over i not in C of |g_i|^2 / p_i - |R|^2) / (k - c)
///
/// V(c) is the variance of T independent draws, each from all of [0, 1). The first sums are equal.
/// The m_j add up to R, and the sum of T squares is never below the square of their sum over T (Cauchy and Schwarz), so
/// **one place in each T-th (a stratified draw) is never worse than independent draws**. Where rows are equally large
/// and k is near the number of rows, it is much better, as few rows are drawn twice.
///
/// With a_i = |h_i| |d_i|, V(c) is ((1 - P)^2 S^2 - |R|^2) / (k - c), S the sum of a. c is the one that makes (1 - P)^2
/// / (k - c) least among those with P >= c / k. The second rule is what makes the choice **never worse than c = 0**,
/// plain column-row sampling (independent draws) with the same weights, whatever g is. Proof of V(c) <= V(0): let A and
/// B be the sums of |g_i|^2 / p_i over C and over the rest, and D = G - R. Then k V(0) = A + B - |D + R|^2 >= 0 and
/// (k - c) V(c) = (1 - P) B - |R|^2. From P >= c / k follows (k - c) / k >= 1 - P, so V(c) <= V(0) follows from
/// (1 - P) B - |R|^2 <= (1 - P) (A + B - |D + R|^2), which is (1 - P) |D + R|^2 <= (1 - P) A + |R|^2. The square of a
/// norm is convex, so |D + R|^2 = |P (D / P) + (1 - P) (R / (1 - P))|^2 <= |D|^2 / P + |R|^2 / (1 - P). And |D|^2 <=
/// (sum over C of sqrt(p_i) |g_i| / sqrt(p_i))^2 <= P A (Cauchy and Schwarz). Together (1 - P) |D + R|^2 <= (1 - P) A +
/// |R|^2. Without the second rule this does not hold: independent draws from rows of one norm that are nearly parallel
/// have 1.2 times V(0). Uniform sampling is V(0) with p_i = 1 / n, and a_i = |h_i| |d_i| is never above it (Cauchy and
/// Schwarz again).
///
/// **The same bits** for a key and weights on every machine, in any order of the work: weights become integer numbers
/// of one unit, a power of two, and these numbers are the a_i above. Their sum is at most 2^62 units, so sums are
/// exact, and the unit is at most 2^-30 of the largest weight. A weight below a unit counts as one unit, so no row with
/// a weight is lost. A draw takes 128 random bits: a row's probability is off by at most 2^-65 of itself, and its scale
/// is rounded to single precision.
///
/// Source: Liu et al. 2023 (arXiv 2305.15265), whose rule for c has neither the square nor P >= c / k. Cost: O(n log n)
/// and no allocation.
class row_choice {
 public:
  row_choice() = default;
  /// @param rows   at most, in one choice
  explicit row_choice(std::size_t rows) { make_room(rows); }

  void make_room(std::size_t rows)
  {
    if (rows <= keys_.size()) return;
    keys_.resize(rows);
    sums_.resize(rows + 1);
    places_.resize(rows);
  }

  /// @param weights   one for each row: a row of weight 0 is never chosen. Where one is negative or not finite, all
  ///   scales are NaN, so that an overflow is not sampled away
  /// @param indices, scales   of the kept rows, in the order of rows. With a place for each row: every row, once.
  ///   Places that no row is left for have the scale 0
  /// @param key   of the draws: the same key repeats them
  /// @return   c
  /// @pre make_room was called for as many rows; there are as many scales as indices, at least 1 and at most as many as
  ///   rows
  std::size_t choose(std::span<const double> weights, std::span<std::int32_t> indices, std::span<float> scales,
                     const rounding_key& key) noexcept
  {
    const float_environment standard;
    const std::size_t rows = weights.size(), kept = indices.size();
    const std::uint64_t largest = largest_of(weights);
    if (largest >= detail::row_keys::no_weight || kept == rows) {
      const bool is_whole = largest < detail::row_keys::no_weight;
      for (std::size_t at = 0; at < kept; ++at) {
        indices[at] = static_cast<std::int32_t>(at);
        scales[at] = is_whole ? 1.0F : std::numeric_limits<float>::quiet_NaN();
      }
      return is_whole ? kept : 0;
    }
    const detail::row_keys by{largest, rows};
    const detail::row_line line = line_of(weights, by, kept);
    const std::uint64_t always = always_kept(line);
    const chunkmem::detail::rounding_stream random{key};
    for (std::size_t at = 0; at < kept; ++at) places_[at] = line.place(at, always, by, random).word;
    std::sort(places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(kept), std::greater<>{});
    for (std::size_t at = 0; at < kept; ++at) {
      const detail::kept_place place{places_[at]};
      indices[at] = place.row();
      scales[at] = place.scale();
    }
    return static_cast<std::size_t>(always);
  }

  /// The least of (1 - P)^2 / (k - c), V(c) over S^2 without its |R|^2, for `kept` rows of these weights: the score by
  /// which a search compares ratios. It does not depend on the scale of the weights. 0: every row that counts is kept.
  /// Infinite: a weight is negative or not finite.
  /// @pre as choose
  [[nodiscard]] double noise_of(std::span<const double> weights, std::size_t kept) noexcept
  {
    const float_environment standard;
    const std::uint64_t largest = largest_of(weights);
    if (largest >= detail::row_keys::no_weight) return std::numeric_limits<double>::infinity();
    if (kept >= weights.size() || largest == 0) return 0;
    const detail::row_keys by{largest, weights.size()};
    const detail::row_line line = line_of(weights, by, kept);
    const auto all = static_cast<double>(line.rest(0));  // units, at most 2^62
    return strict_fp::quotient(line.score(always_kept(line)), strict_fp::product(all, all));
  }

 private:
  [[nodiscard]] static std::uint64_t largest_of(std::span<const double> weights) noexcept
  {
    std::uint64_t largest = 0;
    for (const double weight : weights) largest = std::max(largest, detail::row_keys::bits_of(weight));
    return largest;
  }
  [[nodiscard]] detail::row_line line_of(std::span<const double> weights, const detail::row_keys& by,
                                         std::size_t kept) noexcept
  {
    const std::size_t rows = weights.size();
    for (std::size_t row = 0; row < rows; ++row) keys_[row] = by.key_of(detail::row_keys::bits_of(weights[row]), row);
    std::sort(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(rows), std::greater<>{});
    sums_[0] = 0;
    for (std::size_t at = 0; at < rows; ++at) sums_[at + 1] = sums_[at] + by.units_of(keys_[at]);
    return {keys_.data(), sums_.data(), rows, kept};
  }
  /// c
  [[nodiscard]] static std::uint64_t always_kept(const detail::row_line& line) noexcept
  {
    detail::division_score best = line.score_of(0);
    for (std::uint64_t always = 1; always <= line.kept && best.score > 0; ++always) {
      const detail::division_score next = line.score_of(always);
      if (next.is_before(best)) best = next;
    }
    return best.always;
  }

  std::vector<std::uint64_t> keys_, sums_, places_;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
