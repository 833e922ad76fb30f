// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/trained_model.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// Concurrent flows between nodes, and the part of a link that each of them has.
///
/// Flows that leave a node for other nodes share its port, and so do those that come: each has an equal part. Flows
/// inside a node share its links where these are `shared`. A flow is never faster than its link, and a lone one has all
/// of it. A part that another flow cannot use is not given to others.
///
///     port_flows ring{whole};
///     ring.add(0, 1);
///     ring.add(1, 0);
///     const double seconds = ring.part_of(0, 1).seconds(size);
///
/// Ranks that gather weights, or sum gradients, are such flows too:
///
///     port_flows sums{whole};
///     sums.add(nodes_of_ranks, sum_route::direct);
///     const double seconds = sums.gather_seconds(nodes_of_ranks, size, sum_route::direct);
///
/// Cost: O(nodes) to make one; O(1) for a flow; of ranks, O(ranks) for a ring and O(ranks^2) for direct messages
class port_flows {
 public:
  /// @param whole   outlives this
  explicit port_flows(const cluster& whole) : whole_{whole}, nodes_(whole.nodes.size()) {}

  /// One more flow. @pre both are nodes
  void add(std::uint32_t from, std::uint32_t to)
  {
    if (from == to) {
      ++nodes_[from].inside;
    } else {
      ++nodes_[from].leave;
      ++nodes_[to].come;
    }
  }
  /// Adds the flows of ranks that gather or sum. A rank that sends to all others sends to one at a time: one flow
  /// leaves it, and one comes to it. Both cross the port of its node where a rank is on another node.
  /// @param ranks   their nodes, in the order of a ring; fewer than two have no flow   @pre all are nodes
  void add(std::span<const std::uint32_t> ranks, sum_route route)
  {
    if (ranks.size() < 2) return;
    const bool is_one_node = std::ranges::count(ranks, ranks.front()) == std::ssize(ranks);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      counts& node = nodes_[ranks[rank]];
      if (route == sum_route::ring)
        add(ranks[rank], ranks[(rank + 1) % ranks.size()]);
      else if (is_one_node)
        ++node.inside;
      else
        ++node.leave, ++node.come;
    }
  }
  /// The link that one of the flows has. @pre such a flow was added
  [[nodiscard]] pair_link part_of(std::uint32_t from, std::uint32_t to) const
  {
    pair_link link = whole_.link(from, to);
    const auto share = [&](double together, std::uint32_t flows) {
      link.bytes_per_second = std::min(link.bytes_per_second, together / std::max(1U, flows));
    };
    if (from == to) {
      if (whole_.nodes[from].inner_links == link_sharing::shared) share(link.bytes_per_second, nodes_[from].inside);
      return link;
    }
    const double out = whole_.nodes[from].port_out_bytes_per_second, in = whole_.nodes[to].port_in_bytes_per_second;
    if (out > 0) share(out, nodes_[from].leave);
    if (in > 0) share(in, nodes_[to].come);
    return link;
  }
  /// The time in which ranks gather `size` bytes of equal shards, or sum them: half of an all-reduce [s].
  /// @param ranks   as `add` takes them; fewer than two take no time   @pre their flows were added
  [[nodiscard]] double gather_seconds(std::span<const std::uint32_t> ranks, double size, sum_route route) const
  {
    if (ranks.size() < 2) return 0;
    const double share = size / static_cast<double>(ranks.size());
    return route == sum_route::ring ? around(ranks, share) : to_all(ranks, share);
  }

 private:
  struct counts {
    std::uint32_t leave = 0;
    std::uint32_t come = 0;
    std::uint32_t inside = 0;
  };

  /// Each rank sends a share to the next one, once less than there are ranks. The slowest link paces each round.
  [[nodiscard]] double around(std::span<const std::uint32_t> ranks, double share) const
  {
    double slowest = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      slowest = std::max(slowest, part_of(ranks[rank], ranks[(rank + 1) % ranks.size()]).seconds(share));
    return (static_cast<double>(ranks.size()) - 1) * slowest;
  }
  /// Each rank sends a shard to all other ranks concurrently. Messages that leave a rank share its link, as do those
  /// that come to it. They take as long as if they were sent one after the other.
  [[nodiscard]] double to_all(std::span<const std::uint32_t> ranks, double share) const
  {
    double longest = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      double leaves = 0, comes = 0, latency = 0;
      for (std::size_t other = 0; other < ranks.size(); ++other) {
        if (other == rank) continue;
        const pair_link there = part_of(ranks[rank], ranks[other]), back = part_of(ranks[other], ranks[rank]);
        leaves += share / there.bytes_per_second;
        comes += share / back.bytes_per_second;
        latency = std::max({latency, there.latency, back.latency});
      }
      longest = std::max(longest, latency + std::max(leaves, comes));
    }
    return longest;
  }

  const cluster& whole_;
  std::vector<counts> nodes_;
};

}  // namespace configurator

}  // namespace chunkmem::inline v0
