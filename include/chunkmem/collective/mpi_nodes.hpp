// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/mpi_error.hpp>
#include <chunkmem/collective/mpi_session.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/expects.hpp>

#include <mpi.h>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace collective {

/// Processes by nodes: a group of the processes of a node, and a group of the processes in one place of every node.
/// Both are MPI_Comm of the user's own.
///
/// A process needs this before it makes its communicators: its place, its groups, and the device of its node that is
/// its own. Ranks of `users` have to be numbered node by node, as launchers do unless they are told otherwise;
/// sharding::process_groups refuses others.
///
/// Use:
///
///     const collective::mpi_nodes nodes{session, MPI_COMM_WORLD};
///     collective::mpi node{session, nodes.node()}, across{session, nodes.across()};
///     cudaSetDevice(static_cast<int>(nodes.device_of(devices)));
class mpi_nodes {
 public:
  /// Collective over `users`; MPI waits for all of them, without a deadline.
  /// @param of_node   so many ranks in a row are a node; 0: the ranks that share memory
  /// @throws config_error   nodes are not full; comm_error   MPI could not
  explicit mpi_nodes(mpi_session&, MPI_Comm users, std::uint32_t of_node = 0)
  {
    int rank = 0;
    int ranks = 0;
    detail::require_mpi("asking for the rank", MPI_Comm_rank(users, &rank));
    detail::require_mpi("asking for the ranks", MPI_Comm_size(users, &ranks));
    if (of_node != 0 && static_cast<std::uint32_t>(ranks) % of_node != 0)
      throw config_error{error_text{} << "chunkmem: " << static_cast<std::uint64_t>(ranks) << " processes in nodes of "
                                      << of_node << " (fill nodes)"};
    if (of_node == 0)
      detail::require_mpi("grouping a node",
                          MPI_Comm_split_type(users, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node_));
    else
      detail::require_mpi("grouping a node", MPI_Comm_split(users, rank / static_cast<int>(of_node), rank, &node_));
    int place = 0;
    int size = 0;
    detail::require_mpi("asking for the rank in a node", MPI_Comm_rank(node_, &place));
    detail::require_mpi("asking for the ranks of a node", MPI_Comm_size(node_, &size));
    detail::require_mpi("grouping over nodes", MPI_Comm_split(users, place, rank, &across_));
    place_ = static_cast<std::uint32_t>(place);
    of_node_ = static_cast<std::uint32_t>(size);
  }
  mpi_nodes(const mpi_nodes&) = delete;
  mpi_nodes& operator=(const mpi_nodes&) = delete;
  /// Leaves its groups to MPI, which ends them: freeing them would wait for ranks that may be gone.
  ~mpi_nodes() = default;

  [[nodiscard]] MPI_Comm node() const noexcept { return node_; }
  [[nodiscard]] MPI_Comm across() const noexcept { return across_; }
  /// The place of this process in its node, and the number of processes there.
  [[nodiscard]] std::uint32_t rank_in_node() const noexcept { return place_; }
  [[nodiscard]] std::uint32_t of_node() const noexcept { return of_node_; }
  /// The device of this process where its node has `devices`: ranks take turns. @throws usage_error   none
  [[nodiscard]] std::uint32_t device_of(std::uint32_t devices) const
  {
    expects(devices > 0, "a rank on a node without devices");
    return place_ % devices;
  }

 private:
  MPI_Comm node_ = MPI_COMM_NULL;
  MPI_Comm across_ = MPI_COMM_NULL;
  std::uint32_t place_ = 0;
  std::uint32_t of_node_ = 1;
};

}  // namespace collective

}  // namespace chunkmem::inline v0
