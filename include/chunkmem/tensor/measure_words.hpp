// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/gradient_measure.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// Words that carry a measure to another rank.
inline constexpr std::size_t words_of_measure = 3;

/// A measure as words. Words of zeros are the measure of zeros.
[[nodiscard]] inline std::array<std::uint64_t, words_of_measure> words_of(const gradient_measure& from) noexcept
{
  return {std::bit_cast<std::uint64_t>(from.squares), std::bit_cast<std::uint64_t>(from.magnitudes),
          std::uint64_t{std::bit_cast<std::uint32_t>(from.largest)} << 1U | (from.finite ? 0U : 1U)};
}
/// The measure that has these words. @param words   words_of_measure of them
[[nodiscard]] inline gradient_measure measure_in(const std::uint64_t* words) noexcept
{
  return {std::bit_cast<double>(words[0]), std::bit_cast<double>(words[1]),
          std::bit_cast<float>(static_cast<std::uint32_t>(words[2] >> 1U)), (words[2] & 1U) == 0};
}

}  // namespace chunkmem::inline v0
