// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/machine.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// The way in which ranks gather a group of parameters, and add up its gradients.
enum class group_exchange : std::uint8_t {
  shares,      ///< an all_gather and a reduce_scatter: ownership::sharded, and ownership::whole by groups
  broadcasts,  ///< the owner of a piece sends it to all, and gets the sum of all: ownership::whole alone
};

/// The time of gathering a group, and of adding its gradients. Both take equally long: a sum is a gather in reverse.
///
/// Plain numbers. Broadcasts go around a ring in segments. A sum at one rank costs as much as its broadcast.
///
/// Use:
///
///     const group_times times = group_times::ring_of(share);   // of workload::share_of_rank
///     ... times.nanoseconds(group_bytes)
struct group_times {
  collective::network_costs network;
  group_exchange how = group_exchange::shares;
  std::vector<bytes> pieces{};  ///< of broadcasts, as they repeat; none: a group is one piece

  /// One ring over the slowest link that a rank has, without latencies.
  [[nodiscard]] static group_times ring_of(const workload::rank_share& share)
  {
    collective::network_costs costs;
    costs.of_node = share.of_node != 0 && share.ranks % share.of_node == 0 ? share.of_node : 1;
    costs.nodes = static_cast<std::uint32_t>(share.ranks / costs.of_node);
    const bool has_peers = share.rates.peer_bytes_per_second > 0;
    costs.network_bytes_per_second = share.rates.network_bytes_per_second > 0 ? share.rates.network_bytes_per_second
                                                                              : share.rates.peer_bytes_per_second;
    costs.peer_bytes_per_second = has_peers ? share.rates.peer_bytes_per_second : costs.network_bytes_per_second;
    costs.start_nanoseconds = costs.peer_nanoseconds = costs.network_nanoseconds = 0;
    costs.way = collective::network_costs::route::ring;
    return {costs};
  }

  /// @throws config_error   the costs are impossible, or of another number of ranks
  void check(std::uint64_t ranks) const
  {
    network.check();
    if (network.ranks() != ranks)
      throw config_error{error_text{} << "chunkmem: network costs of " << network.ranks() << " ranks for a machine of "
                                      << ranks << " (give of_node and nodes of it)"};
  }

  /// The time for a group of so many bytes [ns]. O(pieces)
  [[nodiscard]] std::uint64_t nanoseconds(bytes group) const
  {
    if (network.ranks() == 1) return 0;
    const std::uint64_t ranks = network.ranks();
    if (how == group_exchange::shares)
      return network.all_gather({group.count(), (group.count() + ranks - 1) / ranks, network.ranks()});
    if (pieces.empty()) return network.broadcast(group);
    double all = 0;
    double size = 0;
    for (const bytes each : pieces) {
      all += static_cast<double>(network.broadcast(each));
      size += static_cast<double>(each.count());
    }
    return static_cast<std::uint64_t>(std::ceil(all * static_cast<double>(group.count()) / size));
  }
};

}  // namespace planner

}  // namespace chunkmem::inline v0
