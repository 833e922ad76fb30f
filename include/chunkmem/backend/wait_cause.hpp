// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// Why the calling thread waits, or a stream of kernels waits for a copy.
enum class wait_cause : std::uint8_t {
  demand_miss,      ///< for a load, for the room that a load needs, or a stream for a write-back of what it overwrites
  optimizer_input,  ///< for bytes on their way to the host
  throttle,         ///< for room in a queue of the backend
  other,            ///< the calling thread for agents that only read what it overwrites: a step on one agent has none
};

inline constexpr std::size_t wait_causes = 4;

/// Waits of one cause that blocked.
///
///     const wait_total misses = memory.waited(wait_cause::demand_miss);
struct wait_total {
  std::uint64_t count = 0;
  std::uint64_t nanoseconds = 0;
  bool operator==(const wait_total&) const = default;
};

}  // namespace chunkmem::inline v0
