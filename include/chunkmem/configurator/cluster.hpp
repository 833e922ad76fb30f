// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/message_work.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// How the links between the devices of a node are shared.
enum class link_sharing : std::uint8_t {
  pairs,   ///< each pair has its own rate
  shared,  ///< all flows inside the node share the rate, as on a bus
};

/// Its name in the file of a cluster.
[[nodiscard]] constexpr std::string_view name_of(link_sharing how) noexcept
{
  return how == link_sharing::pairs ? "pairs" : "shared";
}

/// The part of a device's rate that products of one size reach.
///
///     node.product_efficiency = {{.flops = 4e6, .part = 0.5}, {.flops = 3e7, .part = 1}};
struct product_efficiency {
  double flops = 0;  ///< of one product
  double part = 0;   ///< of `device_flops_per_second`

  [[nodiscard]] bool operator==(const product_efficiency&) const = default;
};

/// A node of a cluster: equal devices, and the host that they share.
///
/// A node with port rates shares them: flows that leave it for other nodes at the same time have
/// `port_out_bytes_per_second` together, incoming flows `port_in_bytes_per_second`, and a lone flow has all of its
/// link. For a node without port rates, the rate of a link is that of one device while every device of the node copies.
///
///     cluster_node node{.kind = "v100", .devices = 4, .device_bytes = 32_GiB, .host_bytes = 512_GiB};
struct cluster_node {
  std::string kind;  ///< a name for nodes like this one
  std::uint32_t devices = 1;
  bytes device_bytes{};                     ///< of each device
  bytes host_bytes{};                       ///< of the node
  bytes disk_bytes{};                       ///< of the node; 0: there is no disk for training
  double device_flops_per_second = 0;       ///< of one device, as reached by products of large matrices
  double to_device_bytes_per_second = 0;    ///< host to one device
  double to_host_bytes_per_second = 0;      ///< one device to host
  double host_memory_bytes_per_second = 0;  ///< of the node, reads and writes
  double host_updates_per_second = 0;       ///< parameters that the host updates while nothing else uses its memory
  double device_updates_per_second = 0;     ///< parameters that one device updates, with states on the device
  double port_out_bytes_per_second = 0;     ///< to all other nodes together; 0: each link has its rate
  double port_in_bytes_per_second = 0;      ///< from all other nodes together; 0: each link has its rate
  link_sharing inner_links = link_sharing::pairs;
  collective::message_work message_work{};  ///< of one device, where its processor sends and receives; 0 with GPUs
  /// of one device, as measured, small products first; empty: products of each size reach its rate
  std::vector<product_efficiency> product_curve{};

  /// The FLOP/s of one device for products of a size. Between two measured sizes the part
  /// follows the logarithm of the size. Beyond them it is that of the nearest one. Cost: O(log measured sizes)
  /// @param flops   of one product, above 0
  [[nodiscard]] double product_rate(double flops) const
  {
    if (product_curve.empty()) return device_flops_per_second;
    const auto above = std::ranges::lower_bound(product_curve, flops, {}, &product_efficiency::flops);
    if (above == product_curve.begin()) return device_flops_per_second * above->part;
    const product_efficiency& below = *(above - 1);
    if (above == product_curve.end()) return device_flops_per_second * below.part;
    const double way = std::log(flops / below.flops) / std::log(above->flops / below.flops);
    return device_flops_per_second * (below.part + way * (above->part - below.part));
  }
  [[nodiscard]] bool operator==(const cluster_node&) const = default;
};

/// A real cluster: nodes that may differ, and a link for each ordered pair of them.
///
/// The link of a node to itself is the link between two of its devices. A link between two nodes carries the transfers
/// of one device of each. Ranks are numbered node by node.
///
///     const cluster whole = read_cluster("cluster.json");  // of cluster_file.hpp
///     const pair_link slow = whole.link(3, 4);             // from rank 3 to rank 4
///
/// Source: the bandwidth profile of Pipette (Yim et al. 2024, arXiv 2405.18093), with both directions and latencies.
struct cluster {
  std::string name;
  std::vector<cluster_node> nodes;
  link_matrix links{1};  ///< from node to node
  /// spread of measured rates, relative: 0.1 is 10 %; element from * nodes + to. Empty: nothing was measured
  std::vector<double> spread{};

  /// Devices of all nodes. O(nodes)
  [[nodiscard]] std::uint32_t ranks() const noexcept
  {
    return std::accumulate(nodes.begin(), nodes.end(), 0U,
                           [](std::uint32_t sum, const cluster_node& it) { return sum + it.devices; });
  }
  /// The node of each rank. O(ranks)
  [[nodiscard]] std::vector<std::uint32_t> nodes_of_ranks() const
  {
    std::vector<std::uint32_t> all;
    for (std::uint32_t node = 0; node < nodes.size(); ++node) all.insert(all.end(), nodes[node].devices, node);
    return all;
  }
  /// A link between two devices, by the nodes that they are on.
  [[nodiscard]] const pair_link& link(std::uint32_t from_node, std::uint32_t to_node) const noexcept
  {
    return links(from_node, to_node);
  }

  /// @throws config_error   one sentence with the first invalid member
  void check() const;
};

namespace detail {

/// An invalid number of a cluster's file, and the reason.
struct cluster_problem {
  std::string key;  ///< empty: nothing
  std::string why;
};

/// Plausible rates and sizes. Numbers outside are probably wrong by a power of ten.
struct plausible_range {
  double least = 0;
  double most = 0;
  std::string_view unit;
};
inline constexpr plausible_range plausible_link_rate{1e5, 1e14, "bytes per second: 12 GB/s are 12e9"};
inline constexpr plausible_range plausible_latency{0, 1, "seconds: 5 microseconds are 5e-6"};
inline constexpr plausible_range plausible_flops{1e6, 1e17, "FLOP per second: 312 TFLOP/s are 312e12"};
inline constexpr plausible_range plausible_copy_rate{1e5, 1e14, "bytes per second: 12 GB/s are 12e9"};
inline constexpr plausible_range plausible_updates{1e3, 1e14, "parameters per second"};
inline constexpr plausible_range plausible_message_work{0, 1, "seconds of arithmetic: 20 microseconds are 20e-6"};
inline constexpr plausible_range plausible_byte_work{0, 1e-5, "seconds of arithmetic: 4 nanoseconds are 4e-9"};
inline constexpr plausible_range plausible_bytes{1 << 16, 1e16, "bytes: 32 GiB are 34359738368"};

[[nodiscard]] inline std::string not_plausible(double value, const plausible_range& range)
{
  if (value >= range.least && value <= range.most) return {};
  return "is one that no cluster has (give " + std::string{range.unit} + ")";
}

/// A number of a node by its name in files, and the values that it may have.
template <class Number>
struct node_number {
  const char* name;
  Number cluster_node::*member;
  plausible_range range;
};
inline constexpr node_number<bytes> sizes_of_node[] = {{"device_bytes", &cluster_node::device_bytes, plausible_bytes},
                                                       {"host_bytes", &cluster_node::host_bytes, plausible_bytes},
                                                       {"disk_bytes", &cluster_node::disk_bytes, {0, 1e18, "bytes"}}};
inline constexpr node_number<double> rates_of_node[] = {
    {"device_flops_per_second", &cluster_node::device_flops_per_second, plausible_flops},
    {"to_device_bytes_per_second", &cluster_node::to_device_bytes_per_second, plausible_copy_rate},
    {"to_host_bytes_per_second", &cluster_node::to_host_bytes_per_second, plausible_copy_rate},
    {"host_memory_bytes_per_second", &cluster_node::host_memory_bytes_per_second, plausible_copy_rate},
    {"host_updates_per_second", &cluster_node::host_updates_per_second, plausible_updates},
    {"device_updates_per_second", &cluster_node::device_updates_per_second, plausible_updates}};
/// Each may be 0, and a file may lack it then.
inline constexpr node_number<double> ports_of_node[] = {
    {"port_out_bytes_per_second", &cluster_node::port_out_bytes_per_second, plausible_link_rate},
    {"port_in_bytes_per_second", &cluster_node::port_in_bytes_per_second, plausible_link_rate}};

[[nodiscard]] inline cluster_problem problem_of(const cluster_node& it, const std::string& path)
{
  if (it.devices == 0) return {path + ".devices", "is 0 (give one or more)"};
  if (it.devices > 4096) return {path + ".devices", "is more than a node has (give the devices of one node)"};
  std::string why;
  const auto is_wrong = [&why](double value, const plausible_range& range) {
    return !(why = not_plausible(value, range)).empty();
  };
  for (const auto& [name, member, range] : sizes_of_node)
    if (is_wrong(static_cast<double>((it.*member).count()), range)) return {path + '.' + name, why};
  for (const auto& [name, member, range] : rates_of_node)
    if (is_wrong(it.*member, range)) return {path + '.' + name, why};
  if (is_wrong(it.message_work.seconds_per_message, plausible_message_work))
    return {path + ".compute_seconds_per_message", why};
  if (is_wrong(it.message_work.seconds_per_byte, plausible_byte_work)) return {path + ".compute_seconds_per_byte", why};
  for (const auto& [name, member, range] : ports_of_node)
    if (it.*member != 0 && is_wrong(it.*member, range)) return {path + '.' + name, why};
  double flops = 0;
  for (const product_efficiency& each : it.product_curve) {
    if (!(each.flops > flops))
      return {path + ".product_efficiency.flops", "does not rise (give sizes above 0, small products first)"};
    if (!(each.part > 0 && each.part <= 100))
      return {path + ".product_efficiency.part",
              "is no part of a rate (give numbers above 0, and 1 for large products)"};
    flops = each.flops;
  }
  return {};
}

/// The problem of a link between two nodes, or between the devices of one node.
[[nodiscard]] inline cluster_problem problem_of(const pair_link& it, std::uint32_t from, std::uint32_t to)
{
  const std::string place = '[' + std::to_string(from) + "][" + std::to_string(to) + ']';
  if (const std::string why = not_plausible(it.latency, plausible_latency); !why.empty())
    return {"links.latency_seconds" + place, why};
  if (const std::string why = not_plausible(it.bytes_per_second, plausible_link_rate); !why.empty())
    return {"links.bytes_per_second" + place, why};
  return {};
}

/// The first invalid member of a cluster. Keys are those of its file.
[[nodiscard]] inline cluster_problem problem_of(const cluster& whole)
{
  if (whole.name.empty()) return {"name", "is empty (give the cluster a name)"};
  if (whole.nodes.empty()) return {"nodes", "is empty (give one or more)"};
  if (whole.links.nodes() != whole.nodes.size())
    return {"links", "is of " + std::to_string(whole.links.nodes()) + " nodes, and there are " +
                         std::to_string(whole.nodes.size()) + " (give a row and a column for each node)"};
  if (!whole.spread.empty() && whole.spread.size() != whole.nodes.size() * whole.nodes.size())
    return {"links.spread", "has not one number for each link (leave it out, or give all)"};
  std::map<std::string_view, const cluster_node*> kinds;
  for (const cluster_node& it : whole.nodes) {
    if (it.kind.empty()) return {"nodes", "has a node without a kind (give it a name)"};
    if (const cluster_problem found = problem_of(it, "kinds." + it.kind); !found.key.empty()) return found;
    if (*kinds.emplace(it.kind, &it).first->second != it)
      return {"kinds." + it.kind, "is the kind of two nodes that differ (give them kinds of their own)"};
  }
  for (std::uint32_t from = 0; from < whole.nodes.size(); ++from)
    for (std::uint32_t to = 0; to < whole.nodes.size(); ++to)
      if (from != to || whole.nodes[from].devices > 1)
        if (const cluster_problem found = problem_of(whole.links(from, to), from, to); !found.key.empty()) return found;
  return {};
}

}  // namespace detail

inline void cluster::check() const
{
  const detail::cluster_problem found = detail::problem_of(*this);
  if (!found.key.empty())
    throw config_error{error_text{} << "chunkmem: the cluster \"" << name << "\" is invalid: " << found.key << " "
                                    << found.why};
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
