// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace gpt {

/// A token with the probability that softmax(odds / temperature) gives it. @param odds   logits, overwritten
/// @param drawn   random number in [0, 1)
[[nodiscard]] inline unsigned char choose(std::vector<float>& odds, float drawn, float temperature)
{
  const float highest = *std::max_element(odds.begin(), odds.end());
  float sum = 0.0f;
  for (float& each : odds) sum += each = std::exp((each - highest) / temperature);
  float left = drawn * sum;
  for (std::size_t token = 0; token < odds.size(); ++token) {
    left -= odds[token];
    if (left < 0.0f) return static_cast<unsigned char>(token);
  }
  return static_cast<unsigned char>(std::max_element(odds.begin(), odds.end()) - odds.begin());
}

}  // namespace gpt
