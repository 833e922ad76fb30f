#pragma once

#include <chunkmem/core/bytes.hpp>

namespace chunkmem::inline v0 {

/// Settings of a manager. Each of them changes what the manager does; there are no others.
struct manager_options {
  /// Size of a frame in every tier: the unit that moves. A multiple of 256 B. Larger frames use the link better, smaller
  /// ones waste less; a layer's largest weight is a good start.
  bytes chunk_bytes{bytes{std::uint64_t{4} << 20}};
};

}  // namespace chunkmem::inline v0
