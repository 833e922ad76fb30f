// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/transfer/kept_intervals.hpp>
#include <chunkmem/transfer/retention_problem.hpp>

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace detail {

[[gnu::always_inline]] inline double sum_of_products(std::span<const double> left,
                                                     std::span<const double> right) noexcept
{
  std::array<double, 4> sums{};  // independent sums
  const std::size_t whole = left.size() / 4 * 4;
  for (std::size_t index = 0; index < whole; index += 4)
    for (std::size_t lane = 0; lane < 4; ++lane)
      sums[lane] = __builtin_fma(left[index + lane], right[index + lane], sums[lane]);
  for (std::size_t index = whole; index < left.size(); ++index)
    sums[0] = __builtin_fma(left[index], right[index], sums[0]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

[[gnu::always_inline]] inline void add_products(std::span<double> to, double factor,
                                                std::span<const double> from) noexcept
{
  for (std::size_t index = 0; index < to.size(); ++index) to[index] = __builtin_fma(factor, from[index], to[index]);
}

#if defined(__x86_64__)

[[nodiscard]] inline bool has_fma() noexcept
{
  __builtin_cpu_init();
  return __builtin_cpu_supports("fma") != 0;
}
[[gnu::target("fma")]] inline double sum_of_products_by_instructions(std::span<const double> left,
                                                                     std::span<const double> right) noexcept
{
  return sum_of_products(left, right);
}
[[gnu::target("fma")]] inline void add_products_by_instructions(std::span<double> to, double factor,
                                                                std::span<const double> from) noexcept
{
  add_products(to, factor, from);
}

#endif

}  // namespace detail

/// The sum of `left[i] * right[i]`, each product added with one rounding.
///
///     const double length = fused_product(way, way);
///
/// The bits are those of std::fma on each processor and with all flags: programs that sum alike decide alike. An x86-64
/// processor with the instruction uses it, also in programs compiled for older processors, where each number would
/// otherwise be a call of the math library.
/// @pre `left` and `right` have the same size. Cost: O(numbers)
[[nodiscard]] inline double fused_product(std::span<const double> left, std::span<const double> right) noexcept
{
#if defined(__x86_64__)
  if (detail::has_fma()) [[likely]]
    return detail::sum_of_products_by_instructions(left, right);
#endif
  return detail::sum_of_products(left, right);
}

/// Adds `factor * from[i]` to `to[i]`, each with one rounding, as fused_product does.
///
///     fused_add(way, -0.5, bend);
///
/// @pre `to` and `from` have the same size and do not overlap. Cost: O(numbers)
inline void fused_add(std::span<double> to, double factor, std::span<const double> from) noexcept
{
#if defined(__x86_64__)
  if (detail::has_fma()) [[likely]]
    return detail::add_products_by_instructions(to, factor, from);
#endif
  detail::add_products(to, factor, from);
}

namespace transfer {

/// The Lagrangian dual of a retention problem, as a smooth function of the prices with its slope.
///
///     lagrangian_dual dual{problem, priced_rows};
///     const double value = dual(price, width, slope);
///
/// The dual takes the cheaper of two costs for each choice. A parabola rounds the corner where the two differ by less
/// than `width`. The value is below the true dual by at most a quarter of the width for each choice. Epochs with the
/// same rows, loads and write-back are one class, for all sizes of chunks: only the sum of their bytes counts. Where
/// the host has no room for every host copy, a chunk that could live on the device alone is one more choice: all its
/// epochs stay, or the chunk pays for a host copy. Bytes are counted in retention_problem::unit_bytes(). Source:
/// smoothing of Nesterov 2005. Cost: O(intervals of classes + rows) for each value.
class lagrangian_dual {
 public:
  /// @param priced_rows   rows that may have a price, in order; the price of all other rows is 0
  lagrangian_dual(const retention_problem& problem, std::span<const std::uint32_t> priced_rows)
      : rows_{priced_rows.size()}, flow_(rows_ + 1)
  {
    sequence<std::uint32_t> priced_before(problem.room().size() + 1, 0);
    for (const std::uint32_t row : priced_rows) priced_before[row + std::size_t{1}] = 1;
    std::partial_sum(priced_before.begin(), priced_before.end(), priced_before.begin());
    sequence<interval> intervals(problem.intervals());
    for (interval& it : intervals) {
      it.first = priced_before[it.first];
      it.last = priced_before[it.last];
    }
    collect(problem, intervals);
    const auto unit = static_cast<double>(problem.unit_bytes());
    for (const std::uint32_t row : priced_rows) room_.push_back(static_cast<double>(problem.room()[row]) / unit);
    for (const group& it : classes_) weight_ += it.weight;
    has_host_copies_ = !problem.host_copies().empty();
    host_copy_room_ = has_host_copies_ ? static_cast<double>(problem.host_copy_room()) / unit : 0;
  }

  /// Number of prices: those of the priced rows, and one of host copies where the host has no room for all host copies.
  [[nodiscard]] std::size_t coordinates() const noexcept { return rows_ + (has_host_copies_ ? 1 : 0); }

  [[nodiscard]] std::size_t classes() const noexcept { return classes_.size(); }
  /// Bytes of all epochs [units].
  [[nodiscard]] double weight() const noexcept { return weight_; }

  /// The value without the constant bytes [units].
  /// @param price   of the priced rows   @param width   0: the true dual   @param slope   gets the slope by coordinate
  double operator()(const row_prices& price, double width, std::span<double> slope)
  {
    std::fill(flow_.begin(), flow_.end(), 0.0);
    double value = 0;
    std::size_t begin = 0;
    copied_to_host_ = 0;
    for (std::size_t index = 0; index < classes_.size(); begin = classes_[index - 1].end) {
      const group& it = classes_[index];
      value = __builtin_fma(
          it.weight, it.in_host_copy > 0 ? add_host_copy(index, begin, price, width) : add(it, begin, price, width),
          value);
      index += std::max(it.in_host_copy, 1U);
    }
    if (has_host_copies_) {
      slope[rows_] = copied_to_host_ - host_copy_room_;
      value = __builtin_fma(-host_copy_room_, price.host_copy(), value);
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
  using interval = retention_problem::interval;
  struct group {
    double weight;    // of the chunks of all its epochs [units]
    std::size_t end;  // of its intervals
    bool writes_back;
    std::uint32_t in_host_copy;  // of the first epoch of a chunk that could do without a host copy: how many it has
  };
  struct item {
    std::uint32_t begin;  // epochs
    std::uint32_t end;
    bool is_host_copy;
  };
  struct smaller {
    double value;
    double first;  // how much of the first of two is in it
  };

  static sequence<item> items_of(const retention_problem& problem)
  {
    sequence<item> found;
    std::uint32_t index = 0;
    const auto add_until = [&](std::uint32_t end) {
      for (; index < end; ++index) found.push_back({index, index + 1, false});
    };
    for (const retention_problem::host_copy& host_copy : problem.host_copies()) {
      if (host_copy.begin == host_copy.end) continue;
      add_until(host_copy.begin);
      found.push_back({host_copy.begin, host_copy.end, true});
      index = host_copy.end;
    }
    add_until(static_cast<std::uint32_t>(problem.epochs().size()));
    return found;
  }

  void collect(const retention_problem& problem, const sequence<interval>& intervals)
  {
    sequence<item> items = items_of(problem);
    const auto compare = [&](const item& left, const item& right) {
      if (left.is_host_copy != right.is_host_copy) return left.is_host_copy <=> right.is_host_copy;
      if (left.end - left.begin != right.end - right.begin) return left.end - left.begin <=> right.end - right.begin;
      for (std::uint32_t index = 0; index < left.end - left.begin; ++index)
        if (const auto shapes =
                compare_shapes(intervals, problem.epochs()[left.begin + index], problem.epochs()[right.begin + index]);
            shapes != 0)
          return shapes;
      return std::strong_ordering::equal;
    };
    sort_records(std::span{items}, [&](const item& left, const item& right) {
      const std::strong_ordering shapes = compare(left, right);
      return shapes != 0 ? shapes < 0 : left.begin < right.begin;
    });
    const auto unit = static_cast<double>(problem.unit_bytes());
    for (std::size_t index = 0; index < items.size(); ++index) {
      const std::uint32_t count = items[index].end - items[index].begin;
      if (index == 0 || compare(items[index - 1], items[index]) != 0)
        for (std::uint32_t which = items[index].begin; which < items[index].end; ++which) {
          const retention_problem::epoch& epoch = problem.epochs()[which];
          intervals_.append({intervals.begin() + epoch.begin, intervals.begin() + epoch.end});
          classes_.push_back({0, intervals_.size(), epoch.writes_back,
                              items[index].is_host_copy && which == items[index].begin ? count : 0});
        }
      for (std::size_t part = classes_.size() - count; part < classes_.size(); ++part)
        classes_[part].weight += static_cast<double>(problem.epochs()[items[index].begin].size) / unit;
    }
  }

  static std::strong_ordering compare_shapes(const sequence<interval>& intervals, const retention_problem::epoch& a,
                                             const retention_problem::epoch& b)
  {
    if (a.writes_back != b.writes_back) return a.writes_back <=> b.writes_back;
    if (a.end - a.begin != b.end - b.begin) return a.end - a.begin <=> b.end - b.begin;
    for (std::uint32_t index = 0; index < a.end - a.begin; ++index) {
      const interval& one = intervals[a.begin + index];
      const interval& two = intervals[b.begin + index];
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

  /// The least cost of a byte of a class. Adds the kept bytes to the flow.
  double add(const group& it, std::size_t begin, const row_prices& price, double width)
  {
    shares_.clear();
    double kept = 0;
    const double value = share(it, begin, price, width, kept);
    for (std::size_t index = begin; index < it.end; ++index) fill(intervals_[index], it.weight, shares_[index - begin]);
    return value;
  }

  /// The same for a chunk that could do without a host copy. The classes of its epochs begin at `first`.
  double add_host_copy(std::size_t first, std::size_t begin, const row_prices& price, double width)
  {
    shares_.clear();
    double kept = 0;
    double apart = price.host_copy();
    std::size_t index = begin;
    for (std::size_t part = first; part < first + classes_[first].in_host_copy; index = classes_[part++].end)
      apart += share(classes_[part], index, price, width, kept);
    const smaller found = smaller_of(kept, apart, width);
    const double weight = classes_[first].weight;
    copied_to_host_ = __builtin_fma(weight, 1 - found.first, copied_to_host_);
    for (std::size_t which = begin; which < index; ++which)
      fill(intervals_[which], weight, __builtin_fma(1 - found.first, shares_[which - begin], found.first));
    return found.value;
  }

  /// The least cost of a byte of an epoch. Adds the kept share of each interval to `shares_`, and the price of keeping
  /// all intervals to `all_kept`.
  double share(const group& it, std::size_t begin, const row_prices& price, double width, double& all_kept)
  {
    if (it.end - begin == 1) {
      const interval& only = intervals_[begin];
      const double cost = price(only);
      const smaller found = smaller_of(cost, (only.loads ? 1.0 : 0.0) + (it.writes_back ? 1.0 : 0.0), width);
      all_kept += cost;
      shares_.push_back(found.first);
      return found.value;
    }
    double kept = 0;
    double mixed = 1;
    const std::size_t mine = shares_.size();
    for (std::size_t index = begin; index < it.end; ++index) {
      const double cost = price(intervals_[index]);
      const smaller found = smaller_of(cost, intervals_[index].loads ? 1.0 : 0.0, width);
      kept += cost;
      mixed += found.value;
      shares_.push_back(found.first);
    }
    const smaller found = smaller_of(kept, mixed, width);
    for (std::size_t index = mine; index < shares_.size(); ++index)
      shares_[index] = __builtin_fma(1 - found.first, shares_[index], found.first);
    all_kept += kept;
    return found.value;
  }

  void fill(const interval& it, double weight, double share) noexcept
  {
    if (share == 0) return;
    flow_[it.first] = __builtin_fma(weight, share, flow_[it.first]);
    flow_[it.last] = __builtin_fma(-weight, share, flow_[it.last]);
    if (it.wraps) flow_[0] = __builtin_fma(weight, share, flow_[0]);
  }

  std::size_t rows_;
  sequence<double> flow_;  // kept bytes that begin in a row, less those that end
  double weight_ = 0;
  sequence<interval> intervals_;  // with priced rows
  std::vector<group> classes_;
  sequence<double> room_;  // [units]
  sequence<double> shares_;
  bool has_host_copies_ = false;
  double host_copy_room_ = 0;  // [units]
  double copied_to_host_ = 0;  // chunks with a host copy [units]
};

/// Maximizes the dual: finds prices at which keeping and dropping nearly balance everywhere.
///
///     dual_ascent ascent{problem};
///     for (const double width : {1.0, 0.1, 0.01}) ascent.climb(width, 100);
///     certified_bytes(problem, ascent.best());
///
/// A step is a quasi-Newton step over the prices that are above zero or rise. Prices are cut off at zero, and the step
/// is halved until the dual rises. Each call of `climb` starts where the last call ended, so that the width can shrink.
/// Buys: without it `transfer.certificate_over_linear_program` is 0 instead of 0.992.
/// Source: L-BFGS (Nocedal 1980) with projection (Bertsekas 1982). Cost: one value of the dual and O(20 rows) for each
/// step; memory for 22 numbers for each row.
class dual_ascent {
 public:
  static constexpr std::size_t pairs = 10;
  static constexpr std::uint32_t most_priced_rows = 1'200;

  explicit dual_ascent(const retention_problem& problem)
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
    for (pair& it : pairs_) it = {sequence<double>(rows_), sequence<double>(rows_), 0};
    best_value_ = dual_(price_, 0, slope_);
  }

  /// Classes and priced rows: the terms of one value of the dual.
  [[nodiscard]] std::size_t terms() const noexcept { return dual_.classes() + rows_; }

  /// @param width   of the rounded corners [moves of a byte], above 0   @param steps   at most
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
    for (std::size_t index = 0; index < priced_rows_.size(); ++index) all_[priced_rows_[index]] = now_[index];
    if (rows_ > priced_rows_.size()) all_.back() = now_.back();
    reached_.set(all_);
    const double true_value = dual_(price_, 0, next_slope_);
    if (true_value <= best_value_) return;
    best_value_ = true_value;
    best_ = reached_;
  }

  /// The prices that the last climb reached.
  [[nodiscard]] const row_prices& reached() const noexcept { return reached_; }
  /// The prices with the highest true dual.
  [[nodiscard]] const row_prices& best() const noexcept { return best_; }

 private:
  struct pair {
    sequence<double> step;
    sequence<double> bend;  // the decrease of the slope
    double scale = 0;       // 1 over their product
  };

  /// In each run of rows, the row that would have the most bytes too many if all intervals were kept.
  static sequence<std::uint32_t> tightest_rows(const retention_problem& problem)
  {
    const auto rows = static_cast<std::uint32_t>(problem.room().size());
    sequence<std::int64_t> over(rows + std::size_t{1}, 0);
    for (const retention_problem::interval& interval : problem.intervals()) {
      const auto size = static_cast<std::int64_t>(problem.epochs()[interval.epoch].size);
      over[interval.first] += size;
      over[interval.last] -= size;
      if (interval.wraps) over[0] += size;
    }
    std::partial_sum(over.begin(), over.end(), over.begin());
    sequence<std::uint32_t> found;
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

  void find_way()
  {
    for (std::size_t row = 0; row < rows_; ++row) way_[row] = is_free(row) ? slope_[row] : 0;
    std::array<double, pairs> factors{};
    for (std::size_t back = 0; back < count_; ++back) {
      const pair& it = pairs_[(newest_ + pairs - back) % pairs];
      factors[back] = it.scale * fused_product(it.step, way_);
      fused_add(way_, -factors[back], it.bend);
    }
    if (count_ > 0) {
      const pair& it = pairs_[newest_];
      const double stretch = 1 / (it.scale * fused_product(it.bend, it.bend));
      for (double& value : way_) value *= stretch;
    } else {
      shorten_way();
    }
    for (std::size_t back = count_; back-- > 0;) {
      const pair& it = pairs_[(newest_ + pairs - back) % pairs];
      const double factor = __builtin_fma(-it.scale, fused_product(it.bend, way_), factors[back]);
      fused_add(way_, factor, it.step);
    }
    for (std::size_t row = 0; row < rows_; ++row)
      if (!is_free(row)) way_[row] = 0;
    if (fused_product(way_, slope_) > 0) return;
    for (std::size_t row = 0; row < rows_; ++row) way_[row] = is_free(row) ? slope_[row] : 0;
    shorten_way();
  }

  /// Scales the first step: no sum of prices changes by more than a quarter of a load.
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
      std::copy(now_.begin(), now_.end(), next_.begin());
      fused_add(next_, length, way_);
      for (double& price : next_) price = std::max(0.0, price);
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
    const std::size_t index = (newest_ + 1) % pairs;
    pair& it = pairs_[index];
    for (std::size_t row = 0; row < rows_; ++row) {
      it.step[row] = next_[row] - now_[row];
      it.bend[row] = slope_[row] - next_slope_[row];
    }
    const double both = fused_product(it.step, it.bend);
    if (!(both > 1e-12 * fused_product(it.bend, it.bend))) return;
    it.scale = 1 / both;
    newest_ = index;
    count_ = std::min(count_ + 1, pairs);
  }

  sequence<std::uint32_t> priced_rows_;
  lagrangian_dual dual_;
  std::size_t rows_;  // and one for the host copies, where the host has no room for all
  sequence<double> now_;
  sequence<double> slope_;
  sequence<double> next_;
  sequence<double> next_slope_;
  sequence<double> way_;
  sequence<double> all_;
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
