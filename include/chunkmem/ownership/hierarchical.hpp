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

/// Each chunk is divided over the ranks of a node, and every node has a copy of the chunk.
///
/// Fetches stay inside a node. Only sums cross the network: the ranks in one place of every node all_reduce their owned
/// bytes. Good when a node's memory holds a whole copy, and the network is much slower than the links of a node. Poor
/// where memory decides, for N nodes hold N copies and update each. Sums are made in order inside a node, then in order
/// of nodes. This is another grouping than over all ranks, so the bits are others. Source: hybrid sharding of FSDP
/// (Zhao et al. 2023, arXiv 2304.11277). Bytes that each of d ranks of a node receives for a chunk of n: n (d-1)/d to
/// fetch; the same and 2 (n/d) (N-1)/N across nodes to reduce. Cost: O(1).
///
/// Use, with sharding::process_groups in place of a communicator:
///
///     cm::sharded_model<memory_type, circles_type, cm::ownership::hierarchical> m{memory, process groups, options};
struct hierarchical {
  using policy_kind = ownership_kind;
  static constexpr std::string_view name = "hierarchical";

  [[nodiscard]] constexpr owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    const collective::shares parts = in_node(chunk, world);
    const std::uint32_t place = world.place_in(process_group::node, rank);
    return {parts.begin(place), parts.end(place)};
  }
  [[nodiscard]] constexpr collective_steps fetch(const owned_chunk& chunk, rank_id, const rank_world& world) const
  {
    return {{{{.what = collective::operation::all_gather,
               .among = process_group::node,
               .first = chunk.id,
               .parts = in_node(chunk, world)}}},
            1};
  }
  [[nodiscard]] constexpr collective_steps reduction(const owned_chunk& chunk, rank_id rank,
                                                     const rank_world& world) const
  {
    const owned_range own = owned(chunk, rank, world);
    const collective_step inside{.what = collective::operation::reduce_scatter,
                                 .among = process_group::node,
                                 .first = chunk.id,
                                 .parts = in_node(chunk, world)};
    const collective_step across{.what = collective::operation::all_reduce,
                                 .among = process_group::across,
                                 .first = chunk.id,
                                 .begin = own.begin,
                                 .parts = collective::shares::of(bytes{own.end - own.begin}, world.nodes())};
    return {{inside, across}, world.nodes() == 1 ? 1U : 2U};
  }
  [[nodiscard]] constexpr bytes room(const owned_chunk& chunk, const rank_world&) const { return chunk.size; }

 private:
  [[nodiscard]] static constexpr collective::shares in_node(const owned_chunk& chunk, const rank_world& world)
  {
    return collective::shares::of(chunk.size, world.of_node);
  }
};

static_assert(ownership_policy<hierarchical>);

}  // namespace ownership

}  // namespace chunkmem::inline v0
