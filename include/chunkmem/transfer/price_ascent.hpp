// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/retention_dual.hpp>
#include <chunkmem/transfer/row_prices.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Climbs a dual: prices at which keeping and dropping are nearly in balance everywhere.
///
/// Quasi-Newton steps over the prices that are above zero or want to be, cut off at zero, halved until they climb. Each
/// call of `climb` goes on from where the last one ended, so that the width can shrink step by step. The best prices by
/// the true dual are kept beside. Source: L-BFGS (Nocedal 1980) with projection (Bertsekas 1982). Cost: one value of
/// the dual and O(20 rows) for each step; memory 22 numbers for each row.
class price_ascent {
 public:
  static constexpr std::size_t pairs = 10;
  static constexpr std::uint32_t most_priced_rows = 1'200;

  explicit price_ascent(const retention_problem& problem)
      : priced_rows_{tightest_rows(problem)},
        dual_{problem, priced_rows_},
        rows_{dual_.coordinates()},
        now_(rows_),
        slope_(rows_),
        next_(rows_),
        next_slope_(rows_),
        way_(rows_),
        all_(problem.room().size() + rows_ - priced_rows_.size()),
        price_{priced_rows_.size()},
        reached_{problem.room().size()},
        best_{problem.room().size()}
  {
    for (pair& it : pairs_) it = {std::vector<double>(rows_), std::vector<double>(rows_), 0};
    best_value_ = dual_(price_, 0, slope_);
  }

  /// Classes of gaps and priced rows: what one value of the dual looks at.
  [[nodiscard]] std::size_t terms() const noexcept { return dual_.classes() + rows_; }

  /// @param width   over which choices are rounded off [moves of a byte], above 0
  void climb(double width, std::size_t steps)
  {
    if (rows_ == 0) return;
    count_ = 0;
    price_.set(now_);
    double value = dual_(price_, width, slope_);
    for (std::size_t step = 0; step < steps; ++step) {
      find_way();
      double gained = 0;
      const bool is_plain = count_ == 0;
      if (search(width, value, gained)) {
        remember();
        std::swap(now_, next_);
        std::swap(slope_, next_slope_);
        value += gained;
      }
      if (gained > 1e-8 * dual_.weight()) continue;
      if (is_plain) break;
      count_ = 0;  // the pairs may mislead: once more along the slope
    }
    price_.set(now_);
    for (std::size_t at = 0; at < priced_rows_.size(); ++at) all_[priced_rows_[at]] = now_[at];
    if (rows_ > priced_rows_.size()) all_.back() = now_.back();
    reached_.set(all_);
    const double true_value = dual_(price_, 0, next_slope_);
    if (true_value <= best_value_) return;
    best_value_ = true_value;
    best_ = reached_;
  }

  /// The prices that the last climb reached.
  [[nodiscard]] const row_prices& reached() const noexcept { return reached_; }
  /// Those with the highest true dual.
  [[nodiscard]] const row_prices& best() const noexcept { return best_; }

 private:
  struct pair {
    std::vector<double> step;
    std::vector<double> bend;  // by how much the slope fell
    double scale = 0;          // 1 over their product
  };

  /// In each run of rows the one with the most bytes too many, were all gaps kept.
  static std::vector<std::uint32_t> tightest_rows(const retention_problem& problem)
  {
    const auto rows = static_cast<std::uint32_t>(problem.room().size());
    std::vector<std::int64_t> over(rows + std::size_t{1}, 0);
    for (const retention_problem::gap& it : problem.gaps()) {
      const auto size = static_cast<std::int64_t>(problem.epochs()[it.epoch].size);
      over[it.first] += size;
      over[it.last] -= size;
      if (it.wraps) over[0] += size;
    }
    std::partial_sum(over.begin(), over.end(), over.begin());
    std::vector<std::uint32_t> found;
    const std::uint32_t run = (rows + most_priced_rows - 1) / most_priced_rows;
    for (std::uint32_t begin = 0; begin < rows; begin += run) {
      std::uint32_t tightest = begin;
      for (std::uint32_t row = begin; row < std::min(rows, begin + run); ++row)
        if (over[row] - problem.room()[row] > over[tightest] - problem.room()[tightest]) tightest = row;
      found.push_back(tightest);
    }
    return found;
  }

  [[nodiscard]] bool is_free(std::size_t row) const noexcept { return now_[row] > 0 || slope_[row] > 0; }

  static double product(std::span<const double> left, std::span<const double> right) noexcept
  {
    std::array<double, 4> sums{};  // so that one sum does not wait for the other
    const std::size_t whole = left.size() / 4 * 4;
    for (std::size_t at = 0; at < whole; at += 4)
      for (std::size_t lane = 0; lane < 4; ++lane)
        sums[lane] = __builtin_fma(left[at + lane], right[at + lane], sums[lane]);
    for (std::size_t at = whole; at < left.size(); ++at) sums[0] = __builtin_fma(left[at], right[at], sums[0]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  static void add(std::span<double> to, double factor, std::span<const double> from) noexcept
  {
    for (std::size_t at = 0; at < to.size(); ++at) to[at] = __builtin_fma(factor, from[at], to[at]);
  }

  void find_way()
  {
    for (std::size_t row = 0; row < rows_; ++row) way_[row] = is_free(row) ? slope_[row] : 0;
    std::array<double, pairs> factors{};
    for (std::size_t back = 0; back < count_; ++back) {
      const pair& it = pairs_[(newest_ + pairs - back) % pairs];
      factors[back] = it.scale * product(it.step, way_);
      add(way_, -factors[back], it.bend);
    }
    if (count_ > 0) {
      const pair& it = pairs_[newest_];
      const double stretch = 1 / (it.scale * product(it.bend, it.bend));
      for (double& value : way_) value *= stretch;
    } else {
      shorten_way();
    }
    for (std::size_t back = count_; back-- > 0;) {
      const pair& it = pairs_[(newest_ + pairs - back) % pairs];
      const double factor = __builtin_fma(-it.scale, product(it.bend, way_), factors[back]);
      add(way_, factor, it.step);
    }
    for (std::size_t row = 0; row < rows_; ++row)
      if (!is_free(row)) way_[row] = 0;
    if (product(way_, slope_) > 0) return;
    for (std::size_t row = 0; row < rows_; ++row) way_[row] = is_free(row) ? slope_[row] : 0;
    shorten_way();
  }

  /// A first step that changes no sum of prices by more than a quarter of a load.
  void shorten_way()
  {
    double sum = 0;
    for (const double value : way_) sum += value < 0 ? -value : value;
    if (sum > 0)
      for (double& value : way_) value *= 0.25 / sum;
  }

  bool search(double width, double value, double& gained)
  {
    double length = 1;
    for (int halving = 0; halving < 25; ++halving, length *= 0.5) {
      for (std::size_t row = 0; row < rows_; ++row)
        next_[row] = std::max(0.0, __builtin_fma(length, way_[row], now_[row]));
      price_.set(next_);
      gained = dual_(price_, width, next_slope_) - value;
      double expected = 0;
      for (std::size_t row = 0; row < rows_; ++row)
        expected = __builtin_fma(slope_[row], next_[row] - now_[row], expected);
      if (expected > 0 && gained > 1e-4 * expected) return true;
    }
    return false;
  }

  void remember()
  {
    const std::size_t at = (newest_ + 1) % pairs;
    pair& it = pairs_[at];
    for (std::size_t row = 0; row < rows_; ++row) {
      it.step[row] = next_[row] - now_[row];
      it.bend[row] = slope_[row] - next_slope_[row];
    }
    const double both = product(it.step, it.bend);
    if (!(both > 1e-12 * product(it.bend, it.bend))) return;
    it.scale = 1 / both;
    newest_ = at;
    count_ = std::min(count_ + 1, pairs);
  }

  std::vector<std::uint32_t> priced_rows_;
  retention_dual dual_;
  std::size_t rows_;  // and one for the homes, where the host has no room for all
  std::vector<double> now_;
  std::vector<double> slope_;
  std::vector<double> next_;
  std::vector<double> next_slope_;
  std::vector<double> way_;
  std::vector<double> all_;
  row_prices price_;  // of priced rows
  row_prices reached_;
  row_prices best_;
  double best_value_ = 0;
  std::array<pair, pairs> pairs_;
  std::size_t newest_ = 0;
  std::size_t count_ = 0;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
