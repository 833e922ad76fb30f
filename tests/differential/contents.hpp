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

}  // namespace differential
