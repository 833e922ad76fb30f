// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "words.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace differential {

/// New contents, the same for the same number; finite numbers of the slot's type.
void fill_with(std::vector<std::byte>& content, element type, std::uint32_t number);
/// 16-bit numbers from their masters, rounded to the nearest, and the other way.
[[nodiscard]] std::vector<std::byte> rounded(const std::vector<std::byte>& master);
[[nodiscard]] std::vector<std::byte> widened(const std::vector<std::byte>& weight);

/// Floats as they are, 16-bit numbers widened.
[[nodiscard]] std::vector<float> numbers_of(const std::vector<std::byte>& content, element type);

/// The inputs and outputs of an update: `averages` of the managers under test.
struct update_model {
  std::vector<float> gradient;   ///< already multiplied
  std::vector<float> parameter;  ///< the master, where there is one
  std::vector<float> momentum;
  std::vector<float> variance;  ///< empty where there is none
};
void take_averages(update_model& all, std::uint64_t number);
[[nodiscard]] std::vector<std::byte> bytes_of(const std::vector<float>& numbers);

}  // namespace differential
