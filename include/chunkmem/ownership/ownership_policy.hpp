// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/ownership/collective_step.hpp>
#include <chunkmem/ownership/rank_world.hpp>

#include <concepts>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace ownership {

/// A chunk as an ownership sees it.
///
///     const owned_chunk first{.id = chunk_id{0}, .size = 4_MiB, .chunks = 12};
struct owned_chunk {
  chunk_id id{0};            ///< of its list, counted from 0
  bytes size;                ///< the same for all chunks of a list
  std::uint32_t chunks = 1;  ///< of the list

  [[nodiscard]] constexpr bool operator==(const owned_chunk&) const noexcept = default;
};

/// Bytes of a chunk.
///
///     const owned_range mine = sharded{}.owned(chunk, rank_id{0}, world);
struct owned_range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  [[nodiscard]] constexpr bool operator==(const owned_range&) const noexcept = default;
};

}  // namespace ownership

/// Says which bytes of a chunk a rank owns. The rank keeps these bytes between uses, and has their optimizer states.
template <class Policy>
concept owns_ranges = requires(const Policy& policy, const ownership::owned_chunk& chunk, rank_id rank,
                               const ownership::rank_world& world) {
  {
    policy.owned(chunk, rank, world)
  } -> std::same_as<ownership::owned_range>;
};

/// Says how ranks make one chunk whole, and how they sum their bytes.
template <class Policy>
concept names_steps = requires(const Policy& policy, const ownership::owned_chunk& chunk, rank_id rank,
                               const ownership::rank_world& world) {
  {
    policy.fetch(chunk, rank, world)
  } -> std::same_as<ownership::collective_steps>;
  {
    policy.reduction(chunk, rank, world)
  } -> std::same_as<ownership::collective_steps>;
  {
    policy.room(chunk, world)
  } -> std::same_as<bytes>;
};

/// Decides which rank owns which bytes of a chunk, and by which operations ranks share them.
///
/// Laws, for a chunk of a list, a rank of the world, and a world whose `check` does not throw:
/// 1. Every byte of a chunk is owned by the same number of ranks: 1, or as many as there are copies. Owned ranges of
///    one chunk are equal or disjoint. A range that is not empty begins at a multiple of `tensor_alignment`.
/// 2. `fetch`: before the steps, each rank has its owned bytes of the run in their place. After the steps, each rank
///    has the whole run. `room` bytes are enough for the run.
/// 3. `reduction`: before the steps, each rank has bytes of its own for the whole run. After the steps, each rank has
///    the sum over all ranks, each rank once, in its owned bytes. Other bytes of the room are unspecified.
/// 4. Ranks of one process group name the same step. For a sum that comes together, the root says `receive` and the
///    others `send`.
/// 5. A run is the same for each of its chunks. So it is fetched and reduced once for all of them.
/// 6. Answers depend on the arguments alone, and nothing is allocated.
/// @throws size_overflow   from all of them: the run needs more than 64 bits
template <class Policy>
concept ownership_policy = names_itself<Policy> && std::same_as<typename Policy::policy_kind, ownership_kind> &&
                           owns_ranges<Policy> && names_steps<Policy>;

}  // namespace chunkmem::inline v0
