// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/frame_pool.hpp>
#include <chunkmem/chunk/tier_space.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// What a window price may be at most; more means that the window cannot be had.
inline constexpr std::uint32_t impossible_window = UINT32_MAX;

/// The cheapest window of `count` frames that starts in [begin, end): the sum of the prices of what lies in its frames,
/// then the lowest place. Free frames cost nothing, leased ones make a window impossible.
///
/// Cost: O(count * (end - begin)) calls of `price`; no allocation.
///
/// @param price   `price(chunk)`: for giving up one frame of that chunk, or `impossible_window`
/// @return        first frame, or `frame_pool::none` where no window is possible
template <class Price>
[[nodiscard]] std::uint32_t cheapest_window(const tier_space& space, std::uint32_t count, std::uint32_t begin,
                                            std::uint32_t end, Price price)
{
  if (count > space.frames()) return frame_pool::none;
  const std::uint32_t starts = space.frames() - count + 1;
  std::uint32_t best = frame_pool::none;
  std::uint32_t least = impossible_window;
  for (std::uint32_t first = begin; first < end && first < starts; ++first) {
    std::uint32_t total = 0;
    for (std::uint32_t frame = first; frame < first + count && total != impossible_window; ++frame) {
      const std::uint32_t who = space.occupant(frame);
      if (who == tier_space::free_frame) continue;
      const std::uint32_t one = who == tier_space::leased_frame ? impossible_window : price(who);
      total = one == impossible_window ? impossible_window : total + one;
    }
    if (total < least) {
      least = total;
      best = first;
    }
  }
  return best;
}

/// The cheapest window that has one of the frames of a victim.
template <class Price>
[[nodiscard]] std::uint32_t cheapest_window_around(const tier_space& space, std::uint32_t count,
                                                   std::uint32_t victim_first, std::uint32_t victim_frames, Price price)
{
  const std::uint32_t begin = victim_first >= count - 1 ? victim_first - (count - 1) : 0;
  return cheapest_window(space, count, begin, victim_first + victim_frames, price);
}

}  // namespace chunkmem::inline v0
