// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// The free frames of a tier, given out lowest first, as contiguous runs.
///
///     frame_pool frames;
///     frames.reset(8);
///     if (const frame_id first = frames.lowest(3); first != frame_pool::none) frames.take(first, 3);
///
/// Lowest first keeps the top of the arena free for leases. Cost: O(1) words for one frame; for a frame run O(free
/// runs).
class frame_pool {
 public:
  static constexpr frame_id none = frame_id::none;

  /// All of `frames` frames are free.
  void reset(std::uint32_t frames)
  {
    free_.reset(frames);
    for (std::uint32_t frame = 0; frame < frames; ++frame) free_.insert(frame);
    frames_ = frames;
    free_count_ = frames;
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return frames_; }
  [[nodiscard]] std::uint32_t free_count() const noexcept { return free_count_; }
  [[nodiscard]] bool is_free(frame_id frame) const noexcept { return free_.contains(index_of(frame)); }

  /// The first frame of the lowest free run of `count` frames, or none. Takes nothing.
  [[nodiscard]] frame_id lowest(std::uint32_t count) const noexcept
  {
    std::uint32_t first = free_.first_from(0);
    if (count == 1 || first == index_set::none) return frame_id{first};
    std::uint32_t length = 1;
    while (length < count) {
      const std::uint32_t next = free_.first_from(first + length);
      if (next == index_set::none) return none;
      if (next == first + length) {
        ++length;
      } else {
        first = next;
        length = 1;
      }
    }
    return frame_id{first};
  }

  /// The same from the other end: the first frame of the highest free frame run.
  [[nodiscard]] frame_id highest(std::uint32_t count) const noexcept
  {
    std::uint32_t last = free_.last_before(frames_);
    std::uint32_t length = 1;
    while (last != index_set::none && length < count) {
      const std::uint32_t next = free_.last_before(last + 1 - length);
      if (next == index_set::none) return none;
      if (next + length == last) {
        ++length;
      } else {
        last = next;
        length = 1;
      }
    }
    return last == index_set::none ? none : frame_id{last + 1 - length};
  }

  /// The highest free frame below `lease_limit`, or none.
  [[nodiscard]] frame_id highest_below(std::uint32_t lease_limit) const noexcept
  {
    return frame_id{free_.last_before(lease_limit < frames_ ? lease_limit : frames_)};
  }

  [[nodiscard]] bool is_free(frame_id first, std::uint32_t count) const noexcept
  {
    for (std::uint32_t frame = index_of(first); frame < index_of(first) + count; ++frame)
      if (frame >= frames_ || !free_.contains(frame)) return false;
    return true;
  }

  /// @pre the frame run is free
  void take(frame_id first, std::uint32_t count) noexcept
  {
    for (std::uint32_t frame = index_of(first); frame < index_of(first) + count; ++frame) free_.erase(frame);
    free_count_ -= count;
  }

  /// @pre the frame run is taken
  void give(frame_id first, std::uint32_t count) noexcept
  {
    for (std::uint32_t frame = index_of(first); frame < index_of(first) + count; ++frame) free_.insert(frame);
    free_count_ += count;
  }

  [[nodiscard]] bool operator==(const frame_pool&) const noexcept = default;

 private:
  index_set free_;
  std::uint32_t frames_ = 0;
  std::uint32_t free_count_ = 0;
};

/// The free frames of a tier in the order in which they became free.
///
///     free_frame_order order;
///     order.reset(pool);
///     pool.give(frame, 1);
///     order.freed(frame, false, clock);
///     const frame_id first = order.for_load(pool, lease_limit);
///
/// - A load can start when its frame is free, so a load takes the frame that is free the longest.
/// - A chunk without bytes takes the frame that became free last: older frames stay for loads. A frame whose bytes are
///   written back or summed over ranks is free later than it seems. A chunk without bytes takes such a frame only where
///   there is no other one, and then the one that was given up first.
/// - Of frames that were free from the beginning, the highest is the first. They are free since time 0.
///
/// Benefit: without this order `activation.planned_step_over_plan` is above 1.4, and its bound is 1.10.
/// Cost: O(1). Of each kind at most 64 frames above the lease limit are skipped; then a younger frame below it is
/// taken, or the highest.
class free_frame_order {
 public:
  /// All free frames were free from the beginning. O(frames)
  void reset(const frame_pool& pool)
  {
    frames_ = pool.size();
    links_.assign(std::size_t{frames_} + ring_count, {});
    for (std::uint32_t end = frames_; end < links_.size(); ++end) links_[end] = {end, end, 0, false};
    for (std::uint32_t frame = frames_; frame-- > 0;)
      if (pool.is_free(frame_id{frame})) append(frame, from_beginning, 0);
  }
  /// @param in_use   an agent may still work on the bytes of the frame: they are written back, or summed over ranks
  /// @param now   not below that of an earlier call, and below 2^64 - 1
  void freed(frame_id frame, bool in_use, std::uint64_t now) noexcept
  {
    unlink(index_of(frame));
    append(index_of(frame), in_use ? after_use : at_once, now);
  }
  /// When the last frame of a run became free. @pre   all of them are free
  [[nodiscard]] std::uint64_t since(frame_id first, std::uint32_t count) const noexcept
  {
    std::uint64_t last = 0;
    for (frame_id frame = first; frame < first + count; frame = frame + 1)
      last = std::max(last, links_[index_of(frame)].time - 1);
    return last;
  }

  /// A free frame below `lease_limit` for a chunk that is loaded. None where there is none.
  [[nodiscard]] frame_id for_load(const frame_pool& pool, std::uint32_t lease_limit) noexcept
  {
    const std::uint32_t first = find(pool, lease_limit, from_beginning, &link::after);
    if (first != none) return frame_id{first};
    const std::uint32_t left = find(pool, lease_limit, at_once, &link::after);
    const std::uint32_t right = find(pool, lease_limit, after_use, &link::after);
    if (left == none || right == none) return either(left, right, pool, lease_limit);
    return frame_id{links_[left].time <= links_[right].time ? left : right};
  }
  /// A free frame below `lease_limit` for a chunk without bytes. None where there is none.
  [[nodiscard]] frame_id for_claim(const frame_pool& pool, std::uint32_t lease_limit) noexcept
  {
    const std::uint32_t last = find(pool, lease_limit, at_once, &link::before);
    if (last != none) return frame_id{last};
    return either(find(pool, lease_limit, from_beginning, &link::after),
                  find(pool, lease_limit, after_use, &link::after), pool, lease_limit);
  }

  /// A run of free frames below `lease_limit`. Runs that begin at a multiple of their length come first, so that runs
  /// leave no gaps. None where there is no run. O(frames)
  /// @param loads   the run that is free the longest. False: the run that became free last, of those without a frame in
  ///   use; else the run that is free the longest
  [[nodiscard]] frame_id run(const frame_pool& pool, std::uint32_t lease_limit, std::uint32_t count,
                             bool loads) const noexcept
  {
    frame_id best = frame_id::none;
    for (const std::uint32_t step : {count, 1U}) {
      std::uint64_t least = UINT64_MAX;
      for (std::uint32_t first = 0; first + count <= std::min(lease_limit, frames_); first += step) {
        if (!pool.is_free(frame_id{first}, count)) continue;
        std::uint64_t time = 0;
        bool in_use = false;
        for (std::uint32_t frame = first; frame < first + count; ++frame) {
          time = std::max(time, links_[frame].time);
          in_use = in_use || links_[frame].in_use;
        }
        constexpr std::uint64_t late = std::uint64_t{1} << 63;
        const std::uint64_t rank = loads ? time : (in_use ? late + time : late - 1 - time);
        if (rank >= least) continue;
        best = frame_id{first};
        least = rank;
      }
      if (best != frame_id::none) break;
    }
    return best;
  }

 private:
  enum ring : std::uint32_t { from_beginning, at_once, after_use, ring_count };
  static constexpr std::uint32_t none = UINT32_MAX;
  static constexpr int most_passed = 64;

  /// Neighbours in a ring. Each ring has one end, which is no frame.
  struct link {
    std::uint32_t before = 0;
    std::uint32_t after = 0;
    std::uint64_t time = 0;  ///< when the frame became free, and 1; 0: in no ring
    bool in_use = false;     ///< as of freed
  };

  [[nodiscard]] static frame_id either(std::uint32_t one, std::uint32_t other, const frame_pool& pool,
                                       std::uint32_t lease_limit) noexcept
  {
    if (one != none) return frame_id{one};
    return other != none ? frame_id{other} : pool.highest_below(lease_limit);
  }
  void append(std::uint32_t frame, ring which, std::uint64_t now) noexcept
  {
    const std::uint32_t end = frames_ + which;
    links_[frame] = {links_[end].before, end, now + 1, which == after_use};
    links_[links_[end].before].after = frame;
    links_[end].before = frame;
  }
  void unlink(std::uint32_t frame) noexcept
  {
    link& it = links_[frame];
    if (it.time == 0) return;
    links_[it.before].after = it.after;
    links_[it.after].before = it.before;
    it = {};
  }
  /// The first free frame of a ring below `lease_limit` in this direction. Frames that were taken since are unlinked.
  [[nodiscard]] std::uint32_t find(const frame_pool& pool, std::uint32_t lease_limit, ring which,
                                   std::uint32_t link::*direction) noexcept
  {
    const std::uint32_t end = frames_ + which;
    int passed = 0;
    for (std::uint32_t frame = links_[end].*direction; frame != end && passed < most_passed;) {
      const std::uint32_t next = links_[frame].*direction;
      if (!pool.is_free(frame_id{frame}))
        unlink(frame);
      else if (frame < lease_limit)
        return frame;
      else
        ++passed;
      frame = next;
    }
    return none;
  }

  sequence<link> links_;  // by frame; then the ends of the rings
  std::uint32_t frames_ = 0;
};

/// The arena of one tier: chunks in frames from the bottom, leases from the top, never a byte in both.
///
///     tier_space space;
///     space.reset(64_MiB, 1_MiB, 64);
///     space.place(chunk_id{0}, space.pool().lowest(2), 2);
///     const std::uint64_t begin = space.find_lease(4'096, [](frame_id) { return false; });
///     if (begin != tier_space::no_place) space.take_lease(begin, 4'096);
///
/// Numbers only; this class does not own the bytes. A lease may begin at any multiple of `tensor_alignment`; the frames
/// it touches are lost to chunks until it ends. The rest after the last whole frame serves leases too. Cost: chunks
/// O(1); leases O(live leases + frames skipped), no allocation while the number of live leases does not reach a new
/// maximum.
class tier_space {
 public:
  static constexpr chunk_id free_frame = chunk_id::none;
  static constexpr chunk_id leased_frame{UINT32_MAX - 1};
  static constexpr std::uint64_t no_place = UINT64_MAX;

  void reset(bytes capacity, bytes frame, std::uint32_t frames)
  {
    frame_ = frame.count();
    capacity_ = capacity.count() / tensor_alignment.count() * tensor_alignment.count();
    pool_.reset(frames);
    occupant_.assign(frames, free_frame);
    leases_in_.assign(frames, 0);
    leases_.clear();
    leases_.reserve(64);
    leased_ = 0;
    most_leased_ = 0;
    chunk_frames_ = 0;
    peak_ = 0;
  }

  [[nodiscard]] const frame_pool& pool() const noexcept { return pool_; }
  [[nodiscard]] std::uint32_t frames() const noexcept { return pool_.size(); }
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint64_t frame_bytes() const noexcept { return frame_; }
  /// The chunk in a frame, or one of the two marks above.
  [[nodiscard]] chunk_id occupant(frame_id frame) const noexcept { return occupant_[index_of(frame)]; }
  /// Bytes held now: whole frames of chunks, and leases.
  [[nodiscard]] std::uint64_t in_use() const noexcept { return chunk_frames_ * frame_ + leased_; }
  [[nodiscard]] std::uint64_t leased() const noexcept { return leased_; }
  /// The most bytes that were ever leased at once.
  [[nodiscard]] std::uint64_t most_leased() const noexcept { return most_leased_; }
  [[nodiscard]] std::uint64_t peak() const noexcept { return peak_; }

  void place(chunk_id chunk, frame_id first, std::uint32_t count) noexcept
  {
    pool_.take(first, count);
    for (std::uint32_t index = index_of(first); index < index_of(first) + count; ++index) occupant_[index] = chunk;
    chunk_frames_ += count;
    peak_ = std::max(peak_, in_use());
  }

  void vacate(frame_id first, std::uint32_t count) noexcept
  {
    for (std::uint32_t index = index_of(first); index < index_of(first) + count; ++index) occupant_[index] = free_frame;
    pool_.give(first, count);
    chunk_frames_ -= count;
  }

  /// The highest place for `size` bytes that overlaps no lease and only frames for which `may_use(frame)` holds, which
  /// is not called for free frames and frames of leases. Changes nothing.
  template <class MayUse>
  [[nodiscard]] std::uint64_t find_lease(std::uint64_t size, MayUse may_use) const
  {
    std::uint64_t end = capacity_;
    auto above = leases_.end();  // the lowest lease that begins at or above `end`
    while (end >= size) {
      const std::uint64_t begin = (end - size) / tensor_alignment.count() * tensor_alignment.count();
      if (above != leases_.begin() && std::prev(above)->end > begin) {
        --above;
        end = std::min(end, above->begin);
        continue;
      }
      const std::uint64_t blocked = highest_blocked(begin, begin + size, may_use);
      if (blocked == no_place) return begin;
      end = blocked * frame_;
    }
    return no_place;
  }

  /// @pre no lease lies there and the frames it touches are free or touched by leases
  void take_lease(std::uint64_t begin, std::uint64_t size)
  {
    const interval fresh{begin, begin + size};
    leases_.insert(std::upper_bound(leases_.begin(), leases_.end(), fresh), fresh);
    for_frames(begin, size, [this](frame_id frame) {
      if (leases_in_[index_of(frame)]++ != 0) return;
      pool_.take(frame, 1);
      occupant_[index_of(frame)] = leased_frame;
    });
    leased_ += size;
    most_leased_ = std::max(most_leased_, leased_);
    peak_ = std::max(peak_, in_use());
  }

  /// Ends a lease and calls `freed(frame)` for each frame that chunks may use again.
  template <class Freed>
  void give_lease(std::uint64_t begin, std::uint64_t size, Freed freed)
  {
    leases_.erase(std::lower_bound(leases_.begin(), leases_.end(), interval{begin, 0}));
    for_frames(begin, size, [&](frame_id frame) {
      if (--leases_in_[index_of(frame)] != 0) return;
      occupant_[index_of(frame)] = free_frame;
      pool_.give(frame, 1);
      freed(frame);
    });
    leased_ -= size;
  }

  /// Calls `visit(begin, size)` for each live lease, from the bottom.
  template <class Visit>
  void for_leases(Visit visit) const
  {
    for (const interval& taken : leases_) visit(taken.begin, taken.end - taken.begin);
  }

  /// The bytes at [begin, begin + size) meet no lease, and each frame there is free or touched by leases.
  [[nodiscard]] bool can_lease_at(std::uint64_t begin, std::uint64_t size) const noexcept
  {
    for (const interval& taken : leases_)
      if (taken.begin < begin + size && begin < taken.end) return false;
    return begin + size <= capacity_ &&
           highest_blocked(begin, begin + size, [](frame_id) { return false; }) == no_place;
  }

  /// First byte of the lowest lease, or the capacity.
  [[nodiscard]] std::uint64_t lowest_lease() const noexcept
  {
    return leases_.empty() ? capacity_ : leases_.front().begin;
  }

  /// Calls `visit(frame)` for each whole frame that [begin, begin + size) touches.
  template <class Visit>
  void for_frames(std::uint64_t begin, std::uint64_t size, Visit visit) const
  {
    const std::uint64_t last = std::min<std::uint64_t>((begin + size - 1) / frame_ + 1, frames());
    for (std::uint64_t frame = begin / frame_; frame < last; ++frame)
      visit(frame_id{static_cast<std::uint32_t>(frame)});
  }

  /// Whether both have the same chunks and leases at the same places.
  [[nodiscard]] bool same_places(const tier_space& other) const noexcept
  {
    return occupant_ == other.occupant_ && leases_ == other.leases_;
  }

 private:
  struct interval {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    [[nodiscard]] bool operator<(const interval& other) const noexcept { return begin < other.begin; }
    [[nodiscard]] bool operator==(const interval&) const noexcept = default;
  };

  template <class MayUse>
  [[nodiscard]] std::uint64_t highest_blocked(std::uint64_t begin, std::uint64_t end, MayUse may_use) const
  {
    std::uint64_t blocked = no_place;
    for_frames(begin, end - begin, [&](frame_id frame) {
      const chunk_id who = occupant(frame);
      if (who != free_frame && who != leased_frame && !may_use(frame)) blocked = index_of(frame);
    });
    return blocked;
  }

  frame_pool pool_;
  sequence<chunk_id> occupant_;
  sequence<std::uint32_t> leases_in_;  // live leases that touch a frame
  sequence<interval> leases_;          // by begin
  std::uint64_t frame_ = 1;
  std::uint64_t capacity_ = 0;
  std::uint64_t leased_ = 0;
  std::uint64_t most_leased_ = 0;
  std::uint64_t chunk_frames_ = 0;
  std::uint64_t peak_ = 0;
};

/// The price of a run of frames that cannot be freed.
inline constexpr std::uint32_t impossible_run = UINT32_MAX;

/// The cheapest run of `count` contiguous frames that starts in [begin, end), by the sum of the prices of the chunks in
/// its frames, then the lowest one. Free frames cost nothing, leased ones make a run impossible.
///
/// Cost: O(count * (end - begin)) calls of `price`; no allocation.
///
/// @param price   `price(chunk)`: for giving up one frame of that chunk, or `impossible_run`
/// @return        first frame, or `frame_pool::none` where no run is possible
template <class Price>
[[nodiscard]] frame_id cheapest_frame_run(const tier_space& space, std::uint32_t count, frame_id begin, frame_id end,
                                          Price price)
{
  if (count > space.frames()) return frame_pool::none;
  const std::uint32_t starts = space.frames() - count + 1;
  frame_id best = frame_pool::none;
  std::uint32_t least = impossible_run;
  for (frame_id first = begin; first < end && index_of(first) < starts; first = first + 1) {
    std::uint32_t total = 0;
    for (frame_id frame = first; frame < first + count && total != impossible_run; frame = frame + 1) {
      const chunk_id occupant = space.occupant(frame);
      if (occupant == tier_space::free_frame) continue;
      const std::uint32_t one = occupant == tier_space::leased_frame ? impossible_run : price(occupant);
      total = one == impossible_run ? impossible_run : total + one;
    }
    if (total < least) {
      least = total;
      best = first;
    }
  }
  return best;
}

/// The cheapest run that has one of the frames of a victim.
template <class Price>
[[nodiscard]] frame_id cheapest_frame_run_around(const tier_space& space, std::uint32_t count, frame_id victim_first,
                                                 std::uint32_t victim_frames, Price price)
{
  const std::uint32_t last = index_of(victim_first);
  const frame_id begin{last >= count - 1 ? last - (count - 1) : 0};
  return cheapest_frame_run(space, count, begin, victim_first + victim_frames, price);
}

}  // namespace chunkmem::inline v0
