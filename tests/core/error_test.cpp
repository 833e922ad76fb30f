// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

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

namespace error_text_test {

using namespace chunkmem;

TEST_CASE("an error text joins words and numbers", "[core]")
{
  error_text text;
  text << "tensor " << 17 << " needs " << UINT64_MAX << " B"
       << "" << std::string_view{};
  CHECK(text.view() == "tensor 17 needs 18446744073709551615 B");
  CHECK(std::string{text.c_str()} == text.view());
  CHECK(error_text{}.view().empty());
  CHECK(std::string{error_text{}.c_str()}.empty());
  CHECK((error_text{} << std::uint64_t{0}).view() == "0");
}

TEST_CASE("an error text says a character as it is, a byte as a number, and a sign", "[core]")
{
  CHECK((error_text{} << '(' << 'x' << ')').view() == "(x)");
  CHECK((error_text{} << std::string{"abc"}[1] << '\n').view() == "b\\x0a");
  CHECK(
      (error_text{} << std::uint8_t{41} << " " << std::int8_t{-41} << " " << static_cast<unsigned char>(')')).view() ==
      "41 -41 41");
  CHECK((error_text{} << -1 << " " << std::numeric_limits<std::int64_t>::min() << " " << std::uint16_t{65535}).view() ==
        "-1 -9223372036854775808 65535");
  CHECK((error_text{} << true << " " << false).view() == "true false");
}

TEST_CASE("an error text says a floating-point number in the fewest digits that tell it apart", "[core]")
{
  CHECK((error_text{} << 0.1F << " " << 1e-8F << " " << 65504.0F << " " << 0.25).view() == "0.1 1e-08 65504 0.25");
  CHECK((error_text{} << std::numeric_limits<float>::infinity() << " " << std::numeric_limits<float>::quiet_NaN())
            .view() == "inf nan");
  CHECK((error_text{} << -std::numeric_limits<double>::max()).view() == "-1.7976931348623157e+308");
}

TEST_CASE("an error text is cut at its capacity and stays terminated", "[core]")
{
  std::string expected;
  error_text text;
  for (int round = 0; round < 100; ++round) {
    text << "0123456789" << std::uint64_t{1'234'567};
    expected += "01234567891234567";
  }
  CHECK(text.view() == expected.substr(0, 511));
  CHECK(std::string{text.c_str()}.size() == 511);
  error_text exact;
  exact << std::string(511, 'a');
  CHECK(exact.view().size() == 511);
  exact << "b";
  CHECK(exact.view() == std::string(511, 'a'));
}

TEST_CASE("an error text is one line, whatever names are put into it", "[core]")
{
  error_text text;
  text << "tensor "
       << "w\nchunkmem: all is well\x1b[2K\r"
       << " of " << 3;
  CHECK(text.view() == R"(tensor w\x0achunkmem: all is well\x1b[2K\x0d of 3)");
  CHECK((error_text{} << text.view()).view() == text.view());  // one error that tells another
  CHECK((error_text{} << "gr\u00f6\u00dfe").view() == "gr\u00f6\u00dfe");
}

TEST_CASE("an error text is never cut within a character or an escape", "[core]")
{
  for (std::size_t before = 505; before <= 511; ++before)
    for (const std::string piece : {"\n", "\u00e9", "\U0001f600"}) {
      const std::string whole = piece == "\n" ? R"(\x0a)" : piece;
      error_text text;
      text << std::string(before, 'a') << piece << "bb";
      const std::string begin = std::string(before, 'a') + (before + whole.size() <= 511 ? whole + "bb" : "......");
      CHECK(text.view() == begin.substr(0, 511));
    }
}

}  // namespace error_text_test

namespace error_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Throws `thrown` and returns what the handler for `Caught` read, or "another handler".
template <class Caught, class Thrown>
std::string text_when_caught_as(const Thrown& thrown)
{
  try {
    throw Thrown{thrown};
  } catch (const Caught& caught) {
    return caught.what();
  } catch (...) {
    return "another handler";
  }
}

template <class Standard, class Thrown>
void is_both(const Thrown& thrown, error_code code)
{
  const std::string expected = thrown.what();
  CAPTURE(expected);
  CHECK(expected.rfind("chunkmem: ", 0) == 0);
  CHECK(text_when_caught_as<Standard>(thrown) == expected);
  CHECK(text_when_caught_as<std::exception>(thrown) == expected);
  CHECK(text_when_caught_as<error>(thrown) == expected);
  CHECK(text_when_caught_as<Thrown>(thrown) == expected);
  CHECK(thrown.code() == code);
  CHECK(static_cast<const error&>(thrown).code() == code);
  static_assert(std::is_nothrow_copy_constructible_v<Thrown>,
                "an exception that may throw when copied ends the program");
}

static_assert(!std::is_base_of_v<std::exception, error>, "two bases of std::exception would make a catch miss");
static_assert(std::is_abstract_v<error>);

}  // namespace

TEST_CASE("each error is its one standard exception and a chunkmem error", "[core]")
{
  is_both<std::logic_error>(usage_error{"a pin was used twice"}, error_code::usage);
  is_both<std::invalid_argument>(config_error{"the capacity is 1 B"}, error_code::config);
  is_both<std::runtime_error>(device_error{"a copy failed"}, error_code::device);
  is_both<std::runtime_error>(io_error{"a file is short"}, error_code::io);
  is_both<std::logic_error>(internal_error{"a frame was lost"}, error_code::internal);
  is_both<std::runtime_error>(format_error{"line 3 of a profile"}, error_code::format);
  is_both<std::overflow_error>(size_overflow{"sum of bytes", 1, 2}, error_code::size_overflow);
  is_both<std::bad_alloc>(out_of_memory{{tier::host, 1, 2, 3, 4}}, error_code::out_of_memory);
}

TEST_CASE("a device error without a fault knows no number and asks for no new process", "[core]")
{
  const device_fault fault = device_error{"a copy failed"}.fault();
  CHECK(fault.number == 0);
  CHECK_FALSE(fault.is_sticky);
  CHECK(fault.call == 0);
}

TEST_CASE("each error has a number of its own that stays", "[core]")
{
  CHECK(static_cast<int>(error_code::out_of_memory) == 1);
  CHECK(static_cast<int>(error_code::usage) == 2);
  CHECK(static_cast<int>(error_code::size_overflow) == 3);
  CHECK(static_cast<int>(error_code::config) == 4);
  CHECK(static_cast<int>(error_code::device) == 5);
  CHECK(static_cast<int>(error_code::io) == 6);
  CHECK(static_cast<int>(error_code::internal) == 7);
  CHECK(static_cast<int>(error_code::format) == 8);
}

TEST_CASE("out_of_memory carries its numbers and says what to change", "[core]")
{
  try {
    throw out_of_memory{{tier::device, 4'096, 65'536, 61'440, 65'792}};
  } catch (const out_of_memory& refused) {
    CHECK(refused.shortage().where == tier::device);
    CHECK(refused.shortage().requested == 4'096);
    CHECK(refused.shortage().capacity == 65'536);
    CHECK(refused.shortage().pinned == 61'440);
    CHECK(refused.shortage().needed == 65'792);
    const std::string text = refused.what();
    CHECK_THAT(text, ContainsSubstring("device tier") && ContainsSubstring("4096 B") && ContainsSubstring("65536 B"));
    CHECK_THAT(text,
               ContainsSubstring("61440 B") && ContainsSubstring("65792 B") && ContainsSubstring("raise the capacity"));
  }
}

TEST_CASE("a copy of an error keeps its text when the original is gone", "[core]")
{
  std::exception_ptr kept;
  try {
    throw usage_error{error_text{} << "chunkmem: tensor " << 7 << " has no bytes"};
  } catch (const usage_error&) {
    kept = std::current_exception();
  }
  CHECK(support::refusal([&] { std::rethrow_exception(kept); }) == "chunkmem: tensor 7 has no bytes");
}

TEST_CASE("the longest numbers fit an error's sentence", "[core]")
{
  const out_of_memory refused{{tier::device, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};
  const std::string text = refused.what();
  CHECK(text.back() == ')');
}

TEST_CASE("an error has details where somebody adds them, and its copies share them", "[core]")
{
  usage_error first{"a pin was used twice"};
  CHECK(first.details().empty());
  first.add_details("");
  CHECK(first.details().empty());
  const std::string long_text(10'000, 'x');
  first.add_details(long_text.c_str());
  CHECK(first.details() == long_text);
  first.add_details("a handler further from the cause");
  CHECK(first.details() == long_text);
  const usage_error copy{first};
  CHECK(static_cast<const void*>(copy.details().data()) == static_cast<const void*>(first.details().data()));
  first = usage_error{"another one"};
  CHECK(first.details().empty());
  CHECK(copy.details() == long_text);
  try {
    try {
      throw out_of_memory{{tier::host, 1, 2, 3, 4}};
    } catch (error& passing) {
      passing.add_details("where everything lies");
      throw;
    }
  } catch (const out_of_memory& caught) {
    CHECK(caught.details() == "where everything lies");
    CHECK(caught.shortage().requested == 1);
  }
}

}  // namespace error_test

namespace expects_test {

using namespace chunkmem;

namespace {

constexpr int half_of(int even)
{
  expects(even % 2 == 0, "only even numbers have a half");
  return even / 2;
}
static_assert(half_of(6) == 3, "a precondition that holds costs nothing when compiled");

}  // namespace

TEST_CASE("a broken precondition is a usage_error with its text alone", "[core]")
{
  CHECK(support::refusal<usage_error>([&] { expects(false, "the window is empty (give it a frame)"); }) ==
        "chunkmem: the window is empty (give it a frame)");
}

TEST_CASE("a precondition that holds does nothing", "[core]")
{
  CHECK_NOTHROW(expects(true, "never seen"));
  CHECK_THROWS_AS(half_of(3), usage_error);
}

}  // namespace expects_test
