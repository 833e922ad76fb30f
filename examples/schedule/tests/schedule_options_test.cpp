// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"
#include "simulation.hpp"

#include "../../gpt/problem.hpp"

#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace schedule_options_test {

namespace {

using Catch::Matchers::ContainsSubstring;
using namespace schedule_example;

options parse(const std::vector<const char*>& words)
{
  return parse_options(static_cast<int>(words.size()), words.data());
}

/// The sentence of a refusal; empty: nothing was refused.
std::string refusal(const std::vector<const char*>& words)
{
  try {
    (void)simulate(parse(words));
  } catch (const gpt::problem& refused) {
    return refused.what();
  } catch (const chunkmem::error& refused) {
    return refused.what();
  }
  return {};
}

/// A file for one test.
class text_file {
 public:
  explicit text_file(const std::string& text) { std::ofstream{path_} << text; }
  text_file(const text_file&) = delete;
  text_file& operator=(const text_file&) = delete;
  ~text_file() { std::filesystem::remove(path_); }

  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_{"schedule_options_test.txt"};  // of this build: tests of two builds may run at once
};

/// Two stages, one micro-batch. @param receive   a line
std::string two_stages(const std::string& receive)
{
  return "chunkmem schedule 1\nname mine\nmicro_batches 1\nbatches 1\nversions 1\ngradient_sets 1\nsends_in_flight 2\n"
         "parts 2\nstages 2\npart 0 stage 0\npart 1 stage 1\n"
         "stage 0 steps 5\nF 0 0 0\nSA 0 0 0\nRG 0 0 0\nBW 0 0 0\nU 0 0 1\n"
         "stage 1 steps 5\n" +
         receive + "\nF 1 0 0\nBW 1 0 0\nSG 1 0 0\nU 1 0 1\nend\n";
}

}  // namespace

TEST_CASE("every name of a schedule is one that simulates", "[schedule]")
{
  for (const std::string_view name : generator_names) {
    CAPTURE(name);
    CHECK(refusal({"--schedule", name.data()}).empty());
    CHECK(refusal({"--schedule", name.data(), "--recompute", "--update", "0.5"}).empty());
  }
  CHECK(!named_schedule("one_f_one_b", {.stages = 2, .micro_batches = 2}));
}

TEST_CASE("the options reach the schedule and its times", "[schedule]")
{
  const simulation it = simulate(parse({"--stages", "3", "--microbatches", "6", "--schedule", "2bw", "--versions", "3",
                                        "--batches", "4", "--times", "1,0.5,0.25,0"}));
  CHECK(it.plan.stage_count() == 3);
  CHECK(it.plan.micro_batches == 6);
  CHECK(it.plan.batches == 4);
  CHECK(it.plan.versions == 3);
  CHECK(it.times.seconds == Catch::Approx((4 * 6 + 3 - 1) * 1.75));
  CHECK(parse({"--schedule", "2bw"}).shape.batches == 3);
  CHECK(simulate(parse({"--schedule", "interleaved", "--parts", "3"})).plan.part_count() == 12);
}

TEST_CASE("an update takes the stage's time, or runs aside within the slack", "[schedule]")
{
  const auto seconds = [](std::vector<const char*> words) {
    words.insert(words.end(), {"--schedule", "2bw", "--microbatches", "4"});
    return simulate(parse(words)).times.seconds;
  };
  CHECK(seconds({}) == 45);
  // The slack is a pair of runs, 3 s. After the last batch comes an update alone.
  CHECK(seconds({"--update", "3", "--updates-aside", "--gradient-sets", "2"}) == 48);
  CHECK(seconds({"--update", "3.5", "--updates-aside", "--gradient-sets", "2"}) > 48.5);
  CHECK(seconds({"--update", "3", "--updates-aside"}) > 48);  // the next batch waits for its gradients
  CHECK(seconds({"--update", "3"}) > 48);
  CHECK(simulate(parse({"--schedule", "interleaved", "--update", "2"})).times.seconds ==
        simulate(parse({"--schedule", "interleaved"})).times.seconds + 2);  // of both parts of a stage together
}

TEST_CASE("recomputing saves one micro-batch, or what the gradients of the weights read", "[schedule]")
{
  CHECK(simulate(parse({"--schedule", "gpipe"})).peaks == std::vector<double>{8, 8, 8, 8});
  CHECK(simulate(parse({"--schedule", "gpipe", "--recompute"})).peaks == std::vector<double>{1, 1, 1, 1});
  CHECK(simulate(parse({"--schedule", "zb-h1"})).peaks == std::vector<double>{4, 3.5, 3, 2.5});
}

TEST_CASE("numbers that cannot be are refused with a sentence", "[schedule]")
{
  CHECK_THAT(refusal({"--stages", "0"}), ContainsSubstring("--stages '0' is not a whole number from 1 to 4096"));
  CHECK_THAT(refusal({"--microbatches", "-1"}), ContainsSubstring("--microbatches '-1' is not a whole number"));
  CHECK_THAT(refusal({"--batches", "two"}), ContainsSubstring("--batches 'two'"));
  for (const char* const times : {"1,1,1", "1,1,1,0,0", "1,,1,0", "1,1,1,x", "1,-1,1,0", "1,1,1,nan", "1e9,1,1,0", ","})
    CHECK_THAT(refusal({"--times", times}), ContainsSubstring("is not four numbers F,B,W,C of seconds"));
  CHECK_THAT(refusal({"--times", "0,0,0,1"}), ContainsSubstring("gives no run any time"));
  CHECK_THAT(refusal({"--update", "inf"}), ContainsSubstring("--update 'inf' is not a number of seconds"));
  CHECK_THAT(refusal({"--stages", "4096", "--microbatches", "4096"}), ContainsSubstring("forward runs is more than"));
  CHECK_THAT(refusal({"--stages"}), ContainsSubstring("(see --help)"));
}

TEST_CASE("schedules that cannot be are refused with a sentence", "[schedule]")
{
  CHECK_THAT(refusal({"--schedule", "2bw", "--microbatches", "2"}),
             ContainsSubstring("need 3 versions of the weights, not 2"));
  CHECK(refusal({"--schedule", "2bw", "--microbatches", "3"}).empty());
  CHECK_THAT(refusal({"--schedule", "interleaved", "--microbatches", "6"}),
             ContainsSubstring("leave a partial group of 2"));
  CHECK_THAT(refusal({"--schedule", "interleaved", "--parts", "20000"}), ContainsSubstring("more than 65,535 parts"));
  CHECK_THAT(refusal({"--schedule", "2f2b"}),
             ContainsSubstring("--schedule '2f2b' is no file, nor gpipe, 1f1b, eager,") && ContainsSubstring("zb-v"));
}

TEST_CASE("an option that would change nothing is refused", "[schedule]")
{
  CHECK_THAT(refusal({"--parts", "2"}), ContainsSubstring("it belongs to --schedule interleaved"));
  CHECK_THAT(refusal({"--schedule", "zb-v", "--versions", "2"}), ContainsSubstring("it belongs to --schedule 2bw"));
  const text_file good{two_stages("RA 1 0 0")};
  const std::string path = good.path();
  CHECK_THAT(refusal({"--schedule", path.c_str(), "--stages", "2"}), ContainsSubstring("has this number"));
}

TEST_CASE("a file is a schedule, or is refused with the place of its fault", "[schedule]")
{
  const auto of_file = [](const std::string& text) {
    const text_file file{text};
    return refusal({"--schedule", file.path().c_str()});
  };
  CHECK(of_file(two_stages("RA 1 0 0")).empty());
  CHECK_THAT(of_file(two_stages("RG 1 0 0")), ContainsSubstring("stage 1, step 0, receive_gradient"));
  CHECK_THAT(of_file(two_stages("RA 1 0")), ContainsSubstring("schedule_options_test.txt"));
  CHECK_THAT(of_file("hello\n"), ContainsSubstring("it does not begin like a schedule"));
  std::string unsent = two_stages("RA 1 0 0");  // stage 1 waits for a send that is not there
  unsent.replace(unsent.find("steps 5\nF 0 0 0\nSA 0 0 0"), 24, "steps 4\nF 0 0 0");
  CHECK_THAT(of_file(unsent),
             ContainsSubstring("send_activation of micro-batch 0 in part 0: another stage waits for a send"));
}

}  // namespace schedule_options_test
