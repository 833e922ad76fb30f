// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace gpt {

/// The place of activations between the two passes, or a second forward run in place of it.
enum class activation_mode : std::uint8_t {
  swap,       ///< they lie in chunks, which leave when the manager's plan says so
  keep,       ///< they never leave the device
  recompute,  ///< each layer keeps its input alone
  karma,      ///< layers are kept, swapped or recomputed, see chunkmem::activation::karma
  planned,    ///< the same by chunkmem::activation::planned
  sample,     ///< as swap, but of the projections' inputs some rows are kept: gradients are estimates
};

/// A planner decides for these.
[[nodiscard]] constexpr bool is_planned(activation_mode choice) noexcept
{
  return choice == activation_mode::karma || choice == activation_mode::planned;
}

}  // namespace gpt
