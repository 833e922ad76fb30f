// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/text_reader.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <cstdint>
#include <sstream>
#include <string>

namespace text_reader_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

namespace {

struct source {
  explicit source(const std::string& text, std::size_t longest = 20) : in{text}, reader{in, "a text", longest} {}

  std::istringstream in;
  text_reader reader;
};

std::uint8_t small_number(const std::string& digits, int base = 10)
{
  return source{""}.reader.number<std::uint8_t>(digits, base);
}

}  // namespace

TEST_CASE("a text is read line by line and word by word", "[core]")
{
  source it{"one two\n\n three\nlast\n"};
  CHECK(it.reader.next_line() == "one two");
  CHECK(it.reader.word() == "one");
  it.reader.expect("two");
  it.reader.expect_end();
  CHECK(it.reader.next_line().empty());
  CHECK(it.reader.word().empty());  // an empty line has one empty word
  it.reader.expect_end();
  CHECK(it.reader.next_line() == " three");
  CHECK(it.reader.word().empty());
  CHECK(it.reader.word() == "three");
  CHECK(it.reader.next_line() == "last");
  CHECK_THROWS_AS(it.reader.next_line(), format_error);
}

TEST_CASE("a word too few or too many is refused", "[core]")
{
  source it{"one two\n"};
  // before the first line too
  CHECK_THROWS_WITH(it.reader.expect_end(), ContainsSubstring("it goes on after its end"));
  it.reader.next_line();
  CHECK_THROWS_WITH(it.reader.expect_end(), ContainsSubstring("it goes on after its end"));
  it.reader.expect("one");
  CHECK_THROWS_WITH(it.reader.expect_end(), ContainsSubstring("it goes on after its end"));
  CHECK_THROWS_WITH(it.reader.expect("too"), ContainsSubstring("another word is wanted"));
  it.reader.expect_end();
  CHECK_THROWS_WITH(it.reader.word(), ContainsSubstring("a word is missing"));
  CHECK_THROWS_WITH(it.reader.expect("two"), ContainsSubstring("a word is missing"));
}

TEST_CASE("a line has to end, and to be no longer than said", "[core]")
{
  CHECK_THROWS_WITH(source{""}.reader.next_line(), ContainsSubstring("ends in it"));
  CHECK_THROWS_WITH(source{"cut off"}.reader.next_line(), ContainsSubstring("ends in it"));
  CHECK(source("1234\n", 4).reader.next_line() == "1234");
  CHECK_THROWS_WITH(source("12345\n", 4).reader.next_line(), ContainsSubstring("longer"));
  CHECK_THROWS_WITH(source(std::string(1'000'000, 'x'), 4).reader.next_line(), ContainsSubstring("longer"));
  CHECK(source(std::string("a\0b\n", 4)).reader.next_line() == std::string("a\0b", 3));
}

TEST_CASE("a value is read behind its key, and refused with it", "[core]")
{
  const auto read = [](const std::string& line, std::uint64_t most = UINT64_MAX, std::string_view none = {},
                       int base = 10) {
    source it{line + '\n', 40};
    it.reader.next_line();
    return it.reader.value("size", most, none, base);
  };
  CHECK(read("size 18446744073709551615") == UINT64_MAX);
  CHECK(read("size ff", 255, {}, 16) == 255);
  CHECK(read("size never", 7, "never") == UINT32_MAX);
  CHECK_THROWS_WITH(read("sizes 1"), ContainsSubstring("line 1 of a text cannot be used: key \"size\" is wanted here"));
  CHECK_THROWS_WITH(read(""), ContainsSubstring("key \"size\" is wanted here"));
  CHECK_THROWS_WITH(read("size"), ContainsSubstring("key \"size\" has no value"));
  CHECK_THROWS_WITH(read("size -1"), ContainsSubstring("key \"size\" is negative"));
  CHECK_THROWS_WITH(read("size 8", 7), ContainsSubstring("key \"size\" is too large"));
  CHECK_THROWS_WITH(read("size 18446744073709551616"), ContainsSubstring("key \"size\" is too large"));
  for (const char* const wrong : {"", "+1", " 1", "1x", "1.0", "1e3", "nan", "NaN", "inf", "never"})
    CHECK_THROWS_WITH(read(std::string{"size "} + wrong), ContainsSubstring("key \"size\" is no whole number"));
}

TEST_CASE("a number is read whole, in its base, and within its type", "[core]")
{
  CHECK(small_number("0") == 0);
  CHECK(small_number("255") == 255);
  CHECK(small_number("007") == 7);
  CHECK(small_number("ff", 16) == 255);
  for (const char* const wrong : {"", "256", "-1", "+1", " 1", "1 ", "1x", "0x1", "1.0", "99999999999999999999999"})
    CHECK_THROWS_AS(small_number(wrong), format_error);
  CHECK_THROWS_AS(small_number("100", 16), format_error);
  CHECK(source{""}.reader.number<std::uint64_t>("18446744073709551615") == UINT64_MAX);
  CHECK_THROWS_AS(source{""}.reader.number<std::uint64_t>("18446744073709551616"), format_error);
  CHECK(source{""}.reader.number<std::int32_t>("-5") == -5);
}

TEST_CASE("a refusal names the line, the text and the reason", "[core]")
{
  source it{"one\ntwo\nthree\n"};
  CHECK_THROWS_WITH(it.reader.refuse("why"), ContainsSubstring("line 0 of a text cannot be used: why (write it anew)"));
  it.reader.next_line();
  it.reader.next_line();
  CHECK_THROWS_WITH(it.reader.refuse("why"), ContainsSubstring("line 2 of a text"));
  CHECK_THROWS_WITH(it.reader.expect("three"), ContainsSubstring("line 2 of a text cannot be used: another word"));
}

TEST_CASE("whatever the text is, a reader answers or refuses", "[core]")
{
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice dice{seed};
    std::string text;
    for (std::uint32_t size = dice.below(200); size > 0; --size) text += "ab 1\n\0\xff"[dice.below(7)];
    source it{text};
    INFO("seed " << seed);
    std::size_t lines = 0;
    try {
      for (;; ++lines) {
        std::string line{it.reader.next_line()};
        std::string words{it.reader.word()};
        for (std::size_t spaces = words.size(); spaces < line.size(); spaces = words.size())
          words += ' ' + std::string{it.reader.word()};
        REQUIRE(words == line);
        it.reader.expect_end();
        REQUIRE_THROWS_AS(it.reader.word(), format_error);
      }
    } catch (const format_error&) {
      REQUIRE(lines <= text.size());
    }
  }
}

}  // namespace text_reader_test
