// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>

#include <array>
#include <concepts>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace ownership {

/// The ranks of a collective: all, those of one node, or those with the same local rank on every node.
enum class process_group : std::uint8_t { all, node, across };

/// The ranks that train together; ranks of a node have consecutive numbers.
///
///     const rank_world world{.ranks = 16, .of_node = 8};
///     world.check();
struct rank_world {
  std::uint32_t ranks = 1;
  std::uint32_t of_node = 1;

  [[nodiscard]] constexpr bool operator==(const rank_world&) const noexcept = default;

  /// @throws config_error   there are no ranks, or they do not fill their nodes
  constexpr void check() const
  {
    if (ranks != 0 && of_node != 0 && ranks % of_node == 0) return;
    throw config_error{error_text{} << "chunkmem: " << ranks << " ranks with " << of_node
                                    << " of each node (give one or more of both, and full nodes)"};
  }
  [[nodiscard]] constexpr std::uint32_t nodes() const noexcept { return ranks / of_node; }
  /// The number of ranks in a process group, and the index of a rank in it.
  [[nodiscard]] constexpr std::uint32_t size_of(process_group group) const noexcept
  {
    return group == process_group::all ? ranks : group == process_group::node ? of_node : nodes();
  }
  [[nodiscard]] constexpr std::uint32_t place_in(process_group group, rank_id rank) const noexcept
  {
    const std::uint32_t index = index_of(rank);
    return group == process_group::all ? index : group == process_group::node ? index % of_node : index / of_node;
  }
};

/// One collective operation of a rank. Plain numbers.
///
///     for (const collective_step& it : sharded{}.fetch(chunk, rank_id{0}, world)) std::cout << it.begin << '\n';
///
/// Its run begins `begin` bytes into chunk `first`. In a run of several chunks, each chunk but the last takes a share:
/// its size rounded up to `tensor_alignment`. `send` and `receive` gather a sum at the root: every other rank sends its
/// share to the root, which receives the shares in order of ranks.
struct collective_step {
  collective::operation what = collective::operation::all_gather;
  process_group among = process_group::all;
  chunk_id first = chunk_id::none;
  std::uint32_t chunks = 1;
  std::uint64_t begin = 0;   ///< [bytes]
  collective::shares parts;  ///< of the run, over the ranks of the process group
  std::uint32_t root = 0;    ///< of the process group: the source of a broadcast, or the rank that gathers a sum

  [[nodiscard]] constexpr bool operator==(const collective_step&) const noexcept = default;

  /// Bytes that one rank of the process group sends and receives. @throws size_overflow   they need more than 64 bits
  [[nodiscard]] constexpr collective::ring_traffic traffic(std::uint32_t place) const
  {
    using collective::operation;
    using collective::ring_traffic;
    switch (what) {
      case operation::all_gather: return ring_traffic::of_all_gather(parts, place);
      case operation::reduce_scatter: return ring_traffic::of_reduce_scatter(parts, place);
      case operation::all_reduce: return ring_traffic::of_all_reduce(parts, place);
      case operation::broadcast: return ring_traffic::of_broadcast(bytes{parts.whole}, place, root, parts.ranks);
      case operation::send: return {parts.size(place), 0};
      case operation::receive: return {0, parts.whole - parts.size(place)};
      default: return {};
    }
  }
};

/// One or two steps, in their order.
///
///     const collective_steps steps = sharded{}.fetch(chunk, rank_id{0}, world);
struct collective_steps {
  std::array<collective_step, 2> items{};
  std::uint32_t count = 0;

  [[nodiscard]] constexpr bool operator==(const collective_steps&) const noexcept = default;
  [[nodiscard]] constexpr const collective_step* begin() const noexcept { return items.data(); }
  [[nodiscard]] constexpr const collective_step* end() const noexcept { return items.data() + count; }

  /// The traffic of all steps. @throws size_overflow   the bytes need more than 64 bits
  [[nodiscard]] constexpr collective::ring_traffic traffic(rank_id rank, const rank_world& world) const
  {
    bytes sent;
    bytes received;
    for (const collective_step& step : *this) {
      const collective::ring_traffic of_step = step.traffic(world.place_in(step.among, rank));
      sent += bytes{of_step.sent};
      received += bytes{of_step.received};
    }
    return {sent.count(), received.count()};
  }
};

/// The input of an ownership policy: a chunk.
///
///     const owned_chunk first{.id = chunk_id{0}, .size = 4_MiB, .chunks = 12};
struct owned_chunk {
  chunk_id id{0};            ///< of its list, counted from 0
  bytes size;                ///< the same for all chunks of a list
  std::uint32_t chunks = 1;  ///< of the list

  [[nodiscard]] constexpr bool operator==(const owned_chunk&) const noexcept = default;
};

/// A range of bytes of a chunk.
///
///     const owned_range mine = sharded{}.owned(chunk, rank_id{0}, world);
struct owned_range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  [[nodiscard]] constexpr bool operator==(const owned_range&) const noexcept = default;
};

}  // namespace ownership

/// Gives the bytes of a chunk that a rank owns. The rank keeps these bytes between uses, and has their optimizer
/// states.
template <class Policy>
concept owns_ranges = requires(const Policy& policy, const ownership::owned_chunk& chunk, rank_id rank,
                               const ownership::rank_world& world) {
  {
    policy.owned(chunk, rank, world)
  } -> std::same_as<ownership::owned_range>;
};

/// Gives the operations by which ranks gather one chunk and sum their bytes.
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
/// 4. Ranks of one process group return the same step. For a sum at a root, the root returns `receive` and the others
///    `send`.
/// 5. A run is the same for each of its chunks. So it is fetched and reduced once for all of them.
/// 6. Results depend on the arguments alone, and no call allocates.
/// @throws size_overflow   from all of them: the run needs more than 64 bits
template <class Policy>
concept ownership_policy = names_itself<Policy> && std::same_as<typename Policy::policy_kind, ownership_kind> &&
                           owns_ranges<Policy> && names_steps<Policy>;

}  // namespace chunkmem::inline v0
