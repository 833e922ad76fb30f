// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The estimate of a linear layer's weight gradient from some rows in closed form, and wrong estimates. G = sum of
/// h_i^T d_i.
namespace support::row_sampling {

/// Random numbers (xorshift64*, Vigna 2016).
class dice {
 public:
  explicit dice(std::uint64_t seed) : state_{seed * 0x9e3779b97f4a7c15U + 0x632be59bd9b4e019U} {}

  std::uint64_t bits()
  {
    state_ ^= state_ >> 12U, state_ ^= state_ << 25U, state_ ^= state_ >> 27U;
    return state_ * 0x2545f4914f6cdd1dU;
  }
  double uniform() { return static_cast<double>(bits() >> 11U) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform()); }

 private:
  std::uint64_t state_;
};

/// Rows of an input and of the gradient of an output.
struct problem {
  std::size_t rows = 0, inputs = 0, outputs = 0;
  std::vector<float> input, slope;

  [[nodiscard]] double norm_of_input(std::size_t row) const { return norm(input, row, inputs); }
  [[nodiscard]] double norm_of_slope(std::size_t row) const { return norm(slope, row, outputs); }
  /// |h_i| |d_i|
  [[nodiscard]] std::vector<double> exact_weights() const
  {
    std::vector<double> all(rows);
    for (std::size_t row = 0; row < rows; ++row) all[row] = norm_of_input(row) * norm_of_slope(row);
    return all;
  }
  /// <h_i, h_j> <d_i, d_j>, which is <g_i, g_j>
  [[nodiscard]] std::vector<double> gram() const
  {
    std::vector<double> all(rows * rows);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j <= i; ++j)
        all[i * rows + j] = all[j * rows + i] = dot(input, i, j, inputs) * dot(slope, i, j, outputs);
    return all;
  }

 private:
  [[nodiscard]] static double dot(const std::vector<float>& of, std::size_t i, std::size_t j, std::size_t width)
  {
    double sum = 0;
    for (std::size_t at = 0; at < width; ++at) sum += double{of[i * width + at]} * double{of[j * width + at]};
    return sum;
  }
  [[nodiscard]] static double norm(const std::vector<float>& of, std::size_t row, std::size_t width)
  {
    return std::sqrt(dot(of, row, row, width));
  }
};

/// Norms of rows by name: equal, zipf, heavy (a Pareto tail), parallel (equal norms, nearly one direction), mixed
/// (half of the rows small), sparse (rows of zeros among them).
[[nodiscard]] inline problem make_problem(std::string_view kind, std::size_t rows, std::size_t inputs,
                                          std::size_t outputs, std::uint64_t seed)
{
  dice random{seed};
  problem made{rows, inputs, outputs, std::vector<float>(rows * inputs), std::vector<float>(rows * outputs)};
  std::vector<std::size_t> rank(rows);
  std::iota(rank.begin(), rank.end(), std::size_t{1});
  for (std::size_t row = rows; row > 1; --row) std::swap(rank[row - 1], rank[random.bits() % row]);
  const auto fill = [&](std::vector<float>& out, std::size_t width, bool is_slope) {
    std::vector<double> common(width);
    for (double& each : common) each = random.normal();
    for (std::size_t row = 0; row < rows; ++row) {
      double norm = 1;
      if (kind == "zipf" && is_slope) norm = 1 / static_cast<double>(rank[row]);
      if (kind == "heavy") norm = std::pow(1 - random.uniform(), -0.6);
      if (kind == "mixed") norm = row % 2 == 0 ? 1 : 0.05 * random.uniform();
      if (kind == "sparse" && is_slope) norm = row % 3 == 0 ? 0 : random.uniform();
      std::vector<double> direction(width);
      double squares = 0;
      for (std::size_t at = 0; at < width; ++at) {
        direction[at] = random.normal();
        if (kind == "parallel") direction[at] = common[at] + 0.2 * direction[at];
        squares += direction[at] * direction[at];
      }
      for (std::size_t at = 0; at < width; ++at)
        out[row * width + at] = static_cast<float>(norm * direction[at] / std::sqrt(squares));
    }
  };
  fill(made.input, inputs, false);
  fill(made.slope, outputs, true);
  return made;
}

/// Rows from the largest weight to the smallest; rows of equal weight in their order.
[[nodiscard]] inline std::vector<std::size_t> order_of(const std::vector<double>& weights)
{
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  return order;
}

/// The division of a choice: c rows are certain; of the rest, each place has row i with probability p_i.
struct division {
  std::size_t kept = 0, always = 0;
  std::vector<bool> is_always;
  std::vector<double> share;       ///< p_i / (1 - P), 0 in C
  std::vector<std::size_t> order;  ///< rows, from the smallest weight to the largest

  [[nodiscard]] double drawn() const { return static_cast<double>(kept - always); }
};
/// @param rule   "best": (1 - P)^2 / (k - c) least among P >= c / k. "squared": without the second. "plain": c = 0
[[nodiscard]] inline division divide(const std::vector<double>& weights, std::size_t kept,
                                     std::string_view rule = "best")
{
  const std::vector<std::size_t> order = order_of(weights);
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  division made{kept, 0, std::vector<bool>(weights.size()), std::vector<double>(weights.size()), {}};
  double in_front = 0, least = all * all / static_cast<double>(kept);
  for (std::size_t always = 1; always <= kept && rule != "plain"; ++always) {
    in_front += weights[order[always - 1]];
    double rest = 0;
    for (std::size_t at = always; at < order.size(); ++at) rest += weights[order[at]];
    if (!(rest > 0)) {
      made.always = always;
      break;
    }
    if (always == kept) break;
    const double score = rest * rest / static_cast<double>(kept - always);
    const bool may = in_front / all >= static_cast<double>(always) / static_cast<double>(kept) || rule == "squared";
    if (may && score < least) least = score, made.always = always;
  }
  double rest = 0;
  for (std::size_t at = 0; at < order.size(); ++at) {
    made.is_always[order[at]] = at < made.always;
    if (at >= made.always) rest += weights[order[at]];
  }
  for (std::size_t row = 0; row < weights.size(); ++row)
    if (!made.is_always[row] && rest > 0) made.share[row] = weights[row] / rest;
  made.order.assign(order.rbegin(), order.rend());
  return made;
}

/// The overlap of a stratum with the share of a row.
struct overlap {
  std::size_t row;
  double length;
};
/// Calls `visit(overlaps)` for each of the strata [j / T, (j + 1) / T), along which the shares lie one behind another.
template <class Visit>
void for_each_stratum(const division& by, Visit visit)
{
  const auto strata = static_cast<std::size_t>(by.drawn());
  std::vector<overlap> in;
  for (std::size_t stratum = 0; stratum < strata; ++stratum) {
    const double first = static_cast<double>(stratum) / by.drawn(),
                 last = static_cast<double>(stratum + 1) / by.drawn();
    in.clear();
    double begin = 0;
    for (const std::size_t row : by.order) {
      const double end = begin + by.share[row];
      const double length = std::min(last, end) - std::max(first, begin);
      if (by.share[row] > 0 && length > 0) in.push_back({row, length});
      begin = end;
    }
    visit(in);
  }
}

/// The variance of the estimate along a direction, along which the rows have these lengths: stratum by stratum, the
/// mean of the square less the square of the mean.
[[nodiscard]] inline double variance_along(const division& by, const std::vector<double>& lengths)
{
  double variance = 0;
  for_each_stratum(by, [&](const std::vector<overlap>& in) {
    double squares = 0, mean = 0;
    for (const overlap& each : in) {
      const double held = lengths[each.row] / by.share[each.row];
      squares += each.length * held * held / by.drawn(), mean += each.length * held;
    }
    variance += std::max(0.0, squares - mean * mean);
  });
  return variance;
}
/// The variance of all elements together. @param gram   see problem
[[nodiscard]] inline double variance_of(const division& by, const std::vector<double>& gram)
{
  const std::size_t rows = by.share.size();
  double variance = 0;
  for_each_stratum(by, [&](const std::vector<overlap>& in) {
    for (const overlap& one : in) {
      variance += one.length * gram[one.row * rows + one.row] / (by.share[one.row] * by.share[one.row] * by.drawn());
      for (const overlap& other : in)
        variance -=
            one.length * other.length * gram[one.row * rows + other.row] / (by.share[one.row] * by.share[other.row]);
    }
  });
  return variance;
}
/// The same where each place is drawn independently from all of the rest.
[[nodiscard]] inline double independent_variance_along(const division& by, const std::vector<double>& lengths)
{
  double squares = 0, sum = 0;
  for (std::size_t row = 0; row < lengths.size(); ++row)
    if (by.share[row] > 0) squares += lengths[row] * lengths[row] / by.share[row], sum += lengths[row];
  return squares > 0 ? std::max(0.0, squares - sum * sum) / by.drawn() : 0;
}
/// Of all elements together: ((1 - P) sum |g_i|^2 / p_i - |R|^2) / (k - c).
[[nodiscard]] inline double independent_variance_of(const division& by, const std::vector<double>& gram)
{
  const std::size_t rows = by.share.size();
  double squares = 0, rest = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    if (by.is_always[i]) continue;
    if (by.share[i] > 0) squares += gram[i * rows + i] / by.share[i];
    for (std::size_t j = 0; j < rows; ++j)
      if (!by.is_always[j]) rest += gram[i * rows + j];
  }
  return squares > 0 ? (squares - rest) / by.drawn() : 0;
}

/// The variance of a smaller batch: k random rows without repetition, each counts n / k times (Cochran 1977).
[[nodiscard]] inline double smaller_batch_variance(std::size_t kept, std::size_t rows, const std::vector<double>& gram)
{
  const auto n = static_cast<double>(rows), k = static_cast<double>(kept);
  double squares = 0;
  for (std::size_t row = 0; row < rows; ++row) squares += gram[row * rows + row];
  const double all = std::accumulate(gram.begin(), gram.end(), 0.0);
  return n * n / k * (1 - k / n) * (squares - all / n) / (n - 1);
}

/// A wrong estimate.
///
/// "first visit": drawn rows count once. "top rows": only the k largest. "put back": rows are drawn from all, including
/// those that are certain. "not replaced": k rows without repetition, each counts once.
class wrong_estimate {
 public:
  wrong_estimate(std::string_view how, std::vector<double> weights, std::size_t kept)
      : how_{how}, weights_{std::move(weights)}, right_{divide(weights_, kept)}, counts_(weights_.size())
  {
    const std::vector<std::size_t> order = order_of(weights_);
    top_.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept));
    for (std::size_t row = 0; row < counts_.size(); ++row) rest_ += right_.is_always[row] ? 0 : weights_[row];
  }

  /// The expected weight of each row. @pre not "not replaced", which has no closed form here
  [[nodiscard]] std::vector<double> expected() const
  {
    std::vector<double> counts(weights_.size());
    const double all = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    for (std::size_t row = 0; row < counts.size(); ++row) {
      counts[row] = right_.is_always[row] ? 1 : 0;
      if (how_ == "first visit") counts[row] += right_.drawn() * right_.share[row];
      if (how_ == "put back" && weights_[row] > 0) counts[row] += rest_ / all;
    }
    if (how_ != "top rows") return counts;
    std::fill(counts.begin(), counts.end(), 0.0);
    for (const std::size_t row : top_) counts[row] = 1;
    return counts;
  }
  /// The weight of each row in the next estimate.
  const std::vector<double>& next(dice& random)
  {
    std::fill(counts_.begin(), counts_.end(), 0.0);
    if (how_ == "top rows") {
      for (const std::size_t row : top_) counts_[row] = 1;
    } else if (how_ == "not replaced") {
      left_ = weights_;
      for (std::size_t place = 0; place < right_.kept; ++place) {
        const std::size_t row = drawn(left_, random);
        if (left_[row] > 0) counts_[row] = 1;
        left_[row] = 0;
      }
    } else {
      for (std::size_t row = 0; row < counts_.size(); ++row) counts_[row] = right_.is_always[row] ? 1 : 0;
      for (std::size_t place = right_.always; place < right_.kept; ++place) {
        const std::size_t row = drawn(how_ == "first visit" ? right_.share : weights_, random);
        counts_[row] += how_ == "first visit" ? 1 : rest_ / (right_.drawn() * weights_[row]);
      }
    }
    return counts_;
  }

 private:
  static std::size_t drawn(const std::vector<double>& from, dice& random)
  {
    double left = random.uniform() * std::accumulate(from.begin(), from.end(), 0.0);
    std::size_t last = 0;
    for (std::size_t row = 0; row < from.size(); ++row) {
      if (!(from[row] > 0)) continue;
      last = row;
      if ((left -= from[row]) < 0) break;
    }
    return last;
  }

  std::string how_;
  std::vector<double> weights_;
  division right_;
  std::vector<std::size_t> top_;
  std::vector<double> counts_, left_;
  double rest_ = 0;
};

}  // namespace support::row_sampling
