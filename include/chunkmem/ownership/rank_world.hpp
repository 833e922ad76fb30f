// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace ownership {

/// Which ranks work together: all, those of one node, or those in the same place of every node.
enum class process_group : std::uint8_t { all, node, across };

/// The ranks that train together; those of a node are numbered one after the other.
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
  /// How many ranks a process group has, and which of them a rank is.
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

}  // namespace ownership

}  // namespace chunkmem::inline v0
