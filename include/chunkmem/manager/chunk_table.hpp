// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/chunk/tier_space.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/tier.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

/// Where all chunks of a manager lie: the chunks, and the tiers that hold them. Plain data, without a policy.
///
/// A plan starts from a table, a copy of a table is where an iteration began, and a comparison of two tables says
/// whether a plan is good again. `chunk_cache` moves chunks and keeps the frames of a chunk and of its tiers in step.
/// @code
/// chunk_table table;
/// table.reset(frames_of_chunk, slots);
/// table.space(tier::device).reset(capacity, frame, frames);  // and the same for each other tier
/// const chunk_table before = table;
/// // ... chunks move ...
/// if (table.same_places(before)) ...                         // the plan of before is good again
/// @endcode
class chunk_table {
 public:
  [[nodiscard]] chunk& operator[](chunk_id id) noexcept { return chunks_[index_of(id)]; }
  [[nodiscard]] const chunk& operator[](chunk_id id) const noexcept { return chunks_[index_of(id)]; }
  /// It is a chunk: not one of the marks of an empty frame.
  [[nodiscard]] bool has(chunk_id id) const noexcept { return index_of(id) < chunks(); }
  [[nodiscard]] id_range<chunk_id> chunk_ids() const noexcept { return ids<chunk_id>(chunks()); }
  [[nodiscard]] std::span<chunk> all() noexcept { return chunks_; }
  [[nodiscard]] std::span<const chunk> all() const noexcept { return chunks_; }
  [[nodiscard]] std::uint32_t chunks() const noexcept { return static_cast<std::uint32_t>(chunks_.size()); }
  [[nodiscard]] tier_space& space(tier where) noexcept { return spaces_[where]; }
  [[nodiscard]] const tier_space& space(tier where) const noexcept { return spaces_[where]; }

  /// By slot: it holds bytes.
  [[nodiscard]] std::span<const std::uint8_t> live() const noexcept { return live_; }
  [[nodiscard]] bool is_live(slot_id slot) const noexcept { return live_[index_of(slot)] != 0; }
  void set_live(slot_id slot, bool holds_bytes) noexcept { live_[index_of(slot)] = holds_bytes ? 1 : 0; }
  void exchange_live(slot_id left, slot_id right) noexcept { std::swap(live_[index_of(left)], live_[index_of(right)]); }

  /// Nothing lies anywhere and no slot holds bytes. The spaces are set by the caller.
  /// @param frames_of_chunk   how many neighbouring frames each chunk takes
  void reset(std::span<const std::uint32_t> frames_of_chunk, std::uint32_t slots)
  {
    chunks_.assign(frames_of_chunk.size(), chunk{});
    for (std::size_t index = 0; index < chunks_.size(); ++index) chunks_[index].frames = frames_of_chunk[index];
    live_.assign(slots, 0);
  }

  /// The chunk's copy in this tier could be given up now without losing a byte or a pin, if need be after a write-back.
  [[nodiscard]] bool may_leave(tier where, chunk_id id) const noexcept
  {
    const chunk& chunk_state = (*this)[id];
    if (chunk_state.pins[where] > 0) return false;
    if (where != last_tier) return true;  // a write-back goes to the next tier
    return !chunk_state.is_valid(where) || std::any_of(all_tiers.begin(), all_tiers.end(), [&](tier other) {
      return other != where && chunk_state.is_valid(other);
    });
  }

  /// What the tier looks like to a request that cannot be met: what cannot leave, and what this moment needs. Where
  /// there is room, but no run of it, more capacity than there is would be needed to have one for sure. O(chunks).
  [[nodiscard]] memory_shortage shortage(tier where, std::uint64_t requested) const noexcept
  {
    const tier_space& room = space(where);
    std::uint64_t stuck = room.leased();
    for (const chunk_id each : chunk_ids())
      if ((*this)[each].has_frames(where) && !may_leave(where, each))
        stuck += (*this)[each].frames * room.frame_bytes();
    const std::uint64_t held = stuck + requested <= room.capacity() ? room.capacity() : stuck;
    return {where,
            requested,
            room.capacity(),
            stuck,
            requested > UINT64_MAX - held ? UINT64_MAX : held + requested,
            false,
            step_need_[where].count()};
  }
  /// What the rehearsed step needs, for messages.
  void note_step_need(per_tier<bytes> need) noexcept { step_need_ = need; }

  /// The same chunks in the same frames, with the same room left. Next uses are not compared. O(chunks + frames).
  [[nodiscard]] bool same_places(const chunk_table& other) const noexcept
  {
    return live_ == other.live_ &&
           std::all_of(all_tiers.begin(), all_tiers.end(),
                       [&](tier where) { return spaces_[where].same_places(other.spaces_[where]); }) &&
           std::equal(chunks_.begin(), chunks_.end(), other.chunks_.begin(), other.chunks_.end(),
                      [](const chunk& ours, const chunk& theirs) { return ours.same_place(theirs); });
  }

 private:
  sequence<chunk> chunks_;
  sequence<std::uint8_t> live_;  // by slot: it holds bytes
  per_tier<tier_space> spaces_;
  per_tier<bytes> step_need_;  // zero until a step was rehearsed
};

}  // namespace chunkmem::inline v0
