// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// What pins and leases of a rehearsal point to.
enum class rehearse_on : std::uint8_t {
  nothing,  ///< null: kernels are skipped where `rehearsing()` is true. Costs no memory; on every backend
  /// Scratch bytes, so that plain loops need no test for null. Reads find zeros that nobody may write. All that is
  /// written, and all leases, share one block: what is read back there is anything. So no value may decide what the
  /// step does, no value that the step wrote may be an index, and floating-point traps have to be off. Kernels on
  /// streams run in any order. Costs host memory outside of the budget for the time of the rehearsal: a block of
  /// the largest tensor's size to read, and to write one of up to 1.5 times the largest tensor or lease, beside the
  /// smaller ones before it. Costs the time of the step's arithmetic too. Only where the calling thread can
  /// address the device.
  scratch,
};

}  // namespace chunkmem::inline v0
