// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// What the bytes of a gradient are at its first write of a step.
enum class gradient_start : std::uint8_t {
  undefined,  ///< anything: beta() is 0, and every element has to be overwritten. Costs nothing
  /// zeros, filled by the agent that writes it: beta() is 1, and elements that nobody adds to count as 0. For
  /// embeddings
  zeros,
};

}  // namespace chunkmem::inline v0
