// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {
namespace backend {

/// What moving bytes one way costs: a start, then a rate.
///
///     const link_cost link{.latency_nanoseconds = 10'000, .bytes_per_second = 25e9};
///     const std::uint64_t took = link.nanoseconds_for(bytes{25'000'000});  // 1'010'000
struct link_cost {
  std::uint64_t latency_nanoseconds = 0;
  double bytes_per_second = 1e9;

  /// Time for `size` bytes, rounded up [ns]; saturates where 64 bits do not hold it. Never falls as `size` grows.
  [[nodiscard]] constexpr std::uint64_t nanoseconds_for(bytes size) const noexcept
  {
    const double exact = static_cast<double>(size.count()) / bytes_per_second * 1e9;
    constexpr double limit = 9e18;  // below 2^63, so that the latency can still be added
    if (!(exact < limit)) return UINT64_MAX;
    auto whole = static_cast<std::uint64_t>(exact);
    if (static_cast<double>(whole) < exact) ++whole;
    return whole > UINT64_MAX - latency_nanoseconds ? UINT64_MAX : whole + latency_nanoseconds;
  }
};

/// What the operations of a machine cost in virtual time.
///
///     simulated memory{{.device_capacity = 1_GiB, .host_capacity = 8_GiB, .costs = {.to_device = {10'000, 50e9}}}};
///
/// The defaults are round numbers of one GPU on PCIe 4.0 x16 with pinned memory, good for comparing plans; for the
/// step time of your machine put in what you measured there. Assumes two tiers, device and host, and full duplex.
struct cost_table {
  link_cost to_device{.latency_nanoseconds = 10'000, .bytes_per_second = 25e9};
  link_cost to_host{.latency_nanoseconds = 10'000, .bytes_per_second = 25e9};
  link_cost within_device{.latency_nanoseconds = 2'000, .bytes_per_second = 1e12};
  link_cost within_host{.latency_nanoseconds = 1'000, .bytes_per_second = 10e9};
  std::uint64_t launch_nanoseconds = 5'000;
  /// What copies of both links and work on the host read and write of host memory together; 0: more than they ever ask
  /// for.
  double host_memory_bytes_per_second = 0;

  /// Bytes of host memory that a copy between two tiers reads and writes. @throws size_overflow
  [[nodiscard]] static constexpr bytes host_bytes(tier from, tier to, bytes size)
  {
    return size * ((from == tier::host ? 1U : 0U) + (to == tier::host ? 1U : 0U));
  }

  /// The cost of a copy between two tiers; a fill costs what a copy within its tier does.
  [[nodiscard]] constexpr const link_cost& between(tier from, tier to) const noexcept
  {
    if (from == to) return to == tier::device ? within_device : within_host;
    return to == tier::device ? to_device : to_host;
  }
};

/// @throws config_error   a rate is not above zero (or not a number), or that of host memory below it
constexpr void require_usable(const cost_table& costs)
{
  for (const link_cost* cost : {&costs.to_device, &costs.to_host, &costs.within_device, &costs.within_host}) {
    if (!(cost->bytes_per_second > 0)) {
      throw config_error{"cost table with a rate that is not above 0 B/s (give every link its bytes_per_second)"};
    }
  }
  if (!(costs.host_memory_bytes_per_second >= 0)) {
    throw config_error{
        "cost table whose host_memory_bytes_per_second is negative or no number (0 leaves it unlimited)"};
  }
}

}  // namespace backend
}  // namespace chunkmem::inline v0
