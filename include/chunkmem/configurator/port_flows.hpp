// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// Flows between nodes at the same time, and the part of a link that one of them has.
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
/// Cost: O(nodes) to make one, O(1) for the rest
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

 private:
  struct counts {
    std::uint32_t leave = 0;
    std::uint32_t come = 0;
    std::uint32_t inside = 0;
  };

  const cluster& whole_;
  std::vector<counts> nodes_;
};

}  // namespace configurator

}  // namespace chunkmem::inline v0
