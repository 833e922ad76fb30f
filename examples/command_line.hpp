// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

#include <charconv>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

/// The common parts of the examples' command lines. Each example throws a `Problem` of its own. A `Problem` is one
/// sentence for the user.
namespace command_line {

/// "a, b or c". @pre there is one
template <class Words>
[[nodiscard]] std::string listed(const Words& words)
{
  std::string text{words.front()};
  for (std::size_t index = 1; index < words.size(); ++index)
    text += (index + 1 == words.size() ? " or " : ", ") + std::string{words[index]};
  return text;
}

/// @throws Problem   the text is no whole number from `lowest` to `highest`
template <class Problem, class Number>
[[nodiscard]] Number whole(const char* option, std::string_view text, Number lowest, Number highest)
{
  Number number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = failure == std::errc{} && end == text.data() + text.size();
  if (!is_whole || number < lowest || number > highest) {
    throw Problem{std::string{option} + " '" + std::string{text} + "' is not a whole number from " +
                  std::to_string(lowest) + " to " + std::to_string(highest)};
  }
  return number;
}

/// Reads all words into what was declared. An empty value is no choice: CLI11 lets it through, we do not.
/// @throws Problem   what CLI11 says, or an empty value
template <class Problem>
void read(CLI::App& app, int count, const char* const* arguments)
{
  for (int index = 0; index < count; ++index) {
    const std::string_view word = arguments[index];
    if (word.empty() || word.back() == '=') throw Problem{"an option has an empty value (see --help)"};
  }
  try {
    std::vector<std::string> reversed(std::reverse_iterator{arguments + count}, std::reverse_iterator{arguments});
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& failure) {
    throw Problem{std::string{failure.what()} + " (see --help)"};
  }
}

}  // namespace command_line
