// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/ownership/ownership_policy.hpp>

#include <cstdint>
#include <string_view>

// sharded over all ranks, hierarchical over the ranks of a node, and whole chunks with one owner each.

namespace chunkmem::inline v0 {

namespace ownership {

/// Each chunk is divided over all ranks: one all_gather gathers it, one reduce_scatter sums it.
///
/// The default. All links of all ranks carry traffic for every chunk, and room for one whole chunk is enough. The
/// number of ranks need not divide a chunk: the last share is shorter, and later ranks own none. Poor where chunks are
/// so small, or ranks so many, that latency dominates: the ring has a step for each rank. Source: ZeRO-3 with
/// bandwidth-centric partitions (Rajbhandari et al. 2021, arXiv 2104.07857); Gemini and Elixir shard chunks likewise.
/// Bytes that each rank receives for a chunk of n: n (W-1)/W to fetch, the same to reduce. Cost: O(1).
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

/// Each chunk is divided over the ranks of a node, and every node has a copy of the chunk.
///
/// Fetches stay inside a node. Only sums cross the network: the ranks with the same local rank all_reduce their owned
/// bytes. Good when a node's memory holds a whole copy, and the network is much slower than the links of a node. Poor
/// where memory is short, since N nodes hold and update N copies. Sums are made in order inside a node, then in order
/// of nodes. The grouping differs from a sum over all ranks, and so do the bits. Source: hybrid sharding of FSDP (Zhao
/// et al. 2023, arXiv 2304.11277). Bytes that each of d ranks of a node receives for a chunk of n: n (d-1)/d to fetch;
/// the same and 2 (n/d) (N-1)/N across nodes to reduce. Cost: O(1).
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

/// Each chunk has one owner: chunk c belongs to rank c mod W, and W chunks in a row are a group.
///
/// Good as PatrickStar's baseline, and where a chunk's states must not be divided. Poorer than `sharded` in memory (one
/// chunk needs the room of W) or in time (one owner's link serves all ranks). A member that the last group lacks
/// (PatrickStar's dummy) is an empty share here. It takes no memory and no bytes, but time: the number of ring steps is
/// the same. Source: PatrickStar (Fang et al. 2021, arXiv 2108.05818) with its memory-saving communication; a sum at
/// one rank is a reduce_scatter and then a gather (Thakur, Rabenseifner, Gropp 2005). Bytes that all W ranks receive
/// for a chunk of n: (W-1) n to fetch; the same to reduce with its group, and alone n (W-1)/W more. Cost: O(1).
///
/// Use, as an argument of a sharded_model:
///
///     cm::sharded_model<memory_type, ranks_type, cm::ownership::whole> m{memory, ranks, options};   // run::group
struct whole {
  using policy_kind = ownership_kind;
  static constexpr std::string_view name = "whole";

  enum class run : std::uint8_t {
    group,  ///< all_gather and reduce_scatter of W chunks at a time
    alone,  ///< memory-saving: a broadcast by the owner, and a sum at the owner
  };
  run fetched = run::group;

  [[nodiscard]] constexpr owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    return {0, index_of(rank) == owner_of(chunk, world) ? chunk.size.count() : 0};
  }
  [[nodiscard]] constexpr collective_steps fetch(const owned_chunk& chunk, rank_id, const rank_world& world) const
  {
    if (fetched == run::group) return {{{of_group(collective::operation::all_gather, chunk, world)}}, 1};
    return {{{of_one(collective::operation::broadcast, chunk, world)}}, 1};
  }
  [[nodiscard]] constexpr collective_steps reduction(const owned_chunk& chunk, rank_id rank,
                                                     const rank_world& world) const
  {
    using collective::operation;
    if (fetched == run::group) return {{{of_group(operation::reduce_scatter, chunk, world)}}, 1};
    const operation together = index_of(rank) == owner_of(chunk, world) ? operation::receive : operation::send;
    return {{of_one(operation::reduce_scatter, chunk, world), of_one(together, chunk, world)},
            world.ranks == 1 ? 1U : 2U};
  }
  [[nodiscard]] constexpr bytes room(const owned_chunk& chunk, const rank_world& world) const
  {
    return fetched == run::group ? bytes{group_of(chunk, world).whole} : chunk.size;
  }

 private:
  [[nodiscard]] static constexpr std::uint32_t owner_of(const owned_chunk& chunk, const rank_world& world) noexcept
  {
    return index_of(chunk.id) % world.ranks;
  }
  [[nodiscard]] static constexpr std::uint32_t first_of(const owned_chunk& chunk, const rank_world& world) noexcept
  {
    return index_of(chunk.id) - owner_of(chunk, world);
  }
  [[nodiscard]] static constexpr std::uint32_t members_of(const owned_chunk& chunk, const rank_world& world) noexcept
  {
    const std::uint32_t behind = chunk.chunks - first_of(chunk, world);
    return behind < world.ranks ? behind : world.ranks;
  }
  [[nodiscard]] static constexpr collective::shares group_of(const owned_chunk& chunk, const rank_world& world)
  {
    const bytes each = align_up(chunk.size, tensor_alignment);
    return {(each * (members_of(chunk, world) - 1) + chunk.size).count(), each.count(), world.ranks};
  }
  [[nodiscard]] static constexpr collective_step of_group(collective::operation what, const owned_chunk& chunk,
                                                          const rank_world& world)
  {
    return {.what = what,
            .first = chunk_id{first_of(chunk, world)},
            .chunks = members_of(chunk, world),
            .parts = group_of(chunk, world)};
  }
  [[nodiscard]] static constexpr collective_step of_one(collective::operation what, const owned_chunk& chunk,
                                                        const rank_world& world)
  {
    return {.what = what,
            .first = chunk.id,
            .parts = collective::shares::of(chunk.size, world.ranks),
            .root = owner_of(chunk, world)};
  }
};

static_assert(ownership_policy<whole>);

}  // namespace ownership

}  // namespace chunkmem::inline v0
