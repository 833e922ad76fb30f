// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/workload/json_fields.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/refusal.hpp>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace json_fields_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using workload::json_fields;
using workload::json_limits;

namespace {

/// The sentence, or a note that there was none.
std::string refusal(const std::string& text, const json_limits& limits = {})
{
  return support::refusal<format_error>([&] { json_fields{text, "a.json", limits}.finish(); });
}

std::string quoted(const std::string& text)
{
  return '"' + text + '"';
}

}  // namespace

TEST_CASE("fields are asked for by path, in any order, and each of its kind", "[workload]")
{
  json_fields fields{
      R"(  {"b": {"c": {"d": 1.5e3}, "e": "\u00e9\n"}, "a": 18446744073709551615, "f": true, "g": 0, "h": 7}
)",
      "a.json"};
  CHECK(fields.whole("a") == UINT64_MAX);
  CHECK(fields.truth("f"));
  CHECK(fields.text("b.e") == "\xc3\xa9\n");
  CHECK(fields.number("b.c.d") == 1500);
  CHECK(fields.number("g") == 0);
  CHECK_THROWS_WITH(fields.finish(), ContainsSubstring("key \"h\" is not known"));
  CHECK(fields.whole("h", 7) == 7);
  CHECK_NOTHROW(fields.finish());
  CHECK(fields.file() == "a.json");
}

TEST_CASE("what is asked for and not there, or of another kind, is refused with its path", "[workload]")
{
  json_fields fields{R"({"o": {"whole": 3, "half": 0.5, "minus": -3, "minus_half": -0.5, "yes": true, )"
                     R"("text": "x", "none": "", "big": 1e30}})",
                     "a.json"};
  CHECK_THROWS_WITH(fields.whole("o.gone"),
                    ContainsSubstring("a.json cannot be used: key \"o.gone\" is missing (give it a whole number)"));
  CHECK_THROWS_WITH(fields.number("o"), ContainsSubstring("key \"o\" is missing"));
  CHECK_THROWS_WITH(fields.whole("o.half"), ContainsSubstring("key \"o.half\" is no whole number"));
  CHECK_THROWS_WITH(fields.whole("o.big"), ContainsSubstring("needs more than 64 bits"));
  CHECK_THROWS_WITH(fields.whole("o.minus"), ContainsSubstring("key \"o.minus\" is negative (write a whole number)"));
  CHECK_THROWS_WITH(fields.whole("o.minus_half"), ContainsSubstring("is negative"));
  CHECK_THROWS_WITH(fields.whole("o.yes"), ContainsSubstring("is true or false"));
  CHECK_THROWS_WITH(fields.whole("o.text"), ContainsSubstring("is a text"));
  CHECK_THROWS_WITH(fields.whole("o.whole", 2), ContainsSubstring("key \"o.whole\" is too large"));
  CHECK_THROWS_WITH(fields.number("o.minus"), ContainsSubstring("is negative (write a number)"));
  CHECK_THROWS_WITH(fields.number("o.minus_half"), ContainsSubstring("is negative"));
  CHECK_THROWS_WITH(fields.number("o.text"), ContainsSubstring("is a text"));
  CHECK_THROWS_WITH(fields.truth("o.whole"), ContainsSubstring("is a number (write true or false)"));
  CHECK_THROWS_WITH(fields.truth("o.text"), ContainsSubstring("is a text"));
  CHECK_THROWS_WITH(fields.text("o.half"), ContainsSubstring("is a number (write a text)"));
  CHECK_THROWS_WITH(fields.text("o.none"), ContainsSubstring("is empty"));
  CHECK_THROWS_AS(fields.text("o.none"), format_error);
}

TEST_CASE("no object, no JSON: refused with the file, and the last key that was read", "[workload]")
{
  CHECK_THAT(refusal(""), ContainsSubstring("a.json cannot be used: it is empty"));
  CHECK_THAT(refusal(" \n"), ContainsSubstring("it is empty"));
  for (const char* text : {"7", "[1]", "\"a\"", "null", "NaN", "\xef\xbb\xbf{}"})
    CHECK_THAT(refusal(text), ContainsSubstring("does not begin with an object"));
  for (const char* text : {"{", "{a: 1}", "{,}", "{'a': 1}", "{\"a", "// no\n{}", R"({"a": 1} {})"})
    CHECK_THAT(refusal(text), ContainsSubstring("a.json cannot be used: it "));
  for (const char* text :
       {R"({"a": NaN})", R"({"a": -Infinity})", R"({"a": 1 "b": 2})", R"({"a": 1,})", R"({"a": 01})", R"({"a": 0x10})",
        R"({"a": +1})", R"({"a": .5})", R"({"a")", R"({"a":)", R"({"a": 1)", R"({"a": "x)", R"({"a": "\u12"})",
        "{\"a\": \"\xff\"}", "{\"a\": \"\n\"}", R"({"a": 1 /* b */})", R"({"a": tru})"})
    CHECK_THAT(refusal(text), ContainsSubstring("key \"a\" is the last one before a part that is no JSON"));
  CHECK_THAT(refusal(R"({"a": 1e999})"), ContainsSubstring("key \"a\" has a number that is too large"));
  CHECK_THAT(refusal(R"({"a": -1e999})"), ContainsSubstring("key \"a\" has a number that is too large"));
  CHECK_THAT(refusal(std::string("{}\0", 3)), ContainsSubstring("a byte 0"));
}

TEST_CASE("keys twice, without a name, lists, nulls and empty objects are refused", "[workload]")
{
  CHECK_THAT(refusal(R"({"a": 1, "b": 2, "a": 1})"), ContainsSubstring("key \"a\" is there twice"));
  CHECK_THAT(refusal(R"({"o": {"a": 1, "a": 2}})"), ContainsSubstring("key \"o.a\" is there twice"));
  CHECK_THAT(refusal(R"({"o": {"a": 1}, "o": {"b": 2}})"), ContainsSubstring("key \"o\" is there twice"));
  // two names, two paths
  CHECK_THAT(refusal(R"({"o": {"a": 1}, "p": {"a": 2}})"), ContainsSubstring("key \"o.a\" is not known"));
  CHECK_THAT(refusal(R"({"": 1})"), ContainsSubstring("is no name"));
  CHECK_THAT(refusal(R"({"a.b": 1})"), ContainsSubstring("is no name"));  // it would be a path
  CHECK_THAT(refusal(R"({"a": []})"), ContainsSubstring("key \"a\" is a list"));
  CHECK_THAT(refusal(R"({"a": null})"), ContainsSubstring("key \"a\" is null"));
  CHECK_THAT(refusal(R"({"a": {}})"), ContainsSubstring("key \"a\" is an object without a member"));
  CHECK_THAT(refusal(R"({"a": {"b": {}, "c": 1}})"), ContainsSubstring("key \"a.b\" is an object without a member"));
  CHECK(refusal("{}") == "");
}

TEST_CASE("a message is one line that fits, whatever was in the file", "[workload]")
{
  CHECK_THAT(refusal("{\"a\\u0000b\\n\xc3\xa9\": 1}"), ContainsSubstring("key \"a?b???\" is not known"));
  const std::string long_path = std::string(4000, 'x') + "/end.json";
  CHECK_THROWS_WITH(
      json_fields("{", long_path),
      ContainsSubstring("chunkmem: ...xxx") && ContainsSubstring("x/end.json cannot be used: it is no JSON (write"));
  CHECK_THROWS_WITH(json_fields("{", "two\nlines.json"), ContainsSubstring("two?lines.json"));
}

TEST_CASE("sizes are bounded: file, fields, names, texts, depth", "[workload]")
{
  CHECK(refusal("{}" + std::string(65'534, ' ')) == "");
  CHECK_THAT(refusal("{}" + std::string(65'535, ' ')), ContainsSubstring("it is longer than such files may be"));
  CHECK_THAT(refusal('{' + quoted(std::string(64, 'k')) + ":1}"), ContainsSubstring("is not known"));
  CHECK_THAT(refusal('{' + quoted(std::string(65, 'k')) + ":1}"), ContainsSubstring("is longer than a key may be"));
  CHECK_THAT(refusal("{\"a\":" + quoted(std::string(4096, 't')) + '}'), ContainsSubstring("is not known"));
  CHECK_THAT(refusal("{\"a\":" + quoted(std::string(4097, 't')) + '}'),
             ContainsSubstring("key \"a\" has a text that is too long"));
  CHECK_THAT(refusal(R"({"a":{"b":{"c":{"d":1}}}})"), ContainsSubstring("key \"a.b.c.d\" is not known"));
  CHECK_THAT(refusal(R"({"a":{"b":{"c":{"d":{"e":1}}}}})"),
             ContainsSubstring("key \"a.b.c.d\" is an object in too many others"));
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += "{\"a\":";
  CHECK_THAT(refusal(deep), ContainsSubstring("is an object in too many others"));
  CHECK_THAT(refusal("{\"a\":" + std::string(60'000, '[')), ContainsSubstring("key \"a\" is a list"));
  std::string many = "{\"k0\":0";
  for (int i = 1; i < 256; ++i) many += ",\"k" + std::to_string(i) + "\":0";
  CHECK_THAT(refusal(many + '}'), ContainsSubstring("key \"k0\" is not known"));
  CHECK_THAT(refusal(many + ",\"more\":0}"), ContainsSubstring("key \"more\" is one too many"));
}

TEST_CASE("a text that is damaged anywhere is read or refused, and nothing else", "[workload]")
{
  const std::string good = R"({"name": "n", "o": {"value": 12.5, "source": "s\u00e9"}, "b": true, "i": -3, "w": 77})";
  support::dice dice{7};
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good;
    for (std::uint32_t times = dice.between(1, 3); times > 0; --times) {
      const std::size_t index = dice.below(static_cast<std::uint32_t>(text.size()));
      const std::uint32_t kind = dice.below(4);
      if (kind == 0) text[index] = static_cast<char>(dice.below(256));
      if (kind == 1) text.erase(index, 1 + dice.below(5));
      if (kind == 2)
        text.insert(index, text.substr(dice.below(static_cast<std::uint32_t>(text.size())), 1 + dice.below(20)));
      if (kind == 3) text.resize(index);
      if (text.empty()) text = " ";
    }
    try {
      json_fields fields{text, "a.json"};
      (void)fields.text("name"), (void)fields.number("o.value"), (void)fields.text("o.source"), (void)fields.truth("b"),
          (void)fields.whole("w");
      fields.finish();
    } catch (const format_error& error) {
      ++refused;
      const std::string sentence = error.what();
      REQUIRE(sentence.starts_with("chunkmem: a.json cannot be used: "));
      REQUIRE(sentence.ends_with(")"));
      REQUIRE(sentence.find('\n') == sentence.npos);
    }
  }
  CHECK(refused > 10'000);
}

TEST_CASE("lists of texts and of rows of numbers are read where a file may have them", "[workload]")
{
  const json_limits lists{.elements = 8};
  json_fields fields{R"({"a": {"names": ["x", "y"], "rates": [[1, 2.5], [3]]}, "b": 7})", "a.json", lists};
  CHECK(fields.has("a"));
  CHECK(fields.has("a.names"));
  CHECK_FALSE(fields.has("a.name"));
  CHECK(fields.members("a") == std::vector<std::string>{"names", "rates"});
  CHECK(fields.texts("a.names") == std::vector<std::string>{"x", "y"});
  CHECK(fields.matrix("a.rates") == std::vector<std::vector<double>>{{1, 2.5}, {3}});
  json_fields counts{R"({"a": [3, 0], "b": [1.5], "c": [[1]]})", "a.json", lists};
  CHECK(counts.wholes("a") == std::vector<std::uint64_t>{3, 0});
  CHECK_THROWS_WITH(counts.wholes("b"), ContainsSubstring(quoted("b[0]") + " is no whole number"));
  CHECK_THROWS_WITH(counts.wholes("c"), ContainsSubstring(quoted("c[0][0]") + " is no whole number"));
  CHECK_THROWS_WITH(fields.matrix("a.names"), ContainsSubstring(quoted("a.names[0]") + " is no list"));
  CHECK_THROWS_WITH(fields.texts("a.rates"), ContainsSubstring(quoted("a.rates[0][0]") + " is a number"));
  CHECK_THROWS_WITH(fields.matrix("b"), ContainsSubstring("write a list of lists of numbers"));
  CHECK_THROWS_WITH(fields.matrix("c"), ContainsSubstring(quoted("c") + " is missing"));
  CHECK_THROWS_WITH(fields.finish(), ContainsSubstring(quoted("b") + " is not known"));
  CHECK_THAT(refusal(R"({"a": [[[1]]]})", lists),
             ContainsSubstring(quoted("a[0][0]") + " is a list in too many others"));
  CHECK_THAT(refusal(R"({"a": [1, []]})", lists), ContainsSubstring(quoted("a[1]") + " is a list without an element"));
  CHECK_THAT(refusal(R"({"a": [1, {}]})", lists), ContainsSubstring(quoted("a[1]") + " is an object in a list"));
  CHECK_THAT(refusal(R"({"a": [1, null]})", lists), ContainsSubstring(quoted("a[1]") + " is null"));
  CHECK_THAT(refusal(R"({"a": [1,2,3,4,5,6,7,8,9]})", lists), ContainsSubstring(quoted("a[8]") + " is one too many"));
  CHECK_THAT(refusal(R"([1])", lists), ContainsSubstring("it does not begin with an object"));
  CHECK_THAT(refusal(R"({"a": [1]})"), ContainsSubstring("is a list, and there are none in such files"));
}

TEST_CASE("a file is read whole, and what is no file is an io_error with its number", "[workload]")
{
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "chunkmem_json_fields_test";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "a.json").string();
  std::ofstream{path} << R"({"a": 5})";
  CHECK(json_fields::of_file(path).whole("a") == 5);
  CHECK_THROWS_WITH(json_fields::of_file(path).whole("b"),
                    ContainsSubstring("a.json cannot be used: key \"b\" is missing"));
  std::ofstream{path} << "";
  CHECK_THROWS_WITH(json_fields::of_file(path), ContainsSubstring("it is empty"));
  std::ofstream{path} << "{}" << std::string(100'000, ' ');
  CHECK_THROWS_WITH(json_fields::of_file(path), ContainsSubstring("it is longer"));
  const auto number_of = [](const std::string& where) {
    try {
      (void)json_fields::of_file(where);
    } catch (const io_error& failed) {
      return failed.fault().number;
    }
    return 0;
  };
  CHECK(number_of((folder / "gone.json").string()) == ENOENT);
  CHECK(number_of(folder.string()) == EISDIR);
  CHECK_THROWS_AS(json_fields::of_file("/dev/zero"), format_error);
  std::filesystem::remove_all(folder);
}

}  // namespace json_fields_test
