// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace gpt {

/// Where activations are between the two passes; or layers run forward again in place of keeping them.
enum class activation_mode : std::uint8_t {
  swap,       ///< in chunks, which the manager's plan moves to the host and back
  keep,       ///< they never leave the device
  recompute,  ///< each layer keeps only its input
  karma,      ///< layers are kept, swapped or recomputed, see chunkmem::activation::karma
  planned,    ///< the same, see chunkmem::activation::planned
  sample,     ///< as swap, but some rows of the projections' inputs are kept: gradients are estimates
};

/// True if a planner decides.
[[nodiscard]] constexpr bool is_planned(activation_mode choice) noexcept
{
  return choice == activation_mode::karma || choice == activation_mode::planned;
}

}  // namespace gpt
