// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/ownership/ownership_policy.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// The division of a unit over ranks: into equal shares, of which each rank owns one. Plain numbers.
///
///     const unit_division thirds = unit_division::even(3);
struct unit_division {
  std::uint32_t chunks = 1;             ///< that are gathered together
  std::uint32_t shares = 1;             ///< of those
  std::vector<std::uint32_t> place_of;  ///< by rank: the share that it owns
  std::vector<std::uint32_t> owner_of;  ///< by share: the first rank that owns it

  /// All ranks divide each chunk. @throws usage_error   no ranks
  [[nodiscard]] static unit_division even(std::uint32_t ranks)
  {
    expects(ranks > 0, "units for no ranks");
    unit_division result{1, ranks, {}, {}};
    for (std::uint32_t rank = 0; rank < ranks; ++rank) result.place_of.push_back(rank);
    result.owner_of = result.place_of;
    return result;
  }
};

namespace detail {

/// The range of a rank in a run of chunks, counted from the begin of the run.
template <ownership_policy Ownership>
[[nodiscard]] ownership::owned_range owned_of_run(const Ownership& ownership, ownership::owned_chunk chunk,
                                                  std::uint32_t chunks, rank_id rank,
                                                  const ownership::rank_world& world)
{
  ownership::owned_range all{0, 0};
  const std::uint32_t first = index_of(chunk.id);
  for (std::uint32_t index = 0; index < chunks; ++index) {
    chunk.id = chunk_id{first + index};
    const ownership::owned_range it = ownership.owned(chunk, rank, world);
    if (it.begin == it.end) continue;
    const std::uint64_t begin = index * chunk.size.count() + it.begin;
    if (all.begin == all.end) all.begin = all.end = begin;
    if (begin != all.end) return {0, 0};
    all.end = begin + (it.end - it.begin);
  }
  return all;
}

[[noreturn]] inline void refuse_division(std::string_view name)
{
  throw config_error{
      error_text{} << "chunkmem: " << name
                   << " gives ranks shares of different sizes, and managers that decide alike need equal ones (use one "
                      "that divides each run of chunks evenly: sharded, hierarchical, whole by groups)"};
}

}  // namespace detail

/// The division by an ownership, for chunks that the ranks can divide into whole blocks. O(ranks x chunks of a run)
/// @throws config_error   a rank has a share of another size, or several; world.check()
template <ownership_policy Ownership>
[[nodiscard]] unit_division divide(const Ownership& ownership, const ownership::rank_world& world)
{
  world.check();
  const bytes frame = bytes{world.ranks} * measure_block * sizeof(float);
  // two full runs of any length
  const ownership::owned_chunk first{.id = chunk_id{0}, .size = frame, .chunks = 2 * world.ranks};
  const std::uint64_t room = ownership.room(first, world).count();
  if (room % frame.count() != 0 || room / frame.count() > world.ranks) detail::refuse_division(Ownership::name);
  unit_division result{static_cast<std::uint32_t>(room / frame.count()), 0, {}, {}};
  std::uint64_t size = 0;
  for (std::uint32_t rank = 0; rank < world.ranks; ++rank) {
    const ownership::owned_range own = detail::owned_of_run(ownership, first, result.chunks, rank_id{rank}, world);
    if (rank == 0) size = own.end - own.begin;
    const bool fits = size != 0 && own.end - own.begin == size && own.begin % size == 0 && room % size == 0;
    if (!fits) detail::refuse_division(Ownership::name);
    result.place_of.push_back(static_cast<std::uint32_t>(own.begin / size));
  }
  result.shares = static_cast<std::uint32_t>(room / size);
  result.owner_of.assign(result.shares, UINT32_MAX);
  for (std::uint32_t rank = world.ranks; rank-- > 0;) result.owner_of[result.place_of[rank]] = rank;
  for (const std::uint32_t it : result.owner_of)
    if (it == UINT32_MAX) detail::refuse_division(Ownership::name);
  return result;
}

}  // namespace sharding

}  // namespace chunkmem::inline v0
