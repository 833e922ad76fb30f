// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/window_choice.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/candidate_set.hpp>
#include <chunkmem/manager/chunk_table.hpp>

#include <cstdint>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

/// The host's half of residency: which chunk has a window there, and whose is given up when there is no room.
///
/// A window is kept as the chunk's home while there is room, valid or not. It is given up when another chunk needs it
/// and nothing is lost: when its bytes are not valid, or the device has them too. Chunks that a plan wants on the
/// device alone give theirs up first. Cost: O(1) while there is room; reclaiming looks at chunks from where it stopped
/// last, or at all windows.
template <eviction_policy Eviction>
class host_room : public chunk_table {
 public:
  /// Nothing lies anywhere. `frames_of_chunk` is the length of each chunk's window; capacities are set on the spaces.
  void reset(std::span<const std::uint32_t> frames_of_chunk, std::uint32_t slots)
  {
    reset_chunks(frames_of_chunk, slots);
    candidates_.reset(chunks());
    reclaims_ = 0;
    hand_ = 0;
  }

  /// Everything lies where it does there; the policy has to be told. O(chunks + frames).
  void take_places(const chunk_table& other)
  {
    chunk_table::operator=(other);
    for (chunk& it : chunks_) it.touched = false;
    candidates_.reset(chunks());
    reclaims_ = 0;
    hand_ = 0;
  }

  /// The policy itself, for one that follows a plan.
  [[nodiscard]] Eviction& policy() noexcept { return candidates_.policy(); }

  /// An iteration begins: what is decided in it depends on where things lie, and on nothing else.
  void begin_round() noexcept { hand_ = 0; }

  /// How often host room had to be taken back.
  [[nodiscard]] std::uint64_t reclaims() const noexcept { return reclaims_; }

  /// Settings of the eviction policy that a simulation may choose from; after `choose` comes `tell_policy`.
  [[nodiscard]] std::uint32_t variants() const noexcept { return candidates_.variants(); }
  void choose(std::uint32_t variant) noexcept { candidates_.choose(variant); }

 protected:
  explicit host_room(Eviction eviction) : candidates_{std::move(eviction)} {}

  template <class Mover>
  void take_host_window(std::uint32_t at, Mover& mover)
  {
    chunk& it = chunks_[at];
    if (it.host != chunk::nowhere) return;
    std::uint32_t first = free_host_window(it.frames);
    if (first == frame_pool::none)
      first = it.frames == 1 ? reclaim_host_frame(at, mover) : reclaim_host_window(at, mover);
    host_.place(at, first, it.frames);
    mover.placed(tier::host, first, it.frames);
    it.host = first;
  }

  template <class Mover>
  void leave_host(std::uint32_t at, Mover& mover)
  {
    chunk& it = chunks_[at];
    ++reclaims_;
    candidates_.touch(at, it);
    it.host_valid = false;
    host_.vacate(it.host, it.frames);
    mover.vacated(tier::host, it.host, it.frames, false);
    it.host = chunk::nowhere;
  }

  candidate_set<Eviction> candidates_;

 private:
  /// Single frames from the bottom, windows from the top, so that the first do not cut the room of the second.
  [[nodiscard]] std::uint32_t free_host_window(std::uint32_t count) const noexcept
  {
    return count == 1 ? host_.pool().lowest(1) : host_.pool().highest(count);
  }

  /// What giving up a chunk's frame on the host costs: nothing, a home for later, a write-back for later.
  [[nodiscard]] std::uint32_t price_of_home(std::uint32_t at) const noexcept
  {
    return chunks_[at].device_only ? 0 : chunks_[at].host_valid ? 4 : 1;
  }

  /// Gives up a frame that nothing needs.
  template <class Mover>
  std::uint32_t reclaim_host_frame(std::uint32_t wanting, Mover& mover)
  {
    for (const std::uint32_t price : {0U, 1U, 4U})
      for (std::uint32_t step = 0; step < chunks(); ++step) {
        hand_ = hand_ + 1 < chunks() ? hand_ + 1 : 0;
        if (!chunks_[hand_].has_window() || hand_ == wanting || !may_leave(tier::host, hand_)) continue;
        if (price_of_home(hand_) > price) continue;
        leave_host(hand_, mover);
        return host_.pool().lowest(1);
      }
    throw out_of_memory{shortage(tier::host, host_.frame_bytes())};
  }

  /// The same for a window; nothing is given up where there is none.
  template <class Mover>
  std::uint32_t reclaim_host_window(std::uint32_t wanting, Mover& mover)
  {
    const std::uint32_t count = chunks_[wanting].frames;
    const std::uint32_t first = cheapest_window(host_, count, 0, host_.frames(), [this](std::uint32_t at) {
      if (!may_leave(tier::host, at)) return impossible_window;
      return price_of_home(at);
    });
    if (first == frame_pool::none) throw out_of_memory{shortage(tier::host, count * host_.frame_bytes())};
    for (std::uint32_t frame = first; frame < first + count; ++frame)
      if (const std::uint32_t who = host_.occupant(frame); who < chunks()) leave_host(who, mover);
    return first;
  }

  std::uint64_t reclaims_ = 0;
  std::uint32_t hand_ = 0;  // where the next search for a frame begins
};

}  // namespace chunkmem::inline v0
