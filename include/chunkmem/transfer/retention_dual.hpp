// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/retention_problem.hpp>
#include <chunkmem/transfer/row_prices.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// The dual of a retention problem as a smooth function of prices, and its slope.
///
/// Each choice of the cheaper of two is rounded off by a parabola where they differ by less than a width; the value is
/// below the true one by at most a quarter of the width for each choice. Epochs with the same rows, loads and
/// write-back are one class, whatever the sizes of their chunks: only the sum of their bytes counts. In bytes of one
/// unit. Where the host has no room for every home, a chunk that could live on the device alone is one choice more: all
/// its epochs stay, or it pays for a home. Source: smoothing of Nesterov 2005. Cost: O(gaps of classes + rows) for each
/// value.
class retention_dual {
 public:
  /// @param priced_rows   rows that may have a price, in order; any will do, the others stay at 0
  retention_dual(const retention_problem& problem, std::span<const std::uint32_t> priced_rows)
      : rows_{priced_rows.size()}, flow_(rows_ + 1)
  {
    std::vector<std::uint32_t> priced_before(problem.room().size() + 1, 0);
    for (const std::uint32_t row : priced_rows) priced_before[row + std::size_t{1}] = 1;
    std::partial_sum(priced_before.begin(), priced_before.end(), priced_before.begin());
    std::vector<gap> gaps(problem.gaps().begin(), problem.gaps().end());
    for (gap& it : gaps) {
      it.first = priced_before[it.first];
      it.last = priced_before[it.last];
    }
    collect(problem, gaps);
    const auto unit = static_cast<double>(problem.unit_bytes());
    for (const std::uint32_t row : priced_rows) room_.push_back(static_cast<double>(problem.room()[row]) / unit);
    for (const group& it : classes_) weight_ += it.weight;
    has_homes_ = !problem.homes().empty();
    home_room_ = has_homes_ ? static_cast<double>(problem.home_room()) / unit : 0;
  }

  /// How many prices there are: of the priced rows, and of homes where the host has no room for all.
  [[nodiscard]] std::size_t coordinates() const noexcept { return rows_ + (has_homes_ ? 1 : 0); }

  [[nodiscard]] std::size_t classes() const noexcept { return classes_.size(); }
  /// Of all epochs [units].
  [[nodiscard]] double weight() const noexcept { return weight_; }

  /// The value without the constant bytes [units], and its slope in each coordinate. @param price   of the priced rows
  /// @param width   0: the true dual
  double operator()(const row_prices& price, double width, std::span<double> slope)
  {
    std::ranges::fill(flow_, 0.0);
    double value = 0;
    std::size_t begin = 0;
    homed_ = 0;
    for (std::size_t at = 0; at < classes_.size(); begin = classes_[at - 1].end) {
      const group& it = classes_[at];
      value = __builtin_fma(it.weight,
                            it.in_home > 0 ? add_home(at, begin, price, width) : add(it, begin, price, width), value);
      at += std::max(it.in_home, 1U);
    }
    if (has_homes_) {
      slope[rows_] = homed_ - home_room_;
      value = __builtin_fma(-home_room_, price.home(), value);
    }
    double kept = 0;
    for (std::size_t row = 0; row < rows_; ++row) {
      kept += flow_[row];
      slope[row] = kept - room_[row];
      value = __builtin_fma(-room_[row], price.prices()[row], value);
    }
    return value;
  }

 private:
  using gap = retention_problem::gap;
  struct group {
    double weight;    // of the chunks of all its epochs [units]
    std::size_t end;  // of its gaps
    bool writes_back;
    std::uint32_t in_home;  // of the first epoch of a chunk that could do without a home: how many it has
  };
  struct item {
    std::uint32_t begin;  // epochs
    std::uint32_t end;
    bool is_home;
  };
  struct smaller {
    double value;
    double first;  // how much of the first of two is in it
  };

  static std::vector<item> items_of(const retention_problem& problem)
  {
    std::vector<item> found;
    std::uint32_t at = 0;
    const auto add_until = [&](std::uint32_t end) {
      for (; at < end; ++at) found.push_back({at, at + 1, false});
    };
    for (const retention_problem::home& it : problem.homes()) {
      if (it.begin == it.end) continue;
      add_until(it.begin);
      found.push_back({it.begin, it.end, true});
      at = it.end;
    }
    add_until(static_cast<std::uint32_t>(problem.epochs().size()));
    return found;
  }

  void collect(const retention_problem& problem, const std::vector<gap>& gaps)
  {
    std::vector<item> items = items_of(problem);
    const auto compare = [&](const item& left, const item& right) {
      if (left.is_home != right.is_home) return left.is_home <=> right.is_home;
      if (left.end - left.begin != right.end - right.begin) return left.end - left.begin <=> right.end - right.begin;
      for (std::uint32_t at = 0; at < left.end - left.begin; ++at)
        if (const auto shapes =
                compare_shapes(gaps, problem.epochs()[left.begin + at], problem.epochs()[right.begin + at]);
            shapes != 0)
          return shapes;
      return std::strong_ordering::equal;
    };
    std::ranges::sort(items, [&](const item& left, const item& right) {
      const std::strong_ordering shapes = compare(left, right);
      return shapes != 0 ? shapes < 0 : left.begin < right.begin;
    });
    const auto unit = static_cast<double>(problem.unit_bytes());
    for (std::size_t at = 0; at < items.size(); ++at) {
      const std::uint32_t count = items[at].end - items[at].begin;
      if (at == 0 || compare(items[at - 1], items[at]) != 0)
        for (std::uint32_t which = items[at].begin; which < items[at].end; ++which) {
          const retention_problem::epoch& it = problem.epochs()[which];
          gaps_.insert(gaps_.end(), gaps.begin() + it.begin, gaps.begin() + it.end);
          classes_.push_back(
              {0, gaps_.size(), it.writes_back, items[at].is_home && which == items[at].begin ? count : 0});
        }
      for (std::size_t part = classes_.size() - count; part < classes_.size(); ++part)
        classes_[part].weight += static_cast<double>(problem.epochs()[items[at].begin].size) / unit;
    }
  }

  static std::strong_ordering compare_shapes(const std::vector<gap>& gaps, const retention_problem::epoch& a,
                                             const retention_problem::epoch& b)
  {
    if (a.writes_back != b.writes_back) return a.writes_back <=> b.writes_back;
    if (a.end - a.begin != b.end - b.begin) return a.end - a.begin <=> b.end - b.begin;
    for (std::uint32_t at = 0; at < a.end - a.begin; ++at) {
      const gap& one = gaps[a.begin + at];
      const gap& two = gaps[b.begin + at];
      if (one.first != two.first) return one.first <=> two.first;
      if (one.last != two.last) return one.last <=> two.last;
      if (one.wraps != two.wraps) return one.wraps <=> two.wraps;
      if (one.loads != two.loads) return one.loads <=> two.loads;
    }
    return std::strong_ordering::equal;
  }

  static smaller smaller_of(double one, double two, double width) noexcept
  {
    const double more = two - one;
    if (more >= width) return {one, 1};
    if (more <= -width) return {two, 0};
    const double share = 0.5 + 0.5 * (more / width);  // halving is exact, so contraction changes nothing
    // share * one + (1 - share) * two - width * share * (1 - share), rearranged around `one`
    const double rest = 1 - share;
    return {__builtin_fma(-width * rest, rest, one), share};
  }

  /// The least cost of a byte of a class; what is kept of it goes into the flow.
  double add(const group& it, std::size_t begin, const row_prices& price, double width)
  {
    shares_.clear();
    double kept = 0;
    const double value = share(it, begin, price, width, kept);
    for (std::size_t at = begin; at < it.end; ++at) fill(gaps_[at], it.weight, shares_[at - begin]);
    return value;
  }

  /// The same for a chunk that could do without a home: the classes of its epochs begin at `first`.
  double add_home(std::size_t first, std::size_t begin, const row_prices& price, double width)
  {
    shares_.clear();
    double kept = 0;
    double apart = price.home();
    std::size_t at = begin;
    for (std::size_t part = first; part < first + classes_[first].in_home; at = classes_[part++].end)
      apart += share(classes_[part], at, price, width, kept);
    const smaller found = smaller_of(kept, apart, width);
    const double weight = classes_[first].weight;
    homed_ = __builtin_fma(weight, 1 - found.first, homed_);
    for (std::size_t which = begin; which < at; ++which)
      fill(gaps_[which], weight, __builtin_fma(1 - found.first, shares_[which - begin], found.first));
    return found.value;
  }

  /// The least cost of a byte of an epoch. Adds how much of each gap is kept to `shares_`, and the price of all to
  /// `all_kept`.
  double share(const group& it, std::size_t begin, const row_prices& price, double width, double& all_kept)
  {
    if (it.end - begin == 1) {
      const gap& only = gaps_[begin];
      const double cost = price(only);
      const smaller found = smaller_of(cost, (only.loads ? 1.0 : 0.0) + (it.writes_back ? 1.0 : 0.0), width);
      all_kept += cost;
      shares_.push_back(found.first);
      return found.value;
    }
    double kept = 0;
    double mixed = 1;
    const std::size_t mine = shares_.size();
    for (std::size_t at = begin; at < it.end; ++at) {
      const double cost = price(gaps_[at]);
      const smaller found = smaller_of(cost, gaps_[at].loads ? 1.0 : 0.0, width);
      kept += cost;
      mixed += found.value;
      shares_.push_back(found.first);
    }
    const smaller found = smaller_of(kept, mixed, width);
    for (std::size_t at = mine; at < shares_.size(); ++at)
      shares_[at] = __builtin_fma(1 - found.first, shares_[at], found.first);
    all_kept += kept;
    return found.value;
  }

  void fill(const gap& it, double weight, double share) noexcept
  {
    if (share == 0) return;
    flow_[it.first] = __builtin_fma(weight, share, flow_[it.first]);
    flow_[it.last] = __builtin_fma(-weight, share, flow_[it.last]);
    if (it.wraps) flow_[0] = __builtin_fma(weight, share, flow_[0]);
  }

  std::size_t rows_;
  std::vector<double> flow_;  // what begins to be kept in a row, less what ends
  double weight_ = 0;
  std::vector<gap> gaps_;  // with priced rows
  std::vector<group> classes_;
  std::vector<double> room_;  // [units]
  std::vector<double> shares_;
  bool has_homes_ = false;
  double home_room_ = 0;  // [units]
  double homed_ = 0;      // chunks with a home [units]
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
