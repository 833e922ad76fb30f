// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace collective {

/// How a run of bytes is divided over ranks: equal shards in the order of ranks, the last ones shorter or empty.
///
/// The number of ranks need not divide the bytes: the rest is less than a shard, and the ranks after it have none.
///
/// Use:
///
///     const shares parts = shares::of(chunk_bytes, ranks);
///     ... parts.size(rank)       // [bytes]
struct shares {
  std::uint64_t whole = 0;  ///< [bytes]
  /// [bytes], a multiple of `tensor_alignment`; only the last shard that is not empty may be shorter
  std::uint64_t each = 0;
  std::uint32_t ranks = 1;

  /// The smallest equal shards of whole alignment units.
  /// @throws usage_error     there are no ranks
  /// @throws size_overflow   the bytes cannot be rounded up
  [[nodiscard]] static constexpr shares of(bytes whole, std::uint32_t ranks)
  {
    if (ranks == 0) throw usage_error{"shares for 0 ranks (give one or more)"};
    const std::uint64_t least = whole.count() / ranks + (whole.count() % ranks != 0 ? 1 : 0);
    return {whole.count(), align_up(bytes{least}, tensor_alignment).count(), ranks};
  }

  [[nodiscard]] constexpr std::uint64_t begin(std::uint32_t rank) const noexcept
  {
    return each != 0 && rank > whole / each ? whole : least_of(rank * each);
  }
  [[nodiscard]] constexpr std::uint64_t end(std::uint32_t rank) const noexcept { return begin(rank + 1); }
  [[nodiscard]] constexpr std::uint64_t size(std::uint32_t rank) const noexcept { return end(rank) - begin(rank); }
  /// Whether all shards are equal.
  [[nodiscard]] constexpr bool are_equal() const noexcept { return each * ranks == whole; }

  [[nodiscard]] constexpr bool operator==(const shares&) const noexcept = default;

 private:
  [[nodiscard]] constexpr std::uint64_t least_of(std::uint64_t place) const noexcept
  {
    return place < whole ? place : whole;
  }
};

/// The bytes that one rank sends and receives while ranks move bytes around a ring, each to the next.
///
///     const ring_traffic of_rank_0 = ring_traffic::of_all_gather(shares::of(size, ranks), 0);
///
/// Another algorithm that moves no byte twice differs only where shards are unequal, and only in the bytes that each
/// rank sends of a gather or receives of a sum. The bytes that a rank receives of a gather, the bytes that it sends
/// into a sum, and the bytes of all ranks together stay the same.
struct ring_traffic {
  std::uint64_t sent = 0;      ///< [bytes]
  std::uint64_t received = 0;  ///< [bytes]

  [[nodiscard]] constexpr bool operator==(const ring_traffic&) const noexcept = default;

  /// Every shard goes to every rank but its owner. A rank sends all shards but that of the next rank.
  /// @pre   rank < parts.ranks, for all functions here
  [[nodiscard]] static constexpr ring_traffic of_all_gather(const shares& parts, std::uint32_t rank) noexcept
  {
    const std::uint32_t next = rank + 1 == parts.ranks ? 0 : rank + 1;
    return {parts.whole - parts.size(next), parts.whole - parts.size(rank)};
  }
  /// The same backwards: a sum starts after the rank that keeps it, and ends there.
  [[nodiscard]] static constexpr ring_traffic of_reduce_scatter(const shares& parts, std::uint32_t rank) noexcept
  {
    const std::uint32_t previous = rank == 0 ? parts.ranks - 1 : rank - 1;
    return {parts.whole - parts.size(rank), parts.whole - parts.size(previous)};
  }
  /// A reduce_scatter, then an all_gather.
  /// @throws size_overflow   twice the bytes need more than 64 bits
  [[nodiscard]] static constexpr ring_traffic of_all_reduce(const shares& parts, std::uint32_t rank)
  {
    const ring_traffic first = of_reduce_scatter(parts, rank);
    const ring_traffic second = of_all_gather(parts, rank);
    return {(bytes{first.sent} + bytes{second.sent}).count(), (bytes{first.received} + bytes{second.received}).count()};
  }
  /// Down the chain that begins at the root: the last rank passes nothing on.
  [[nodiscard]] static constexpr ring_traffic of_broadcast(bytes size, std::uint32_t rank, std::uint32_t root,
                                                           std::uint32_t ranks) noexcept
  {
    const std::uint32_t behind = rank >= root ? rank - root : rank + (ranks - root);
    return {behind + 1 == ranks ? 0 : size.count(), behind == 0 ? 0 : size.count()};
  }
};

}  // namespace collective

}  // namespace chunkmem::inline v0
