// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/manager/chunk_waste.hpp>
#include <chunkmem/tensor/role.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// What a model needs, known before anything is allocated.
///
///     const memory_requirement need = m.rehearse(step);
///     std::cout << "a device of " << need.smallest_device.count() << " B is enough\n";
struct memory_requirement {
  /// Bytes of tensors, by role.
  struct per_role {
    bytes values[role_count];
    [[nodiscard]] bytes& operator[](role part) noexcept { return values[static_cast<std::size_t>(part)]; }
    [[nodiscard]] const bytes& operator[](role part) const noexcept { return values[static_cast<std::size_t>(part)]; }
  };

  per_role by_role;
  bytes chunk_bytes;      ///< of one frame, as given or as searched
  bytes chunks;           ///< all chunks, whole frames: what they take when all are in one tier
  bytes largest_leases;   ///< the most that was leased at once on the device; from a rehearsal
  bytes everything;       ///< `chunks` and `largest_leases`, in whole frames: all at once in one tier
  bytes smallest_device;  ///< least device capacity; from a rehearsal exact, else that of the largest tensor
  bytes smallest_host;    ///< least host capacity beside the device's capacity; from a rehearsal
  chunk_waste waste;      ///< from seal; nothing from a rehearsal, or of a sharded_model
  bool rehearsed = false;
};

}  // namespace chunkmem::inline v0
