#pragma once

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// Why the calling thread or a stream of kernels waits.
enum class wait_cause : std::uint8_t {
  demand_miss,      ///< for a load, or for the room that a load needs
  optimizer_input,  ///< for bytes on their way to the host
  throttle,         ///< for room in a queue of the backend
  other,            ///< for agents that only read what is overwritten: a step on one agent has none
};

inline constexpr std::size_t wait_causes = 4;

/// Waits of one cause that blocked.
struct wait_total {
  std::uint64_t count = 0;
  std::uint64_t nanoseconds = 0;
  bool operator==(const wait_total&) const = default;
};

}  // namespace chunkmem::inline v0
