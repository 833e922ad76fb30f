// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/gathered_chunks.hpp>
#include <chunkmem/manager/registry.hpp>

#include <algorithm>
#include <cstdint>

namespace chunkmem::inline v0 {

/// How the chunks of a model fill tiers of given sizes. A view: everything that it names outlives it.
///
/// `lay_out(target, capacity)` prepares a residency, that of a manager or one to simulate with.
struct model_frames {
  const registry& tensors;  ///< sealed, for all but `size`
  const gathered_chunks& gathered;
  bytes size;  ///< of a frame in every tier

  /// Whole frames of a tier, as many as could ever be used. The rest of the arena serves leases. O(chunks)
  [[nodiscard]] std::uint32_t in(bytes capacity) const noexcept
  {
    constexpr std::uint64_t most = UINT32_MAX / 2;
    // Windows of different lengths cut each other's room: this many more frames make up for it (Robson 1971).
    const std::uint64_t all = tensors.total_frames();
    std::uint64_t useful = all;
    for (std::uint32_t longest = tensors.longest_window(); longest > 1; longest /= 2) useful += all;
    return static_cast<std::uint32_t>(std::min({capacity.count() / size.count(), useful, most}));
  }

  /// All chunks fit on the device at once.
  [[nodiscard]] bool fit_on_device(const chunk_table& chunks) const noexcept
  {
    return chunks.space(tier::device).frames() >= tensors.total_frames();
  }

  /// Sets up `target` for these capacities: nothing lies anywhere. Allocates bookkeeping only.
  template <eviction_policy Eviction>
  void lay_out(chunk_cache<Eviction>& target, per_tier<bytes> capacity) const
  {
    target.reset(tensors.frames_of_chunk(), static_cast<std::uint32_t>(tensors.slots().size()));
    for (const tier where : all_tiers) target.reset_tier(where, capacity[where], size, in(capacity[where]));
    gathered.for_each_loaded_from_shares(tensors, [&](chunk_id chunk) { target.make_derived(chunk); });
  }
};

}  // namespace chunkmem::inline v0
