// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

namespace detail {

/// A byte as the four characters \xNN.
struct escaped_byte {
  char text[4] = {'\\', 'x', '0', '0'};

  constexpr explicit escaped_byte(char letter) noexcept
  {
    constexpr char digits[] = "0123456789abcdef";
    const auto code = static_cast<unsigned char>(letter);
    text[2] = digits[code >> 4U];
    text[3] = digits[code & 15U];
  }
  [[nodiscard]] constexpr std::string_view view() const noexcept { return {text, sizeof text}; }
};

/// Bytes of the UTF-8 character at the begin of a text; 0: no character begins there.
[[nodiscard]] constexpr std::size_t length_of_character(std::string_view text) noexcept
{
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  const std::size_t length = byte(0) < 0x80U   ? 1
                             : byte(0) < 0xc2U ? 0
                             : byte(0) < 0xe0U ? 2
                             : byte(0) < 0xf0U ? 3
                             : byte(0) < 0xf5U ? 4
                                               : 0;
  if (length > text.size()) return 0;
  for (std::size_t index = 1; index < length; ++index)
    if ((byte(index) & 0xc0U) != 0x80U) return 0;
  if (length == 3 && ((byte(0) == 0xe0U && byte(1) < 0xa0U) || (byte(0) == 0xedU && byte(1) > 0x9fU)))
    return 0;  // too long, or half of a pair
  if (length == 4 && ((byte(0) == 0xf0U && byte(1) < 0x90U) || (byte(0) == 0xf4U && byte(1) > 0x8fU)))
    return 0;  // too long, or beyond Unicode
  return length;
}

/// A control character, or one that a terminal does not show: ends of lines, marks of direction, characters of no
/// width.
[[nodiscard]] constexpr bool is_hidden(std::string_view character) noexcept
{
  unsigned code = static_cast<unsigned char>(character[0]);
  if (character.size() > 1) code &= 0x7fU >> character.size();
  for (std::size_t index = 1; index < character.size(); ++index)
    code = code << 6U | (static_cast<unsigned char>(character[index]) & 0x3fU);
  constexpr unsigned ranges[][2] = {{0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},      {0x61c, 0x61c},
                                    {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f},
                                    {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  for (const auto& range : ranges)
    if (code >= range[0] && code <= range[1]) return true;
  return false;
}

}  // namespace detail

/// Bytes of the first character of a text if a message may hold the character as it is; 0: its first byte has to be
/// escaped.
/// @pre   the text is not empty
[[nodiscard]] constexpr std::size_t printable_length(std::string_view text) noexcept
{
  const std::size_t length = detail::length_of_character(text);
  return length == 0 || detail::is_hidden(text.substr(0, length)) ? 0 : length;
}

/// A text of others as a message may hold it: in one line, and without a word to the terminal.
///
/// A byte of a control character, of a character that is not shown, or of what is no UTF-8 becomes `\xNN`; all else
/// stays, a backslash too. A text that is printable already stays as it is. error_text does this by itself: this is for
/// other texts.
[[nodiscard]] inline std::string printable(std::string_view text)
{
  std::string line;
  while (!text.empty()) {
    const std::size_t length = printable_length(text);
    if (length != 0)
      line += text.substr(0, length);
    else
      line += detail::escaped_byte{text.front()}.view();
    text.remove_prefix(length != 0 ? length : 1);
  }
  return line;
}

}  // namespace chunkmem::inline v0
