// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>

#include <limits>
#include <string>

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
