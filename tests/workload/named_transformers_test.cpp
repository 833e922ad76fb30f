// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/workload/named_transformers.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <support/catch.hpp>

#include <cctype>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace named_transformers_test {

using namespace chunkmem;
using namespace chunkmem::workload;

namespace {

/// The number of parameters that a name claims: "DS_20B", "1.3b", "350m". 0: it claims none.
double claimed(std::string_view name)
{
  const char unit = static_cast<char>(std::tolower(static_cast<unsigned char>(name.back())));
  const std::size_t from = name.find_last_of('_') == name.npos ? 0 : name.find_last_of('_') + 1;
  const std::string digits{name.substr(from, name.size() - from - 1)};
  if ((unit != 'b' && unit != 'm') || digits.empty() || digits.find_first_not_of("0123456789.") != digits.npos)
    return 0;
  return std::strtod(digits.c_str(), nullptr) * (unit == 'b' ? 1e9 : 1e6);
}

}  // namespace

TEST_CASE("every named shape can be, and no family has two of one name", "[workload]")
{
  std::set<std::pair<std::string_view, std::string_view>> names;
  for (const named_transformer& it : named_transformers) {
    CAPTURE(it.family, it.name);
    CHECK(it.shape.problem().member.empty());
    CHECK(names.emplace(it.family, it.name).second);
    CHECK(shape_of(it.family, it.name) == it.shape);
  }
  CHECK(names.size() == 59);
}

TEST_CASE("a shape has about as many parameters as its name says", "[workload]")
{
  int tried = 0;
  for (const named_transformer& it : named_transformers) {
    const double wanted = claimed(it.name);
    if (wanted == 0) continue;
    // As configured by their authors: half of Megatron's 48 layers, and more layers than 310 billion need.
    if (it.name == "megatron_3.9B" || it.name == "310B") continue;
    CAPTURE(it.family, it.name);
    // Names round, and leave out the vocabulary or not: "5b" is 5.93 billion.
    CHECK(static_cast<double>(parameters_of(it.shape)) == Catch::Approx(wanted).epsilon(0.19));
    ++tried;
  }
  CHECK(tried == 52);
  CHECK(parameters_of(shape_of("PatrickStar", "megatron_3.9B")) == 2'019'520'000);
  CHECK(parameters_of(shape_of("PatrickStar", "310B")) == 413'184'344'064);
}

TEST_CASE("an unknown name is refused with itself", "[workload]")
{
  CHECK_THROWS_AS(shape_of("Gemini GPT", "7b"), config_error);
  CHECK_THROWS_WITH(shape_of("Gemini GPT", "7b"),
                    Catch::Matchers::ContainsSubstring("named 7b in the family Gemini GPT"));
}

}  // namespace named_transformers_test
