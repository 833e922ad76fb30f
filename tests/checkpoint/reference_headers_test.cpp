// SPDX-License-Identifier: Apache-2.0
// Headers compared with the reference implementation of the format, Python's safetensors, in one run.
#include <chunkmem/checkpoint/import_values.hpp>

#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/io/posix_folder.hpp>

#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/oracles/dice.hpp>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>
#include "small_model.hpp"

namespace reference_headers_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;

namespace {

struct header_case {
  std::string header;
  std::uint64_t payload = 4;
  bool is_limited = false;  ///< SECURITY.md says that it is refused here
};

std::string of(const std::string& type, const std::string& shape, std::uint64_t end, const std::string& more = {})
{
  return R"({"a":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":[0,)" + std::to_string(end) + "]" +
         more + "}}";
}

std::string repeated(std::size_t times, const std::string& text)
{
  std::string all;
  for (; times > 0; --times) all += text;
  return all;
}

/// Each kind of header that the format or its reference has a rule for, from both sides of the rule.
std::vector<header_case> written_cases()
{
  const std::string good = of("F32", "[1]", 4);
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  std::vector<header_case> all{{good},      {"", 0},     {"{}", 0}, {"{}", 1}, {"[]", 0},
                               {"null", 0}, {"{} x", 0}, {good, 3}, {good, 5}};
  for (const char* const type :
       {"BOOL",        "F4",  "F6_E2M3", "F6_E3M2", "U8",   "I8",  "F8_E5M2", "F8_E4M3", "F8_E8M0",   "F8_E4M3FNUZ",
        "F8_E5M2FNUZ", "I16", "U16",     "F16",     "BF16", "I32", "U32",     "F32",     "C64",       "F64",
        "I64",         "U64", "C128",    "F128",    "f32",  "",    "F8",      "bool",    "F8_E4M3FN", "U4"})
    for (const std::uint64_t bits : {4U, 6U, 8U, 16U, 32U, 64U})
      for (const char* const shape : {"[4]", "[]", "[0]", "[3]"}) {
        const std::uint64_t elements = shape == std::string{"[]"} ? 1 : static_cast<std::uint64_t>(shape[1] - '0');
        all.push_back({of(type, shape, elements * bits / 8), elements * bits / 8});
      }
  for (const char* const blank : {" ", "\n", "\t", "\r", " \n\t\r ", "\v", "\f", "\xc2\xa0", "\xef\xbb\xbf", "/**/"})
    for (const std::string& text : {blank + good, good + blank, "{" + std::string{blank} + good.substr(1)})
      all.push_back({text});
  all.push_back({good + std::string(3, '\0')});
  for (const char* const metadata :
       {"null", "{}", R"({"a":"b"})", R"({"a":"b","a":"c"})", R"({"a":1})", R"({"a":null})", "[]", R"("x")", "1",
        R"({"a":{}})", R"({"\u0000":"\ud83d\ude00"})", R"({"a":"\ud83d"})", "{\"a\":\"\xff\"}", "{\"a\":\"\n\"}"})
    all.push_back({R"({"__metadata__":)" + std::string{metadata} + R"(,"a":)" + entry + "}"});
  all.push_back({R"({"__metadata__":{},"__metadata__":{},"a":)" + entry + "}"});
  for (const std::size_t size : {1'000U, 1'500'000U})
    for (const char* const end : {"", "\\n", "\\x", "\xc3", "\xc3\xa9"})
      all.push_back({R"({"__metadata__":{"a":")" + std::string(size, 'x') + end + R"("},"a":)" + entry + "}"});
  for (const char* const value : {"1",           "-1",
                                  "-0",          "1.5",
                                  "1e3",         "1e999",
                                  "1e-999",      "01",
                                  "+1",          "nan",
                                  "true",        "tru",
                                  "null",        R"("x")",
                                  R"("\ud800")", "[]",
                                  "{}",          R"([{"a":[1,{}]}])",
                                  "[1",          "18446744073709551616"}) {
    const std::string text{value};
    all.push_back({of("F32", "[1]", 4, R"(,"x":)" + text)});
    all.push_back({"{\"a\":" + text + "}", 0});
    all.push_back({R"({"a":{"dtype":"F32","shape":)" + text + R"(,"data_offsets":[0,4]}})"});
    all.push_back({of("F32", "[" + text + "]", 4)});
    all.push_back({R"({"a":{"dtype":)" + text + R"(,"shape":[1],"data_offsets":[0,4]}})"});
    all.push_back({R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,)" + text + "]}}"});
    all.push_back({R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + text + "}}"});
  }
  for (const std::size_t depth : {1U, 60U, 124U, 125U, 126U, 127U, 128U, 5'000U})
    all.push_back({of("F32", "[1]", 4, R"(,"x":)" + std::string(depth, '[') + "1" + std::string(depth, ']'))});
  for (const std::size_t depth : {124U, 125U, 126U})
    all.push_back({of("F32", "[1]", 4, R"(,"x":)" + repeated(depth, R"({"y":)") + "1" + std::string(depth, '}'))});
  for (const char* const more :
       {R"(,"dtype":"F32")", R"(,"shape":[1])", R"(,"data_offsets":[0,4])", R"(,"x":1,"x":2)", R"(,"":0)"})
    all.push_back({of("F32", "[1]", 4, more)});
  for (const char* const lacks : {R"("dtype":"F32","shape":[1])", R"("dtype":"F32","data_offsets":[0,4])",
                                  R"("shape":[1],"data_offsets":[0,4])", ""})
    all.push_back({R"({"a":{)" + std::string{lacks} + "}}"});
  for (const std::size_t rank : {6U, 16U, 17U, 32U})
    all.push_back({of("F32", "[1" + repeated(rank - 1, ",1") + "]", 4)});
  all.push_back({of("F32", "[1" + repeated(32, ",1") + "]", 4), 4, true});
  for (const char* const shape :
       {"[4611686018427387904,0]", "[0,4611686018427387904]", "[4611686018427387904,4611686018427387904,0]",
        "[0,4611686018427387904,4611686018427387904]", "[18446744073709551615,0]", "[18446744073709551615,2]"})
    all.push_back({of("F32", shape, 0), 0});
  const auto two = [](const char* first, const char* second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string{first} +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  for (const char* const second : {"[4,8]", "[0,4]", "[3,7]", "[5,9]", "[8,4]", "[4,8,9]", "[4]"})
    for (const std::uint64_t payload : {7U, 8U, 9U}) {
      all.push_back({two("[0,4]", second), payload});
      all.push_back({two(second, "[0,4]"), payload});
    }
  for (const char* const name : {"", "b\\u0000", "\\ud83d\\ude00", "\xc3\xa9", "\xff", "\\ud800", "__metadata", "b\n"})
    all.push_back({R"({")" + std::string{name} + R"(":)" + entry + "}"});
  all.push_back({R"({")" + std::string(4'096, 'n') + R"(":)" + entry + "}"});
  // Limits that SECURITY.md states.
  all.push_back({R"({")" + std::string(4'097, 'n') + R"(":)" + entry + "}", 4, true});
  all.push_back({R"({"a":)" + entry + R"(,"a":)" + entry + "}", 4, true});
  all.push_back({R"({"a":["F32",[1],[0,4]]})", 4, true});
  all.push_back({R"({"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}})", 4, true});
  all.push_back({of("F32", "[1]", 4, R"(,"x":0.)" + std::string(5'000, '1')), 4, true});
  all.push_back({std::string(70'000'000, ' ') + good});
  all.push_back({std::string(100'000'001 - good.size(), ' ') + good});
  return all;
}

/// Headers with some bytes changed, put in and cut out.
std::vector<header_case> changed_cases(std::size_t count)
{
  const std::string made = R"({"__metadata__":{"a":"b"},"w":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]},)"
                           R"("n":{"dtype":"F64","shape":[0,7],"data_offsets":[12,12],"x":[1,{"y":null}]}} )";
  const std::string tokens[] = {"{", "}",  "[",    "]",          ",",      ":",  "\"", "\\", "0",
                                "-", "e9", "null", "\"dtype\":", "\"x\":", "F4", " ",  "\n", "1.0"};
  std::vector<header_case> all;
  for (std::uint64_t seed = 1; all.size() < count; ++seed) {
    support::dice dice{seed};
    std::string changed = made;
    for (std::uint32_t times = dice.between(1, 3); times > 0; --times) {
      const std::size_t at = dice.below(static_cast<std::uint32_t>(changed.size()));
      if (dice.one_in(3))
        changed[at] = static_cast<char>(dice.below(128));
      else if (dice.one_in(2))
        changed.replace(at, dice.below(4), tokens[dice.below(18)]);
      else
        changed.insert(at, made.substr(dice.below(static_cast<std::uint32_t>(made.size())), dice.between(1, 40)));
    }
    all.push_back({changed, 12});
  }
  return all;
}

bool is_taken_here(const cm::io::posix_folder& folder, const std::string& name)
{
  try {
    const checkpoint::safetensors_file file{folder.open(name), name};
    return true;
  } catch (const cm::format_error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("headers are taken that the reference takes, but for the limits, and no others", "[checkpoint][.python]")
{
  const char* const interpreter = std::getenv("CHUNKMEM_PYTHON");
  const std::string script = (std::filesystem::path{__FILE__}.parent_path() / "reference_headers.py").string();
  const std::string command = interpreter == nullptr ? "" : std::string{interpreter} + " '" + script + "' ";
  if (command.empty() || std::system((command + "ask").c_str()) != 0)
    SKIP("no Python with safetensors 0.8.0 or newer (pip install safetensors)");
  std::vector<header_case> all = written_cases();
  for (header_case& it : changed_cases(4'000)) all.push_back(std::move(it));
  const temporary_folder place;
  for (std::size_t index = 0; index < all.size(); ++index) {
    std::ofstream out{place.path() + '/' + std::to_string(index), std::ios::binary};
    const std::uint64_t size = all[index].header.size();
    for (unsigned byte = 0; byte < 8; ++byte) out.put(static_cast<char>(size >> (8 * byte)));
    out << all[index].header << std::string(static_cast<std::size_t>(all[index].payload), '\0');
  }
  REQUIRE(std::system((command + "judge '" + place.path() + "'").c_str()) == 0);
  const cm::io::posix_folder folder{place.path()};
  std::ifstream judged{place.path() + "/judged"};
  int refused_here_alone = 0, taken_here_alone = 0, taken_by_both = 0;
  for (std::size_t index = 0; index < all.size(); ++index) {
    std::string word;
    REQUIRE(std::getline(judged, word));
    const bool there = word == "taken", here = is_taken_here(folder, std::to_string(index));
    INFO(all[index].header.substr(0, 300) << " with " << all[index].payload << " B: " << word << " by the reference");
    taken_by_both += there && here ? 1 : 0;
    if (all[index].is_limited) {
      CHECK((there && !here));
      continue;
    }
    CHECK(there == here);
    refused_here_alone += there && !here ? 1 : 0;
    taken_here_alone += here && !there ? 1 : 0;
  }
  CHECK(taken_by_both > 200);
  CHECK(taken_here_alone == 0);
  support::write_figures("test_checkpoint_reference", "build/bench/bin/test_checkpoint.checkpoint '[.python]'",
                         {{"edge.safetensors_refused_here_alone", refused_here_alone, "headers", "==", 0}});
}

}  // namespace reference_headers_test
