// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/frame_run_choice.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/chunk_table.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// Chooses frames in a tier below the device, and decides whose frames are taken back when no frames are free.
///
/// A chunk keeps its frames there while there is room, whether its copy is valid or not. They are taken back when
/// another chunk needs them and no byte is lost: the copy is not valid, or the device has the bytes too. The price of
/// taking them back decides the order: nothing where a plan keeps the chunk on the device, 1 where the copy is not
/// valid, 4 where it is and would be written back again later.
///
/// Good for a tier that holds almost everything; a tier that chunks pass through wants an eviction policy.
/// Cost: O(1) while frames are free; else one frame looks at chunks from where the last search ended, and a run of
/// several frames looks at every place.
/// @code
/// frame_reclaim reclaim{tier::host};
/// const frame_id first = reclaim.find_frames(table, chunk, [&](chunk_id victim) { leave(victim); });
/// table.space(tier::host).place(chunk, first, table[chunk].frames);
/// @endcode
class frame_reclaim {
 public:
  explicit frame_reclaim(tier where) noexcept : where_{where} {}

  /// The next search starts as the first one did, so that decisions depend only on where chunks lie.
  void start_over() noexcept { hand_ = chunk_id{0}; }

  /// Finds free frames for a chunk. Places nothing.
  /// @param wanting   chunk that has no frames in this tier
  /// @param give_up   `give_up(victim)` frees the frames of the chunk `victim` in the table
  /// @return          first of its frames
  /// @throws out_of_memory   nothing was given up
  template <class GiveUp>
  [[nodiscard]] frame_id find_frames(const chunk_table& table, chunk_id wanting, GiveUp give_up)
  {
    const std::uint32_t count = table[wanting].frames;
    const frame_id first = free_frames(table, count);
    if (first != frame_pool::none) return first;
    return count == 1 ? reclaim_frame(table, wanting, give_up) : reclaim_run(table, count, give_up);
  }

 private:
  /// Single frames come from the bottom and runs of several from the top, so that the first do not divide the room of
  /// the second.
  [[nodiscard]] frame_id free_frames(const chunk_table& table, std::uint32_t count) const noexcept
  {
    const frame_pool& pool = table.space(where_).pool();
    return count == 1 ? pool.lowest(1) : pool.highest(count);
  }

  [[nodiscard]] std::uint32_t price_of(const chunk& victim) const noexcept
  {
    return victim.never_leaves() ? 0 : victim.is_valid(where_) ? 4 : 1;
  }

  template <class GiveUp>
  frame_id reclaim_frame(const chunk_table& table, chunk_id wanting, GiveUp& give_up)
  {
    for (const std::uint32_t price : {0U, 1U, 4U})
      for (std::uint32_t step = 0; step < table.chunks(); ++step) {
        const std::uint32_t next = index_of(hand_) + 1;
        hand_ = chunk_id{next < table.chunks() ? next : 0};
        const chunk& victim = table[hand_];
        if (!victim.has_frames(where_) || hand_ == wanting || !table.may_leave(where_, hand_)) continue;
        if (price_of(victim) > price) continue;
        give_up(hand_);
        return table.space(where_).pool().lowest(1);
      }
    throw out_of_memory{table.shortage(where_, table.space(where_).frame_bytes())};
  }

  template <class GiveUp>
  frame_id reclaim_run(const chunk_table& table, std::uint32_t count, GiveUp& give_up) const
  {
    const tier_space& space = table.space(where_);
    const frame_id first = cheapest_frame_run(
        space, count, frame_id{0}, frame_id{space.frames()},
        [&](chunk_id victim) { return table.may_leave(where_, victim) ? price_of(table[victim]) : impossible_run; });
    if (first == frame_pool::none) throw out_of_memory{table.shortage(where_, count * space.frame_bytes())};
    for (frame_id frame = first; frame < first + count; frame = frame + 1)
      if (const chunk_id victim = space.occupant(frame); table.has(victim)) give_up(victim);
    return first;
  }

  tier where_;
  chunk_id hand_{0};  // the chunk at which the last search for a frame ended
};

}  // namespace chunkmem::inline v0
