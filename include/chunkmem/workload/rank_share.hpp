// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/workload/machine.hpp>

#include <cstdint>
#include <limits>

namespace chunkmem::inline v0 {

namespace workload {

/// One representative rank of a machine: a device of its own, and its share of the host.
///
///     const rank_share share = share_of_rank(whole);
///
/// All ranks do the same at the same time, so one rank is simulated for a whole machine. It has gathered bytes in full
/// size, and owns one part in `ranks`.
struct rank_share {
  std::uint64_t ranks = 1;    ///< of the whole machine
  std::uint32_t of_node = 1;  ///< ranks that share a node
  bytes device_bytes;
  bytes host_bytes;     ///< an equal part of the node's, rounded down
  machine_rates rates;  ///< of this rank: rates of the host are divided, rates of devices and links are as they are

  /// An exbibyte: the most that a rank may have of each memory.
  static constexpr bytes most_bytes{std::uint64_t{1} << 60};

  [[nodiscard]] constexpr bool operator==(const rank_share&) const noexcept = default;

  /// For shares that share_of_rank did not make. @throws config_error   there is no rank or more than
  ///   machine::most_ranks, more memory than most_bytes, or a rate cannot be
  constexpr void check() const
  {
    const auto is_rate = [](double it) { return it > 0 && it <= std::numeric_limits<double>::max(); };
    if (ranks == 0 || of_node == 0) throw config_error{"a share of a machine without ranks (use share_of_rank)"};
    if (ranks > machine::most_ranks) throw config_error{"ranks is above 2^20 (ask for fewer ranks)"};
    if (device_bytes > most_bytes) throw config_error{"device_bytes is above 2^60 (give what one device has)"};
    if (host_bytes > most_bytes) throw config_error{"host_bytes is above 2^60 (give a rank's part of its host)"};
    for (const double it :
         {rates.device_flops_per_second, rates.to_device_bytes_per_second, rates.to_host_bytes_per_second,
          rates.host_memory_bytes_per_second, rates.host_updates_per_second, rates.device_updates_per_second})
      if (!is_rate(it)) throw config_error{"a share of a machine with a rate that is not above 0 (use share_of_rank)"};
    if (ranks > 1 && !is_rate(rates.peer_bytes_per_second) && !is_rate(rates.network_bytes_per_second))
      throw config_error{"a share of several ranks without a link between them (give a peer or network rate)"};
  }
};

/// @throws config_error   the machine cannot be
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
