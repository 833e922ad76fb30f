// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/schedule_text.hpp>
#include <chunkmem/pipeline/schedules.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/random_schedule.hpp>
#include <support/refusal.hpp>

#include "schedule_runs.hpp"

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

namespace schedule_text_test {

using namespace pipeline_test;

namespace {

std::string text_of(const schedule& plan)
{
  std::ostringstream out;
  schedule_text::write(out, plan);
  return out.str();
}
schedule read(const std::string& text)
{
  std::istringstream in{text};
  return schedule_text::read(in, "mine.txt");
}
std::string replaced(std::string text, std::string_view before, std::string_view after)
{
  const std::size_t at = text.find(before);
  REQUIRE(at != std::string::npos);
  return text.replace(at, before.size(), after);
}
template <class Error>
std::string refusal_of(const std::string& text)
{
  return support::refusal<Error>([&] { (void)read(text); });
}

}  // namespace

TEST_CASE("a schedule is read as it was written", "[pipeline]")
{
  const schedule plan = make_schedule(interleaved{.parts = 2}, {.stages = 2, .micro_batches = 4});
  CHECK(read(text_of(plan)) == plan);
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    support::dice dice{seed};
    const schedule rolled = support::random_schedule{dice}.plan();
    CHECK(read(text_of(rolled)) == rolled);
  }
}

TEST_CASE("a schedule keeps any name that fits a line, and large numbers", "[pipeline]")
{
  schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 1});
  for (const std::string name : {"", "two words", "F 0 0 0"}) {
    plan.name = name;
    plan.gradient_sets = 70'000;
    CHECK(read(text_of(plan)) == plan);
  }
  for (const std::string& name : {std::string{"two\nlines"}, std::string(151, 'x')}) {
    plan.name = name;
    CHECK_THROWS_AS(text_of(plan), config_error);
  }
}

TEST_CASE("the text of a small schedule is as documented", "[pipeline]")
{
  const std::string text = text_of(make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 1}));
  CHECK(text ==
        "chunkmem schedule 1\nname one_f_one_b\nmicro_batches 1\nbatches 1\nversions 1\ngradient_sets 1\n"
        "sends_in_flight 2\nparts 2\nstages 2\npart 0 stage 0\npart 1 stage 1\n"
        "stage 0 steps 5\nRG 0 0 0\nF 0 0 0\nSA 0 0 0\nBW 0 0 0\nU 0 0 1\n"
        "stage 1 steps 5\nRA 1 0 0\nF 1 0 0\nBW 1 0 0\nSG 1 0 0\nU 1 0 1\nend\n");
}

TEST_CASE("a text that is no schedule names its line and key", "[pipeline]")
{
  const std::string text = text_of(make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 1}));
  const auto says = [&](std::string_view before, std::string_view after) {
    return refusal_of<format_error>(replaced(text, before, after));
  };
  CHECK(says("schedule 1", "schedule 2") ==
        "chunkmem: line 1 of mine.txt cannot be used: it does not begin like a "
        "schedule of version 1 (write it anew)");
  CHECK(says("versions 1", "versions -1") ==
        "chunkmem: line 5 of mine.txt cannot be used: key \"versions\" is negative (write it anew)");
  CHECK(says("stages 2", "stages 3").find("key \"stages\" is above parts") != std::string::npos);
  const std::string empty = replaced(text, "\nbatches 1\n", "\nbatches 16777215\n");  // a check would need much room
  CHECK(refusal_of<config_error>(empty).find("a micro-batch has no forward run") != std::string::npos);
  const std::string many = replaced(text, "micro_batches 1\nbatches 1", "micro_batches 8\nbatches 16777215");
  CHECK(refusal_of<format_error>(many).find("key \"batches\" makes more than 2^24") != std::string::npos);
  CHECK(says("part 1 stage 1", "part 2 stage 1").find("key \"part\" is not the next one") != std::string::npos);
  CHECK(says("BW 0 0 0", "BX 0 0 0").find("a step begins with F, BW, B") != std::string::npos);
  CHECK(says("BW 0 0 0", "BW 0 0").find("key \"version\" has no value") != std::string::npos);
  CHECK(says("end\n", "").find("the text ends in it") != std::string::npos);
}

TEST_CASE("a schedule of one's own whose sends and receives do not match is refused with its place", "[pipeline]")
{
  const std::string text = text_of(make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2}));
  // Stage 0 receives the gradients in another order than stage 1 sends them.
  std::string swapped = replaced(text, "RG 0 0 0", "RG 0 9 0");
  swapped = replaced(replaced(swapped, "RG 0 1 0", "RG 0 0 0"), "RG 0 9 0", "RG 0 1 0");
  const std::string words = refusal_of<config_error>(swapped);
  CAPTURE(words);
  CHECK(words ==
        "chunkmem: mine.txt: stage 0, step 2, receive_gradient of micro-batch 1 in part 0: two stages send and receive "
        "in different orders (change the schedule)");
}

}  // namespace schedule_text_test
