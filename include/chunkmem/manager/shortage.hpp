#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/chunk/tier_space.hpp>
#include <chunkmem/core/error.hpp>

#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// What a tier looks like to a request that cannot be met: what is pinned or leased, and what this moment needs. O(chunks).
[[nodiscard]] inline memory_shortage shortage_of(tier where, const tier_space& space, std::span<const chunk> chunks,
                                                 std::uint64_t requested) noexcept
{
  std::uint64_t pinned = space.leased();
  for (const chunk& it : chunks)
    if (where == tier::device ? it.device_pins > 0 : it.host_pins > 0) pinned += it.frames * space.frame_bytes();
  return {where, requested, space.capacity(), pinned, pinned + requested};
}

}  // namespace chunkmem::inline v0
