// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>

namespace chunkmem::inline v0 {

/// How many bytes of the chunks no tensor fills, at the size of chunks in use and at a better size.
///
///     const chunk_waste seen = m.seal().waste;
///     if (seen.now.percent() > 5) std::cout << "take chunk_bytes of " << seen.better.chunk_bytes.count() << " B\n";
struct chunk_waste {
  /// At one size of chunks.
  struct at_size {
    bytes chunk_bytes;  ///< of one frame
    bytes chunks;       ///< all chunks, whole frames
    bytes tensors;      ///< the bytes of all tensors in them

    [[nodiscard]] bytes wasted() const noexcept { return chunks - tensors; }
    /// Of the chunks, from 0 to 100.
    [[nodiscard]] double percent() const noexcept
    {
      if (chunks == bytes{}) return 0;
      return 100 * static_cast<double>(wasted().count()) / static_cast<double>(chunks.count());
    }
  };
  static constexpr double little = 0.5;  ///< percent

  at_size now;  ///< as the manager is sealed
  /// As least_waste_chunks would seal it; `now` where that wastes little, or where the layout cannot be searched.
  at_size better;
};

}  // namespace chunkmem::inline v0
