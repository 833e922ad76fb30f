#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/chunk/frame_pool.hpp>
#include <chunkmem/chunk/tier_space.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// Where a window of `count` frames costs least: the fewest occupied frames, then the lowest place.
///
/// Windows that contain the policy's victim come first; all others are looked at only if none of those is possible.
/// Cost: O(count * victim frames), at worst O(count * frames); no allocation.
///
/// @param may_leave   `may_leave(chunk)`: that chunk could be evicted now
/// @return            first frame, or `frame_pool::none` where every window holds something that must stay
template <class MayLeave>
[[nodiscard]] std::uint32_t choose_window(const tier_space& space, std::uint32_t count, const chunk& victim, MayLeave may_leave)
{
  constexpr std::uint32_t impossible = UINT32_MAX;
  const auto cost = [&](std::uint32_t first) {
    std::uint32_t occupied = 0;
    for (std::uint32_t frame = first; frame < first + count; ++frame) {
      const std::uint32_t who = space.occupant(frame);
      if (who == tier_space::free_frame) continue;
      if (who == tier_space::leased_frame || !may_leave(who)) return impossible;
      ++occupied;
    }
    return occupied;
  };
  const auto best_from = [&](std::uint32_t begin, std::uint32_t end) {
    std::uint32_t best = frame_pool::none;
    std::uint32_t least = impossible;
    for (std::uint32_t first = begin; first < end; ++first)
      if (const std::uint32_t price = cost(first); price < least) {
        least = price;
        best = first;
      }
    return best;
  };
  if (count > space.frames()) return frame_pool::none;
  const std::uint32_t starts = space.frames() - count + 1;
  const std::uint32_t begin = victim.device >= count - 1 ? victim.device - (count - 1) : 0;
  const std::uint32_t end = victim.device + victim.frames < starts ? victim.device + victim.frames : starts;
  const std::uint32_t best = begin < end ? best_from(begin, end) : frame_pool::none;
  return best != frame_pool::none ? best : best_from(0, starts);
}

}  // namespace chunkmem::inline v0
