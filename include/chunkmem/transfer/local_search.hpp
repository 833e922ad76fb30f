// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/sort_records.hpp>
#include <chunkmem/core/splitmix64.hpp>
#include <chunkmem/transfer/kept_intervals.hpp>
#include <chunkmem/transfer/row_prices.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace chunkmem::inline v0 {

namespace transfer {

/// Ruin and recreate, a local search over plateaus: drops a few intervals that overlap, then keeps again what saves
/// most, but now and then passes an item over.
///
///     ruin_and_recreate{problem, price}.improve(choice, 4'000);
///
/// The search stays with a result unless it moves much more bytes, or moves as many while the largest chunk finds room
/// in fewer rows. Good where chunks of several sizes share the room, or epochs have several intervals: many choices
/// then cost nearly the same. Only the intervals about which the prices know least take part. Chance comes from a
/// counter, so every run is the same. Buys: without it `transfer.planned_above_evictions` is 8 instead of 2, and plans
/// are up to 1.053 instead of 1.018 of the linear program. Source: Schrimpf et al. 2000; passing over as in Christiaens
/// and Vanden Berghe 2020. Cost: O(intervals that take part) for each attempt.
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

  /// Replaces the choice by the best that was found. It moves no more bytes than before.
  void improve(kept_intervals& choice, std::size_t attempts)
  {
    if (intervals_.size() < 2) return;
    kept_intervals now = choice;
    measure(now);
    for (std::size_t attempt = 0; attempt < attempts; ++attempt) {
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

/// Dropped intervals of one size that begin from some access on, by their ends.
using dropped_intervals = std::set<std::pair<std::uint64_t, std::uint32_t>>;

/// An interval of `dropped` that may be kept instead of `kept`, which ends at `end`; or the end of `dropped`.
inline dropped_intervals::iterator find_shorter(const kept_intervals& choice, dropped_intervals& dropped,
                                                std::uint32_t kept, std::uint64_t end)
{
  constexpr int most = 16;
  int looked_at = 0;
  for (auto it = dropped.begin(); it != dropped.end() && it->first <= end && looked_at < most; ++it, ++looked_at) {
    const auto& intervals = choice.problem().intervals();
    if (intervals[it->second].epoch == intervals[kept].epoch || intervals[it->second].length >= intervals[kept].length)
      continue;
    if (choice.saving(it->second) >= choice.loss(kept)) return it;
  }
  return dropped.end();
}

}  // namespace detail

/// Replaces each kept interval by a shorter one inside it that saves as many bytes.
///
/// The bytes moved stay the same, and no access has less room. The room that is left is for copies that come early and
/// leave late. In a step forward and back, the chunks of the last layers then stay, and not those of the first layers.
/// Buys: without it `transfer.planned_manager_above_lookahead` is 1 instead of 0, its bound.
/// Cost: O(intervals log intervals).
inline void shorten(kept_intervals& choice)
{
  const auto& intervals = choice.problem().intervals();
  const std::uint64_t access_count = choice.problem().access_count();
  // each also one iteration later, for those around the end
  struct interval_at {
    std::uint64_t begin;
    std::uint32_t which;
  };
  sequence<interval_at> order;
  for (std::uint32_t which = 0; which < intervals.size(); ++which)
    for (const std::uint64_t shift : {std::uint64_t{0}, access_count})
      if (shift == 0 || intervals[which].begin + intervals[which].length <= access_count)
        order.push_back({intervals[which].begin + shift, which});
  sort_records(std::span{order}, [&](const interval_at& left, const interval_at& right) {
    if (left.begin != right.begin) return left.begin > right.begin;
    const std::uint64_t left_length = intervals[left.which].length, right_length = intervals[right.which].length;
    return left_length != right_length ? left_length < right_length : left.which < right.which;
  });
  std::map<std::uint64_t, detail::dropped_intervals> dropped;  // by size
  for (const auto& [begin, which] : order) {
    detail::dropped_intervals& mine = dropped[choice.size_of(which)];
    const std::uint64_t end = begin + intervals[which].length;
    if (!choice.is_kept(which)) {
      mine.emplace(end, which);
      continue;
    }
    if (begin >= access_count) continue;
    const auto found = detail::find_shorter(choice, mine, which, end);
    if (found == mine.end()) continue;
    const std::uint32_t shorter = found->second;
    mine.erase({std::uint64_t{intervals[shorter].begin} + intervals[shorter].length, shorter});
    mine.erase({intervals[shorter].begin + intervals[shorter].length + access_count, shorter});
    choice.drop(which);
    choice.keep(shorter);
    mine.emplace(end, which);
  }
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
