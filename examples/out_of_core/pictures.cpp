// SPDX-License-Identifier: Apache-2.0
#include "pictures.hpp"

#include "../gpt/problem.hpp"
#include "../gpt/random.hpp"

#include <array>
#include <charconv>
#include <fstream>
#include <string_view>
#include <system_error>

namespace out_of_core {
namespace {

using gpt::problem;

constexpr int most_ink = 16;
constexpr std::size_t least_pictures = 50;

[[nodiscard]] float number_of(float ink) noexcept
{
  return ink / (most_ink / 2) - 1.0F;
}

/// Adds every fifth picture to the held-out ones, and the others to those of the training.
void sort_in(picture_set& set, std::size_t number, std::span<const float> picture, std::uint8_t label)
{
  (number % 5 == 4 ? set.held_out : set.training).append(picture, label);
}

/// Takes a whole number off the front of the line, and the comma after the number. @return   -1 where there is none
[[nodiscard]] int take_number(std::string_view& line, int highest)
{
  int number = 0;
  const auto [end, failure] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (failure != std::errc{} || number < 0 || number > highest) return -1;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  if (line.empty()) return number;
  if (!line.starts_with(',') || line.size() == 1) return -1;
  line.remove_prefix(1);
  return number;
}

/// @return   whether the line is one picture and its digit
[[nodiscard]] bool read_line(std::string_view line, std::array<float, picture_numbers>& picture, std::uint8_t& label)
{
  for (float& number : picture) {
    const int ink = take_number(line, most_ink);
    if (ink < 0) return false;
    number = number_of(static_cast<float>(ink));
  }
  const int digit = take_number(line, static_cast<int>(classes) - 1);
  if (digit < 0 || !line.empty()) return false;
  label = static_cast<std::uint8_t>(digit);
  return true;
}

using glyph = std::array<std::string_view, 7>;
constexpr std::array<glyph, classes> glyphs{{
    {" ### ", "#   #", "#   #", "#   #", "#   #", "#   #", " ### "},
    {"  #  ", " ##  ", "# #  ", "  #  ", "  #  ", "  #  ", "#####"},
    {" ### ", "#   #", "    #", "   # ", "  #  ", " #   ", "#####"},
    {" ### ", "#   #", "    #", "  ## ", "    #", "#   #", " ### "},
    {"   # ", "  ## ", " # # ", "#  # ", "#####", "   # ", "   # "},
    {"#####", "#    ", "#### ", "    #", "    #", "#   #", " ### "},
    {"  ## ", " #   ", "#    ", "#### ", "#   #", "#   #", " ### "},
    {"#####", "    #", "   # ", "  #  ", "  #  ", " #   ", " #   "},
    {" ### ", "#   #", "#   #", " ### ", "#   #", "#   #", " ### "},
    {" ### ", "#   #", "#   #", " ####", "    #", "   # ", " ##  "},
}};

/// One picture of a digit. Its noise is a function of its number.
[[nodiscard]] std::array<float, picture_numbers> drawn(std::uint64_t number, std::size_t digit)
{
  const gpt::counter_random random{1, number};
  const std::size_t right = random.below(3, 0);
  const std::size_t down = random.below(2, 1);
  const float strength = 9.0F + 7.0F * random.uniform(2);
  std::array<float, picture_numbers> picture{};
  for (std::size_t at = 0; at < picture_numbers; ++at) {
    const std::size_t row = at / picture_side - down;  // a number below 0 is a large one, and outside of the glyph
    const std::size_t column = at % picture_side - right;
    const bool is_ink =
        row < glyphs[digit].size() && column < glyphs[digit][0].size() && glyphs[digit][row][column] == '#';
    const float noise = random.uniform(3 + at);
    picture[at] = number_of(is_ink ? strength * (0.6F + 0.4F * noise) : 4.0F * noise);
  }
  return picture;
}

}  // namespace

void picture_list::append(std::span<const float> picture, std::uint8_t label)
{
  numbers.insert(numbers.end(), picture.begin(), picture.end());
  labels.push_back(label);
}

picture_set read_pictures(const std::filesystem::path& file)
{
  const std::string name = "--pictures '" + file.string() + "'";
  std::ifstream in{file};
  if (!in) throw problem{name + " cannot be read (name a file of lines of 65 numbers)"};
  picture_set set;
  std::array<float, picture_numbers> picture{};
  std::uint8_t label = 0;
  std::size_t count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    if (line.ends_with('\r')) line.pop_back();
    if (!read_line(line, picture, label))
      throw problem{name + " has a line " + std::to_string(count + 1) +
                    " that is not 64 whole numbers from 0 to 16 and a digit, with commas between them"};
    sort_in(set, count, picture, label);
  }
  if (count < least_pictures)
    throw problem{name + " has " + std::to_string(count) + " pictures, and at least " + std::to_string(least_pictures) +
                  " are needed"};
  set.name = "read from " + file.string();
  return set;
}

picture_set drawn_pictures()
{
  constexpr std::uint64_t count = 1000;
  picture_set set{.name = "drawn by this program"};
  for (std::uint64_t number = 0; number < count; ++number) {
    const std::size_t digit = number / 5 % classes;  // all digits among those held out
    sort_in(set, number, drawn(number, digit), static_cast<std::uint8_t>(digit));
  }
  return set;
}

}  // namespace out_of_core
