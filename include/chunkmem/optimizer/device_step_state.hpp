// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>

#include <cstdint>
#include <type_traits>

namespace chunkmem::inline v0 {

namespace optimizer {

/// The bytes of `loss_scale::bytes()`, as a device counts them on.
struct loss_scale_state {
  std::uint64_t updates = 0;
  std::uint64_t skips = 0;
  float scale = 1.0F;
  std::uint32_t in_a_row = 0;
};

/// How far the steps of a device are: lies in its memory, is written there, and is copied to the host when asked for.
///
///     device_step_state state;
///     std::memcpy(&state, copied, sizeof state);
struct device_step_state {
  std::uint64_t number = 0;  ///< of the last whole update
  loss_scale_state loss;     ///< counts with a loss scale and without
  gradient_measure total;    ///< of the gradients of this step, where something asks for it
  double norm = 0.0;         ///< of them, unscaled
  float factor = 1.0F;       ///< by which they are multiplied
  step_decision decision = step_decision::open;
};

static_assert(std::is_trivially_copyable_v<device_step_state> && sizeof(device_step_state) == 72);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
