// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cost_table.hpp>
#include <chunkmem/transfer/retention_input.hpp>

#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace transfer {

/// An update on the host: all uses of the host that begin in [`begin`, `end`) are parts of it.
///
/// The host may take updates in any order, and later than their moments say, as long as no use of their chunks is
/// passed that has to come before or after.
struct host_task {
  static constexpr std::uint32_t none = UINT32_MAX;

  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint64_t nanoseconds = 0;  ///< the host works
  std::uint32_t after = none;  ///< it begins behind this moment, the last one before `begin`: for a global norm the one
                               ///< that makes the last gradient
};

/// An iteration whose decisions are taken, as durations and rates: all that its least time depends on.
struct step_input {
  std::span<const std::uint64_t> moment_nanoseconds;  ///< what compute takes, at each moment
  std::span<const std::uint64_t> chunk_bytes;         ///< size of each chunk [bytes], above 0
  std::span<const retention_use> uses;                ///< by `begin`; those of one chunk in the order they happen
  /// by use: its chunk stays until its next use; see retention_plan
  std::span<const std::uint8_t> stays;
  std::span<const std::uint64_t> device_bytes;  ///< what chunks may take on the device, at each moment [bytes]
  std::span<const host_task> host_tasks;        ///< by `begin`, apart; a use of the host in none takes no time
  backend::link_cost to_device;
  backend::link_cost to_host;
  std::uint64_t collective_nanoseconds = 0;  ///< busy time of collectives in one iteration
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
