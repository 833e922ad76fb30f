// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/find_fault.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/zero_bubble.hpp>

#include <conformance/schedule_generator.hpp>
#include <support/catch.hpp>

#include "schedule_runs.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace generators_test {

using namespace pipeline_test;

namespace {

constexpr pass_seconds whole{.forward = 1, .backward_input = 1, .backward_weight = 1};

struct stages_and_batch {
  std::uint32_t d;
  std::uint32_t m;
};
const std::vector<stages_and_batch> shapes{{1, 1}, {1, 4}, {2, 2}, {2, 5}, {3, 3},
                                           {4, 2}, {4, 4}, {4, 7}, {8, 8}, {8, 24}};

/// Pairs of a forward and a backward run between the last backward run of the first batch and the first forward run
/// that reads version 1.
std::uint32_t slack_in(const schedule& plan, std::uint32_t stage)
{
  std::uint32_t forwards = 0;
  bool is_after = false;
  for (const operation& step : plan.stages[stage]) {
    if (step.kind == operation_kind::backward && step.micro_batch == plan.micro_batches - 1) is_after = true;
    if (step.kind != operation_kind::forward || !is_after) continue;
    if (step.version == 1) break;
    ++forwards;
  }
  return forwards;
}

}  // namespace

TEMPLATE_TEST_CASE("generators keep their laws", "[pipeline]", gpipe, one_f_one_b, eager_one_f_one_b, interleaved,
                   pipedream_2bw, zb_h1, zb_h2)
{
  conformance::schedule_generator_laws<TestType>();
}

TEST_CASE("generators that search keep the laws", "[pipeline]")
{
  conformance::schedule_generator_laws(zero_bubble{.trials = 100}, 6);
  conformance::schedule_generator_laws(zb_v{.trials = 100}, 6);
}

TEST_CASE("1F1B of four stages and eight micro-batches has the known orders", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 4, .micro_batches = 8});
  CHECK(runs_of(plan, 0) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  CHECK(runs_of(plan, 1) == "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  CHECK(runs_of(plan, 2) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  CHECK(runs_of(plan, 3) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
}

TEST_CASE("interleaved 1F1B of two stages has the known orders", "[pipeline]")
{
  const schedule plan = make_schedule(interleaved{.parts = 2}, {.stages = 2, .micro_batches = 4});
  CHECK(runs_of(plan, 0) == "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  CHECK(runs_of(plan, 1) == "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

TEST_CASE("interleaved forward runs pass in groups of any allowed size", "[pipeline]")
{
  const schedule plan = make_schedule(interleaved{.parts = 2, .group = 3}, {.stages = 2, .micro_batches = 5});
  std::vector<std::uint32_t> micro_batches;
  std::vector<std::uint32_t> rounds;
  for (const operation& step : plan.stages[0]) {
    if (step.kind != operation_kind::forward) continue;
    micro_batches.push_back(step.micro_batch);
    rounds.push_back(step.part / 2);
  }
  CHECK(micro_batches == std::vector<std::uint32_t>{0, 1, 2, 0, 1, 2, 3, 4, 3, 4});
  CHECK(rounds == std::vector<std::uint32_t>{0, 0, 0, 1, 1, 1, 0, 0, 1, 1});
}

TEST_CASE("GPipe and 1F1B take (m + d - 1)(F + B + W) without transfer times", "[pipeline]")
{
  for (const auto [d, m] : shapes) {
    const pipeline_shape shape{.stages = d, .micro_batches = m, .seconds = {1, 2, 0.5}};
    CHECK(timed(gpipe{}, shape).times.seconds == (m + d - 1) * 3.5);
    CHECK(timed(one_f_one_b{}, shape).times.seconds == (m + d - 1) * 3.5);
  }
}

TEST_CASE("1F1B pays a round trip for every d micro-batches, eager 1F1B only one for a batch", "[pipeline]")
{
  for (const std::uint32_t p : {2U, 3U, 4U, 8U})
    for (const std::uint32_t rounds : {1U, 2U, 4U})
      for (const double c : {0.0625, 0.25, 0.5, 0.75}) {
        const std::uint32_t m = p * rounds;
        const pipeline_shape shape{.stages = p, .micro_batches = m, .seconds = {1, 1, 1, c}};
        CAPTURE(p, m, c);
        CHECK(timed(one_f_one_b{}, shape).times.seconds ==
              (m + p - 1) * 3.0 + (2.0 * (p - 1) * rounds + 2 * (p - 2)) * c);
        CHECK(timed(eager_one_f_one_b{}, shape).times.seconds == (m + p - 1) * 3.0 + 2 * (p - 1) * c);
      }
}

TEST_CASE("interleaved 1F1B idles one part's share, and pays for its transfers once", "[pipeline]")
{
  for (const std::uint32_t p : {2U, 3U, 4U, 8U})
    for (const std::uint32_t v : {2U, 4U})
      for (const std::uint32_t rounds : {1U, 2U, 4U})
        for (const double c : {0.0, 0.125, 0.25}) {
          const std::uint32_t m = p * rounds;
          const double times = 4;  // of a part: so that the shares are exact
          const pipeline_shape shape{.stages = p, .micro_batches = m, .seconds = {times, times, times, c * times}};
          CAPTURE(p, v, m, c);
          const double expected = m * 3 * times + (p - 1) * 3 * times / v + 2 * (p * v - 1.0) * c * times;
          if (c <= 1.0 / v) CHECK(timed(interleaved{.parts = v}, shape).times.seconds == expected);
        }
}

TEST_CASE("zero bubble schedules idle as long as their paper says", "[pipeline]")
{
  for (const std::uint32_t p : {2U, 4U, 8U}) {
    const pass_seconds seconds{.forward = 4, .backward_input = 4.5, .backward_weight = 3};
    const pipeline_shape shape{.stages = p, .micro_batches = 3 * p, .seconds = seconds};
    const double busy = 3 * p * seconds.all();
    CAPTURE(p);
    CHECK(timed(one_f_one_b{}, shape).times.span() - busy == (p - 1) * 11.5);
    CHECK(timed(zb_h1{}, shape).times.span() - busy == (p - 1) * 5.5);
    CHECK(timed(zb_h2{}, shape).times.span() - busy == (p - 1) * 2.5);
  }
}

TEST_CASE("without flush T batches take (T m + d - 1)(F + B + W), with flush T (m + d - 1)(F + B + W)", "[pipeline]")
{
  struct known {
    std::uint32_t d, m, batches;
    double without, with;
  };
  for (const auto [d, m, batches, without, with] :
       {known{4, 4, 10, 129, 210}, {8, 8, 20, 501, 900}, {8, 32, 20, 1'941, 2'340}}) {
    const pipeline_shape shape{.stages = d, .micro_batches = m, .batches = batches, .seconds = whole};
    CHECK(timed(pipedream_2bw{}, shape).times.seconds == without);
    CHECK(timed(one_f_one_b{}, shape).times.seconds == with);
  }
}

TEST_CASE("a pipeline never empties with 1 + ceil((d - 1) / m) versions, and not with one fewer", "[pipeline]")
{
  for (std::uint32_t d = 1; d <= 8; ++d)
    for (std::uint32_t m = 1; m <= 9; ++m) {
      const std::uint32_t versions = fewest_versions(d, m);
      CAPTURE(d, m, versions);
      CHECK(versions == 1 + (d - 1 + m - 1) / m);
      const pipeline_shape shape{.stages = d, .micro_batches = m, .batches = 12, .seconds = whole};
      const timed_schedule it = timed(pipedream_2bw{.versions = versions}, shape);
      CHECK(it.times.seconds == (12 * m + d - 1) * 3.0);
      if (versions == 1) continue;
      CHECK_THROWS_AS(make_schedule(pipedream_2bw{.versions = versions - 1}, shape), config_error);
      // The refusal is not a rule of its own: the same steps with one version fewer read what is not there.
      schedule fewer = it.plan;
      fewer.versions = versions - 1;
      CHECK(find_fault(fewer));
    }
}

TEST_CASE("a stage has (K - 1) m - (d - 1 - s) pairs of runs for an update", "[pipeline]")
{
  for (const auto [d, m] : {stages_and_batch{4, 3}, {4, 4}, {4, 7}, {8, 8}, {8, 12}, {8, 3}}) {
    const std::uint32_t versions = fewest_versions(d, m);
    const schedule plan =
        make_schedule(pipedream_2bw{.versions = versions}, {.stages = d, .micro_batches = m, .batches = 6});
    for (std::uint32_t stage = 0; stage < d; ++stage)
      CHECK(slack_in(plan, stage) == update_slack(d, m, versions, stage));
  }
}

TEST_CASE("an update that fits into the slack of its stage costs no time", "[pipeline]")
{
  const pipeline_shape shape{.stages = 4, .micro_batches = 7, .batches = 8, .seconds = whole};
  const std::uint32_t slack = update_slack(4, 7, 2, 0);
  REQUIRE(slack == 4);
  CHECK_THROWS_AS(make_schedule(pipedream_2bw{.update_delay = slack + 1}, shape), config_error);
  // With two sets of gradients the next batch adds up while the update runs.
  const schedule plan = make_schedule(pipedream_2bw{.gradient_sets = 2}, shape);
  pipeline_costs costs = uniform_costs(plan, whole);
  costs.updates_aside = true;
  const double all_runs = (8 * 7 + 3) * 3.0;
  const double last = 7 * 3.0;  // the last update ends after the last run, and has the batch's time until it does
  for (std::uint32_t stage = 0; stage < 4; ++stage) costs.parts[stage].update = update_slack(4, 7, 2, stage) * 3.0;
  CHECK(pipeline_timeline{plan, costs}.run().seconds <= all_runs + last);
  CHECK(pipeline_timeline{plan, costs}.run().stages[0].last_end == all_runs);
  costs.parts[0].update += 1;
  CHECK(pipeline_timeline{plan, costs}.run().stages[0].last_end > all_runs);
}

TEST_CASE("an update that comes later gives the same times while its stage waits for nothing", "[pipeline]")
{
  const pipeline_shape shape{.stages = 4, .micro_batches = 7, .batches = 8, .seconds = whole};
  for (std::uint32_t delay = 1; delay <= 4; ++delay) {
    const timed_schedule it = timed(pipedream_2bw{.update_delay = delay}, shape);
    CHECK(it.plan.gradient_sets == 2);
    CHECK(it.times.seconds == (8 * 7 + 3) * 3.0);
  }
}

TEST_CASE("updates for all stages come one pair later from stage to stage, and cost no time", "[pipeline]")
{
  for (const auto& [d, m] : {std::pair{2U, 2U}, {3U, 3U}, {4U, 4U}, {4U, 7U}, {8U, 8U}, {8U, 16U}}) {
    const pipeline_shape shape{.stages = d, .micro_batches = m, .batches = 5, .seconds = whole};
    const timed_schedule it = timed(pipedream_2bw{.for_all_stages = true}, shape);
    CAPTURE(d, m);
    CHECK_NOTHROW(check_schedule(it.plan));
    CHECK(it.plan.gradient_sets == 2);
    CHECK(it.times.seconds == (5.0 * m + d - 1) * 3.0);
    for (std::uint32_t stage = 0; stage < d; ++stage) {
      std::uint32_t backward_runs = 0;
      for (const operation& step : it.plan.stages[stage]) {
        if (step.kind == operation_kind::update) break;
        backward_runs += step.kind == operation_kind::backward ? 1U : 0U;
      }
      CHECK(backward_runs == m + stage);
    }
  }
  const pipeline_shape tight{.stages = 4, .micro_batches = 3, .batches = 2};
  CHECK_NOTHROW(make_schedule(pipedream_2bw{}, tight));
  CHECK_THROWS_WITH(make_schedule(pipedream_2bw{.for_all_stages = true}, tight),
                    Catch::Matchers::ContainsSubstring("up to 3 pairs of runs late, and the next batch ends after 3"));
}

TEST_CASE("stages save as many micro-batches as the schedules say", "[pipeline]")
{
  for (const auto [d, m] : shapes) {
    const pipeline_shape shape{.stages = d, .micro_batches = m, .batches = 3};
    CAPTURE(d, m);
    const auto all = saved_peaks(make_schedule(gpipe{}, shape), 1, 0);
    const auto ahead = saved_peaks(make_schedule(one_f_one_b{}, shape), 1, 0);
    const auto eager = saved_peaks(make_schedule(eager_one_f_one_b{}, shape), 1, 0);
    const auto endless = saved_peaks(make_schedule(pipedream_2bw{.versions = fewest_versions(d, m)}, shape), 1, 0);
    for (std::uint32_t stage = 0; stage < d; ++stage) {
      CHECK(all[stage] == m);
      CHECK(ahead[stage] == std::min(d - stage, m));
      CHECK(eager[stage] == std::min(2 * (d - stage) - 1, m));
      CHECK(endless[stage] == std::min(d - stage, 3 * m));
    }
  }
}

TEST_CASE("interleaved stages save (v - 1) d + 2 (d - 1 - s) + 1 parts", "[pipeline]")
{
  for (const std::uint32_t p : {2U, 4U, 8U})
    for (const std::uint32_t v : {2U, 3U})
      for (const std::uint32_t m : {p, 3 * p}) {
        const auto peaks = saved_peaks(make_schedule(interleaved{.parts = v}, {.stages = p, .micro_batches = m}), 1, 0);
        for (std::uint32_t stage = 0; stage < p; ++stage)
          CHECK(peaks[stage] == std::min(m * v, (v - 1) * p + 2 * (p - 1 - stage) + 1));
      }
}

TEST_CASE("zero bubble stages save what their paper says", "[pipeline]")
{
  // In tenths of what a micro-batch saves; W reads six of them.
  const pipeline_shape four{.stages = 4, .micro_batches = 12};
  CHECK(saved_peaks(make_schedule(zb_h1{}, four), 10, 6) == std::vector<std::uint64_t>{40, 36, 32, 28});
  CHECK(saved_peaks(make_schedule(zb_h2{}, four), 10, 6) == std::vector<std::uint64_t>{70, 62, 54, 46});
  const auto eight = saved_peaks(make_schedule(zb_h2{}, {.stages = 8, .micro_batches = 24}), 10, 6);
  CHECK(eight == std::vector<std::uint64_t>{150, 142, 134, 126, 118, 110, 102, 94});
}

TEST_CASE("shapes and groups that cannot be are refused", "[pipeline]")
{
  CHECK_THROWS_AS(make_schedule(gpipe{}, {.stages = 0, .micro_batches = 1}), config_error);
  CHECK_THROWS_AS(make_schedule(gpipe{}, {.stages = 1, .micro_batches = 0}), config_error);
  CHECK_THROWS_AS(make_schedule(gpipe{}, {.stages = 1, .micro_batches = 1, .batches = 0}), config_error);
  CHECK_THROWS_AS(make_schedule(gpipe{}, {.stages = 1, .micro_batches = 1U << 31}), config_error);
  CHECK_THROWS_AS(make_schedule(gpipe{}, {.stages = 2, .micro_batches = 2, .seconds = {-1, 1, 1}}), config_error);
  CHECK_THROWS_AS(make_schedule(interleaved{.parts = 0}, {.stages = 2, .micro_batches = 2}), config_error);
  CHECK_THROWS_AS(make_schedule(interleaved{.group = 1}, {.stages = 2, .micro_batches = 2}), config_error);
  CHECK_THROWS_AS(make_schedule(interleaved{.group = 3}, {.stages = 2, .micro_batches = 2}), config_error);
  try {
    (void)make_schedule(interleaved{.parts = 2}, {.stages = 4, .micro_batches = 10});
    FAIL("a partial group was accepted");
  } catch (const config_error& refused) {
    CHECK(std::string{refused.what()} ==
          "chunkmem: 10 micro-batches in groups of 4 leave a partial group of 2, fewer than the 4 stages (change the "
          "group or the batch)");
  }
  try {
    (void)make_schedule(pipedream_2bw{}, {.stages = 4, .micro_batches = 2});
    FAIL("two versions were accepted");
  } catch (const config_error& refused) {
    CHECK(std::string{refused.what()} ==
          "chunkmem: 4 stages with 2 micro-batches in a batch need 3 versions of the weights, not 2 (add versions, or "
          "micro-batches)");
  }
}

}  // namespace generators_test
