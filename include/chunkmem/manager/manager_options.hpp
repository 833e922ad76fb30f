// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// The order in which a layout places the tensors of a list.
enum class tensor_order : std::uint8_t {
  declaration,  ///< as they were added
  first_use,    ///< as the rehearsed step first uses them: tensors that are used together lie together
};

/// A value of `chunk_bytes` for a search: the size with which the layout wastes the least bytes of this model.
inline constexpr bytes least_waste_chunks{UINT64_MAX - 1};

/// Settings of a manager.
///
///     manager<backend::host_arena> m{memory, {.chunk_bytes = 16_MiB, .error_details = true}};
struct manager_options {
  /// Size of a frame in every tier, the unit that moves [bytes]. A multiple of 256 B, or least_waste_chunks: then the
  /// size is searched when the manager is sealed, up to the limit of frame_limits and a sixteenth of the device. Larger
  /// frames use the link better, smaller ones waste less; a layer's largest weight is a good start. The result of
  /// `seal` has the waste of this size, and a better size.
  bytes chunk_bytes{bytes{std::uint64_t{4} << 20}};

  /// Good where tensors are declared in another order than the step uses them. first_use needs a rehearsal first.
  tensor_order order = tensor_order::declaration;

  /// Errors of accesses, leases, drops, iterations, exchanges and captured steps have in `details()` the residency at
  /// the throw, and the last events of a recalling sink. Good for unattended runs; poor where refused calls are
  /// expected: each costs a call of `residency()`, and a text.
  bool error_details = false;
};

}  // namespace chunkmem::inline v0
