// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "process_group.hpp"

#include <mpi.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace probe_links {

/// The nodes of all ranks. A node is a run of ranks; nodes are in the order of their first ranks.
struct node_places {
  std::vector<std::uint32_t> node_of;   ///< of each rank
  std::vector<std::uint32_t> first_of;  ///< of each node: its first rank
  std::vector<std::uint32_t> devices;   ///< of each node
  std::vector<std::uint32_t> sharing;   ///< of each node: the processes that share its memory

  [[nodiscard]] std::uint32_t nodes() const noexcept { return static_cast<std::uint32_t>(first_of.size()); }
  [[nodiscard]] std::uint32_t most_devices() const { return *std::ranges::max_element(devices); }
};

/// @param first_sharer   of each rank: the first rank that shares memory with it
/// @throws problem   ranks of another node are between two ranks of a node
[[nodiscard]] inline node_places places_of(const std::vector<std::uint32_t>& first_sharer, bool each_rank_a_node)
{
  node_places places;
  for (std::uint32_t rank = 0; rank < first_sharer.size(); ++rank) {
    const bool begins = each_rank_a_node || first_sharer[rank] == rank;
    if (!begins && first_sharer[rank] != first_sharer[rank - 1])
      throw problem{"rank " + std::to_string(rank) + " is on the node of rank " + std::to_string(first_sharer[rank]) +
                    ", and rank " + std::to_string(rank - 1) +
                    " is not (start the ranks node by node, as mpirun does with --map-by slot)"};
    if (begins) {
      places.first_of.push_back(rank);
      places.devices.push_back(0);
      places.sharing.push_back(static_cast<std::uint32_t>(std::ranges::count(first_sharer, first_sharer[rank])));
    }
    places.node_of.push_back(places.nodes() - 1);
    ++places.devices.back();
  }
  return places;
}

/// The same from MPI, which knows the ranks that share memory.
[[nodiscard]] inline node_places find_places(const process_group& all, bool each_rank_a_node)
{
  MPI_Comm node = MPI_COMM_NULL;
  require_mpi("grouping a node", MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, static_cast<int>(all.rank()),
                                                     MPI_INFO_NULL, &node));
  std::uint32_t first = all.rank();
  require_mpi("asking for the first rank of a node", MPI_Bcast(&first, 1, MPI_UINT32_T, 0, node));
  std::vector<std::uint32_t> firsts(all.ranks());
  require_mpi("asking for the nodes of all ranks",
              MPI_Allgather(&first, 1, MPI_UINT32_T, firsts.data(), 1, MPI_UINT32_T, MPI_COMM_WORLD));
  MPI_Comm_free(&node);
  node_places places;
  all.together([&] {
    if (all.ranks() == 1) throw problem{"one process has no link (start one for each device: mpirun -n N probe_links)"};
    places = places_of(firsts, each_rank_a_node);
  });
  return places;
}

}  // namespace probe_links
