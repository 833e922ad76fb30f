// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace out_of_core {

inline constexpr std::size_t picture_side = 8;
inline constexpr std::size_t picture_numbers = picture_side * picture_side;
inline constexpr std::size_t classes = 10;

/// A list of pictures, and the digit that each one shows.
struct picture_list {
  std::vector<float> numbers{};  ///< from -1 (paper) to 1 (ink), `picture_numbers` for each picture
  std::vector<std::uint8_t> labels{};

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
  [[nodiscard]] std::span<const float> picture(std::size_t which) const noexcept
  {
    return std::span{numbers}.subspan(which * picture_numbers, picture_numbers);
  }
  void append(std::span<const float> picture, std::uint8_t label);
};

/// Pictures for training, and held-out ones that no step uses.
struct picture_set {
  std::string name{};  ///< for people
  picture_list training{};
  picture_list held_out{};  ///< every fifth picture
};

/// Reads 65 whole numbers from each line, with commas between them: 64 from 0 to 16, then the digit from 0 to 9.
/// @throws problem   names the file and the first wrong line, or a file with too few lines
[[nodiscard]] picture_set read_pictures(const std::filesystem::path& file);

/// Digits that this program generates: ten glyphs, moved, in ink of different strength, with noise. They need no file.
[[nodiscard]] picture_set drawn_pictures();

}  // namespace out_of_core
