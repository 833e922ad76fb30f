// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/frame_pool.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// The arena of one tier: chunks in frames from the bottom, leases from the top, never a byte in both.
///
///     tier_space space;
///     space.reset(64_MiB, 1_MiB, 64);
///     space.place(chunk_id{0}, space.pool().lowest(2), 2);
///     const std::uint64_t begin = space.find_lease(4'096, [](frame_id) { return false; });
///     if (begin != tier_space::no_place) space.take_lease(begin, 4'096);
///
/// Numbers only; the bytes are somebody else's. A lease may begin anywhere that is a multiple of `tensor_alignment`;
/// the frames it touches are lost to chunks until it ends. What is left over after the last whole frame serves leases
/// too. Cost: chunks O(1); leases O(live leases + frames passed over), no allocation while the number of live leases
/// does not reach a new maximum.
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

  /// The highest place for `size` bytes that meets no lease and only frames for which `may_use(frame)` holds; frames
  /// that are free or touched by leases already need not be asked for. Changes nothing.
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

  /// The same chunks and leases at the same places.
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

}  // namespace chunkmem::inline v0
