// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// A link between two nodes, in one direction.
///
///     const pair_link slow{.latency = 5e-6, .bytes_per_second = 1.2e9};
struct pair_link {
  double latency = 0;  ///< [s]
  double bytes_per_second = std::numeric_limits<double>::infinity();

  /// @param size   [B]   @return   [s]
  [[nodiscard]] constexpr double seconds(double size) const noexcept { return latency + size / bytes_per_second; }
};

/// The link of each ordered pair of nodes.
///
///     link_matrix links{4, {.latency = 5e-6, .bytes_per_second = 12e9}};  // all alike
///     links(2, 3).bytes_per_second = 3e9;                                 // from node 2 to node 3
class link_matrix {
 public:
  /// @throws config_error   no nodes
  explicit link_matrix(std::uint32_t nodes, const pair_link& each = {})
      : nodes_{nodes}, links_(std::size_t{nodes} * nodes, each)
  {
    if (nodes == 0) throw config_error{"a cluster of 0 nodes (give one or more)"};
  }

  [[nodiscard]] std::uint32_t nodes() const noexcept { return nodes_; }
  /// @pre both are below nodes()
  [[nodiscard]] pair_link& operator()(std::uint32_t from, std::uint32_t to) noexcept
  {
    return links_[std::size_t{from} * nodes_ + to];
  }
  [[nodiscard]] const pair_link& operator()(std::uint32_t from, std::uint32_t to) const noexcept
  {
    return links_[std::size_t{from} * nodes_ + to];
  }

  /// Checks all links but those of a node to itself.
  /// @throws config_error   a latency that is negative, a rate that is not above 0, or NaN
  void check() const
  {
    const auto refuse = [](std::uint32_t from, std::uint32_t to, const char* what) {
      throw config_error{error_text{} << "chunkmem: the link from node " << from << " to node " << to << " has "
                                      << what};
    };
    for (std::uint32_t from = 0; from < nodes_; ++from)
      for (std::uint32_t to = 0; to < nodes_; ++to) {
        if (from == to) continue;
        const pair_link& it = (*this)(from, to);
        if (!(it.latency >= 0 && it.latency <= std::numeric_limits<double>::max()))
          refuse(from, to, "a latency that is negative or not a number (give seconds)");
        if (!(it.bytes_per_second > 0)) refuse(from, to, "a rate that is not above 0 (give bytes per second)");
      }
  }

 private:
  std::uint32_t nodes_;
  std::vector<pair_link> links_;
};

}  // namespace configurator

}  // namespace chunkmem::inline v0
