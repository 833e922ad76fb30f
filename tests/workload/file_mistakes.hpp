// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

/// Every mistake at every key of a file that is right.
namespace file_mistakes {

/// A key with its path, and its value as JSON, in the order of the file; a path with a dot is in an object.
using fields = std::vector<std::pair<std::string, std::string>>;

inline std::string json_of(const fields& all)
{
  std::string text = "{";
  std::string open;
  for (const auto& [path, value] : all) {
    const std::size_t dot = path.find('.');
    const std::string object = dot == path.npos ? "" : path.substr(0, dot);
    if (object != open && !open.empty()) text += '}';
    if (text.size() > 1) text += object == open && !open.empty() ? ", " : ",\n";
    if (object != open && !object.empty()) text += '"' + object + "\": {";
    open = object;
    text += '"' + (dot == path.npos ? path : path.substr(dot + 1)) + "\": " + value;
  }
  return text + (open.empty() ? "}" : "}}");
}

/// The reader's error for a text; nothing where it is accepted.
template <class Read>
std::string sentence(const Read& read, const std::string& text)
{
  return support::refusal<chunkmem::format_error>([&] { (void)read(text); });
}

template <class Read>
void expect(const Read& read, const fields& all, const std::string& path, const std::string& why)
{
  const std::string text = json_of(all);
  INFO(text);
  using Catch::Matchers::ContainsSubstring;
  CHECK_THAT(sentence(read, text),
             ContainsSubstring("chunkmem: it.json cannot be used: key \"" + path + "\"") && ContainsSubstring(why));
}

/// @param read       of a text, as "it.json"
/// @param optional   a key that may be missing
/// @return           mistakes tried
template <class Read>
std::size_t try_all(const Read& read, const fields& good, const std::string& optional = {})
{
  CHECK(sentence(read, json_of(good)).empty());
  std::size_t tried = 0;
  for (std::size_t index = 0; index < good.size(); ++index) {
    const std::string& path = good[index].first;
    const auto with = [&](const std::string& value, const std::string& why) {
      fields all = good;
      all[index].second = value;
      expect(read, all, path, why);
      ++tried;
    };
    const std::string& value = good[index].second;
    const bool is_text = value[0] == '"';
    const bool is_truth = value == "true" || value == "false";
    if (!is_text && !is_truth) {
      with("-1", "negative");
      with("-0.5", "negative");
      with("1e999", "is too large");
      with("\"5\"", "is a text");
      with("true", "is true or false");
    } else {
      with("5", "is a number");
      with(is_text ? "false" : "\"false\"", is_text ? "is true or false" : "is a text");
    }
    if (is_text) with("\"\"", "is empty"), with('"' + std::string(5000, 'x') + '"', "is too long");
    with("NaN", "no JSON");
    with("null", "is null");
    with("[" + value + "]", "is a list");
    with("{}", "is an object without a member");

    fields less = good;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(index));
    if (path == optional)
      CHECK(sentence(read, json_of(less)).empty());
    else
      expect(read, less, path, "is missing"), ++tried;
    fields twice = good;
    twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(index), good[index]);
    expect(read, twice, path, "is there twice");
    fields more = good;
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(index) + 1, {path + "_", value});
    expect(read, more, path + "_", "is not known");
    tried += 2;
  }
  fields more = good;
  more.insert(more.begin(), {"first", "1"});
  expect(read, more, "first", "is not known");
  return tried + 1;
}

}  // namespace file_mistakes
