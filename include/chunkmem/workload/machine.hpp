// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

namespace workload {

/// The invalid member of a machine, if there is one.
///
///     const machine_problem wrong = whole.problem();
///     if (!wrong.member.empty()) std::cerr << wrong.member << ' ' << wrong.why << '\n';
struct machine_problem {
  std::string_view member;  ///< empty: nothing
  std::string_view why;
};

/// The rates of the parts of a machine. A link's rate is that of one device while every device of its node copies.
///
///     whole.rates.to_device_bytes_per_second = 25e9;
struct machine_rates {
  double device_flops_per_second = 0;       ///< peak of one device, products of 16-bit matrices, dense
  double to_device_bytes_per_second = 0;    ///< host to one device
  double to_host_bytes_per_second = 0;      ///< one device to host
  double peer_bytes_per_second = 0;         ///< one device to others of its node, one direction; 0: it has no other
  double network_bytes_per_second = 0;      ///< one device to another node, one direction; 0: there is no other
  double host_memory_bytes_per_second = 0;  ///< of a node, all sockets together, reads and writes
  double host_updates_per_second = 0;       ///< parameters that a node's host updates without other use of its memory
  double device_updates_per_second = 0;     ///< parameters that one device updates, with their states on the device

  [[nodiscard]] constexpr bool operator==(const machine_rates&) const noexcept = default;
};

namespace detail {

/// A rate by its name in files.
struct named_rate {
  std::string_view name;
  double machine_rates::*rate;
};
inline constexpr named_rate named_rates[] = {
    {"device_flops_per_second", &machine_rates::device_flops_per_second},
    {"to_device_bytes_per_second", &machine_rates::to_device_bytes_per_second},
    {"to_host_bytes_per_second", &machine_rates::to_host_bytes_per_second},
    {"peer_bytes_per_second", &machine_rates::peer_bytes_per_second},
    {"network_bytes_per_second", &machine_rates::network_bytes_per_second},
    {"host_memory_bytes_per_second", &machine_rates::host_memory_bytes_per_second},
    {"host_updates_per_second", &machine_rates::host_updates_per_second},
    {"device_updates_per_second", &machine_rates::device_updates_per_second}};

}  // namespace detail

/// Nodes of equal devices, for a planner: capacities and rates.
///
/// Capacities are the bytes that a program finds on the machine. The planner subtracts the bytes of a context, a
/// process or a framework.
///
/// Use:
///
///     const machine whole = read_machine("machines/v100_32_node.json");  // see workload/files.hpp
///     const rank_share share = share_of_rank(whole);                     // for the planner
struct machine {
  std::string name;
  std::uint32_t nodes = 1;
  std::uint32_t devices = 1;  ///< of each node
  bytes device_bytes;         ///< of each device
  bytes host_bytes;           ///< of each node
  machine_rates rates;

  /// More ranks than any machine has, and few enough to count their memory together.
  static constexpr std::uint64_t most_ranks = std::uint64_t{1} << 20;

  [[nodiscard]] constexpr bool operator==(const machine&) const noexcept = default;

  /// Devices of all nodes.
  [[nodiscard]] constexpr std::uint64_t ranks() const noexcept { return std::uint64_t{nodes} * devices; }
  /// All memory of all nodes. @throws size_overflow
  [[nodiscard]] constexpr bytes memory() const { return (device_bytes * devices + host_bytes) * nodes; }

  /// The first invalid member.
  [[nodiscard]] constexpr machine_problem problem() const noexcept
  {
    if (name.empty()) return {"name", "is empty"};
    if (nodes == 0) return {"nodes", "is 0"};
    if (devices == 0) return {"devices", "is 0"};
    if (nodes > most_ranks) return {"nodes", "is above 2^20"};
    if (ranks() > most_ranks) return {"devices", "makes more than 2^20 ranks with all nodes"};
    if (device_bytes == bytes{}) return {"device_bytes", "is 0"};
    if (host_bytes == bytes{}) return {"host_bytes", "is 0"};
    for (const detail::named_rate& it : detail::named_rates) {
      const double value = rates.*it.rate;
      const bool is_there = it.rate == &machine_rates::peer_bytes_per_second      ? devices > 1
                            : it.rate == &machine_rates::network_bytes_per_second ? nodes > 1
                                                                                  : true;
      if (!(value >= 0) || value > std::numeric_limits<double>::max()) return {it.name, "is negative or no number"};
      if (is_there && value == 0) return {it.name, "is 0"};
      if (!is_there && value != 0) return {it.name, "is not 0, and leads to no other device or node"};
    }
    return {};
  }
  /// @throws config_error   there is a problem
  constexpr void check() const
  {
    const machine_problem found = problem();
    if (found.member.empty()) return;
    throw config_error{error_text{} << "chunkmem: the machine \"" << name << "\" cannot be: " << found.member << " "
                                    << found.why << ": " << nodes << " nodes of " << devices << " devices, "
                                    << device_bytes.count() << " B each, host " << host_bytes.count()
                                    << " B (change it)"};
  }
};

/// One representative rank of a machine: a device of its own, and its share of the host.
///
///     const rank_share share = share_of_rank(whole);
///
/// All ranks do the same at the same time, so one rank is simulated for a whole machine. Its gathered bytes have full
/// size, and it owns one part in `ranks`.
struct rank_share {
  std::uint64_t ranks = 1;    ///< of the whole machine
  std::uint32_t of_node = 1;  ///< ranks that share a node
  bytes device_bytes;
  bytes host_bytes;     ///< an equal part of the node's, rounded down
  machine_rates rates;  ///< of this rank: rates of the host are divided, rates of devices and links are not

  /// An exbibyte: the most that a rank may have of each memory.
  static constexpr bytes most_bytes{std::uint64_t{1} << 60};

  [[nodiscard]] constexpr bool operator==(const rank_share&) const noexcept = default;

  /// For shares that share_of_rank did not make. @throws config_error   there is no rank or more than
  /// machine::most_ranks, more memory than most_bytes, or an invalid rate
  constexpr void check() const
  {
    const auto is_rate = [](double it) { return it > 0 && it <= std::numeric_limits<double>::max(); };
    if (ranks == 0 || of_node == 0) throw config_error{"a share of a machine without ranks (use share_of_rank)"};
    if (ranks > machine::most_ranks) throw config_error{"ranks is above 2^20 (give fewer ranks)"};
    if (device_bytes > most_bytes) throw config_error{"device_bytes is above 2^60 (give the bytes of one device)"};
    if (host_bytes > most_bytes) throw config_error{"host_bytes is above 2^60 (give a rank's part of its host)"};
    for (const double it :
         {rates.device_flops_per_second, rates.to_device_bytes_per_second, rates.to_host_bytes_per_second,
          rates.host_memory_bytes_per_second, rates.host_updates_per_second, rates.device_updates_per_second})
      if (!is_rate(it)) throw config_error{"a share of a machine with a rate that is not above 0 (use share_of_rank)"};
    if (ranks > 1 && !is_rate(rates.peer_bytes_per_second) && !is_rate(rates.network_bytes_per_second))
      throw config_error{"a share of several ranks without a link between them (give a peer or network rate)"};
  }
};

/// @throws config_error   the machine is invalid
[[nodiscard]] constexpr rank_share share_of_rank(const machine& whole)
{
  whole.check();
  rank_share share{whole.ranks(), whole.devices, whole.device_bytes, bytes{whole.host_bytes.count() / whole.devices},
                   whole.rates};
  share.rates.host_memory_bytes_per_second /= whole.devices;
  share.rates.host_updates_per_second /= whole.devices;
  return share;
}

}  // namespace workload

}  // namespace chunkmem::inline v0
