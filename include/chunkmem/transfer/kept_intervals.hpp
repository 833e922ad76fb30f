// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/transfer/retention_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace transfer {

/// A choice of intervals that fit together, with the bytes that the choice moves and the room that it leaves.
///
///     kept_intervals choice{problem};
///     if (choice.fits(which) && choice.saving(which) > 0) choice.keep(which);
///     choice.moved_bytes();
///
/// Cost: O(log rows) for each call. @pre the problem outlives the choice
class kept_intervals {
 public:
  using interval = retention_problem::interval;
  using epoch = retention_problem::epoch;

  explicit kept_intervals(const retention_problem& problem)
      : problem_{&problem},
        room_{problem.room()},
        is_kept_(problem.intervals().size(), 0),
        dropped_(problem.epochs().size())
  {
    for (std::size_t index = 0; index < dropped_.size(); ++index) {
      const epoch& it = problem.epochs()[index];
      dropped_[index] = it.end - it.begin;
      moved_ += it.writes_back ? it.size : 0;
      for (std::uint32_t which = it.begin; which < it.end; ++which)
        moved_ += problem.intervals()[which].loads ? it.size : 0;
    }
  }

  [[nodiscard]] const retention_problem& problem() const noexcept { return *problem_; }
  [[nodiscard]] bool is_kept(std::size_t which) const noexcept { return is_kept_[which] != 0; }
  [[nodiscard]] const sequence<std::uint8_t>& all() const noexcept { return is_kept_; }
  /// Bytes that the choice moves, without the constant bytes.
  [[nodiscard]] std::uint64_t moved_bytes() const noexcept { return moved_; }
  [[nodiscard]] std::uint32_t dropped_of(std::size_t epoch_index) const noexcept { return dropped_[epoch_index]; }
  [[nodiscard]] std::uint64_t size_of(std::size_t which) const noexcept
  {
    return problem_->epochs()[problem_->intervals()[which].epoch].size;
  }

  /// There is room to keep a dropped interval.
  [[nodiscard]] bool fits(std::size_t which) const noexcept
  {
    return room_over(which) >= static_cast<std::int64_t>(size_of(which));
  }

  /// The fewest bytes that are free in a row of an interval.
  [[nodiscard]] std::int64_t room_over(std::size_t which) const noexcept
  {
    const interval& it = problem_->intervals()[which];
    if (!it.wraps) return room_.least(it.first, it.last);
    return std::min(room_.least(it.first, problem_->room().size()), room_.least(0, it.last));
  }

  /// Bytes that keeping the interval saves. @pre the interval is dropped
  [[nodiscard]] std::uint64_t saving(std::size_t which) const noexcept
  {
    const interval& it = problem_->intervals()[which];
    const epoch& mine = problem_->epochs()[it.epoch];
    return (it.loads ? mine.size : 0) + (mine.writes_back && dropped_[it.epoch] == 1 ? mine.size : 0);
  }
  /// Bytes that dropping the interval costs. @pre the interval is kept
  [[nodiscard]] std::uint64_t loss(std::size_t which) const noexcept
  {
    const interval& it = problem_->intervals()[which];
    const epoch& mine = problem_->epochs()[it.epoch];
    return (it.loads ? mine.size : 0) + (mine.writes_back && dropped_[it.epoch] == 0 ? mine.size : 0);
  }

  /// @pre the interval is dropped and fits
  void keep(std::size_t which) noexcept
  {
    moved_ -= saving(which);
    --dropped_[problem_->intervals()[which].epoch];
    is_kept_[which] = 1;
    take(which, -static_cast<std::int64_t>(size_of(which)));
  }
  /// @pre the interval is kept
  void drop(std::size_t which) noexcept
  {
    moved_ += loss(which);
    ++dropped_[problem_->intervals()[which].epoch];
    is_kept_[which] = 0;
    take(which, static_cast<std::int64_t>(size_of(which)));
  }

  /// Keeps all dropped intervals of an epoch, or none. @return   all are kept
  bool keep_epoch(std::size_t epoch_index) noexcept
  {
    const epoch& it = problem_->epochs()[epoch_index];
    for (std::uint32_t which = it.begin; which < it.end; ++which)  // intervals of one epoch share no row
      if (!is_kept(which) && !fits(which)) return false;
    for (std::uint32_t which = it.begin; which < it.end; ++which)
      if (!is_kept(which)) keep(which);
    return true;
  }

  /// Drops the intervals that save nothing. Then keeps each interval that fits and saves bytes, in the given order.
  template <class Intervals>
  void fill(const Intervals& order) noexcept
  {
    for (const auto which : order)
      if (is_kept(which) && loss(which) == 0) drop(which);
    for (const auto which : order)
      if (!is_kept(which) && saving(which) > 0 && fits(which)) keep(which);
  }

 private:
  void take(std::size_t which, std::int64_t value) noexcept
  {
    const interval& it = problem_->intervals()[which];
    if (!it.wraps) return room_.add(it.first, it.last, value);
    room_.add(it.first, problem_->room().size(), value);
    room_.add(0, it.last, value);
  }

  const retention_problem* problem_;
  room_tree room_;
  sequence<std::uint8_t> is_kept_;
  sequence<std::uint32_t> dropped_;  // intervals of each epoch
  std::uint64_t moved_ = 0;
};

/// Lagrange multipliers: the price of a byte in each row, and of a byte of a host copy.
///
///     row_prices price{problem.room().size()};
///     price.set(multipliers);
///     price(interval);                      // to keep a byte during an interval
///     certified_bytes(problem, price);      // a lower bound for every choice
///
/// The unit is the move of a byte: a price of 1 is as much as a load. Rounding is the same on every machine: a product
/// feeds a sum only through a fused multiply-add.
class row_prices {
 public:
  explicit row_prices(std::size_t rows) : prices_(rows, 0), before_(rows + 1, 0) {}

  [[nodiscard]] std::span<const double> prices() const noexcept { return prices_; }

  /// @pre `prices` has a number for each row, none below zero, and optionally the price of host copies after them
  void set(std::span<const double> prices)
  {
    std::ranges::copy(prices.first(prices_.size()), prices_.begin());
    host_copy_ = prices.size() > prices_.size() ? prices.back() : 0;
    for (std::size_t row = 0; row < prices_.size(); ++row) before_[row + 1] = before_[row] + prices_[row];
  }

  /// The sum of the prices of all rows before this row.
  [[nodiscard]] double before(std::size_t row) const noexcept { return before_[row]; }
  [[nodiscard]] double all() const noexcept { return before_.back(); }
  /// The price of a host copy.
  [[nodiscard]] double host_copy() const noexcept { return host_copy_; }

  /// The price of keeping a byte during an interval.
  [[nodiscard]] double operator()(const retention_problem::interval& interval) const noexcept
  {
    const double between = before_[interval.last] - before_[interval.first];
    return interval.wraps ? between + before_.back() : between;
  }

 private:
  sequence<double> prices_;
  sequence<double> before_;
  double host_copy_ = 0;
};

/// The least cost of a byte of an epoch over all choices of its intervals, kept or moved.
[[nodiscard]] inline double least_cost(std::span<const retention_problem::interval> intervals, bool writes_back,
                                       const row_prices& price) noexcept
{
  double kept = 0;
  double mixed = writes_back ? 1 : 0;
  for (const retention_problem::interval& interval : intervals) {
    const double cost = price(interval);
    kept += cost;
    mixed += std::min(cost, interval.loads ? 1.0 : 0.0);
  }
  return std::min(kept, mixed);
}

/// The least cost of a byte of a chunk that could live on the device alone: the chunk never leaves, or has a host copy.
[[nodiscard]] inline double least_cost(const retention_problem& problem, const retention_problem::host_copy& host_copy,
                                       const row_prices& price) noexcept
{
  double kept = 0;
  double apart = price.host_copy();
  for (std::uint32_t index = host_copy.begin; index < host_copy.end; ++index) {
    const retention_problem::epoch& one = problem.epochs()[index];
    const auto intervals = problem.intervals().subspan(one.begin, one.end - one.begin);
    for (const retention_problem::interval& each : intervals) kept += price(each);
    apart += least_cost(intervals, one.writes_back, price);
  }
  return std::min(kept, apart);
}

/// A lower bound of the bytes that any choice moves: the dual value of the prices (Lagrange).
///
/// The bound holds for all prices. The value is the least cost of all epochs, less the price of all room. The largest
/// possible rounding error is taken off. Cost: O(intervals + rows).
[[nodiscard]] inline double certified_bytes(const retention_problem& problem, const row_prices& price) noexcept
{
  auto value = static_cast<double>(problem.constant_bytes());
  double largest = value;
  const auto add = [&](std::uint64_t size, double least) {
    value = __builtin_fma(static_cast<double>(size), least, value);
    largest = std::max(largest, value);
  };
  auto host_copy = problem.host_copies().begin();
  for (std::uint32_t index = 0; index < problem.epochs().size();) {
    while (host_copy != problem.host_copies().end() && host_copy->end <= index) ++host_copy;
    if (host_copy != problem.host_copies().end() && host_copy->begin <= index) {
      add(host_copy->size, least_cost(problem, *host_copy, price));
      index = host_copy->end;
      continue;
    }
    const retention_problem::epoch& epoch = problem.epochs()[index++];
    add(epoch.size,
        least_cost(problem.intervals().subspan(epoch.begin, epoch.end - epoch.begin), epoch.writes_back, price));
  }
  for (std::size_t row = 0; row < problem.room().size(); ++row)
    value = __builtin_fma(-static_cast<double>(problem.room()[row]), price.prices()[row], value);
  if (price.host_copy() > 0)
    value = __builtin_fma(-static_cast<double>(problem.host_copy_room()), price.host_copy(), value);
  const double errors =
      static_cast<double>(problem.epochs().size() + problem.room().size() + (price.host_copy() > 0 ? 2 : 1)) * 0x1p-50;
  return std::max(__builtin_fma(-largest, errors, value), static_cast<double>(problem.constant_bytes()));
}

/// Reduced costs: by interval, the difference between keeping and dropping it, each with the best choice for the rest
/// of its epoch [moves of a byte].
///
/// The prices know the answer where the number is large. A search is worth its time where it is small.
/// Cost: O(intervals).
[[nodiscard]] inline sequence<double> reduced_costs(const retention_problem& problem, const row_prices& price)
{
  sequence<double> costs(problem.intervals().size());
  const auto load_of = [&](std::uint32_t which) { return problem.intervals()[which].loads ? 1.0 : 0.0; };
  for (const retention_problem::epoch& epoch : problem.epochs()) {
    double all_kept = 0;
    double mixed = epoch.writes_back ? 1 : 0;
    for (std::uint32_t which = epoch.begin; which < epoch.end; ++which) {
      const double cost = price(problem.intervals()[which]);
      all_kept += cost;
      mixed += std::min(cost, load_of(which));
    }
    const double least = std::min(all_kept, mixed);
    for (std::uint32_t which = epoch.begin; which < epoch.end; ++which) {
      const double cost = price(problem.intervals()[which]);
      const double rest = mixed - std::min(cost, load_of(which));
      const double kept = std::min(all_kept, rest + cost) - least;
      const double dropped = rest + load_of(which) - least;
      costs[which] = std::max({0.0, kept, dropped});
    }
  }
  return costs;
}

/// At most `count` intervals with the smallest reduced costs, the smallest first. Cost: O(intervals log `count`).
[[nodiscard]] inline sequence<std::uint32_t> least_known(const retention_problem& problem, const row_prices& price,
                                                         std::size_t count)
{
  const sequence<double> costs = reduced_costs(problem, price);
  sequence<std::uint32_t> found(costs.size());
  for (std::uint32_t which = 0; which < found.size(); ++which) found[which] = which;
  const auto before = [&](std::uint32_t left, std::uint32_t right) {
    return costs[left] != costs[right] ? costs[left] < costs[right] : left < right;
  };
  const std::size_t taken = std::min(count, found.size());
  std::partial_sort(found.begin(), found.begin() + taken, found.end(), before);
  found.resize(taken);
  return found;
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
