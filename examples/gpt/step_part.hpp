// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpt {

/// The parts of a step that differ in speed.
enum class step_part : std::uint8_t {
  forward,   ///< layers, including recomputation
  backward,  ///< layers
  ends,      ///< embeddings, head and loss, in both passes
  update,
};
inline constexpr std::size_t step_parts = 4;
[[nodiscard]] constexpr std::size_t index_of(step_part part) noexcept
{
  return static_cast<std::size_t>(part);
}

/// By part of a step.
using part_seconds = std::array<double, step_parts>;
using part_rates = std::array<double, step_parts>;
using part_operations = std::array<double, step_parts>;

}  // namespace gpt
