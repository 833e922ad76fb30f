// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// In which order a layout is given the tensors of a list.
enum class tensor_order : std::uint8_t {
  declaration,  ///< as they were added
  first_use,    ///< as the rehearsed step first uses them: what is used together comes to lie together
};

/// A size of chunks that is not a size: the one with which the layout wastes the least bytes of this model.
inline constexpr bytes least_waste_chunks{UINT64_MAX - 1};

/// Settings of a manager. Each of them changes what the manager does; there are no others.
///
///     manager<backend::host_arena> m{memory, {.chunk_bytes = 16_MiB, .error_details = true}};
struct manager_options {
  /// Size of a frame in every tier: the unit that moves. A multiple of 256 B, or least_waste_chunks: then it is
  /// searched when the manager is sealed, up to the limit of frame_limits and a sixteenth of the device. Larger frames
  /// use the link better, smaller ones waste less; a layer's largest weight is a good start. What `seal` returns tells
  /// the waste of a size, and a better one.
  bytes chunk_bytes{bytes{std::uint64_t{4} << 20}};

  /// Good where tensors are declared in another order than the step uses them. first_use wants a rehearsal first.
  tensor_order order = tensor_order::declaration;

  /// Errors of accesses, leases, drops, iterations, exchanges and captured steps say in `details()` where everything
  /// lay when they were thrown, and what a recalling sink remembers of before. Good for runs that nobody watches; poor
  /// where refused calls are part of the plan: each costs what `residency()` costs, and a text.
  bool error_details = false;
};

}  // namespace chunkmem::inline v0
