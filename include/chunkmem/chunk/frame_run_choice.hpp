// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/frame_pool.hpp>
#include <chunkmem/chunk/tier_space.hpp>
#include <chunkmem/core/ids.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// What a run of frames may cost at most; more means that it cannot be had.
inline constexpr std::uint32_t impossible_run = UINT32_MAX;

/// The cheapest run of `count` neighbouring frames that starts in [begin, end): the sum of the prices of what lies in
/// its frames, then the lowest place. Free frames cost nothing, leased ones make a run impossible.
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
