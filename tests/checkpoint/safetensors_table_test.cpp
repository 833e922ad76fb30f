// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/safetensors_table.hpp>

#include <support/catch.hpp>
#include <support/count_allocations.hpp>
#include <support/oracles/dice.hpp>
#include <support/refusal.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace safetensors_table_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using checkpoint::loader_limits;
using checkpoint::read_table;
using checkpoint::stored_tensor;
using checkpoint::write_table;

namespace {

using table = std::vector<stored_tensor>;

/// Letters of one to four bytes, and what JSON has to escape.
std::string random_name(support::dice& dice, std::size_t number)
{
  const std::string letters[] = {"a",
                                 "/",
                                 ".",
                                 " ",
                                 "\"",
                                 "\\",
                                 "\n",
                                 std::string(1, '\0'),
                                 "\x7f",
                                 "\xc3\xa9",
                                 "\xe2\x82\xac",
                                 "\xf0\x9f\x98\x80"};
  std::string name = std::to_string(number);
  for (std::uint32_t size = dice.below(10); size > 0; --size) name += letters[dice.below(12)];
  return name;
}

table random_table(std::uint64_t seed)
{
  support::dice dice{seed};
  table made;
  std::uint64_t end = 0;
  for (std::uint32_t count = dice.below(6); made.size() < count;) {
    stored_tensor it{random_name(dice, made.size()), static_cast<dtype>(dice.below(6)), {}, end, end};
    for (std::uint32_t rank = dice.below(5); rank > 0; --rank)
      it.extents.push_back(dice.one_in(8) ? 0 : dice.between(1, 300));
    end = it.end += checkpoint::size_of_tensor(it.type, it.extents).count();
    made.push_back(it);
  }
  return made;
}

std::uint64_t payload_of(const table& of)
{
  return of.empty() ? 0 : of.back().end;
}

/// Without the eight bytes of its length.
std::string header_of(const table& of)
{
  return write_table(of).substr(8);
}

std::string refusal(const std::string& header, std::uint64_t payload = 4, const loader_limits& limits = {})
{
  return support::refusal<format_error>([&] { (void)read_table(header, payload, limits); });
}

/// One tensor of four bytes, with other members.
std::string with(const std::string& members)
{
  return R"({"a":{)" + members + "}}";
}

/// Reads an arbitrary text. An accepted text is a table that the format allows. @return   it was accepted
bool survives(const std::string& header, std::uint64_t payload)
{
  table found;
  try {
    found = read_table(header, payload);
  } catch (const format_error&) {
    return false;
  }
  std::uint64_t end = 0;
  std::set<std::string> names;
  for (const stored_tensor& it : found) {
    REQUIRE(it.begin == end);
    const std::uint64_t bits = it.foreign != nullptr ? it.foreign->bits : 8 * size_of(it.type);
    REQUIRE(it.size() * 8 == checkpoint::elements_of(it.extents) * bits);
    REQUIRE(names.insert(it.name).second);
    end = it.end;
  }
  REQUIRE(end == payload);
  return true;
}

const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";

}  // namespace

TEST_CASE("the begin of a file is written byte by byte as the format says", "[checkpoint]")
{
  const std::string json = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                           R"("b \"\u0007":{"dtype":"I64","shape":[],"data_offsets":[24,32]}})";
  const std::string text = write_table({{"a", dtype::float32, {2, 3}, 0, 24}, {"b \"\a", dtype::int64, {}, 24, 32}});
  CHECK(text == std::string("\xf8\0\0\0\0\0\0\0", 8) + json + std::string(256 - 8 - json.size(), ' '));
  CHECK(write_table({}) == std::string("\xf8\0\0\0\0\0\0\0", 8) + "{}" + std::string(246, ' '));
}

TEST_CASE("a table reads as it was written, and tensors begin at a multiple of 256", "[checkpoint]")
{
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    const table made = random_table(seed);
    const std::string text = write_table(made);
    REQUIRE(text.size() % 256 == 0);
    std::uint64_t length = 0;
    for (unsigned byte = 8; byte-- > 0;) length = length << 8 | static_cast<unsigned char>(text[byte]);
    REQUIRE(length == text.size() - 8);
    REQUIRE(read_table(text.substr(8), payload_of(made)) == made);
  }
  table many;
  for (std::uint64_t index = 0; index < 5'000; ++index)
    many.push_back({"layer." + std::to_string(index), dtype::uint8, {3}, index * 3, index * 3 + 3});
  CHECK(write_table(many).size() % 256 == 0);
  CHECK(read_table(header_of(many), payload_of(many)) == many);
}

TEST_CASE("a table of another program is read: any order, spaces, metadata and escapes", "[checkpoint]")
{
  const table found = read_table(R"({ "__metadata__" : {"format":"pt", "a\u0000":""},
    "z\u00e9" : {"data_offsets":[0,2],"shape":[1, 1],"dtype":"BF16"},
    "b" : {"shape":[],"dtype":"U8","data_offsets":[6,7]}, "a":{"dtype":"I32","shape":[1],"data_offsets":[2,6]} }   )",
                                 7);
  CHECK(found == table{{"z\xc3\xa9", dtype::bfloat16, {1, 1}, 0, 2},
                       {"a", dtype::int32, {1}, 2, 6},
                       {"b", dtype::uint8, {}, 6, 7}});
  CHECK(read_table("{}", 0).empty());
  CHECK(read_table(R"({"__metadata__":{}})", 0).empty());
  CHECK(read_table(with(good), 4).size() == 1);
}

TEST_CASE("a header that is no object of JSON is refused", "[checkpoint]")
{
  CHECK_THAT(refusal(""), ContainsSubstring("it does not begin with {"));
  for (const char* const other : {" []", "[]", "1", "\xef\xbb\xbf{}", "null", "\"a\"", "/**/{}"})
    CHECK_THAT(refusal(other, 0), ContainsSubstring("it does not begin with {"));
  for (const char* const broken : {"{", "{}}", "{} x", "{}{}", "{\"a\"", "{\"a\":}", "{,}", "{'a':1}", "{/**/}",
                                   "{a:1}", "{\"a\" {}}", "{\"\\x\":{}}", "{\"\\ud800\":{}}", "{\"\n\":{}}"})
    CHECK_THAT(refusal(broken, 0), ContainsSubstring("it is not JSON"));
  // The parser would take a byte 0 for the end of the text: what is behind it would go unread.
  CHECK_THAT(refusal(std::string("{}\0{\"a\"", 7), 0), ContainsSubstring("there is a byte 0"));
  CHECK_THAT(refusal(with(good) + std::string(3, '\0')), ContainsSubstring("there is a byte 0"));
  for (const char* const name : {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\x80"})
    CHECK_THAT(refusal("{\"" + std::string{name} + "\":{" + good + "}}"), ContainsSubstring("it is not JSON"));
}

TEST_CASE("members that the format does not know are passed over, as deep as the reference goes", "[checkpoint]")
{
  const table plain = read_table(with(good), 4);
  const auto deep = [](std::size_t depth) { return std::string(depth, '[') + "1" + std::string(depth, ']'); };
  for (const std::string& more : {std::string{"[1]"}, std::string{R"({"dtype":"U8","b":[{"shape":null}]})"},
                                  std::string{"null"}, std::string{"true"}, std::string{"-0"}, std::string{"-1.5e3"},
                                  std::string{"99999999999999999999"}, std::string{R"("x")"}, deep(125)}) {
    INFO(more);
    CHECK(read_table(with(R"("x":)" + more + "," + good), 4) == plain);
    CHECK(read_table(with(good + R"(,"":)" + more + R"(,"x":)" + more), 4) == plain);
  }
  for (const std::string& more :
       {std::string{"1e999"}, std::string{"01"}, std::string{R"("\ud800")"}, std::string{"[1"}})
    CHECK_THAT(refusal(with(good + R"(,"x":)" + more)), ContainsSubstring("it is not JSON"));
  CHECK_THAT(refusal(with(good + R"(,"x":)" + deep(126))), ContainsSubstring("a member is nested too deeply"));
  CHECK(read_table(R"({"__metadata__":null,"a":{)" + good + "}}", 4) == plain);
}

TEST_CASE("an element type that this library lacks is named, with the size of its elements", "[checkpoint]")
{
  for (const auto& it : checkpoint::detail::foreign_types) {
    INFO(it.name);
    const auto of = [&](std::uint64_t elements, std::uint64_t size) {
      return with(R"("dtype":")" + std::string{it.name} + R"(","shape":[)" + std::to_string(elements) +
                  R"(],"data_offsets":[0,)" + std::to_string(size) + "]");
    };
    const table found = read_table(of(8, it.bits), it.bits);
    CHECK((found.size() == 1 && found[0].foreign != nullptr && found[0].foreign->name == it.name));
    CHECK(read_table(header_of(found), it.bits) == found);
    CHECK(stored_name_of(found[0].type, found[0].foreign) == it.name);
    CHECK_THAT(refusal(of(9, it.bits), it.bits),
               ContainsSubstring("of " + std::string{it.name} + ": it has another size"));
  }
  CHECK_THAT(refusal(with(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2), ContainsSubstring("another size"));
}

TEST_CASE("a header whose members are not those of the format is refused", "[checkpoint]")
{
  CHECK_THAT(refusal(with("")), ContainsSubstring("tensor a: it lacks dtype, shape or data_offsets"));
  CHECK_THAT(refusal(with(R"("dtype":"F32","shape":[1])")), ContainsSubstring("it lacks"));
  for (const char* const again : {R"(,"dtype":"F32")", R"(,"shape":[1])", R"(,"data_offsets":[0,4])"})
    CHECK_THAT(refusal(with(good + again)), ContainsSubstring("tensor a: a member is there twice"));
  CHECK_THAT(refusal("{\"a\":{" + good + "},\"a\":{" + R"("dtype":"U8","shape":[1],"data_offsets":[4,5])" + "}}", 5),
             ContainsSubstring("tensor a: two tensors have this name"));
  CHECK_THAT(
      refusal("{\"a\":{" + good + "},\"\\u0061\":{" + R"("dtype":"U8","shape":[1],"data_offsets":[4,5])" + "}}", 5),
      ContainsSubstring("tensor a: two tensors have this name"));
  CHECK_THAT(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), ContainsSubstring("there are two __metadata__"));
  CHECK_THAT(refusal(R"({"__metadata__":{"a":"1"},"\u005f_metadata__":{}})", 0),
             ContainsSubstring("there are two __metadata__"));
}

TEST_CASE("a value of another kind is refused wherever it lies", "[checkpoint]")
{
  for (const char* const value : {"1", "\"x\"", "[1]", "{}", "{\"b\":{}}", "null", "true", "-1", "1.5", "-0", "1e3",
                                  "1e999", "18446744073709551616"}) {
    const std::string text{value};
    INFO(text);
    CHECK_THAT(refusal("{\"a\":" + text + "}", 0), ContainsSubstring("cannot be used"));
    if (text != "\"x\"")
      CHECK_THAT(refusal("{\"__metadata__\":{\"a\":" + text + "}}", 0), ContainsSubstring("cannot be used"));
    if (text[0] != '{' && text != "null")
      CHECK_THAT(refusal("{\"__metadata__\":" + text + "}", 0), ContainsSubstring("cannot be used"));
    CHECK_THAT(refusal(with(R"("shape":[1],"data_offsets":[0,4],"dtype":)" + text)),
               ContainsSubstring("cannot be used"));
    if (text != "[1]")
      CHECK_THAT(refusal(with(R"("dtype":"F32","data_offsets":[0,4],"shape":)" + text)),
                 ContainsSubstring("cannot be used"));
    CHECK_THAT(refusal(with(R"("dtype":"F32","shape":[1],"data_offsets":)" + text)),
               ContainsSubstring("cannot be used"));
    CHECK_THAT(refusal(with(R"("dtype":"F32","shape":[1],"data_offsets":[0,)" + text + "]")),
               text == "1" ? ContainsSubstring("another size") : ContainsSubstring("cannot be used"));
    if (text != "1")
      CHECK_THAT(refusal(with(R"("dtype":"F32","data_offsets":[0,4],"shape":[)" + text + "]")),
                 ContainsSubstring("cannot be used"));
  }
  for (const char* const type : {"F128", "f32", "", "F32 ", "bool", "F8", "F32\\u0000"})
    CHECK_THAT(refusal(with(R"("shape":[1],"data_offsets":[0,4],"dtype":")" + std::string{type} + "\"")),
               ContainsSubstring("tensor a: safetensors has no element type"));
  CHECK_THAT(refusal(with(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])")),
             ContainsSubstring("a number is negative"));
  CHECK_THAT(refusal(with(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])")),
             ContainsSubstring("a number is no integer"));
}

TEST_CASE("tensors that overlap, leave a hole or lie outside are refused", "[checkpoint]")
{
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  CHECK(survives(two("[0,4]", "[4,8]"), 8));
  CHECK(survives(two("[4,8]", "[0,4]"), 8));
  for (const char* const second : {"[0,4]", "[3,7]", "[5,9]", "[2,6]", "[0,8]"})
    CHECK_THAT(refusal(two("[0,4]", second), 8), ContainsSubstring("cannot be used"));
  CHECK_THAT(refusal(two("[0,4]", "[3,7]"), 7),
             ContainsSubstring("of U8: it overlaps another tensor, or leaves a hole"));
  CHECK_THAT(refusal(two("[0,4]", "[5,9]"), 9),
             ContainsSubstring("of U8: it overlaps another tensor, or leaves a hole"));
  CHECK_THAT(refusal(two("[1,5]", "[5,9]"), 9),
             ContainsSubstring("of U8: it overlaps another tensor, or leaves a hole"));
  CHECK_THAT(refusal(two("[0,4]", "[4,8]"), 7), ContainsSubstring("tensor b of U8: it lies outside of the file"));
  CHECK_THAT(refusal(two("[0,4]", "[4,8]"), 9), ContainsSubstring("the file goes on after its last tensor"));
  CHECK_THAT(refusal(two("[0,4]", "[4,0]"), 8), ContainsSubstring("tensor b of U8: it lies outside of the file"));
  CHECK_THAT(refusal("{}", 1), ContainsSubstring("the file goes on after its last tensor"));
  for (const char* const offsets : {"[]", "[0]", "[0,4,8]"})
    CHECK_THAT(refusal(with(R"("dtype":"F32","shape":[1],"data_offsets":)" + std::string{offsets})),
               ContainsSubstring("cannot be used"));
}

TEST_CASE("a shape whose product is another number, or no number of 64 bits, is refused", "[checkpoint]")
{
  const auto of_shape = [](const std::string& shape) {
    return with(R"("dtype":"F32","data_offsets":[0,4],"shape":)" + shape);
  };
  CHECK(survives(of_shape("[1]"), 4));
  CHECK(survives(of_shape("[]"), 4));
  CHECK(survives(of_shape("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"), 4));
  for (const char* const shape :
       {"[2]", "[0]", "[1,0]", "[4]", "[4611686018427387905]", "[4294967296,4294967296]", "[2147483649,2147483648,2]",
        "[18446744073709551615]", "[18446744073709551615,18446744073709551615]", "[9223372036854775808,0]",
        "[6148914691236517206,3]"})
    CHECK_THAT(refusal(of_shape(shape)), ContainsSubstring("tensor a of F32: it has another size than its shape says"));
  for (unsigned bits = 8; bits <= 64; ++bits) {  // around every power of two, wherever a number can stand
    const std::uint64_t power = bits == 64 ? 0 : std::uint64_t{1} << bits;
    for (const std::uint64_t number : {power - 1, power, power + 1}) {
      const std::string digits = std::to_string(number);
      const std::string eight = std::to_string(number * 8);  // wraps around where it can
      CHECK(survives(with(R"("dtype":"U8","data_offsets":[0,)" + digits + R"(],"shape":[)" + digits + "]"), number));
      CHECK(survives(of_shape("[" + digits + "]"), 4) == (number == 1));
      CHECK(survives(with(R"("dtype":"F32","shape":[1],"data_offsets":[)" + digits + ",4]"), 4) == (number == 0));
      CHECK(survives(with(R"("dtype":"I64","shape":[)" + digits + R"(],"data_offsets":[0,)" + eight + "]"),
                     number * 8) == (number <= UINT64_MAX / 8));
    }
  }
}

TEST_CASE("nothing of a hostile header goes deep, and the limits hold", "[checkpoint]")
{
  const auto nested = [](char open) { return R"({"a":{"shape":)" + std::string(1'000'000, open); };
  CHECK_THAT(refusal(nested('[')), ContainsSubstring("an array is where none belongs"));
  CHECK_THAT(refusal(nested('{')), ContainsSubstring("an object is where none belongs"));
  CHECK_THAT(refusal(R"({"__metadata__":{"a":)" + std::string(1'000'000, '[')),
             ContainsSubstring("an array is where none belongs"));
  std::string objects;
  for (int depth = 0; depth < 100'000; ++depth) objects += R"({"a":)";
  CHECK_THAT(refusal(objects), ContainsSubstring("cannot be used"));
  const auto digits = [](std::size_t count) {
    return with(R"("dtype":"F32","data_offsets":[0,4],"shape":[)" + std::string(count, '9') + "]");
  };
  CHECK_THAT(refusal(digits(20)), ContainsSubstring("a number is no integer, or needs more than 64 bits"));
  CHECK_THAT(refusal(digits(300)), ContainsSubstring("a number is no integer, or needs more than 64 bits"));
  CHECK_THAT(refusal(digits(1'000'000)), ContainsSubstring("cannot be used"));

  const table two{{"abc", dtype::uint8, {1, 1, 1}, 0, 1}, {"d", dtype::uint8, {1}, 1, 2}};
  const std::string header = header_of(two);
  CHECK(read_table(header, 2, {.header = bytes{header.size()}, .tensors = 2, .rank = 3, .name_length = 3}) == two);
  CHECK_THAT(refusal(header, 2, {.header = bytes{header.size() - 1}}),
             ContainsSubstring("it is longer than the limit"));
  CHECK_THAT(refusal(header, 2, {.tensors = 1}), ContainsSubstring("there are too many tensors"));
  CHECK_THAT(refusal(header, 2, {.rank = 2}), ContainsSubstring("it has too many extents"));
  CHECK_THAT(refusal(header, 2, {.name_length = 2}), ContainsSubstring("a name is too long"));
  CHECK(read_table(R"({"__metadata__":{"a":")" + std::string(100'000, 'x') + "\"}}", 0, {.tensors = 0}).empty());
}

TEST_CASE("a name that no loader would take is not written", "[checkpoint]")
{
  const auto named = [](const std::string& name) { return table{{name, dtype::uint8, {1}, 0, 1}}; };
  CHECK_THROWS_AS(write_table(named("__metadata__")), config_error);
  CHECK_THROWS_AS(write_table(named(std::string(4097, 'n'))), config_error);
  for (const char* const name : {"\xff", "\xc3", "a\x80", "\xed\xa0\x80"})
    CHECK_THROWS_AS(write_table(named(name)), config_error);
  for (const std::string& name :
       {std::string{}, std::string(4096, '\n'), std::string{"__metadata"}, std::string(3, '\0')})
    CHECK(read_table(header_of(named(name)), 1) == named(name));
}

TEST_CASE("a header that was cut short or changed is refused or read as another table, and nothing else happens",
          "[checkpoint]")
{
  const table made{{"wte", dtype::bfloat16, {3, 2}, 0, 12},
                   {"h.0/bias \xc3\xa9", dtype::float32, {5}, 12, 32},
                   {"none", dtype::int64, {0, 7}, 32, 32}};
  std::string header = header_of(made);
  header.erase(header.find_last_not_of(' ') + 3);
  for (std::size_t size = 0; size < header.size(); ++size)
    if (survives(header.substr(0, size), 32) != (size > header.size() - 3)) FAIL("cut to " << size);
  support::dice dice{11};
  for (std::size_t index = 0; index < header.size(); ++index)
    for (int times = 0; times < 24; ++times) {
      std::string changed = header;
      changed[index] =
          times < 8 ? static_cast<char>(changed[index] ^ (1 << times)) : static_cast<char>(dice.below(256));
      (void)survives(changed, 32);
    }
  const std::string tokens[] = {"{",
                                "}",
                                "[",
                                "]",
                                ",",
                                ":",
                                "\"",
                                "\\",
                                "0",
                                "18446744073709551615",
                                "-",
                                "e9",
                                "null",
                                "\"dtype\":",
                                "\"shape\":[1],",
                                std::string(1, '\0'),
                                "\xff"};
  for (std::uint64_t seed = 1; seed <= 3'000; ++seed) {
    support::dice chance{seed};
    std::string changed = header;
    for (std::uint32_t times = chance.between(1, 4); times > 0; --times) {
      const std::size_t index = chance.below(static_cast<std::uint32_t>(changed.size()));
      if (chance.one_in(2))
        changed.replace(index, chance.below(4), tokens[chance.below(17)]);
      else
        changed.insert(index,
                       header.substr(chance.below(static_cast<std::uint32_t>(header.size())), chance.between(1, 40)));
    }
    INFO("seed " << seed);
    (void)survives(changed, 32);
  }
}

namespace {

/// As many as fit into that many bytes, one after the other, and the end of an object.
template <class Entry>
std::string repeated(std::size_t size, Entry entry)
{
  std::string text = "{";
  for (std::uint64_t index = 0; text.size() < size; ++index) text += (index == 0 ? "" : ",") + entry(index);
  return text + "}";
}

/// Headers that ask a parser for much more memory than they are long.
std::vector<std::pair<const char*, std::string>> greedy_headers(std::size_t size)
{
  const auto named = [](const std::string& name, const std::string& extents) {
    return '"' + name + R"(":{"dtype":"U8","shape":[)" + extents + R"(],"data_offsets":[0,0]})";
  };
  const auto ranks = [&](std::size_t rank) {
    std::string zeros = "0";
    while (zeros.size() < 2 * rank - 1) zeros += ",0";
    return [=](std::uint64_t index) { return named(std::to_string(index), zeros); };
  };
  std::vector<std::pair<const char*, std::string>> all;
  all.emplace_back("short entries", repeated(size, ranks(1)));
  all.emplace_back("extents up to a power of two and one more", repeated(size, ranks(9)));
  all.emplace_back("as many extents as may be", repeated(size, ranks(32)));
  all.emplace_back("names just longer than a string has room for",
                   repeated(size, [&](auto at) { return named(std::string(12, 'n') + std::to_string(at), "0"); }));
  all.emplace_back("names just longer than a power of two",
                   repeated(size, [&](auto at) { return named(std::to_string(at) + std::string(2'045, 'n'), "0"); }));
  all.emplace_back("from the last to the first", repeated(size, [](auto at) {
                     const std::string end = std::to_string(999'999 - at);
                     return '"' + end + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" +
                            std::to_string(999'998 - at) + ',' + end + "]}";
                   }));
  all.emplace_back("opening braces", std::string(size, '{'));
  all.emplace_back("one name", R"({")" + std::string(size, 'n') + R"(":{}})");
  all.emplace_back("one text", R"({"__metadata__":{"a":")" + std::string(size, 'n') + R"("}})");
  all.emplace_back("one text without an end", R"({"__metadata__":{"a":")" + std::string(size, 'n'));
  all.emplace_back("one number", R"({"a":{"shape":[)" + std::string(size, '9') + "]}}");
  all.emplace_back("spaces, and then no JSON", "{" + std::string(size, ' ') + "x");
  all.emplace_back("ends of lines, and then no JSON", "{" + std::string(size, '\n') + "x");
  all.emplace_back("ends of lines before every member", R"({"a":{"dtype":"U8","shape":[0])" +
                                                            std::string(size / 2, '\n') + R"(,"data_offsets":)" +
                                                            std::string(size / 2, '\n') + "[0,0]}}");
  all.emplace_back("ends of lines behind all", "{}" + std::string(size, '\n'));
  all.emplace_back("whole entries, and then braces",
                   repeated(size - size / 100, ranks(32)) + std::string(size / 50, '{'));
  all.emplace_back("many texts", R"({"__metadata__":)" + repeated(size, [](auto at) {
                                   return '"' + std::to_string(at) + R"(":"")";
                                 }) + "}");
  return all;
}

void check_memory(std::size_t size, const loader_limits& limits, std::int64_t constant)
{
  auto all = greedy_headers(size);
  for (const char* const text : {R"({"__metadata__":{"a":")", R"({")"})
    all.emplace_back("a text as long as may be, that does not end",
                     text + std::string(std::size_t{6} * limits.name_length, 'n'));
  for (auto& [what, header] : all) {
    const std::int64_t room = static_cast<std::int64_t>(3 * header.size()) + constant;  // beside the header itself
    const std::int64_t taken = support::most_bytes_of([&, text = &header] { (void)refusal(*text, 0, limits); });
    INFO(what << ": " << taken / 1024 << " KiB for " << header.size() / 1024 << " KiB");
    CHECK(taken <= room);
  }
}

}  // namespace

TEST_CASE("reading a header takes four times its bytes at most, and what one text may take", "[checkpoint]")
{
  if (!support::counts_allocations) SKIP("allocations are not counted here");
  check_memory(std::size_t{4} << 20, {}, 1 << 20);
}

TEST_CASE("so it is with the largest header, and 16 MiB", "[checkpoint][.slow]")
{
  if (!support::counts_allocations) SKIP("allocations are not counted here");
  check_memory(100'000'000 - 100'000, {}, 16 << 20);
}

TEST_CASE("long texts and gaps are taken as a parser takes them, and a long number is refused", "[checkpoint]")
{
  const auto metadata = [](const std::string& end) {
    return R"({"__metadata__":{"a":")" + std::string(200'000, 'x') + end + "\"}}";
  };
  for (const char* const taken :
       {"", "\xc3\xa9", R"(\u0000)", R"(\\\/\b\"\f\n\r\t)", R"(\ud83d\ude00)", R"(\uDBFF\uDFFFx)"})
    CHECK(read_table(metadata(taken), 0).empty());
  for (const char* const refused : {"\xc3", "\x80", "\n", "\x01", R"(\x)", R"(\u12)", R"(\u12g4)", R"(\ud83d)",
                                    R"(\ud83d\u0041)", R"(\ude00)", R"(\ud83dx)", R"(\u+123)"}) {
    CHECK_THAT(refusal(metadata(refused), 0), ContainsSubstring("it is not JSON"));
    CHECK_THAT(refusal(metadata(refused + std::string(50'000, 'y')), 0), ContainsSubstring("it is not JSON"));
  }
  CHECK_THAT(refusal(R"({"__metadata__":{"a":")" + std::string(200'000, 'x'), 0), ContainsSubstring("it is not JSON"));
  CHECK_THAT(refusal("{\"" + std::string(200'000, 'n') + "\":{" + good + "}}"),
             ContainsSubstring("a name is too long"));
  const std::string gap(10'000, '\n');
  const std::string spread = gap + "{" + gap + R"("a")" + gap + ":{" + gap + good + gap + "}" + gap + "}" + gap;
  CHECK(read_table(spread, 4) == read_table(with(good), 4));
  CHECK_THAT(refusal(with(R"("dtype":"F32","data_offsets":[0,4],"shape":[)" + std::string(4'097, '0') + "]")),
             ContainsSubstring("is too long"));
  // What is escaped ends no text.
  const std::string longer(5'000, 'x');
  CHECK(read_table(R"({"__metadata__":{"a\"":")" + longer + R"(","b\\":")" + longer + "\"}}", 0).empty());
}

}  // namespace safetensors_table_test
