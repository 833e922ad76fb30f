// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/chunk/tier_space.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// All chunks of a manager and the tiers they lie in: what residency decides on, without a policy in its type.
class chunk_table {
 public:
  [[nodiscard]] chunk& operator[](std::uint32_t at) noexcept { return chunks_[at]; }
  [[nodiscard]] const chunk& operator[](std::uint32_t at) const noexcept { return chunks_[at]; }
  [[nodiscard]] std::span<const chunk> all() const noexcept { return chunks_; }
  [[nodiscard]] std::span<const std::uint8_t> live() const noexcept { return live_; }
  [[nodiscard]] std::uint32_t chunks() const noexcept { return static_cast<std::uint32_t>(chunks_.size()); }
  [[nodiscard]] tier_space& space(tier where) noexcept { return where == tier::device ? device_ : host_; }
  [[nodiscard]] const tier_space& space(tier where) const noexcept { return where == tier::device ? device_ : host_; }
  [[nodiscard]] bool is_live(std::uint32_t slot) const noexcept { return live_[slot] != 0; }
  void exchange_live(std::uint32_t left, std::uint32_t right) noexcept { std::swap(live_[left], live_[right]); }

  /// `frames_of_chunk` is the length of each chunk's window.
  void reset_chunks(std::span<const std::uint32_t> frames_of_chunk, std::uint32_t slots)
  {
    chunks_.assign(frames_of_chunk.size(), chunk{});
    for (std::size_t at = 0; at < chunks_.size(); ++at) chunks_[at].frames = frames_of_chunk[at];
    live_.assign(slots, 0);
  }

  /// The chunk's copy in this tier could be given up now without losing a byte or a pin.
  [[nodiscard]] bool may_leave(tier where, std::uint32_t at) const noexcept
  {
    const chunk& it = chunks_[at];
    if (where == tier::device) return it.device_pins == 0;
    return it.host_pins == 0 && (!it.host_valid || it.on_device());
  }

  /// What the tier looks like to a request that cannot be met: what cannot leave, and what this moment needs. Where
  /// there is room, but no run of it, more capacity than there is would be needed to have one for sure. O(chunks).
  [[nodiscard]] memory_shortage shortage(tier where, std::uint64_t requested) const noexcept
  {
    const tier_space& room = space(where);
    std::uint64_t stuck = room.leased();
    for (std::uint32_t at = 0; at < chunks(); ++at)
      if ((where == tier::device ? chunks_[at].on_device() : chunks_[at].has_window()) && !may_leave(where, at))
        stuck += chunks_[at].frames * room.frame_bytes();
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
    return live_ == other.live_ && device_.same_places(other.device_) && host_.same_places(other.host_) &&
           std::equal(chunks_.begin(), chunks_.end(), other.chunks_.begin(), other.chunks_.end(), have_same_place);
  }

 protected:
  std::vector<chunk> chunks_;
  std::vector<std::uint8_t> live_;  // by slot: it holds bytes
  tier_space device_;
  tier_space host_;
  per_tier<bytes> step_need_;  // zero until a step was rehearsed
};

}  // namespace chunkmem::inline v0
