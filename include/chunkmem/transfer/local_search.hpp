// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/splitmix64.hpp>
#include <chunkmem/transfer/kept_intervals.hpp>
#include <chunkmem/transfer/retention_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

namespace transfer {

/// Demand paging on the problem: goes through the rows in time, keeps every interval that begins, and drops the
/// interval of least value where room ends.
///
///     retention_sweep sweep{problem};
///     sweep(price, cost_weight);   // 1 for each interval that stays
///
/// The value of an interval is its moves times a weight, less the price until its end. With equal prices, weight 0 is
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

/// Ruin and recreate, a local search over plateaus: drops a few intervals that overlap, then keeps again what saves
/// most, but sometimes skips an item.
///
///     ruin_and_recreate{problem, price}.improve(choice, 4'000);
///
/// The search keeps a result unless it moves many more bytes, or the same bytes while the largest chunk fits in fewer
/// rows. Good where chunks of several sizes share the room, or epochs have several intervals: many choices then cost
/// nearly the same. Only the intervals with the smallest reduced costs take part. Random numbers come from a counter,
/// so every run is the same. Buys: without it `transfer.planned_above_evictions` is 8 instead of 2, and plans are up to
/// 1.053 instead of 1.018 of the linear program. Source: Schrimpf et al. 2000; skips ("blinks") as in Christiaens and
/// Vanden Berghe 2020. Cost: O(intervals that take part) for each attempt.
class ruin_and_recreate {
 public:
  static constexpr std::size_t most_intervals = 512;
  static constexpr std::uint32_t most_dropped = 20;
  static constexpr std::uint32_t passes_over = 12;  ///< one item in so many
  static constexpr std::size_t most_rows = 4'096;   ///< with more rows, the room for the largest chunk is not measured

  ruin_and_recreate(const retention_problem& problem, const row_prices& price)
      : problem_{problem}, intervals_{least_known(problem, price, most_intervals)}
  {
    sequence<std::uint8_t> takes_part(problem.intervals().size(), 0);
    for (const std::uint32_t which : intervals_) takes_part[which] = 1;
    for (std::uint32_t index = 0; index < problem.epochs().size(); ++index) {
      const retention_problem::epoch& epoch = problem.epochs()[index];
      double gained = epoch.writes_back ? 1 : 0;
      std::uint32_t members = 0;
      for (std::uint32_t which = epoch.begin; which < epoch.end; ++which) {
        const retention_problem::interval& one = problem.intervals()[which];
        const double mine = (one.loads ? 1.0 : 0.0) - price(one);
        gained += mine;
        members += takes_part[which];
        if (takes_part[which] != 0 && epoch.end - epoch.begin > 1) items_.push_back({mine, which, false});
      }
      if (members > 0) items_.push_back({gained, index, true});
      largest_ = std::max(largest_, epoch.size);
    }
    if (problem.unit_bytes() > 0) unit_ = static_cast<std::int64_t>(problem.unit_bytes());
    wanted_ = static_cast<std::int64_t>(largest_) / unit_;
    sort_records(std::span{items_}, [](const item& left, const item& right) {
      if (left.gained != right.gained) return left.gained > right.gained;
      return left.is_epoch != right.is_epoch ? left.is_epoch : left.index < right.index;
    });
  }

  /// Replaces the choice by the best one found, which moves no more bytes. @param enough   bytes: a choice that moves
  /// no more is optimal, and ends the search
  void improve(kept_intervals& choice, std::size_t attempts, std::uint64_t enough = 0)
  {
    if (intervals_.size() < 2 || choice.moved_bytes() <= enough) return;
    kept_intervals now = choice;
    measure(now);
    for (std::size_t attempt = 0; attempt < attempts && choice.moved_bytes() > enough; ++attempt) {
      const std::uint64_t before = now.moved_bytes();
      const std::int64_t shortage_before = shortage_;
      changes_.clear();
      ruin(now);
      recreate(now);
      const std::uint64_t slack = 2 * largest_ * (attempts - attempt) / attempts;  // less and less
      if (now.moved_bytes() < choice.moved_bytes())
        choice = now;
      else if (now.moved_bytes() > before && now.moved_bytes() > choice.moved_bytes() + slack)
        undo(now);
      else if (now.moved_bytes() == before && shortage_ > shortage_before)
        undo(now);
    }
  }

 private:
  struct item {
    double gained;  // for each byte, at the prices
    std::uint32_t index;
    bool is_epoch;
  };
  struct change {
    std::uint32_t which;
    bool kept;
  };

  std::uint32_t roll(std::uint32_t end) { return static_cast<std::uint32_t>(numbers_.next() >> 32) % end; }

  void ruin(kept_intervals& choice)
  {
    const auto size = static_cast<std::uint32_t>(intervals_.size());
    const std::uint32_t seed = intervals_[roll(size)];
    if (choice.is_kept(seed)) drop(choice, seed);
    std::uint32_t left = roll(1 + roll(most_dropped));  // often few: the last steps of an even spread are single ones
    const std::uint32_t start = roll(size);
    for (std::uint32_t index = 0; index < size && left > 0; ++index) {
      const std::uint32_t which = intervals_[(start + index) % size];
      if (!choice.is_kept(which) || !overlap(problem_.intervals()[seed], problem_.intervals()[which]) || roll(2) == 0)
        continue;
      drop(choice, which);
      --left;
    }
  }

  void recreate(kept_intervals& choice)
  {
    missing_.clear();
    for (std::uint32_t index = 0; index < items_.size(); ++index)
      if (items_[index].is_epoch ? choice.dropped_of(items_[index].index) > 0 : !choice.is_kept(items_[index].index))
        missing_.push_back(index);
    if (roll(2) == 0)  // by chance instead of by price
      for (auto left = static_cast<std::uint32_t>(missing_.size()); left > 1; --left)
        std::swap(missing_[left - 1], missing_[roll(left)]);
    for (const std::uint32_t index : missing_) {
      const item& it = items_[index];
      if (roll(passes_over) == 0) continue;
      if (it.is_epoch)
        keep_epoch(choice, it.index);
      else if (!choice.is_kept(it.index) && choice.saving(it.index) > 0 && choice.fits(it.index))
        keep(choice, it.index);
    }
  }

  void keep_epoch(kept_intervals& choice, std::uint32_t index)
  {
    const retention_problem::epoch& mine = problem_.epochs()[index];
    for (std::uint32_t which = mine.begin; which < mine.end; ++which)
      if (!choice.is_kept(which) && !choice.fits(which)) return;
    for (std::uint32_t which = mine.begin; which < mine.end; ++which)
      if (!choice.is_kept(which)) keep(choice, which);
  }

  void undo(kept_intervals& choice)
  {
    for (; !changes_.empty(); changes_.pop_back()) {
      shift(changes_.back().which, changes_.back().kept ? 1 : -1);
      if (changes_.back().kept)
        choice.drop(changes_.back().which);
      else
        choice.keep(changes_.back().which);
    }
  }

  void measure(const kept_intervals& choice)
  {
    free_.assign(problem_.room());
    shortage_ = 0;
    if (free_.size() > most_rows) free_.clear();
    for (std::int64_t& it : free_) {
      it /= unit_;
      shortage_ += short_of(it);
    }
    for (std::uint32_t which = 0; which < problem_.intervals().size(); ++which)
      if (choice.is_kept(which)) shift(which, -1);
  }
  [[nodiscard]] std::int64_t short_of(std::int64_t free) const noexcept
  {
    const std::int64_t missing = std::max<std::int64_t>(0, wanted_ - free);
    return missing * missing;
  }
  void shift(std::uint32_t which, std::int64_t sign) noexcept
  {
    if (free_.empty()) return;
    const retention_problem::interval& interval = problem_.intervals()[which];
    const std::int64_t size = sign * static_cast<std::int64_t>(problem_.epochs()[interval.epoch].size) / unit_;
    const auto over = [&](std::size_t begin, std::size_t end) {
      for (std::size_t row = begin; row < end; ++row) {
        shortage_ -= short_of(free_[row]);
        free_[row] += size;
        shortage_ += short_of(free_[row]);
      }
    };
    over(interval.first, interval.wraps ? free_.size() : interval.last);
    if (interval.wraps) over(0, interval.last);
  }

  void keep(kept_intervals& choice, std::uint32_t which)
  {
    shift(which, -1);
    choice.keep(which);
    changes_.push_back({which, true});
  }
  void drop(kept_intervals& choice, std::uint32_t which)
  {
    shift(which, 1);
    choice.drop(which);
    changes_.push_back({which, false});
  }

  static bool covers(const retention_problem::interval& interval, std::uint32_t row) noexcept
  {
    return interval.wraps ? row >= interval.first || row < interval.last : row >= interval.first && row < interval.last;
  }
  static bool overlap(const retention_problem::interval& one, const retention_problem::interval& two) noexcept
  {
    return covers(one, two.first) || covers(two, one.first);
  }

  const retention_problem& problem_;
  sequence<std::uint32_t> intervals_;
  sequence<item> items_;
  sequence<std::uint32_t> missing_;  // items that are not kept
  sequence<change> changes_;
  std::uint64_t largest_ = 0;
  splitmix64 numbers_;
  std::int64_t unit_ = 1;
  std::int64_t wanted_ = 0;      // [units] the largest chunk
  sequence<std::int64_t> free_;  // [units] in each row; empty where there are too many
  std::int64_t shortage_ = 0;    // squares of what rows lack for the largest chunk
};

namespace detail {

/// Intervals of one epoch that a choice dropped, one after the other in time.
///
///     const dropped_stay stay{.begin = 40, .end = 90, .first = 7, .last = 8};
struct dropped_stay {
  std::uint64_t begin = 0;  ///< its first access
  std::uint64_t end = 0;    ///< the access after its last one
  std::uint32_t first = 0;  ///< interval
  std::uint32_t last = 0;   ///< the interval after the last one

  [[nodiscard]] bool operator<(const dropped_stay& other) const noexcept
  {
    if (end != other.end) return end < other.end;
    return first != other.first ? first < other.first : last < other.last;
  }
};

/// Replaces kept intervals by shorter stays, see shorten().
class stay_shortener {
 public:
  explicit stay_shortener(kept_intervals& choice) : choice_{choice}, access_count_{choice.problem().access_count()} {}

  void run()
  {
    for (const event& it : events()) {
      if (!choice_.is_kept(it.which)) {
        note(it.which, it.which + 1, it.shift);
        const retention_problem::epoch& epoch = epoch_of(it.which);
        if (it.which == epoch.begin && epoch.end - epoch.begin > 1 && is_dropped(epoch.begin, epoch.end))
          note(epoch.begin, epoch.end, it.shift);
      } else if (it.shift == 0) {
        replace(it.which);
      }
    }
  }

 private:
  /// The begin of an interval, also one iteration later for stays around the end.
  struct event {
    std::uint64_t begin;
    std::uint64_t shift;
    std::uint32_t which;
  };

  [[nodiscard]] const retention_problem::epoch& epoch_of(std::uint32_t which) const noexcept
  {
    return choice_.problem().epochs()[choice_.problem().intervals()[which].epoch];
  }
  [[nodiscard]] bool is_dropped(std::uint32_t first, std::uint32_t last) const noexcept
  {
    for (; first < last; ++first)
      if (choice_.is_kept(first)) return false;
    return true;
  }

  [[nodiscard]] sequence<event> events() const
  {
    const auto& intervals = choice_.problem().intervals();
    sequence<event> order;
    for (std::uint32_t which = 0; which < intervals.size(); ++which)
      for (const std::uint64_t shift : {std::uint64_t{0}, access_count_})
        if (shift == 0 || intervals[which].begin + intervals[which].length <= access_count_)
          order.push_back({intervals[which].begin + shift, shift, which});
    sort_records(std::span{order}, [&](const event& left, const event& right) {
      if (left.begin != right.begin) return left.begin > right.begin;
      const std::uint64_t left_length = intervals[left.which].length, right_length = intervals[right.which].length;
      return left_length != right_length ? left_length < right_length : left.which < right.which;
    });
    return order;
  }

  [[nodiscard]] dropped_stay stay_of(std::uint32_t first, std::uint32_t last, std::uint64_t shift) const noexcept
  {
    const auto& intervals = choice_.problem().intervals();
    const std::uint64_t begin = intervals[first].begin + shift;
    std::uint64_t end = intervals[last - 1].begin + shift;  // of a later interval around the end: below `begin`
    if (end < begin) end += access_count_;
    return {begin, end + intervals[last - 1].length, first, last};
  }
  /// Bytes that keeping all intervals of a stay saves. @pre they are dropped
  [[nodiscard]] std::uint64_t saving(std::uint32_t first, std::uint32_t last) const noexcept
  {
    const retention_problem::epoch& epoch = epoch_of(first);
    const std::uint32_t index = choice_.problem().intervals()[first].epoch;
    std::uint64_t saved = epoch.writes_back && choice_.dropped_of(index) == last - first ? epoch.size : 0;
    for (; first < last; ++first) saved += choice_.problem().intervals()[first].loads ? epoch.size : 0;
    return saved;
  }

  void note(std::uint32_t first, std::uint32_t last, std::uint64_t shift)
  {
    if (const std::uint64_t saved = saving(first, last); saved > 0)
      dropped_[{choice_.size_of(first), saved}].insert(stay_of(first, last, shift));
  }

  /// Drops a kept interval for a stay within it that saves as many bytes, if there is one.
  void replace(std::uint32_t which)
  {
    const retention_problem::interval& kept = choice_.problem().intervals()[which];
    const std::uint64_t size = choice_.size_of(which);
    const std::uint64_t end = std::uint64_t{kept.begin} + kept.length;
    const std::uint64_t loss = choice_.loss(which);
    for (auto group = dropped_.lower_bound({size, loss}); group != dropped_.end() && group->first.first == size;
         ++group) {
      const auto found = find(group->second, which, end, loss);
      if (found == group->second.end()) continue;
      const dropped_stay stay = *found;
      group->second.erase(found);
      choice_.drop(which);
      for (std::uint32_t each = stay.first; each < stay.last; ++each) choice_.keep(each);
      note(which, which + 1, 0);
      return;
    }
  }
  /// The stay that ends first. Stays that were kept since are removed; stays that save less now are skipped.
  [[nodiscard]] std::set<dropped_stay>::iterator find(std::set<dropped_stay>& stays, std::uint32_t which,
                                                      std::uint64_t end, std::uint64_t loss) const
  {
    constexpr int most = 16;
    const retention_problem::interval& kept = choice_.problem().intervals()[which];
    int looked_at = 0;
    for (auto it = stays.begin(); it != stays.end() && it->end <= end && looked_at < most;) {
      if (!is_dropped(it->first, it->last)) {
        it = stays.erase(it);
        continue;
      }
      const bool is_shorter = it->end - it->begin < kept.length;
      const bool is_other = choice_.problem().intervals()[it->first].epoch != kept.epoch;
      if (is_shorter && is_other && saving(it->first, it->last) >= loss) return it;
      ++it;
      ++looked_at;
    }
    return stays.end();
  }

  kept_intervals& choice_;
  std::uint64_t access_count_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::set<dropped_stay>> dropped_;  // by size and saved bytes
};

}  // namespace detail

/// Replaces each kept interval by a shorter stay inside it that saves as many bytes: an interval, or all intervals of
/// an epoch.
///
/// The bytes moved do not rise, and no access has less room. The remaining room is for early loads and late
/// write-backs. In a step forward and back, the chunks of the last layers then stay, and not those of the first layers.
/// Buys: without it `transfer.planned_manager_above_lookahead` is 1 instead of 0, its bound. Cost: O(intervals log
/// intervals).
inline void shorten(kept_intervals& choice)
{
  detail::stay_shortener{choice}.run();
}

namespace detail {

/// Keeps dropped intervals in the place of longer ones, see delay_loads().
class load_delayer {
 public:
  explicit load_delayer(kept_intervals& choice) : choice_{choice}
  {
    const auto intervals = choice.problem().intervals();
    for (std::uint32_t which = 0; which < intervals.size(); ++which) {
      if (!intervals[which].loads) continue;
      if (choice.is_kept(which))
        kept_[choice.size_of(which)].push_back(which);
      else
        dropped_.push_back(which);
    }
    const auto sort = [&](sequence<std::uint32_t>& which, bool longest_first) {
      sort_records(std::span{which}, [&](std::uint32_t left, std::uint32_t right) {
        const std::uint32_t one = intervals[left].length, other = intervals[right].length;
        return one != other ? (one > other) == longest_first : left < right;
      });
    };
    sort(dropped_, false);
    for (auto& [size, which] : kept_) sort(which, true);
    most_looks_ = looks_of_interval * intervals.size();
  }

  /// @return   how often it looked at an interval
  std::size_t run()
  {
    for (const std::uint32_t which : dropped_)
      if (!choice_.is_kept(which)) find_room(which);
    return looks_;
  }

 private:
  static constexpr int most_tries = 16;
  static constexpr std::size_t looks_of_interval = 64;  // an epoch that is read often has many intervals

  void find_room(std::uint32_t which)
  {
    int tries = 0;
    for (const std::uint32_t other : kept_[choice_.size_of(which)]) {
      if (length_of(other) <= length_of(which) || tries == most_tries || looks_ >= most_looks_) return;
      ++looks_;
      if (!choice_.is_kept(other) || epoch_of(other) == epoch_of(which)) continue;
      if (exchange(which, other)) return;
      ++tries;
    }
  }

  /// All dropped intervals of an epoch take the place of one interval, and of others of its epoch that then save
  /// nothing.
  /// @return   false where they do not fit or move more bytes; nothing happened
  bool exchange(std::uint32_t which, std::uint32_t other)
  {
    const std::uint64_t before = choice_.moved_bytes();
    changed_.clear();
    drop(other);
    const retention_problem::epoch& its = choice_.problem().epochs()[epoch_of(other)];
    const retention_problem::epoch& mine = choice_.problem().epochs()[epoch_of(which)];
    looks_ += its.end - its.begin + (mine.end - mine.begin);
    for (std::uint32_t each = its.begin; each < its.end; ++each)
      if (choice_.is_kept(each) && choice_.loss(each) == 0) drop(each);
    const std::size_t dropped = changed_.size();
    for (std::uint32_t each = mine.begin; each < mine.end; ++each) {
      if (choice_.is_kept(each) || !choice_.fits(each)) continue;
      choice_.keep(each);
      changed_.push_back(each);
    }
    if (choice_.is_kept(which) && choice_.moved_bytes() <= before) return true;
    while (changed_.size() > dropped) choice_.drop(changed_.back()), changed_.pop_back();
    for (; !changed_.empty(); changed_.pop_back()) choice_.keep(changed_.back());
    return false;
  }
  void drop(std::uint32_t which)
  {
    choice_.drop(which);
    changed_.push_back(which);
  }

  [[nodiscard]] std::uint32_t length_of(std::uint32_t which) const noexcept
  {
    return choice_.problem().intervals()[which].length;
  }
  [[nodiscard]] std::uint32_t epoch_of(std::uint32_t which) const noexcept
  {
    return choice_.problem().intervals()[which].epoch;
  }

  kept_intervals& choice_;
  sequence<std::uint32_t> dropped_;                        // intervals that load, the shortest first
  std::map<std::uint64_t, sequence<std::uint32_t>> kept_;  // by size: intervals that load, the longest first
  sequence<std::uint32_t> changed_;
  std::size_t most_looks_ = 0;
  std::size_t looks_ = 0;
};

}  // namespace detail

/// Lets chunks with an early next use stay in place of chunks of their size with a later one, where no more bytes move.
/// The loads then have more time between the access that frees their room and their use.
///
/// shorten() exchanges one interval for intervals inside it. Here the intervals of two epochs are exchanged: at the
/// turn of a step forward and back, a weight of the first layer leaves in the place of one of a last layer. Cost:
/// O(intervals log intervals): at most 16 exchanges are tried for each dropped interval, and none after visits of 64
/// times all intervals. @return   the number of visited intervals
inline std::size_t delay_loads(kept_intervals& choice)
{
  return detail::load_delayer{choice}.run();
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
