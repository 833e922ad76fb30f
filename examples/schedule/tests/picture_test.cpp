// SPDX-License-Identifier: Apache-2.0
#include "picture.hpp"

#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace picture_test {

namespace {

using namespace schedule_example;

std::size_t count(std::string_view text, std::string_view word)
{
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

/// The elements of a group, such as "runs".
std::string_view group(std::string_view svg, const std::string& id)
{
  const std::size_t begin = svg.find("<g id=\"" + id + "\">");
  REQUIRE(begin != std::string_view::npos);
  return svg.substr(begin, svg.find("</g>", begin) - begin);
}

/// Whether each tag is closed by its own name, attributes have quotes, and text has no bare sign.
bool is_well_formed(std::string_view svg)
{
  std::vector<std::string_view> open;
  while (true) {
    const std::size_t begin = svg.find('<');
    const std::string_view text = svg.substr(0, begin);
    if (text.find('>') != std::string_view::npos) return false;
    if (begin == std::string_view::npos) return open.empty();
    const std::size_t end = svg.find('>', begin);
    if (end == std::string_view::npos) return false;
    const std::string_view tag = svg.substr(begin + 1, end - begin - 1);
    svg.remove_prefix(end + 1);
    if (std::ranges::count(tag, '"') % 2 != 0 || tag.find('<') != std::string_view::npos) return false;
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (!tag.ends_with("/")) {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
}

std::size_t steps_of_plan(const simulation& it, bool counts_updates)
{
  std::size_t found = 0;
  for (const auto& steps : it.plan.stages)
    for (const auto& step : steps)
      found += chunkmem::pipeline::computes(step.kind) ||
               (counts_updates && step.kind == chunkmem::pipeline::operation_kind::update);
  return found;
}

}  // namespace

TEST_CASE("a picture is well-formed and has a rectangle for each run and update", "[schedule]")
{
  for (const std::string_view name : generator_names)
    for (const double update : {0.0, 0.5})
      for (const bool is_aside : {false, true}) {
        CAPTURE(name, update, is_aside);
        options chosen;
        chosen.schedule = name;
        chosen.shape.batches = 2;
        chosen.update = update;
        chosen.updates_aside = is_aside;
        const simulation it = simulate(chosen);
        const std::string svg = picture_of(it);
        CHECK(is_well_formed(svg));
        CHECK(count(group(svg, "runs"), "<rect") == steps_of_plan(it, update > 0));
        CHECK(svg == picture_of(simulate(chosen)));
      }
}

TEST_CASE("runs have the colour of their kind and a shade of their part and version", "[schedule]")
{
  options chosen;
  chosen.schedule = "zb-v";
  chosen.recomputes = true;
  const std::string parts = picture_of(simulate(chosen));
  for (const char* const look : {"f0", "f1", "b0", "b1", "w0", "w1", "r0", "r1"})
    CHECK(count(group(parts, "runs"), "class=\"run " + std::string{look} + "\"") == 32);
  chosen = {};
  chosen.schedule = "2bw";
  chosen.shape.batches = 3;
  const std::string versions = picture_of(simulate(chosen));
  CHECK(count(group(versions, "runs"), "class=\"run f0\"") == 64);  // two batches read the first version
  CHECK(count(group(versions, "runs"), "class=\"run f1\"") == 32);
}

TEST_CASE("numbers stand in runs that have room for them", "[schedule]")
{
  options chosen;
  CHECK(count(group(picture_of(simulate(chosen)), "numbers"), "<text") == 64);
  chosen.shape.micro_batches = 2000;
  CHECK(count(group(picture_of(simulate(chosen)), "numbers"), "<text") == 0);
}

TEST_CASE("a name with signs of markup harms no picture", "[schedule]")
{
  simulation it = simulate({});
  it.plan.name = "<a>&\"\x01";
  const std::string svg = picture_of(it);
  CHECK(is_well_formed(svg));
  CHECK(count(svg, "&lt;a&gt;&amp;\"?: 4 stages") == 2);
}

TEST_CASE("the check of this test sees what is not well-formed", "[schedule]")
{
  CHECK(is_well_formed("<svg><g id=\"a\"><rect/></g>text</svg>"));
  for (const char* const broken : {"<svg><g></svg></g>", "<svg>", "</svg>", "<svg a=\"></svg>", "<svg>></svg>"})
    CHECK(!is_well_formed(broken));
}

}  // namespace picture_test
