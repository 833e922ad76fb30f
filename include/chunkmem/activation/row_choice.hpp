// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/tensor/philox.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// Chooses the rows of a sum of products that are kept, and by what each of them counts.
///
/// The gradient of a linear layer's weight is G = sum over the rows i of g_i = h_i^T d_i. With k kept rows and any
/// weights a_i >= 0, p_i = a_i / sum of a: the c rows of largest weight (the set C, whose p add up to P) count once.
/// The other T = k - c places are drawn from the rest: the shares q_i = p_i / (1 - P) lie one behind another on [0, 1),
/// and place j has the row under (j + u_j) / T, each u_j uniform and by itself. A drawn row counts 1 / (T q_i) times.
///
///     row_choice choice{rows};                                  // its memory, for any number of calls
///     choice.choose(weights, indices, scales, key);             // k = indices.size(), rows in their order
///     // the sum over j of scales[j] * g of row indices[j] is the estimate of G
///
/// **Unbiased** for any weights that do not depend on the draws, and that are above 0 wherever g_i is not 0: with o_ij
/// the length that q_i has in common with [j / T, (j + 1) / T), place j has row i with the probability T o_ij, so all
/// places together are expected to hold sum over i and j of T o_ij g_i / (T q_i), what C lacks of G. Old norms, norms
/// of a part of the rows, and no norms at all cost variance alone.
///
/// **Variance.** With R = G - sum over C of g_i, and m_j = sum over i of o_ij g_i / q_i, what place j is expected to
/// hold, summed over all elements:
///
///     V = sum over i not in C of |g_i|^2 / (T q_i) - sum over j of |m_j|^2
///       <= V(c) = ((1 - P) * sum over i not in C of |g_i|^2 / p_i - |R|^2) / (k - c)
///
/// V(c) is the variance of T draws that know nothing of one another, each from all of [0, 1). The first sums are equal.
/// The m_j add up to R, and the sum of T squares is never below the square of their sum over T (Cauchy and Schwarz), so
/// **a place in each T-th is never worse than independent draws**. Where rows are equally large and k is near the
/// number of rows it is much better, as few rows are drawn twice.
///
/// With a_i = |h_i| |d_i|, V(c) is ((1 - P)^2 S^2 - |R|^2) / (k - c), S the sum of a. c is the one that makes (1 - P)^2
/// / (k - c) least among those with P >= c / k. The second rule is what makes the choice **never worse than c = 0**,
/// plain column-row sampling (independent draws) with the same weights, whatever g is. Proof of V(c) <= V(0): let A and
/// B be the sums of |g_i|^2 / p_i over C and over the rest, and D = G - R. Then k V(0) = A + B - |D + R|^2 >= 0 and
/// (k - c) V(c) = (1 - P) B - |R|^2. From P >= c / k follows (k - c) / k >= 1 - P, so V(c) <= V(0) follows from
/// (1 - P) B - |R|^2 <= (1 - P) (A + B - |D + R|^2), which is (1 - P) |D + R|^2 <= (1 - P) A + |R|^2. The square of a
/// norm is convex, so |D + R|^2 = |P (D / P) + (1 - P) (R / (1 - P))|^2 <= |D|^2 / P + |R|^2 / (1 - P). And |D|^2 <=
/// (sum over C of sqrt(p_i) |g_i| / sqrt(p_i))^2 <= P A (Cauchy and Schwarz). Together (1 - P) |D + R|^2 <= (1 - P) A +
/// |R|^2. Without the second rule it is not so: independent draws from rows of one norm that are nearly parallel have
/// 1.2 times V(0). Sampling rows alike is V(0) with p_i = 1 / n, which a_i = |h_i| |d_i| is never above (Cauchy and
/// Schwarz again).
///
/// **The same bits** for a key and weights on every machine: weights are added up from the smallest to the largest,
/// rows of one weight in their order, in double. So no probability is off by more than (n + 4) * 2^-52. That is an
/// absolute bound: a row with a share below it may never be drawn.
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
    if (rows <= order_.size()) return;
    order_.resize(rows);
    tail_.resize(rows + 1);
    chosen_.resize(rows);
  }

  /// @param weights   one for each row: 0 is never chosen. Where one is negative or not finite, all scales are NaN, so
  ///   that an overflow is not sampled away
  /// @param indices, scales   of the kept rows, in the order of rows. With a place for each row: every row, once.
  ///   Places that nothing is left for have the scale 0
  /// @param key   of the draws: what it is made of decides what repeats them
  /// @return   c
  /// @pre make_room was called for as many rows; there are as many scales as indices, at least 1 and at most as many as
  ///   rows
  std::size_t choose(std::span<const double> weights, std::span<std::int32_t> indices, std::span<float> scales,
                     const rounding_key& key) noexcept
  {
    const float_environment standard;
    const std::size_t rows = weights.size(), kept = indices.size();
    if (!sort(weights)) return without_numbers(indices, scales);
    if (kept == rows) {
      for (std::size_t row = 0; row < rows; ++row) indices[row] = static_cast<std::int32_t>(row), scales[row] = 1;
      return rows;
    }
    const std::size_t always = always_kept(rows, kept);
    std::size_t places = 0;
    for (; places < always; ++places) chosen_[places] = {order_[places], 1.0F};
    if (tail_[always] > 0) {
      const chunkmem::detail::rounding_stream stream{key};
      const auto drawn = static_cast<double>(kept - always);
      for (std::size_t draw = 0; places < kept; ++draw, ++places) {
        const double target =
            strict_fp::quotient(strict_fp::sum(static_cast<double>(draw), uniform(stream, draw)), drawn);
        const std::size_t at = drawn_at(always, rows, strict_fp::product(target, tail_[always]));
        const double weight = weights[static_cast<std::size_t>(order_[at])];
        chosen_[places] = {order_[at], scale_of(tail_[always], weight, drawn)};
      }
    }
    for (; places < kept; ++places) chosen_[places] = {static_cast<std::int32_t>(rows - 1), 0.0F};
    std::sort(chosen_.begin(), chosen_.begin() + static_cast<std::ptrdiff_t>(kept),
              [](const place& left, const place& right) {
                return left.row != right.row ? left.row < right.row : left.scale > right.scale;
              });
    for (std::size_t at = 0; at < kept; ++at) indices[at] = chosen_[at].row, scales[at] = chosen_[at].scale;
    return always;
  }

  /// The least of S^2 (1 - P)^2 / (k - c), V(c) without its |R|^2, for `kept` rows of these weights: what a
  /// search compares ratios by. 0: every row that counts is kept.
  /// @pre as choose
  [[nodiscard]] double noise_of(std::span<const double> weights, std::size_t kept) noexcept
  {
    const float_environment standard;
    if (!sort(weights)) return std::numeric_limits<double>::infinity();
    if (kept >= weights.size()) return 0;
    const std::size_t always = always_kept(weights.size(), kept);
    return score(always, kept);
  }

 private:
  struct place {
    std::int32_t row;
    float scale;
  };

  /// Rows from the largest weight to the smallest, and the sums of each weight with all smaller ones.
  /// @return   all are finite
  bool sort(std::span<const double> weights) noexcept
  {
    const std::size_t rows = weights.size();
    for (std::size_t row = 0; row < rows; ++row) order_[row] = static_cast<std::int32_t>(row);
    for (const double weight : weights)
      if (!(weight >= 0 && weight <= std::numeric_limits<double>::max())) return false;
    std::sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(rows),
              [&](std::int32_t left, std::int32_t right) {
                const double first = weights[static_cast<std::size_t>(left)];
                const double second = weights[static_cast<std::size_t>(right)];
                return first != second ? first > second : left < right;
              });
    tail_[rows] = 0;
    for (std::size_t at = rows; at-- > 0;)
      tail_[at] = strict_fp::sum(tail_[at + 1], weights[static_cast<std::size_t>(order_[at])]);
    return tail_[0] <= std::numeric_limits<double>::max();
  }
  [[nodiscard]] double score(std::size_t always, std::size_t kept) const noexcept
  {
    if (!(tail_[always] > 0)) return 0;
    return strict_fp::quotient(strict_fp::product(tail_[always], tail_[always]), static_cast<double>(kept - always));
  }
  /// c. @pre kept < rows
  [[nodiscard]] std::size_t always_kept(std::size_t rows, std::size_t kept) const noexcept
  {
    std::size_t best = 0;
    for (std::size_t always = 0; always <= kept && always <= rows; ++always) {
      if (!(tail_[always] > 0)) return always;  // nothing is left to draw
      if (always == kept) break;
      // P >= c / k
      const bool may = strict_fp::product(tail_[always], static_cast<double>(kept)) <=
                       strict_fp::product(tail_[0], static_cast<double>(kept - always));
      if (may && score(always, kept) < score(best, kept)) best = always;
    }
    return best;
  }
  /// 1 / (T q_i). NaN where it is no finite number: a row is not lost without a word.
  [[nodiscard]] static float scale_of(double rest, double weight, double drawn) noexcept
  {
    const float scale = strict_fp::to_single(strict_fp::quotient(strict_fp::quotient(rest, weight), drawn));
    return scale <= std::numeric_limits<float>::max() ? scale : std::numeric_limits<float>::quiet_NaN();
  }
  /// In [0, 1), by 53 bits.
  [[nodiscard]] static double uniform(const chunkmem::detail::rounding_stream& stream, std::size_t draw) noexcept
  {
    const chunkmem::detail::philox_words words = stream.draw(draw / 2);
    const std::uint32_t* const mine = words.word + 2 * (draw % 2);
    const std::uint64_t bits = std::uint64_t{mine[1]} << 32U | mine[0];
    return static_cast<double>(bits >> 11U) * 0x1p-53;
  }
  /// The last place whose sum is above the target; the first one where rounding left none.
  [[nodiscard]] std::size_t drawn_at(std::size_t always, std::size_t rows, double target) const noexcept
  {
    const auto first = tail_.begin() + static_cast<std::ptrdiff_t>(always) + 1;
    const auto last = tail_.begin() + static_cast<std::ptrdiff_t>(rows);
    const auto found = std::partition_point(first, last, [&](double sum) { return sum > target; });
    return static_cast<std::size_t>(found - tail_.begin()) - 1;
  }
  static std::size_t without_numbers(std::span<std::int32_t> indices, std::span<float> scales) noexcept
  {
    for (std::size_t at = 0; at < indices.size(); ++at) {
      indices[at] = static_cast<std::int32_t>(at);
      scales[at] = std::numeric_limits<float>::quiet_NaN();
    }
    return 0;
  }

  std::vector<std::int32_t> order_;
  std::vector<double> tail_;
  std::vector<place> chosen_;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
