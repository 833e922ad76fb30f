// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace gpt {

/// A learning rate that rises in a straight line and then falls along half a cosine to a tenth.
struct cosine_schedule {
  float highest = 1e-3f;
  std::size_t steps = 50;

  [[nodiscard]] std::size_t warm_up() const noexcept { return std::max<std::size_t>(1, steps / 10); }

  /// @param step   from 0
  [[nodiscard]] float at(std::size_t step) const noexcept
  {
    if (step < warm_up()) return highest * static_cast<float>(step + 1) / static_cast<float>(warm_up());
    const auto rest = static_cast<float>(std::max<std::size_t>(1, steps - warm_up()));
    const float along = static_cast<float>(step - warm_up()) / rest;
    const float wave = 0.5f * (1.0f + std::cos(std::numbers::pi_v<float> * along));
    return highest * (0.1f + 0.9f * wave);
  }
};

}  // namespace gpt
