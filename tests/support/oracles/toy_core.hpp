// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <support/oracles/random_iteration.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace support {

/// A model in which each tensor has a chunk of its own.
class toy_core {
 public:
  explicit toy_core(const std::vector<std::uint32_t>& frames_of_chunk)
  {
    for (const std::uint32_t frames : frames_of_chunk)
      registry_.add({frames * frame_bytes}, chunkmem::dtype::uint8, chunkmem::role::buffer, chunkmem::group_id{0});
    registry_.seal(chunkmem::append_layout{}, chunkmem::bytes{frame_bytes});
  }

  /// The model in the form that a rehearsal takes.
  [[nodiscard]] chunkmem::model_frames frames() const { return {registry_, gathered_, chunkmem::bytes{frame_bytes}}; }
  template <class Eviction>
  void shape(chunkmem::chunk_cache<Eviction>& target, chunkmem::per_tier<chunkmem::bytes> capacity) const
  {
    target.reset(registry_.frames_of_chunk(), static_cast<std::uint32_t>(registry_.slots().size()));
    for (const chunkmem::tier where : chunkmem::all_tiers)
      target.reset_tier(where, capacity[where], chunkmem::bytes{frame_bytes}, frames_in(capacity[where]));
  }
  template <class Eviction>
  [[nodiscard]] bool device_holds_all(const chunkmem::chunk_cache<Eviction>& state) const
  {
    return state.space(chunkmem::tier::device).frames() >= total_frames();
  }

 private:
  /// The largest usable number: all windows, once more for each doubling of the longest.
  [[nodiscard]] std::uint32_t frames_in(chunkmem::bytes capacity) const
  {
    const std::uint32_t longest = std::ranges::max(registry_.frames_of_chunk());
    const std::uint64_t useful = total_frames() * static_cast<std::uint64_t>(std::bit_width(longest));
    return static_cast<std::uint32_t>(std::min(capacity.count() / frame_bytes, useful));
  }
  [[nodiscard]] std::uint64_t total_frames() const
  {
    std::uint64_t all = 0;
    for (const std::uint32_t frames : registry_.frames_of_chunk()) all += frames;
    return all;
  }

  chunkmem::registry registry_;
  chunkmem::gathered_chunks gathered_;
};

/// A random iteration in which each chunk has one slot, as toy_core lays it out.
inline random_iteration roll_toy_iteration(dice& dice, const iteration_traits& traits)
{
  for (;;) {
    random_iteration it = roll_iteration(dice, traits);
    if (it.slots() == it.chunks()) return it;
  }
}

}  // namespace support
