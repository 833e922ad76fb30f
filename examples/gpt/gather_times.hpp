// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

namespace gpt {

/// The measured times of a gather over ranks.
struct gather_times {
  static constexpr std::uint64_t small_share = 256;  ///< bytes of each rank
  static constexpr std::uint64_t large_share = 256 * 1024;

  std::array<double, 2> seconds{};  ///< shortest of several gathers, of small and of large shards

  /// The costs for simulated ranks. Sums take as long as gathers.
  [[nodiscard]] chunkmem::collective::network_costs costs(std::uint32_t ranks) const
  {
    constexpr double no_limit = 1e30;
    chunkmem::collective::network_costs made{.of_node = 1,
                                             .nodes = ranks,
                                             .network_bytes_per_second = no_limit,
                                             .network_nanoseconds = 0,
                                             .way = chunkmem::collective::network_costs::route::direct};
    const double of_byte = std::max(seconds[1] - seconds[0], 0.0) / static_cast<double>(large_share - small_share);
    if (ranks > 1 && of_byte > 0) made.network_bytes_per_second = (ranks - 1) / of_byte;
    made.start_nanoseconds =
        static_cast<std::uint64_t>(1e9 * std::max(seconds[0] - of_byte * static_cast<double>(small_share), 0.0));
    return made;
  }
  [[nodiscard]] std::string told() const
  {
    std::array<char, 128> text{};
    std::snprintf(text.data(), text.size(), "gathers %.3g us over all ranks, %.3g ms with %llu KiB of each rank",
                  seconds[0] * 1e6, seconds[1] * 1e3, static_cast<unsigned long long>(large_share / 1024));
    return text.data();
  }
};

/// Gathers over all ranks on the calling thread, while no rank trains. Every rank makes this call.
/// @throws comm_error   as the group
template <class Backend, class Communicator>
[[nodiscard]] gather_times measured_gathers(Backend& backend, Communicator& ranks)
{
  constexpr int rounds = 5;
  std::vector<std::byte> room(gather_times::large_share * ranks.ranks());
  gather_times found;
  found.seconds.fill(std::numeric_limits<double>::max());
  for (int round = 0; round < rounds; ++round)
    for (const bool is_large : {false, true}) {
      const std::uint64_t size = (is_large ? gather_times::large_share : gather_times::small_share) * ranks.ranks();
      const auto parts = chunkmem::collective::shares::of(chunkmem::bytes{size}, ranks.ranks());
      const std::uint64_t begin = backend.now();
      ranks.all_gather(backend, chunkmem::agent::host, room.data(), parts, 0);
      ranks.check();
      found.seconds[is_large] = std::min(found.seconds[is_large], static_cast<double>(backend.now() - begin) * 1e-9);
    }
  return found;
}

}  // namespace gpt
