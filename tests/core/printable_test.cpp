// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>

#include <string>
#include <string_view>

namespace printable_test {

using namespace chunkmem;

TEST_CASE("a printable text stays as it is", "[core]")
{
  for (const std::string_view text :
       {"", "layer.0/weight", "two words", "C:\\folder", "\u00e9\u00a0\u4e2d\U0001f600 \u20ac", "\\x0a"})
    CHECK(printable(text) == text);
}

TEST_CASE("what ends a line or speaks to a terminal is written as its bytes", "[core]")
{
  CHECK(printable("a\nb\r\tc") == R"(a\x0ab\x0d\x09c)");
  CHECK(printable("\x1b[31mred\x1b[0m\x7f\b") == R"(\x1b[31mred\x1b[0m\x7f\x08)");
  CHECK(printable(std::string_view("a\0b", 3)) == R"(a\x00b)");
  CHECK(printable("\u0085\u009b31m") == R"(\xc2\x85\xc2\x9b31m)");  // control characters of two bytes
  CHECK(printable("\u2028\u202etxt.exe\u2066") ==
        R"(\xe2\x80\xa8\xe2\x80\xaetxt.exe\xe2\x81\xa6)");  // an end of line, marks of direction
  CHECK(printable("a\u200bb\ufeff\U000e0041") == R"(a\xe2\x80\x8bb\xef\xbb\xbf\xf3\xa0\x81\x81)");  // of no width
}

TEST_CASE("what is no UTF-8 is written as its bytes", "[core]")
{
  CHECK(printable("\x9b"
                  "31m") == R"(\x9b31m)");  // a terminal of one byte for a character takes it for an escape
  CHECK(printable("\xc3") == R"(\xc3)");    // cut
  CHECK(printable("\xe4\xb8") == R"(\xe4\xb8)");
  CHECK(printable("\xf0\x9f\x98") == R"(\xf0\x9f\x98)");
  CHECK(printable("\xc0\x8a") == R"(\xc0\x8a)");  // an end of line, written too long
  CHECK(printable("\xe0\x80\x8a") == R"(\xe0\x80\x8a)");
  CHECK(printable("\xf0\x80\x80\x8a") == R"(\xf0\x80\x80\x8a)");
  CHECK(printable("\xed\xa0\x80") == R"(\xed\xa0\x80)");  // half of a pair
  CHECK(printable("\xf4\x90\x80\x80\xff") == R"(\xf4\x90\x80\x80\xff)");
}

TEST_CASE("whatever the bytes are, what is printable has no hidden ones, and stays printable", "[core]")
{
  for (unsigned first = 0; first < 256; ++first)
    for (unsigned second = 0; second < 256; ++second) {
      const std::string pair{static_cast<char>(first), static_cast<char>(second)};
      for (const std::string& text : {pair, "\xe2" + pair, "\xf0\x9f" + pair}) {
        const std::string line = printable(text);
        bool is_clean = printable(line) == line;
        for (const char letter : line)
          is_clean = is_clean && static_cast<unsigned char>(letter) >= 0x20 && letter != 0x7f;
        if (!is_clean) FAIL("bytes " << first << ' ' << second << " became " << line);
      }
    }
}

}  // namespace printable_test
