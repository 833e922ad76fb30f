// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/manifest.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/refusal.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace manifest_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using checkpoint::manifest;
using checkpoint::read_manifest;
using checkpoint::write_manifest;

namespace {

std::string random_name(support::dice& dice)
{
  std::string name;
  for (std::uint32_t size = dice.below(12); size > 0; --size)
    name += dice.one_in(3) ? " %\n\t\x7f\0z"[dice.below(7)] : static_cast<char>(dice.below(256));
  return name;
}

manifest random_manifest(std::uint64_t seed)
{
  support::dice dice{seed};
  const auto number = [&] {
    return dice.one_in(4) ? UINT64_MAX : std::uint64_t{dice.below(UINT32_MAX)} << dice.below(32);
  };
  manifest made;
  made.generation = number();
  for (std::uint32_t count = dice.below(4); count > 0; --count) {
    made.files.push_back({random_name(dice), number(), number(), {}});
    for (std::uint32_t sums = dice.below(4); sums > 0; --sums) made.files.back().sums.push_back(number());
  }
  for (std::uint32_t count = dice.below(4); count > 0; --count)
    made.lists.push_back({random_name(dice), dice.below(UINT32_MAX)});
  for (std::uint32_t count = dice.below(4); count > 0; --count) made.empty.push_back(random_name(dice));
  for (std::uint32_t count = dice.below(4); count > 0; --count) {
    made.divided.push_back({random_name(dice), {}});
    for (std::uint32_t rank = dice.below(4); rank > 0; --rank) made.divided.back().extents.push_back(number());
  }
  made.run = number();
  if (dice.one_in(2)) {
    const std::uint32_t count = 1 + dice.below(70);
    made.stage = {dice.below(count), count, number()};
  }
  return made;
}

manifest small_manifest()
{
  return {7,
          {{"generation-000007-00000.safetensors", 4096, 80, {0x0123456789abcdef, 1}}},
          {{"adam/momentum", 2}},
          {"not yet", "100 %"},
          {{"wte", {8, 16}}},
          0xabc};
}

/// With a checksum that is right.
std::string with_checksum(const std::string& body)
{
  return body + "checksum " + checkpoint::detail::as_digits(io::checksum_of(std::as_bytes(std::span{body}))) + '\n';
}

/// The reason why a text with a right checksum is refused.
std::string refusal(const std::string& lines,
                    const std::string& begin = "chunkmem checkpoint 2\ngeneration 7\nrun 0000000000000abc\n")
{
  return support::refusal<format_error>([&] { (void)read_manifest(with_checksum(begin + lines)); });
}

enum class verdict { same, other, refused };

/// Reads an arbitrary text, which may throw nothing but the two errors.
verdict read_anything(const std::string& text, const manifest& written)
{
  try {
    return read_manifest(text) == written ? verdict::same : verdict::other;
  } catch (const corrupt_data&) {
  } catch (const format_error&) {
  }
  return verdict::refused;
}

}  // namespace

TEST_CASE("a manifest can be read by people", "[checkpoint]")
{
  CHECK(write_manifest(small_manifest()) == with_checksum("chunkmem checkpoint 2\n"
                                                          "generation 7\n"
                                                          "run 0000000000000abc\n"
                                                          "file generation-000007-00000.safetensors 4096 80\n"
                                                          "sum 0123456789abcdef\n"
                                                          "sum 0000000000000001\n"
                                                          "list adam/momentum 2\n"
                                                          "empty not%20yet\n"
                                                          "empty 100%20%25\n"
                                                          "divided wte 8 16\n"));
  CHECK(read_manifest(write_manifest(small_manifest())) == small_manifest());
}

TEST_CASE("a manifest reads as it was written, with any names and numbers", "[checkpoint]")
{
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    const manifest made = random_manifest(seed);
    REQUIRE(read_manifest(write_manifest(made)) == made);
  }
  for (int code = 0; code < 256; ++code) {
    manifest made;
    made.empty = {std::string(1, static_cast<char>(code)), std::string(3, static_cast<char>(code))};
    made.lists = {{"before" + made.empty[0] + "behind", 1}};
    INFO("character " << code);
    REQUIRE(read_manifest(write_manifest(made)) == made);
  }
}

TEST_CASE("every flipped bit of a manifest is found", "[checkpoint]")
{
  std::string text = write_manifest(small_manifest());
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    if (read_anything(text, small_manifest()) != verdict::refused) FAIL("bit " << bit);
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  }
  CHECK(read_anything(text, small_manifest()) == verdict::same);
  text[30] = '8';
  CHECK_THROWS_AS(read_manifest(text), corrupt_data);
  CHECK_THROWS_WITH(read_manifest(text), ContainsSubstring("its checksum is another one"));
}

TEST_CASE("a manifest that was cut short, or goes on, is found", "[checkpoint]")
{
  const std::string text = write_manifest(small_manifest());
  for (std::size_t size = 0; size < text.size(); ++size)
    if (read_anything(text.substr(0, size), small_manifest()) != verdict::refused) FAIL("cut to " << size);
  for (std::size_t begin = 1; begin < text.size(); ++begin)
    if (read_anything(text.substr(begin), small_manifest()) != verdict::refused) FAIL("without the first " << begin);
  for (const std::string& more : {std::string{"\n"}, std::string{" "}, std::string(1, '\0'), text})
    CHECK(read_anything(text + more, small_manifest()) == verdict::refused);
  CHECK(read_anything(std::string(text.size(), '\0'), small_manifest()) == verdict::refused);
}

TEST_CASE("a manifest with a right checksum and wrong words is refused with a reason", "[checkpoint]")
{
  CHECK_THAT(
      refusal("", ""),
      ContainsSubstring("line 1 of a manifest cannot be used: it does not begin like a checkpoint of version 2"));
  CHECK_THAT(refusal("", "chunkmem checkpoint 1\ngeneration 7\n"), ContainsSubstring("it does not begin like"));
  CHECK_THAT(refusal("", "chunkmem checkpoint 2"), ContainsSubstring("it does not begin like"));
  CHECK_THAT(refusal("", "chunkmem checkpoint 2\n"),
             ContainsSubstring("line 2 of a manifest cannot be used: another word is wanted"));
  CHECK_THAT(refusal("", "chunkmem checkpoint 2\ngeneration\n"), ContainsSubstring("a word is missing"));
  CHECK_THAT(refusal("", "chunkmem checkpoint 2\ngeneration x\n"),
             ContainsSubstring("a number is wanted, or a smaller one"));
  CHECK_THAT(refusal("", "chunkmem checkpoint 2\ngeneration -1\n"),
             ContainsSubstring("a number is wanted, or a smaller one"));
  CHECK_THAT(refusal("", "chunkmem checkpoint 2\ngeneration 18446744073709551616\n"),
             ContainsSubstring("a number is wanted"));

  const std::string of_stage = "chunkmem checkpoint 3\ngeneration 7\nrun 0000000000000abc\n";
  CHECK_THAT(refusal("stage 2 2 0000000000000abc\n", of_stage), ContainsSubstring("a stage that is not one of them"));
  CHECK_THAT(refusal("stage 1 2\n", of_stage), ContainsSubstring("a word is missing"));
  CHECK_THAT(refusal("", of_stage), ContainsSubstring("not written as this library writes it"));  // of version 2 then
  CHECK_THAT(refusal("stage 1 2 0000000000000abc\n"), ContainsSubstring("not written as this library writes it"));

  CHECK_THAT(refusal("file\n"), ContainsSubstring("line 4 of a manifest cannot be used: a word is missing"));
  CHECK_THAT(refusal("file a\n"), ContainsSubstring("a word is missing"));
  CHECK_THAT(refusal("file a 1\n"), ContainsSubstring("a word is missing"));
  CHECK_THAT(refusal("file a 1 g\n"), ContainsSubstring("a number is wanted, or a smaller one"));
  CHECK_THAT(refusal("file a 18446744073709551616 1\n"), ContainsSubstring("a number is wanted"));
  CHECK_THAT(refusal("file a 1 1 2\n"), ContainsSubstring("it goes on after its end"));
  CHECK_THAT(refusal("sum 0123456789abcdef\n"), ContainsSubstring("a checksum of no file"));
  CHECK_THAT(refusal("file a 1 1\nsum g\n"), ContainsSubstring("a number is wanted, or a smaller one"));
  CHECK_THAT(refusal("file a 1 1\nsum 00000000000000000\n"), ContainsSubstring("the text up to it"));
  CHECK_THAT(refusal("file a 1 1\nsum 0123456789abcdef 2\n"), ContainsSubstring("it goes on after its end"));
  CHECK_THAT(refusal("divided\n"), ContainsSubstring("a word is missing"));
  CHECK_THAT(refusal("divided a 1 x\n"), ContainsSubstring("a number is wanted"));
  CHECK_THAT(refusal("", "chunkmem checkpoint 2\ngeneration 7\nran 1\n"), ContainsSubstring("another word is wanted"));
  CHECK_THAT(refusal("list a 4294967296\n"), ContainsSubstring("a number is wanted"));
  CHECK_THAT(refusal("list a b\n"), ContainsSubstring("a number is wanted"));
  CHECK_THAT(refusal("empty a b\n"), ContainsSubstring("it goes on after its end"));
  CHECK_THAT(refusal("key value\n"), ContainsSubstring("it has an entry that this version does not know"));
  CHECK_THAT(refusal("\n"), ContainsSubstring("a word is missing"));
  CHECK_THAT(refusal("empty " + std::string(20'000, 'x') + "\n"), ContainsSubstring("longer than any line should be"));
}

TEST_CASE("a name in a manifest is written in one way only", "[checkpoint]")
{
  for (const char* const cut : {"empty %\n", "empty a%2\n", "empty %20%\n"})
    CHECK_THAT(refusal(cut), ContainsSubstring("a name ends in the middle of a character"));
  for (const char* const other : {"empty %41\n", "empty %0A\n", "empty a\tb\n", "empty a\x7f\n", "empty %ff\n"})
    CHECK_THAT(refusal(other), ContainsSubstring("a name is not written as this library writes it"));
  for (const char* const wrong : {"empty %zz\n", "empty %-1\n", "empty %+1\n", "empty %%%\n"})
    CHECK_THAT(refusal(wrong), ContainsSubstring("a number is wanted"));
}

TEST_CASE("a manifest that says the same in another way is refused: nothing in it goes unread", "[checkpoint]")
{
  const std::string hidden = "checksum 0000000000000000\nfile a 1 1\n";
  for (const std::string& lines :
       {std::string{"file a 01 1\n"}, std::string{"file a 1 1\nsum 0123456789ABCDEF\n"},
        std::string{"file a 1 1\nsum 1\n"}, std::string{"list a 02\n"}, std::string{"empty a\nlist a 1\n"},
        std::string{"divided a 02\n"}, std::string{"divided a\nempty a\n"}, std::string{"list a 1\nfile a 1 1\n"},
        hidden, std::string{"checksum x\nempty "}})
    CHECK_THAT(refusal(lines), ContainsSubstring("the text up to it is not written as this library writes it"));
  CHECK_THAT(refusal("", "chunkmem checkpoint 2\ngeneration 07\nrun 0000000000000001\n"),
             ContainsSubstring("the text up to it"));
  CHECK_THAT(refusal("", "chunkmem checkpoint 2\ngeneration 7 8\nrun 0000000000000001\n"),
             ContainsSubstring("the text up to it"));
}

TEST_CASE("a manifest is no longer than the limit", "[checkpoint]")
{
  const std::string text = write_manifest(small_manifest());
  CHECK_NOTHROW(read_manifest(text, {.manifest = bytes{text.size()}}));
  CHECK_THROWS_AS(read_manifest(text, {.manifest = bytes{text.size() - 1}}), format_error);
  manifest long_name;
  long_name.empty = {std::string(4096, ' ')};
  CHECK(read_manifest(write_manifest(long_name)) == long_name);
  CHECK_THROWS_AS(read_manifest(write_manifest(long_name), {.name_length = 3900}), format_error);
}

TEST_CASE("hostile manifests with right checksums do nothing but be refused or read", "[checkpoint]")
{
  const std::string whole = write_manifest(small_manifest());
  const std::string body = whole.substr(0, whole.size() - checkpoint::detail::sum_line);
  for (std::size_t index = 0; index < body.size(); ++index) {
    CHECK(read_anything(with_checksum(body.substr(0, index)), {}) != verdict::same);
    for (const char other : {' ', '\n', '%', '0', '\0', '\xff'}) {
      std::string changed = body;
      changed[index] = other;
      (void)read_anything(with_checksum(changed), {});
    }
  }
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
    support::dice dice{seed};
    std::string changed = body;
    for (std::uint32_t times = dice.between(1, 4); times > 0; --times) {
      const std::size_t index = dice.below(static_cast<std::uint32_t>(changed.size()));
      if (dice.one_in(3))
        changed.erase(index, dice.between(1, 20));
      else if (dice.one_in(2))
        changed.insert(index, body.substr(dice.below(static_cast<std::uint32_t>(body.size())), dice.between(1, 40)));
      else
        changed[index] = static_cast<char>(dice.below(256));
      if (changed.empty()) changed = body;
    }
    const std::string text = with_checksum(changed);
    try {
      if (write_manifest(read_manifest(text)) != text) FAIL("seed " << seed);
    } catch (const format_error&) {
    }
  }
}

}  // namespace manifest_test
