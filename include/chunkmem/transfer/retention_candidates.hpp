// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/sort_records.hpp>
#include <chunkmem/transfer/kept_intervals.hpp>
#include <chunkmem/transfer/retention_problem.hpp>
#include <chunkmem/transfer/row_prices.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace chunkmem::inline v0 {

namespace transfer {

/// Demand paging on the problem: goes through the rows in time, keeps every interval that begins, and drops the
/// interval of least worth where room ends.
///
///     retention_sweep sweep{problem};
///     sweep(price, cost_weight);   // 1 for each interval that stays
///
/// The worth of an interval is its moves times a weight, less the price until its end. With equal prices, weight 0 is
/// Belady's rule, and a large weight puts cost first. The sweep takes several laps, because an iteration begins where
/// it ended. The last lap has to close: it ends as it began. Cost: O(intervals log intervals) for each lap.
class retention_sweep {
 public:
  static constexpr std::size_t visits_of_all_laps = 20'000;  ///< intervals; a larger problem takes two laps

  explicit retention_sweep(const retention_problem& problem)
      : problem_{problem},
        survived_(problem.intervals().size()),
        held_(problem.intervals().size()),
        left_(problem.intervals().size())
  {
    laps_ = std::clamp<std::size_t>(visits_of_all_laps / (problem.intervals().size() + 1), 2, 12);
    for (std::uint32_t which = 0; which < problem.intervals().size(); ++which) by_end_.push_back(which);
    by_begin_ = by_end_;
    const auto intervals = std::span{problem.intervals()};
    sort_records(std::span{by_begin_}, [&](std::uint32_t left, std::uint32_t right) {
      return intervals[left].first != intervals[right].first ? intervals[left].first < intervals[right].first
                                                             : left < right;
    });
    sort_records(std::span{by_end_}, [&](std::uint32_t left, std::uint32_t right) {
      return intervals[left].last != intervals[right].last ? intervals[left].last < intervals[right].last
                                                           : left < right;
    });
  }

  /// @param cost_weight   price that the move of a byte is worth
  /// @return              by interval: 1 if it stays; these intervals fit together
  const sequence<std::uint8_t>& operator()(const row_prices& price, double cost_weight)
  {
    std::fill(survived_.begin(), survived_.end(), std::uint8_t{1});
    std::fill(held_.begin(), held_.end(), std::uint8_t{0});
    std::fill(left_.begin(), left_.end(), std::uint8_t{0});
    heap_.clear();
    bytes_ = 0;
    for (std::size_t left = laps_; left-- > 0;) {
      closes_ = left == 0;
      lap(price, cost_weight);
      erase_if(heap_, [&](const entry& it) { return held_[it.which] == 0; });
      for (entry& it : heap_) it.worth += price.all();  // the same end is one lap nearer
      std::make_heap(heap_.begin(), heap_.end());
    }
    return survived_;
  }

 private:
  struct entry {
    double worth;
    std::uint32_t which;
    bool operator<(const entry& other) const noexcept  // the least worth comes out first
    {
      return worth != other.worth ? worth > other.worth : which > other.which;
    }
  };

  void lap(const row_prices& price, double cost_weight)
  {
    std::size_t begin = 0;
    std::size_t end = 0;
    for (std::uint32_t row = 0; row < problem_.room().size(); ++row) {
      for (; end < by_end_.size() && problem_.intervals()[by_end_[end]].last == row; ++end) finish(by_end_[end]);
      for (; begin < by_begin_.size() && problem_.intervals()[by_begin_[begin]].first == row; ++begin)
        start(by_begin_[begin], price, cost_weight);
      while (bytes_ > problem_.room()[row]) give_up();
    }
    for (; end < by_end_.size(); ++end) finish(by_end_[end]);
  }

  void start(std::uint32_t which, const row_prices& price, double cost_weight)
  {
    const retention_problem::interval& interval = problem_.intervals()[which];
    if (closes_ && interval.wraps && survived_[which] == 0) return;  // this lap has to end as it began
    const double until = price.before(interval.last) + (interval.wraps ? price.all() : 0.0);
    heap_.push_back({__builtin_fma(cost_weight, moves_of(interval, which), -until), which});
    std::push_heap(heap_.begin(), heap_.end());
    held_[which] = survived_[which] = 1;
    left_[which] = 0;
    bytes_ += size_of(which);
  }

  void finish(std::uint32_t which)
  {
    if (held_[which] == 0) return;
    held_[which] = 0;
    bytes_ -= size_of(which);
  }

  void give_up()
  {
    std::pop_heap(heap_.begin(), heap_.end());
    const std::uint32_t which = heap_.back().which;
    heap_.pop_back();
    if (held_[which] == 0) return;
    finish(which);
    survived_[which] = 0;
    left_[which] = 1;
  }

  /// Moves of a byte if the interval is dropped: a load, and a write-back unless the epoch has one already.
  [[nodiscard]] double moves_of(const retention_problem::interval& interval, std::uint32_t which) const noexcept
  {
    const retention_problem::epoch& mine = problem_.epochs()[interval.epoch];
    bool writes_back = mine.writes_back;
    for (std::uint32_t before = mine.begin; before < which; ++before) writes_back = writes_back && left_[before] == 0;
    return (interval.loads ? 1.0 : 0.0) + (writes_back ? 1.0 : 0.0);
  }

  [[nodiscard]] std::int64_t size_of(std::uint32_t which) const noexcept
  {
    return static_cast<std::int64_t>(problem_.epochs()[problem_.intervals()[which].epoch].size);
  }

  const retention_problem& problem_;
  sequence<std::uint32_t> by_begin_;
  sequence<std::uint32_t> by_end_;
  sequence<entry> heap_;
  sequence<std::uint8_t> survived_;
  sequence<std::uint8_t> held_;
  sequence<std::uint8_t> left_;  // by interval: dropped in the last lap that reached it
  std::int64_t bytes_ = 0;
  std::size_t laps_ = 2;
  bool closes_ = false;  // this is the last lap
};

/// Makes choices in one pass over prices, and remembers the best.
///
///     retention_candidates candidates{problem};
///     candidates.greedy(price);
///     candidates.sweep(price, 1);
///     kept_intervals choice = candidates.best();
///
/// Greedy takes the intervals and whole epochs with the highest saving for the price of their room. A sweep decides in
/// time, see retention_sweep. Both then keep what still fits. Buys: no recorded figure; without greedy choices or
/// without all sweeps, plans of random uses move up to 1.4 % more (see bench/NOTES.md). Cost: O(intervals log
/// intervals) for each.
class retention_candidates {
 public:
  explicit retention_candidates(const retention_problem& problem) : problem_{problem}, best_{problem}, sweep_{problem}
  {
  }

  [[nodiscard]] const kept_intervals& best() const noexcept { return best_; }
  /// Takes a choice that moves fewer bytes than the best. @return   the choice was taken
  bool offer(const kept_intervals& choice)
  {
    if (choice.moved_bytes() >= best_.moved_bytes()) return false;
    best_ = choice;
    return true;
  }

  /// In the order of saving over price; intervals at no price come first.
  void greedy(const row_prices& price)
  {
    rank(price);
    kept_intervals choice{problem_};
    for (const item& it : items_) {
      if (it.is_epoch)
        choice.keep_epoch(it.index);
      else if (!choice.is_kept(it.index) && choice.fits(it.index))
        choice.keep(it.index);
    }
    choice.fill(order_);
    offer(choice);
  }

  /// @param cost_weight   price that the move of a byte is worth; 0 is Belady's rule
  void sweep(const row_prices& price, double cost_weight)
  {
    rank(price);
    const sequence<std::uint8_t>& retained = sweep_(price, cost_weight);
    kept_intervals choice{problem_};
    for (std::uint32_t which = 0; which < retained.size(); ++which)
      if (retained[which] != 0) choice.keep(which);
    choice.fill(order_);
    offer(choice);
  }

 private:
  struct item {
    double worth;
    std::uint32_t index;
    bool is_epoch;
  };

  static double over(double saved, double cost) noexcept
  {
    return cost > 0 ? saved / cost : std::numeric_limits<double>::infinity();
  }

  void rank(const row_prices& price)
  {
    items_.clear();
    for (std::uint32_t index = 0; index < problem_.epochs().size(); ++index) {
      const retention_problem::epoch& epoch = problem_.epochs()[index];
      double cost = 0;
      double saved = epoch.writes_back ? 1 : 0;
      for (std::uint32_t which = epoch.begin; which < epoch.end; ++which) {
        const retention_problem::interval& one = problem_.intervals()[which];
        const double mine = price(one);
        cost += mine;
        saved += one.loads ? 1 : 0;
        if (one.loads && epoch.end - epoch.begin > 1) items_.push_back({over(1, mine), which, false});
      }
      items_.push_back({over(saved, cost), index, true});
    }
    sort_records(std::span{items_}, [](const item& left, const item& right) {
      if (left.worth != right.worth) return left.worth > right.worth;
      return left.is_epoch != right.is_epoch ? left.is_epoch : left.index < right.index;
    });
    order_.clear();
    for (const item& it : items_) {
      if (!it.is_epoch)
        order_.push_back(it.index);
      else
        for (std::uint32_t which = problem_.epochs()[it.index].begin; which < problem_.epochs()[it.index].end; ++which)
          order_.push_back(which);
    }
  }

  const retention_problem& problem_;
  kept_intervals best_;
  retention_sweep sweep_;
  sequence<item> items_;
  sequence<std::uint32_t> order_;  // intervals by worth, some of them twice
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
