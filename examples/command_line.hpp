// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common_flags.hpp"

#include <CLI/CLI.hpp>

#include <charconv>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
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

/// The same for an option that may be absent, whose text is then empty: `out` stays.
template <class Problem, class Number>
void read_whole(const char* option, const std::string& text, std::type_identity_t<Number> lowest,
                std::type_identity_t<Number> highest, Number& out)
{
  if (!text.empty()) out = whole<Problem, Number>(option, text, lowest, highest);
}

template <class Problem, class Number>
void read_whole(const char* option, const std::string& text, std::type_identity_t<Number> lowest,
                std::type_identity_t<Number> highest, std::optional<Number>& out)
{
  if (!text.empty()) out = whole<Problem, Number>(option, text, lowest, highest);
}

/// Whether the command line has this option. An option that is not declared is not there.
[[nodiscard]] inline bool is_given(const CLI::App& app, const char* name)
{
  const CLI::Option* const option = app.get_option_no_throw(name);
  return option != nullptr && option->count() > 0;
}

/// Refuses options that would change nothing, or that exclude another one. @throws Problem   the option and `why`
template <class Problem>
void refuse(const CLI::App& app, std::initializer_list<const char*> names, const std::string& why)
{
  for (const char* const name : names)
    if (is_given(app, name)) throw Problem{name + why};
}

/// @param json   the text of --json: the members of its object
inline void add_common_flags(CLI::App& app, common_flags& flags, const char* json)
{
  app.set_help_flag();
  app.add_flag("-h,--help", flags.help, "print this text");
  app.add_flag("--version", flags.version, "print the version");
  app.add_flag("--json", flags.json, json);
}

/// Options that stand together in --help.
struct option_group {
  const char* title;
  const char* type;  ///< type of their values: NUMBER, SIZE, FILE, FOLDER or WORD; empty for flags
  std::initializer_list<const char*> options;
};

/// Gives declared options the group and the type that --help shows. Options that are not declared are passed over.
inline void arrange(CLI::App& app, std::initializer_list<option_group> groups)
{
  for (const option_group& group : groups)
    for (const char* const name : group.options)
      if (CLI::Option* const option = app.get_option_no_throw(name)) {
        option->group(group.title);
        if (*group.type != '\0') option->type_name(group.type);
      }
}

/// Reads all words into the declared options. Refuses an empty value, and a value for a flag: CLI11 accepts both.
/// @throws Problem   the message of CLI11, an empty value, or a flag with a value
template <class Problem>
void read(CLI::App& app, int count, const char* const* arguments)
{
  for (int index = 0; index < count; ++index) {
    const std::string_view word = arguments[index];
    if (word.empty() || word.back() == '=') throw Problem{"an option has an empty value (see --help)"};
    const std::string name{word.substr(0, word.find('='))};
    const CLI::Option* const option = name == word ? nullptr : app.get_option_no_throw(name);
    if (option != nullptr && option->get_items_expected_max() == 0)
      throw Problem{name + " takes no value (see --help)"};
  }
  try {
    std::vector<std::string> reversed(std::reverse_iterator{arguments + count}, std::reverse_iterator{arguments});
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& failure) {
    throw Problem{std::string{failure.what()} + " (see --help)"};
  }
}

}  // namespace command_line
