// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <system_error>

namespace chunkmem::inline v0 {

/// Reads a text of lines of words, as this library writes them, and trusts no input.
///
///     text_reader text{in, "a profile", 1'000};
///     text.next_line();  // "slots 12"
///     const std::uint64_t slots = text.value("slots", UINT32_MAX);
///     text.expect_end();
///
/// Memory: one line. @throws format_error   from each call that does not find the expected text; names the line
class text_reader {
 public:
  /// @param what   kind of the text, for messages: "a profile"; a literal
  /// @param longest_line   in characters
  text_reader(std::istream& in, std::string_view what, std::size_t longest_line)
      : in_{&in}, what_{what}, longest_{longest_line}
  {
  }

  /// @return   the whole line, valid until the next call
  std::string_view next_line()
  {
    ++number_;
    at_ = 0;
    line_.clear();
    for (char next = 0; in_->get(next) && next != '\n'; line_ += next)
      if (line_.size() == longest_) refuse("it is longer than any line should be");
    if (!*in_) refuse("the text ends in it");
    return line_;
  }
  [[nodiscard]] bool has_word() const noexcept { return at_ <= line_.size(); }
  /// The next word of the line; valid until the next line.
  std::string_view word()
  {
    if (at_ > line_.size()) refuse("a word is missing");
    const std::size_t end = std::min(line_.find(' ', at_), line_.size());
    const std::string_view found = std::string_view{line_}.substr(at_, end - at_);
    at_ = end + 1;
    return found;
  }
  void expect(std::string_view wanted)
  {
    if (word() != wanted) refuse("another word is wanted");
  }
  /// Checks that the next word is this key.
  void key(std::string_view name)
  {
    if (!has_word() || word() != name) refuse_key(name, "is wanted here");
  }
  /// Reads a key, and an integer from 0 to `most`. @param none   a word that stands for UINT32_MAX; empty: there is
  /// none
  std::uint64_t value(std::string_view name, std::uint64_t most, std::string_view none = {}, int base = 10)
  {
    key(name);
    return number_of(name, most, none, base);
  }
  /// The same without the key in the line: `name` is for messages.
  std::uint64_t number_of(std::string_view name, std::uint64_t most, std::string_view none = {}, int base = 10)
  {
    if (!has_word()) refuse_key(name, "has no value");
    const std::string_view digits = word();
    if (!none.empty() && digits == none) return UINT32_MAX;
    if (digits.starts_with('-')) refuse_key(name, "is negative");
    std::uint64_t found = 0;
    const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), found, base);
    if (wrong == std::errc::result_out_of_range || (wrong == std::errc{} && found > most))
      refuse_key(name, "is too large");
    if (wrong != std::errc{} || end != digits.data() + digits.size()) refuse_key(name, "is no whole number");
    return found;
  }
  [[noreturn]] void refuse_key(std::string_view name, std::string_view why) const
  {
    refuse("key \"" + std::string{name} + "\" " + std::string{why});
  }
  void expect_end() const
  {
    if (at_ <= line_.size()) refuse("it goes on after its end");
  }
  template <class Number>
  [[nodiscard]] Number number(std::string_view digits, int base = 10) const
  {
    Number value = 0;
    const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (wrong != std::errc{} || end != digits.data() + digits.size()) refuse("a number is wanted, or a smaller one");
    return value;
  }
  [[noreturn]] void refuse(std::string_view why) const
  {
    throw format_error{error_text{} << "chunkmem: line " << number_ << " of " << what_ << " cannot be used: " << why
                                    << " (write it anew)"};
  }

 private:
  std::istream* in_;
  std::string_view what_;
  std::size_t longest_;
  std::string line_;
  std::size_t at_ = 0;
  std::uint64_t number_ = 0;
};

}  // namespace chunkmem::inline v0
