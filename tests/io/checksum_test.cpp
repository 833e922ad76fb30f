// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/io/checksum.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace checksum_test {

using namespace chunkmem;

namespace {

std::uint64_t sum_of(std::string_view text)
{
  return io::checksum_of(std::as_bytes(std::span{text}));
}

std::string counting(std::size_t size)
{
  std::string text;
  for (std::size_t index = 0; index < size; ++index) text += static_cast<char>(index % 251);
  return text;
}

}  // namespace

TEST_CASE("a checksum is XXH3 with 64 bits: files of other programs have the same ones", "[io]")
{
  // Of the Python package xxhash 3: every branch of the function, by length.
  CHECK(sum_of("") == 0x2d06800538d394c2);
  CHECK(sum_of("a") == 0xe6c632b61e964e1f);
  CHECK(sum_of("abc") == 0x78af5f94892f3950);
  CHECK(sum_of("chunkmem") == 0x58c9026bfdf5df06);
  CHECK(sum_of(std::string(17, '\0')) == 0xc2915ca0df7ad4c1);
  CHECK(sum_of("The quick brown fox jumps over the lazy dog") == 0xce7d19a5418fb365);
  CHECK(sum_of(counting(1'000)) == 0x33ef703fb2b20ed1);
  CHECK(sum_of(counting(100'000)) == 0x42c23aeead96750d);
}

TEST_CASE("a checksum of pieces is that of the whole", "[io]")
{
  const std::string text = counting(700);
  const auto content = std::as_bytes(std::span{text});
  for (std::size_t size = 0; size <= 300; size += size < 40 ? 1 : 13)
    for (std::size_t cut = 0; cut <= size; ++cut) {
      io::checksum sum;
      sum.add(content.first(cut));
      sum.add(content.subspan(cut, size - cut));
      if (sum.value() != io::checksum_of(content.first(size))) FAIL("of " << size << " bytes cut at " << cut);
    }
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    support::dice dice{seed};
    io::checksum sum;
    for (std::size_t index = 0; index < content.size();) {
      const std::size_t part = std::min<std::size_t>(content.size() - index, dice.below(300));
      sum.add(content.subspan(index, part));
      index += part;
      CHECK(sum.value() == io::checksum_of(content.first(index)));  // asking changes nothing
    }
    INFO("seed " << seed);
    REQUIRE(sum.value() == io::checksum_of(content));
  }
}

TEST_CASE("a checksum sees every flipped bit and every lost byte", "[io]")
{
  std::string text = counting(300);
  const std::uint64_t whole = sum_of(text);
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    if (sum_of(text) == whole) FAIL("bit " << bit);
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  }
  for (std::size_t size = 0; size < text.size(); ++size) CHECK(sum_of(std::string_view{text}.substr(0, size)) != whole);
}

}  // namespace checksum_test
