// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/transfer/record_uses.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// A segment tree: adds a number to a range of a sequence, and finds the smallest number of a range.
///
///     room_tree room{bytes_of_row};
///     room.add(first, last, -size);
///     if (room.least(first, last) >= size) ...
///
/// Cost: O(log size) for each call, 32 bytes for each number.
class room_tree {
 public:
  static constexpr std::int64_t endless = std::numeric_limits<std::int64_t>::max();

  explicit room_tree(std::span<const std::int64_t> values)
  {
    while (leaves_ < values.size()) leaves_ *= 2;
    least_.assign(2 * leaves_, endless / 2);
    added_.assign(leaves_, 0);
    std::copy(values.begin(), values.end(), least_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (std::size_t node = leaves_; --node > 0;) least_[node] = std::min(least_[2 * node], least_[2 * node + 1]);
  }

  /// Adds to [begin, end).
  void add(std::size_t begin, std::size_t end, std::int64_t value) noexcept
  {
    if (begin >= end) return;
    std::size_t left = begin + leaves_;
    std::size_t right = end + leaves_;
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2 != 0) add_to(left++, value);
      if (right % 2 != 0) add_to(--right, value);
    }
    mend(begin + leaves_);
    mend(end - 1 + leaves_);
  }

  /// The smallest number of [begin, end), or `endless` where the range is empty.
  [[nodiscard]] std::int64_t least(std::size_t begin, std::size_t end) const noexcept
  {
    return begin < end ? least_in(1, 0, leaves_, begin, end) : endless;
  }

 private:
  void add_to(std::size_t node, std::int64_t value) noexcept
  {
    least_[node] += value;
    if (node < leaves_) added_[node] += value;
  }

  void mend(std::size_t node) noexcept
  {
    while (node > 1) {
      node /= 2;
      least_[node] = std::min(least_[2 * node], least_[2 * node + 1]) + added_[node];
    }
  }

  [[nodiscard]] std::int64_t least_in(std::size_t node, std::size_t from, std::size_t size, std::size_t begin,
                                      std::size_t end) const noexcept
  {
    if (begin <= from && from + size <= end) return least_[node];
    const std::size_t half = size / 2;
    std::int64_t found = endless / 2;
    if (begin < from + half) found = least_in(2 * node, from, half, begin, end);
    if (end > from + half) found = std::min(found, least_in(2 * node + 1, from + half, half, begin, end));
    return found + added_[node];
  }

  std::size_t leaves_ = 1;
  sequence<std::int64_t> least_;  // by node: the smallest number below, with everything added at the node or below
  sequence<std::int64_t> added_;  // by node: added to all numbers below
};

/// Finds the residency intervals of each chunk: the times between two uses on the device, when the chunk may stay or
/// leave.
///
///     const residency_intervals found{input};
///     std::size_t spared = 0;  // loads, where every chunk stays
///     for (const auto& it : found.intervals()) spared += it.loads ? 1 : 0;
///
/// A dropped interval (the chunk leaves) costs a load if the next use needs the bytes. An epoch is the sequence of
/// intervals between two writes on the device. The first dropped interval of an epoch costs a write-back, even if the
/// bytes are overwritten next: a program that leaves its record might read them. Copies that no choice avoids, such as
/// the write-back before an update on the host, are the constant bytes. Cost: O(uses + chunks + accesses).
class residency_intervals {
 public:
  struct interval {
    std::uint32_t use = 0;     ///< the use before the interval
    std::uint32_t begin = 0;   ///< first access
    std::uint32_t length = 0;  ///< in accesses, around the end of the iteration; above 0
    bool loads = false;        ///< the chunk is loaded again if the interval is dropped
  };
  struct epoch {
    std::uint32_t chunk = 0;
    bool writes_back = false;  ///< the first dropped interval costs a write-back
    std::size_t end = 0;       ///< end of its intervals; they begin at the end of the epoch before
  };

  /// @throws usage_error   a use names no chunk, ends before it begins or after the last access, or comes out of order
  explicit residency_intervals(const retention_input& input)
      : access_count_{static_cast<std::uint32_t>(input.device_bytes.size())},
        used_(access_count_ + std::size_t{1}, 0),
        retained_(input.uses.size(), 0)
  {
    check(input);
    const sequence<std::size_t> begins = sort_by_chunk(input);
    for (std::uint32_t chunk = 0; chunk < input.chunk_bytes.size(); ++chunk) {
      const std::span<const std::uint32_t> mine =
          std::span{order_}.subspan(begins[chunk], begins[chunk + 1] - begins[chunk]);
      count_used(input, mine, input.chunk_bytes[chunk]);
      walk(input, mine, chunk);
    }
    std::partial_sum(used_.begin(), used_.end(), used_.begin());
    used_.pop_back();
  }

  [[nodiscard]] std::span<const interval> intervals() const noexcept { return intervals_; }
  [[nodiscard]] std::span<const epoch> epochs() const noexcept { return epochs_; }
  /// Bytes that move for every choice.
  [[nodiscard]] std::uint64_t constant_bytes() const noexcept { return constant_; }
  /// Bytes that uses take on the device, at each access.
  [[nodiscard]] std::span<const std::uint64_t> used_bytes() const noexcept { return used_; }
  /// By use: 1 where the next use begins when this one ends. There is nothing to choose then.
  [[nodiscard]] const sequence<std::uint8_t>& retained() const noexcept { return retained_; }

 private:
  struct copies {
    bool on_device = false;  // the device's copy would be good if it stayed
    bool is_dirty = false;   // the host's copy would not be, had nothing left
    bool is_empty = false;   // there are no bytes
    std::uint32_t end = 0;   // of what was used last on the device
    std::uint32_t last = 0;  // that use
  };

  void check(const retention_input& input) const
  {
    std::uint32_t now = 0;
    for (const retention_use& use : input.uses) {
      expects(use.chunk < input.chunk_bytes.size(), "a use names a chunk that has no size");
      expects(use.begin >= now, "uses are not in order of their first access");
      expects(use.begin < use.end && use.end <= access_count_,
              "a use does not end after it begins, at the last access at the latest");
      now = use.begin;
    }
    for (const std::uint64_t size : input.chunk_bytes) expects(size > 0, "a chunk has no bytes");
  }

  sequence<std::size_t> sort_by_chunk(const retention_input& input)
  {
    sequence<std::size_t> begins(input.chunk_bytes.size() + 2, 0);
    for (const retention_use& use : input.uses) ++begins[use.chunk + std::size_t{2}];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    order_.resize(input.uses.size());
    for (std::uint32_t index = 0; index < input.uses.size(); ++index)
      order_[begins[input.uses[index].chunk + std::size_t{1}]++] = index;
    return begins;
  }

  void count_used(const retention_input& input, std::span<const std::uint32_t> mine, std::uint64_t size)
  {
    std::uint32_t counted = 0;
    for (const std::uint32_t index : mine) {
      const retention_use& use = input.uses[index];
      if (!is_on_device(use.kind) || use.end <= counted) continue;
      used_[std::max(counted, use.begin)] += size;
      used_[use.end] -= size;  // may wrap below zero, the sums do not
      counted = use.end;
    }
  }

  /// The first use at which the valid copies are known: a use that changes the bytes, else one on the device.
  /// `mine.size()` if there is none.
  static std::size_t known_start(const retention_input& input, std::span<const std::uint32_t> mine)
  {
    const auto changes = [&](std::uint32_t index) {
      return input.uses[index].kind != use_kind::read && input.uses[index].kind != use_kind::host_read;
    };
    const auto found = std::ranges::find_if(mine, changes);
    if (found != mine.end()) return static_cast<std::size_t>(found - mine.begin());
    const auto reads = [&](std::uint32_t index) { return is_on_device(input.uses[index].kind); };
    return static_cast<std::size_t>(std::ranges::find_if(mine, reads) - mine.begin());
  }

  void walk(const retention_input& input, std::span<const std::uint32_t> mine, std::uint32_t chunk)
  {
    if (mine.empty()) return;
    copies now;
    open(chunk, false);
    std::size_t first = 0;
    if (input.repeats) {
      first = known_start(input, mine);
      if (first == mine.size()) return;
      for (std::size_t index = 0; index < first; ++index)  // an earlier use may outlast it
        if (is_on_device(input.uses[mine[index]].kind)) hold(now, mine[index], input.uses[mine[index]].end);
      leave(now, input.uses[mine[first]], mine[first], 0, chunk);
    }
    for (std::size_t step = input.repeats ? 1 : 0; step < mine.size() + (input.repeats ? 1 : 0); ++step) {
      const std::uint32_t index = mine[(first + step) % mine.size()];
      const std::uint32_t shift = first + step >= mine.size() ? access_count_ : 0;
      reach(now, input.uses[index], shift, input.chunk_bytes[chunk]);
      if (step < mine.size()) leave(now, input.uses[index], index, shift, chunk);
    }
  }

  /// The cost of the time before a use.
  void reach(copies& now, const retention_use& use, std::uint32_t shift, std::uint64_t size)
  {
    const std::uint32_t begin = use.begin + shift;
    const bool needs = use.kind != use_kind::overwrite;
    if (is_on_device(use.kind)) {
      if (!now.on_device)
        constant_ += needs && !now.is_empty ? size : 0;
      else
        add_interval(now, begin, needs);
    } else if (use.kind == use_kind::host_read || use.kind == use_kind::host_update) {
      if (!now.is_dirty) return;
      constant_ += size;
      now.is_dirty = epochs_.back().writes_back = false;
    } else if (now.on_device && now.is_dirty) {
      add_interval(now, begin, false);
    }
  }

  /// The valid copies after a use.
  void leave(copies& now, const retention_use& use, std::uint32_t index, std::uint32_t shift, std::uint32_t chunk)
  {
    if (is_on_device(use.kind)) {
      const bool writes = use.kind != use_kind::read || now.is_empty;
      if (writes || !now.on_device) open(chunk, writes);
      now.is_dirty = writes || (now.on_device && now.is_dirty);
      now.on_device = true;
      now.is_empty = false;
      hold(now, index, use.end + shift);
    } else if (use.kind != use_kind::host_read) {
      now.on_device = now.is_dirty = false;
      now.is_empty = use.kind == use_kind::drop;
    }
  }

  static void hold(copies& now, std::uint32_t index, std::uint32_t end)
  {
    if (end < now.end) return;
    now.end = end;
    now.last = index;
  }

  void add_interval(const copies& now, std::uint32_t begin, bool loads)
  {
    if (begin <= now.end) {
      if (begin == now.end) retained_[now.last] = 1;
      return;
    }
    intervals_.push_back({now.last, now.end % access_count_, begin - now.end, loads});
    epochs_.back().end = intervals_.size();
  }

  void open(std::uint32_t chunk, bool writes_back) { epochs_.push_back({chunk, writes_back, intervals_.size()}); }

  std::uint32_t access_count_;
  std::uint64_t constant_ = 0;
  sequence<std::uint64_t> used_;
  sequence<std::uint8_t> retained_;
  sequence<std::uint32_t> order_;  // uses by chunk
  sequence<interval> intervals_;
  sequence<epoch> epochs_;
};

/// The bytes that a plan moves in one iteration, both directions. Cost: that of residency_intervals.
/// @param retained   by use, as in retention_solution
[[nodiscard]] inline std::uint64_t moved_bytes(const retention_input& input, std::span<const std::uint8_t> retained)
{
  const residency_intervals found{input};
  std::uint64_t moved = found.constant_bytes();
  std::size_t which = 0;
  for (const residency_intervals::epoch& it : found.epochs()) {
    bool is_dirty = it.writes_back;
    for (; which < it.end; ++which) {
      if (retained[found.intervals()[which].use] != 0) continue;
      moved += (found.intervals()[which].loads ? input.chunk_bytes[it.chunk] : 0) +
               (is_dirty ? input.chunk_bytes[it.chunk] : 0);
      is_dirty = false;
    }
  }
  return moved;
}

/// The interval packing problem of one iteration: a choice of residency intervals to keep, so that the fewest bytes
/// move.
///
///     const retention_problem problem{input};
///     const retention_solution plan = plan_retention(problem);
///
/// The constructor removes everything that has no choice:
/// - Rows (the constraints) are the accesses that can bind: all intervals over a row together are larger than its room.
///   One row stands for all accesses with the same intervals.
/// - An interval over no row is kept. An interval larger than its room is dropped.
/// - Without a write-back at stake, each interval is an epoch of its own.
///
/// A choice moves `constant_bytes()`, a load for each dropped interval that loads, and a write-back for each epoch with
/// a dropped interval. Source: the interval program of Albers, Arora and Khanna 1999 (SODA), here with write-backs and
/// around the end of an iteration. Cost: O((uses + accesses) log accesses).
class retention_problem {
 public:
  struct interval {
    std::uint32_t first = 0;  ///< its first row
    std::uint32_t last = 0;   ///< the row after its last one
    std::uint32_t epoch = 0;
    std::uint32_t use = 0;     ///< the use before the interval
    bool wraps = false;        ///< its rows are `first` to the end, and 0 to `last`
    bool loads = false;        ///< the chunk is loaded again if the interval is dropped
    std::uint32_t begin = 0;   ///< its first access
    std::uint32_t length = 0;  ///< in accesses, around the end of the iteration
  };
  struct epoch {
    std::uint64_t size = 0;   ///< of the chunk [bytes]
    std::uint32_t begin = 0;  ///< first of its intervals, which are in order of time
    std::uint32_t end = 0;
    bool writes_back = false;  ///< the first dropped interval costs a write-back
  };
  /// A chunk that could live on the device alone: the host does not use it, and every interval may be kept.
  struct host_copy {
    std::uint64_t size = 0;  ///< [bytes]
    std::uint32_t chunk = 0;
    std::uint32_t begin = 0;  ///< first of its epochs; no epoch where the chunk stays for every choice
    std::uint32_t end = 0;
  };

  /// @throws out_of_memory   the uses of one access, or the host copies that are always needed, are larger than the
  ///                         capacity; the error has the needed bytes
  /// @throws usage_error     a use names no chunk, does not end after it begins, or comes out of order
  explicit retention_problem(const retention_input& input)
  {
    const residency_intervals found{input};
    constant_ = found.constant_bytes();
    retained_ = found.retained();
    access_count_ = static_cast<std::uint32_t>(input.device_bytes.size());
    const sequence<std::int64_t> room = room_of(input, found);
    std::vector<bool> is_open(found.intervals().size(), true);
    const std::vector<bool> writes_back = leave_what_must(input, found, room, is_open);
    choose_rows(sum_intervals(input, found, is_open), room);
    find_host_copies(input, found, is_open);
    collect(input, found, is_open, writes_back);
  }

  [[nodiscard]] std::span<const interval> intervals() const noexcept { return intervals_; }
  [[nodiscard]] std::span<const epoch> epochs() const noexcept { return epochs_; }
  /// Bytes that intervals may fill, by row; never below the size of an interval over the row.
  [[nodiscard]] std::span<const std::int64_t> room() const noexcept { return room_; }
  [[nodiscard]] std::span<const std::uint32_t> access_index_of_row() const noexcept { return access_index_of_row_; }
  [[nodiscard]] std::uint32_t access_count() const noexcept { return access_count_; }
  /// Ordered by chunk; the epochs of a chunk are consecutive. Empty where the host has room for every host copy.
  [[nodiscard]] std::span<const host_copy> host_copies() const noexcept { return host_copies_; }
  /// Bytes on the host for host copies(); less than host_copy_bytes() where there are any.
  [[nodiscard]] std::uint64_t host_copy_room() const noexcept { return host_copy_room_; }
  /// Bytes of all host copies().
  [[nodiscard]] std::uint64_t host_copy_bytes() const noexcept { return host_copy_bytes_; }
  /// Bytes that move for every choice.
  [[nodiscard]] std::uint64_t constant_bytes() const noexcept { return constant_; }
  /// Any two choices differ by a multiple of this many bytes.
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept { return unit_; }
  /// By use, where there is no choice: 1 if the chunk stays until its next use.
  [[nodiscard]] const sequence<std::uint8_t>& retained() const noexcept { return retained_; }

 private:
  /// Finds the chunks that could do without a host copy, where there is no room for all host copies.
  void find_host_copies(const retention_input& input, const residency_intervals& found,
                        const std::vector<bool>& is_open)
  {
    if (input.host_bytes.empty()) return;
    const std::uint64_t all = std::accumulate(input.chunk_bytes.begin(), input.chunk_bytes.end(), std::uint64_t{0});
    const std::uint64_t room = std::ranges::min(input.host_bytes);
    if (all <= room) return;
    std::vector<bool> may_stay(input.chunk_bytes.size(), false);
    for (const retention_use& use : input.uses) may_stay[use.chunk] = input.repeats;  // one shot starts on the host
    for (const retention_use& use : input.uses)
      if (!is_on_device(use.kind) && use.kind != use_kind::drop) may_stay[use.chunk] = false;
    std::size_t which = 0;
    for (const residency_intervals::epoch& it : found.epochs())
      for (; which < it.end; ++which)
        if (!is_open[which]) may_stay[it.chunk] = false;
    for (std::uint32_t chunk = 0; chunk < may_stay.size(); ++chunk) {
      if (!may_stay[chunk]) continue;
      host_copies_.push_back({input.chunk_bytes[chunk], chunk, 0, 0});
      host_copy_bytes_ += input.chunk_bytes[chunk];
      unit_ = std::gcd(unit_, input.chunk_bytes[chunk]);
    }
    const std::uint64_t others = all - host_copy_bytes_;
    if (others > room) throw out_of_memory{{tier::host, others, room, others, others, false}};
    host_copy_room_ = room - others;
  }

  static sequence<std::int64_t> room_of(const retention_input& input, const residency_intervals& found)
  {
    sequence<std::int64_t> room(input.device_bytes.size());
    std::size_t worst = 0;
    for (std::size_t now = 0; now < room.size(); ++now) {
      room[now] =
          static_cast<std::int64_t>(input.device_bytes[now]) - static_cast<std::int64_t>(found.used_bytes()[now]);
      if (room[now] < room[worst]) worst = now;
    }
    if (!room.empty() && room[worst] < 0) {
      const std::uint64_t needed = found.used_bytes()[worst];
      throw out_of_memory{{tier::device, needed, input.device_bytes[worst], needed, needed, false}};
    }
    return room;
  }

  /// Drops intervals that fit nowhere or cost nothing. @return   by epoch: it may still cost a write-back
  std::vector<bool> leave_what_must(const retention_input& input, const residency_intervals& found,
                                    const sequence<std::int64_t>& room, std::vector<bool>& is_open)
  {
    const room_tree least{room};
    std::vector<bool> writes_back(found.epochs().size());
    std::size_t begin = 0;
    for (std::size_t index = 0; index < found.epochs().size(); ++index) {
      const residency_intervals::epoch& it = found.epochs()[index];
      const std::uint64_t size = input.chunk_bytes[it.chunk];
      writes_back[index] = it.writes_back;
      for (std::size_t which = begin; which < it.end; ++which) {
        const residency_intervals::interval& one = found.intervals()[which];
        const std::uint32_t end = one.begin + one.length;
        const std::int64_t free = std::min(least.least(one.begin, std::min(end, access_count_)),
                                           least.least(0, end > access_count_ ? end - access_count_ : 0));
        if (static_cast<std::int64_t>(size) <= free) continue;
        is_open[which] = false;
        constant_ += (one.loads ? size : 0) + (writes_back[index] ? size : 0);
        writes_back[index] = false;
      }
      for (; begin < it.end; ++begin)
        if (!writes_back[index] && !found.intervals()[begin].loads) is_open[begin] = false;
    }
    return writes_back;
  }

  /// Running sums over the accesses: the bytes of all intervals at an access, and the intervals begun or ended until
  /// then.
  struct interval_sums {
    sequence<std::int64_t> over;
    sequence<std::uint32_t> begun;
    sequence<std::uint32_t> ended;
  };

  [[nodiscard]] interval_sums sum_intervals(const retention_input& input, const residency_intervals& found,
                                            const std::vector<bool>& is_open) const
  {
    const std::size_t size = access_count_ + std::size_t{1};
    interval_sums sums{sequence<std::int64_t>(size, 0), sequence<std::uint32_t>(size, 0),
                       sequence<std::uint32_t>(size, 0)};
    std::size_t which = 0;
    for (const residency_intervals::epoch& it : found.epochs())
      for (; which < it.end; ++which) {
        if (!is_open[which]) continue;
        const residency_intervals::interval& one = found.intervals()[which];
        const auto bytes_of_chunk = static_cast<std::int64_t>(input.chunk_bytes[it.chunk]);
        const std::uint32_t end = one.begin + one.length;
        const std::uint32_t end_here = end > access_count_ ? end - access_count_ : end;
        sums.over[one.begin] += bytes_of_chunk;
        sums.over[end_here] -= bytes_of_chunk;
        if (end > access_count_) sums.over[0] += bytes_of_chunk;
        ++sums.begun[one.begin];
        ++sums.ended[end_here];
      }
    std::partial_sum(sums.over.begin(), sums.over.end(), sums.over.begin());
    std::partial_sum(sums.begun.begin(), sums.begun.end(), sums.begun.begin());
    std::partial_sum(sums.ended.begin(), sums.ended.end(), sums.ended.begin());
    return sums;
  }

  void choose_rows(const interval_sums& sums, const sequence<std::int64_t>& room)
  {
    for (std::uint32_t now = 0; now < access_count_; ++now) {
      if (sums.over[now] <= room[now]) continue;
      bool is_said = false;
      while (!access_index_of_row_.empty()) {
        const std::uint32_t before = access_index_of_row_.back();
        is_said = sums.begun[now] == sums.begun[before] && room[now] >= room[before];  // fewer intervals, as much room
        if (is_said || sums.ended[now] != sums.ended[before] || room[before] < room[now]) break;
        access_index_of_row_.pop_back();
      }
      if (!is_said) access_index_of_row_.push_back(now);
    }
    for (const std::uint32_t now : access_index_of_row_) room_.push_back(room[now]);
  }

  void collect(const retention_input& input, const residency_intervals& found, const std::vector<bool>& is_open,
               const std::vector<bool>& writes_back)
  {
    sequence<std::uint32_t> rows_before(access_count_ + std::size_t{1}, 0);
    for (const std::uint32_t now : access_index_of_row_) ++rows_before[now + std::size_t{1}];
    std::partial_sum(rows_before.begin(), rows_before.end(), rows_before.begin());
    const auto rows = static_cast<std::uint32_t>(access_index_of_row_.size());
    std::size_t which = 0;
    auto host_copy_of = host_copies_.begin();
    for (std::size_t index = 0; index < found.epochs().size(); ++index) {
      const std::uint64_t size = input.chunk_bytes[found.epochs()[index].chunk];
      const auto begin = static_cast<std::uint32_t>(intervals_.size());
      const auto first = static_cast<std::uint32_t>(epochs_.size());
      for (; which < found.epochs()[index].end; ++which) {
        if (!is_open[which]) continue;
        const residency_intervals::interval& it = found.intervals()[which];
        interval made{rows_before[it.begin],
                      0,
                      static_cast<std::uint32_t>(epochs_.size()),
                      it.use,
                      it.begin + it.length > access_count_,
                      it.loads,
                      it.begin,
                      it.length};
        made.last = rows_before[made.wraps ? it.begin + it.length - access_count_ : it.begin + it.length];
        if (made.wraps && made.first == rows) made.first = 0, made.wraps = false;
        if (made.wraps && made.last == 0) made.last = rows, made.wraps = false;
        if (!made.wraps && made.first == made.last) {
          retained_[it.use] = 1;
          continue;
        }
        intervals_.push_back(made);
        if (!writes_back[index]) close(size, static_cast<std::uint32_t>(intervals_.size()) - 1, false);
      }
      if (writes_back[index] && intervals_.size() > begin) close(size, begin, true);
      while (host_copy_of != host_copies_.end() && host_copy_of->chunk < found.epochs()[index].chunk) ++host_copy_of;
      if (host_copy_of != host_copies_.end() && host_copy_of->chunk == found.epochs()[index].chunk)
        note_host_copy(*host_copy_of, first);
    }
  }

  /// @param first   first of the epochs that were just made of the chunk
  void note_host_copy(host_copy& it, std::uint32_t first)
  {
    if (it.end == 0) it.begin = first;
    it.end = static_cast<std::uint32_t>(epochs_.size());
  }

  void close(std::uint64_t size, std::uint32_t begin, bool writes_back)
  {
    epochs_.push_back({size, begin, static_cast<std::uint32_t>(intervals_.size()), writes_back});
    unit_ = std::gcd(unit_, size);
  }

  std::uint32_t access_count_ = 0;
  std::uint64_t constant_ = 0;
  std::uint64_t unit_ = 0;
  sequence<std::uint8_t> retained_;
  sequence<std::int64_t> room_;
  sequence<std::uint32_t> access_index_of_row_;
  sequence<interval> intervals_;
  sequence<epoch> epochs_;
  sequence<host_copy> host_copies_;
  std::uint64_t host_copy_room_ = 0;
  std::uint64_t host_copy_bytes_ = 0;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
