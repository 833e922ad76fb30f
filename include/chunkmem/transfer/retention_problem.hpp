// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/transfer/residency_gaps.hpp>
#include <chunkmem/transfer/retention_input.hpp>
#include <chunkmem/transfer/room_tree.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Which gaps to keep so that the fewest bytes move, with all that has no choice taken out.
///
/// Rows are the moments that can bind: all gaps over them together are larger than the room there, and no other moment
/// with as many gaps and as little room says the same. A gap over no row stays, a gap larger than its room leaves;
/// where no write-back is at stake each gap is an epoch of its own. The bytes moved by a choice are `constant_bytes()`
/// and, for each epoch, a load for each dropped gap that loads and a write-back if any is dropped. Source: the interval
/// program of Albers, Arora and Khanna 1999 (SODA) with write-backs, around the end of an iteration. Cost: O((uses +
/// moments) log moments).
class retention_problem {
 public:
  struct gap {
    std::uint32_t first = 0;  ///< row
    std::uint32_t last = 0;   ///< row after it
    std::uint32_t epoch = 0;
    std::uint32_t use = 0;     ///< after which it lies
    bool wraps = false;        ///< its rows are `first` to the end, and 0 to `last`
    bool loads = false;        ///< its chunk is loaded again if it is dropped
    std::uint32_t begin = 0;   ///< its first moment
    std::uint32_t length = 0;  ///< moments, around the end of the iteration
  };
  struct epoch {
    std::uint64_t size = 0;   ///< of its chunk [bytes]
    std::uint32_t begin = 0;  ///< its gaps, in order of time
    std::uint32_t end = 0;
    bool writes_back = false;  ///< the first dropped gap costs a write-back
  };
  /// A chunk that could live on the device alone: nothing of it is used on the host, and every gap may stay.
  struct home {
    std::uint64_t size = 0;  ///< [bytes]
    std::uint32_t chunk = 0;
    std::uint32_t begin = 0;  ///< its epochs; none where it stays in any case
    std::uint32_t end = 0;
  };

  /// @throws out_of_memory   the uses of one moment, or the homes on the host that no chunk can do without, are larger
  /// than the capacity; says what they need
  /// @throws usage_error     a use names no chunk, does not end after it begins, or comes out of order
  explicit retention_problem(const retention_input& input)
  {
    const residency_gaps found{input};
    constant_ = found.constant_bytes();
    stays_ = found.stays();
    moments_ = static_cast<std::uint32_t>(input.device_bytes.size());
    const std::vector<std::int64_t> room = room_of(input, found);
    std::vector<bool> is_open(found.gaps().size(), true);
    const std::vector<bool> writes_back = leave_what_must(input, found, room, is_open);
    choose_rows(sum_gaps(input, found, is_open), room);
    find_homes(input, found, is_open);
    collect(input, found, is_open, writes_back);
  }

  [[nodiscard]] std::span<const gap> gaps() const noexcept { return gaps_; }
  [[nodiscard]] std::span<const epoch> epochs() const noexcept { return epochs_; }
  /// Bytes that gaps may fill in each row; not below the size of any gap over it.
  [[nodiscard]] std::span<const std::int64_t> room() const noexcept { return room_; }
  [[nodiscard]] std::span<const std::uint32_t> moment_of_row() const noexcept { return moment_of_row_; }
  [[nodiscard]] std::uint32_t moments() const noexcept { return moments_; }
  /// By chunk, with the epochs of each side by side; none where the host has room for every home.
  [[nodiscard]] std::span<const home> homes() const noexcept { return homes_; }
  /// Bytes on the host for those homes: less than all of them, where there are any.
  [[nodiscard]] std::uint64_t home_room() const noexcept { return home_room_; }
  /// Bytes of all of them.
  [[nodiscard]] std::uint64_t home_bytes() const noexcept { return home_bytes_; }
  /// Bytes that move whatever is chosen.
  [[nodiscard]] std::uint64_t constant_bytes() const noexcept { return constant_; }
  /// Any two choices differ by a multiple of this many bytes.
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept { return unit_; }
  /// After each use, where there was no choice: 1 if its chunk stays until its next use.
  [[nodiscard]] const std::vector<std::uint8_t>& stays() const noexcept { return stays_; }

 private:
  /// Which chunks could do without a home, where there is no room for all.
  void find_homes(const retention_input& input, const residency_gaps& found, const std::vector<bool>& is_open)
  {
    if (input.host_bytes.empty()) return;
    const std::uint64_t all = std::accumulate(input.chunk_bytes.begin(), input.chunk_bytes.end(), std::uint64_t{0});
    const std::uint64_t room = std::ranges::min(input.host_bytes);
    if (all <= room) return;
    std::vector<bool> may_stay(input.chunk_bytes.size(), false);
    for (const retention_use& it : input.uses) may_stay[it.chunk] = input.repeats;  // one shot starts on the host
    for (const retention_use& it : input.uses)
      if (!is_on_device(it.kind) && it.kind != use_kind::drop) may_stay[it.chunk] = false;
    std::size_t which = 0;
    for (const residency_gaps::epoch& it : found.epochs())
      for (; which < it.end; ++which)
        if (!is_open[which]) may_stay[it.chunk] = false;
    for (std::uint32_t chunk = 0; chunk < may_stay.size(); ++chunk) {
      if (!may_stay[chunk]) continue;
      homes_.push_back({input.chunk_bytes[chunk], chunk, 0, 0});
      home_bytes_ += input.chunk_bytes[chunk];
      unit_ = std::gcd(unit_, input.chunk_bytes[chunk]);
    }
    const std::uint64_t others = all - home_bytes_;
    if (others > room) throw out_of_memory{{tier::host, others, room, others, others, false}};
    home_room_ = room - others;
  }

  static std::vector<std::int64_t> room_of(const retention_input& input, const residency_gaps& found)
  {
    std::vector<std::int64_t> room(input.device_bytes.size());
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

  /// Drops gaps that fit nowhere or cost nothing. @return   which epochs may still cost a write-back
  std::vector<bool> leave_what_must(const retention_input& input, const residency_gaps& found,
                                    const std::vector<std::int64_t>& room, std::vector<bool>& is_open)
  {
    const room_tree least{room};
    std::vector<bool> writes_back(found.epochs().size());
    std::size_t begin = 0;
    for (std::size_t at = 0; at < found.epochs().size(); ++at) {
      const residency_gaps::epoch& it = found.epochs()[at];
      const std::uint64_t size = input.chunk_bytes[it.chunk];
      writes_back[at] = it.writes_back;
      for (std::size_t which = begin; which < it.end; ++which) {
        const residency_gaps::gap& one = found.gaps()[which];
        const std::uint32_t end = one.begin + one.length;
        const std::int64_t free = std::min(least.least(one.begin, std::min(end, moments_)),
                                           least.least(0, end > moments_ ? end - moments_ : 0));
        if (static_cast<std::int64_t>(size) <= free) continue;
        is_open[which] = false;
        constant_ += (one.loads ? size : 0) + (writes_back[at] ? size : 0);
        writes_back[at] = false;
      }
      for (; begin < it.end; ++begin)
        if (!writes_back[at] && !found.gaps()[begin].loads) is_open[begin] = false;
    }
    return writes_back;
  }

  /// Sums over the moments: all bytes that gaps would fill at each, and gaps that began or ended until then.
  struct gap_sums {
    std::vector<std::int64_t> over;
    std::vector<std::uint32_t> begun;
    std::vector<std::uint32_t> ended;
  };

  [[nodiscard]] gap_sums sum_gaps(const retention_input& input, const residency_gaps& found,
                                  const std::vector<bool>& is_open) const
  {
    const std::size_t size = moments_ + std::size_t{1};
    gap_sums sums{std::vector<std::int64_t>(size, 0), std::vector<std::uint32_t>(size, 0),
                  std::vector<std::uint32_t>(size, 0)};
    std::size_t which = 0;
    for (const residency_gaps::epoch& it : found.epochs())
      for (; which < it.end; ++which) {
        if (!is_open[which]) continue;
        const residency_gaps::gap& one = found.gaps()[which];
        const auto bytes_of_chunk = static_cast<std::int64_t>(input.chunk_bytes[it.chunk]);
        const std::uint32_t end = one.begin + one.length;
        const std::uint32_t end_here = end > moments_ ? end - moments_ : end;
        sums.over[one.begin] += bytes_of_chunk;
        sums.over[end_here] -= bytes_of_chunk;
        if (end > moments_) sums.over[0] += bytes_of_chunk;
        ++sums.begun[one.begin];
        ++sums.ended[end_here];
      }
    std::partial_sum(sums.over.begin(), sums.over.end(), sums.over.begin());
    std::partial_sum(sums.begun.begin(), sums.begun.end(), sums.begun.begin());
    std::partial_sum(sums.ended.begin(), sums.ended.end(), sums.ended.begin());
    return sums;
  }

  void choose_rows(const gap_sums& sums, const std::vector<std::int64_t>& room)
  {
    for (std::uint32_t now = 0; now < moments_; ++now) {
      if (sums.over[now] <= room[now]) continue;
      bool is_said = false;
      while (!moment_of_row_.empty()) {
        const std::uint32_t before = moment_of_row_.back();
        is_said = sums.begun[now] == sums.begun[before] && room[now] >= room[before];  // fewer gaps, as much room
        if (is_said || sums.ended[now] != sums.ended[before] || room[before] < room[now]) break;
        moment_of_row_.pop_back();
      }
      if (!is_said) moment_of_row_.push_back(now);
    }
    for (const std::uint32_t now : moment_of_row_) room_.push_back(room[now]);
  }

  void collect(const retention_input& input, const residency_gaps& found, const std::vector<bool>& is_open,
               const std::vector<bool>& writes_back)
  {
    std::vector<std::uint32_t> rows_before(moments_ + std::size_t{1}, 0);
    for (const std::uint32_t now : moment_of_row_) ++rows_before[now + std::size_t{1}];
    std::partial_sum(rows_before.begin(), rows_before.end(), rows_before.begin());
    const auto rows = static_cast<std::uint32_t>(moment_of_row_.size());
    std::size_t which = 0;
    auto home_of = homes_.begin();
    for (std::size_t at = 0; at < found.epochs().size(); ++at) {
      const std::uint64_t size = input.chunk_bytes[found.epochs()[at].chunk];
      const auto begin = static_cast<std::uint32_t>(gaps_.size());
      const auto first = static_cast<std::uint32_t>(epochs_.size());
      for (; which < found.epochs()[at].end; ++which) {
        if (!is_open[which]) continue;
        const residency_gaps::gap& it = found.gaps()[which];
        gap made{rows_before[it.begin],
                 0,
                 static_cast<std::uint32_t>(epochs_.size()),
                 it.use,
                 it.begin + it.length > moments_,
                 it.loads,
                 it.begin,
                 it.length};
        made.last = rows_before[made.wraps ? it.begin + it.length - moments_ : it.begin + it.length];
        if (made.wraps && made.first == rows) made.first = 0, made.wraps = false;
        if (made.wraps && made.last == 0) made.last = rows, made.wraps = false;
        if (!made.wraps && made.first == made.last) {
          stays_[it.use] = 1;
          continue;
        }
        gaps_.push_back(made);
        if (!writes_back[at]) close(size, static_cast<std::uint32_t>(gaps_.size()) - 1, false);
      }
      if (writes_back[at] && gaps_.size() > begin) close(size, begin, true);
      while (home_of != homes_.end() && home_of->chunk < found.epochs()[at].chunk) ++home_of;
      if (home_of != homes_.end() && home_of->chunk == found.epochs()[at].chunk) note_home(*home_of, first);
    }
  }

  /// @param first   of the epochs that were just made of its chunk
  void note_home(home& it, std::uint32_t first)
  {
    if (it.end == 0) it.begin = first;
    it.end = static_cast<std::uint32_t>(epochs_.size());
  }

  void close(std::uint64_t size, std::uint32_t begin, bool writes_back)
  {
    epochs_.push_back({size, begin, static_cast<std::uint32_t>(gaps_.size()), writes_back});
    unit_ = std::gcd(unit_, size);
  }

  std::uint32_t moments_ = 0;
  std::uint64_t constant_ = 0;
  std::uint64_t unit_ = 0;
  std::vector<std::uint8_t> stays_;
  std::vector<std::int64_t> room_;
  std::vector<std::uint32_t> moment_of_row_;
  std::vector<gap> gaps_;
  std::vector<epoch> epochs_;
  std::vector<home> homes_;
  std::uint64_t home_room_ = 0;
  std::uint64_t home_bytes_ = 0;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
