// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/configurator/plan_file.hpp>
#include <chunkmem/configurator/profile_file.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace profile_file_test {

using namespace chunkmem;
using namespace chunkmem::configurator;
using Catch::Matchers::ContainsSubstring;

namespace {

model_profile two_parts()
{
  model_profile made{.name = "two \"parts\"", .input_of_row = bytes{12}, .times_have_sums = true, .parts = {}};
  made.parts = {{.name = "table", .layers = 0, .all_reduces = 0}, {.name = "layer", .layers = 3, .all_reduces = 2}};
  made.weights = {{1, {{8}, {8, 5}}}, {4, {{2}, {2, 5}}}};
  made.sizes = {
      {1, 1, {10, 20}, {30, 40}, {0, 50}}, {1, 8, {11, 21}, {31, 41}, {1, 51}}, {4, 8, {3, 5}, {3, 4}, {0, 2}}};
  made.times = {{"a100", 1, 1, {{0, 0, 0}, {1e-3, 2.5e-3, 1.0 / 3}}},
                {"a100", 4, 8, {{1e-9, 2, 3}, {4, 5, 6}}},
                {"t4", 1, 8, {{1, 1, 1}, {2, 2, 2}}}};
  made.tie = profiled_tie{0, 1, 8};
  return made;
}

std::string refusal(const std::string& was, const std::string& is)
{
  std::string text = profile_text(two_parts(), "measured");
  const std::size_t at = text.find(was);
  if (at == text.npos) return "the text has not " + was;
  return support::refusal<format_error>([&] { (void)parse_profile(text.replace(at, was.size(), is), "p.json"); });
}
void says(const std::string& sentence, const std::string& key, const std::string& why)
{
  CHECK_THAT(sentence, ContainsSubstring('"' + key + '"') && ContainsSubstring(why));
  CHECK(std::ranges::count(sentence, '\n') == 0);
}

}  // namespace

TEST_CASE("a profile that is written reads back as the same", "[configurator]")
{
  model_profile profile = two_parts();
  CHECK(parse_profile(profile_text(profile, "measured"), "p.json") == profile);
  profile.tie.reset();
  profile.times_have_sums = false;
  profile.weights[0].elements[1].clear();  // a part without weights
  CHECK(parse_profile(profile_text(profile, "measured"), "p.json") == profile);
  CHECK_THROWS_WITH(profile_text(profile, ""), ContainsSubstring("without a source"));
}

TEST_CASE("a plan for a profile is one for its file, in which times lie by kind", "[configurator]")
{
  model_profile profile = two_parts();
  std::swap(profile.times[1], profile.times[2]);
  const model_profile read = parse_profile(profile_text(profile, "measured"), "p.json");
  CHECK(read == two_parts());
  const auto model = [](const model_profile& of) { return subject_of(trained_model{of}, cluster{}).model; };
  CHECK(model(read) == model(profile));
  profile.times[0].rows = 2;
  CHECK(model(read) != model(profile));
}

TEST_CASE("a backward run that was measured as a whole has a half for each gradient", "[configurator]")
{
  const model_profile read = parse_profile(R"({"format": "chunkmem model profile 1", "name": "n", "source": "s",
    "input_bytes_of_row": 4, "times_have_sums": false, "parts": {"names": ["a"], "layers": [1], "all_reduces": [0]},
    "weights": {"1": [[0]]}, "sizes": {"1 x 2": {"saved": [1], "boundary": [2], "transient": [3]}},
    "times": {"t4": {"1 x 2": {"forward": [1], "backward": [3]}}}})",
                                           "p.json");
  CHECK(read.times.front().of_parts.front() == run_seconds{1, 1.5, 1.5});
  CHECK(read.times.front().rows == 2);
  CHECK(read.weights.front().elements.front().empty());
}

TEST_CASE("a file of a profile is refused in one sentence, with the key", "[configurator]")
{
  says(refusal("profile 1", "profile 2"), "format", "is not that of this version");
  says(refusal("\"layers\": [", "\"layers\": [9,"), "parts.layers", "has 3 elements, and there are 2 parts");
  says(refusal("\"1 x 8\"", "\"1 8\""), "sizes.1 8", "is named after no degree and rows");
  says(refusal("\"1 x 8\"", "\"1 x 8x\""), "sizes.1 x 8x", "is named after no degree and rows");
  says(refusal("\"4\": [", "\"four\": ["), "weights.four", "is named after no degree");
  says(refusal("\"1 x 8\"", "\"1 x 1\""), "sizes.1 x 1", "is there twice");
  says(refusal("\"forward\"", "\"forwards\""), "times.a100.1 x 1.forward", "is missing");
  says(refusal("\"backward_weight\"", "\"backward\""), "times.a100.1 x 1.backward_input[0]", "is not known");
  says(refusal("0.0025", "-1"), "times.a100.1 x 1.backward_input[1]", "is negative");
  says(refusal("0.0025", "1e7"), "times.a100.1 x 1", "5 milliseconds are 5e-3");
  says(refusal("\"elements\": 8", "\"elements\": 9"), "tie", "part 0 has no tensor of so many");
  says(refusal("\"transient\"", "\"transients\""), "sizes.1 x 1.transient", "is missing");
  says(refusal("\"source\": \"measured\"", "\"source\": \"\""), "source", "is empty");
  says(refusal("\"saved\": [", "\"saved\": [\"a\","), "sizes.1 x 1.saved[0]", "is no whole number");
}

}  // namespace profile_file_test
