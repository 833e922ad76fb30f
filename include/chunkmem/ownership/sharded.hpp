// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/call.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/ownership/collective_step.hpp>
#include <chunkmem/ownership/ownership_policy.hpp>
#include <chunkmem/ownership/rank_world.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace ownership {

/// Each chunk is divided over all ranks: one all_gather makes it whole, one reduce_scatter makes its sum.
///
/// The default. Every link of every rank carries its part of every chunk, and room for one whole chunk is enough. The
/// number of ranks need not divide a chunk: the last share is shorter, and later ranks own none. Poor where chunks are
/// so small, or ranks so many, that starts cost more than bytes: the ring has a step for each rank. Source: ZeRO-3 with
/// bandwidth-centric partitions (Rajbhandari et al. 2021, arXiv 2104.07857); Gemini and Elixir shard chunks so. Bytes
/// that each rank receives for a chunk of n: n (W-1)/W to fetch, the same to reduce. Cost: O(1).
///
/// Use: an argument of a sharded_model, and the default.
///
///     cm::sharded_model<memory_type, cm::collective::local_threads, cm::ownership::sharded> m{memory, ranks, options};
struct sharded {
  using policy_kind = ownership_kind;
  static constexpr std::string_view name = "sharded";

  [[nodiscard]] constexpr owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    const collective::shares parts = collective::shares::of(chunk.size, world.ranks);
    return {parts.begin(index_of(rank)), parts.end(index_of(rank))};
  }
  [[nodiscard]] constexpr collective_steps fetch(const owned_chunk& chunk, rank_id, const rank_world& world) const
  {
    return {{{step(collective::operation::all_gather, chunk, world)}}, 1};
  }
  [[nodiscard]] constexpr collective_steps reduction(const owned_chunk& chunk, rank_id, const rank_world& world) const
  {
    return {{{step(collective::operation::reduce_scatter, chunk, world)}}, 1};
  }
  [[nodiscard]] constexpr bytes room(const owned_chunk& chunk, const rank_world&) const { return chunk.size; }

 private:
  [[nodiscard]] static constexpr collective_step step(collective::operation what, const owned_chunk& chunk,
                                                      const rank_world& world)
  {
    return {.what = what, .first = chunk.id, .parts = collective::shares::of(chunk.size, world.ranks)};
  }
};

static_assert(ownership_policy<sharded>);

}  // namespace ownership

}  // namespace chunkmem::inline v0
