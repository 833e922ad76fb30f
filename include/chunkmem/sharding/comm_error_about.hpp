// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>

#include <string_view>

namespace chunkmem::inline v0 {

namespace sharding {

/// The failure of a group, with the tensor that is not available because of it, and the rank.
///
///     try { return m.acquire(whole, mode); } catch (const comm_error& first) {
///       throw comm_error_about("block.0.query", rank, first);
///     }
///
/// Its fault is that of the first cause. Allocates nothing except for the copy of an exception.
[[nodiscard]] inline comm_error comm_error_about(std::string_view tensor, rank_id rank,
                                                 const comm_error& first) noexcept
{
  constexpr std::string_view ours = "chunkmem: ";
  std::string_view said{first.what()};
  if (said.starts_with(ours)) said.remove_prefix(ours.size());
  return {error_text{} << ours << tensor << " has no valid bytes on rank " << index_of(rank) << ": " << said,
          first.fault()};
}

}  // namespace sharding

}  // namespace chunkmem::inline v0
