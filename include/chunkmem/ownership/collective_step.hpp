// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/call.hpp>
#include <chunkmem/collective/ring_traffic.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/ownership/rank_world.hpp>

#include <array>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace ownership {

/// One operation that a rank takes part in. Numbers only.
///
///     for (const collective_step& it : sharded{}.fetch(chunk, rank_id{0}, world)) std::cout << it.begin << '\n';
///
/// Its run begins `begin` bytes into chunk `first`. In a run of several chunks, each chunk but the last takes a share:
/// its size rounded up to `tensor_alignment`. `send` and `receive` bring a sum together: every other rank sends its
/// share to the root, and the root receives the shares in order of ranks.
struct collective_step {
  collective::operation what = collective::operation::all_gather;
  process_group among = process_group::all;
  chunk_id first = chunk_id::none;
  std::uint32_t chunks = 1;
  std::uint64_t begin = 0;   ///< [bytes]
  collective::shares parts;  ///< of the run, over the ranks of the process group
  std::uint32_t root = 0;    ///< of the process group: the source of a broadcast, and the rank that collects a sum

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

  /// Of all steps. @throws size_overflow   the bytes need more than 64 bits
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

}  // namespace ownership

}  // namespace chunkmem::inline v0
