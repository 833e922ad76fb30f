// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/schedules.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/random_schedule.hpp>
#include <support/oracles/relaxed_schedule.hpp>
#include <support/sanitized.hpp>

#include "schedule_runs.hpp"

#include <cstdint>
#include <limits>

namespace pipeline_timeline_test {

using namespace pipeline_test;

namespace {

/// Whole seconds, and rates of one byte a second: sums are exact.
pipeline_costs roll_costs(const schedule& plan, support::dice& dice)
{
  pipeline_costs costs = uniform_costs(plan, {});
  for (part_costs& part : costs.parts) {
    part.forward = dice.below(5);
    part.backward_input = dice.below(5);
    part.backward_weight = dice.below(5);
    part.recompute = dice.below(5);
    part.update = dice.below(9);
    part.gather = dice.below(3);
    part.output = bytes{dice.below(4)};
    part.saved = bytes{dice.below(6)};
  }
  for (stage_link& link : costs.links) link = {.latency = dice.below(3) * 1.0, .bytes_per_second = 1};
  costs.to_host_bytes_per_second = 1;
  costs.to_device_bytes_per_second = 0.5;
  costs.updates_aside = dice.one_in(2);
  return costs;
}

void equal_oracle(std::uint64_t seeds)
{
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    support::dice dice{seed};
    const schedule plan = support::random_schedule{dice}.plan();
    const pipeline_costs costs = roll_costs(plan, dice);
    const pipeline_times times = pipeline_timeline{plan, costs}.run(true);
    const support::relaxed_schedule oracle{plan, costs};
    for (std::uint32_t stage = 0; stage < plan.stage_count(); ++stage)
      for (std::size_t index = 0; index < plan.stages[stage].size(); ++index) {
        if (!computes(plan.stages[stage][index].kind)) continue;
        CAPTURE(seed, stage, index);
        REQUIRE(times.steps[stage][index].begin == oracle.begin_of(stage, index));
      }
  }
}

/// Two stages that send one micro-batch down and back.
schedule one_trip()
{
  return make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 1});
}

}  // namespace

TEST_CASE("a timeline has the smallest times that the rules allow", "[pipeline]")
{
  equal_oracle(support::sanitized ? 25 : 300);
}

TEST_CASE("a timeline has the smallest times, for many random schedules", "[pipeline][.slow]")
{
  equal_oracle(20'000);
}

TEST_CASE("a transfer takes its bytes over the rate and the latency of its own direction", "[pipeline]")
{
  const schedule plan = one_trip();
  pipeline_costs costs = uniform_costs(plan, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  costs.parts[0].output = bytes{10};
  costs.link(0, 1) = {.latency = 0.5, .bytes_per_second = 5};
  costs.link(1, 0) = {.latency = 3, .bytes_per_second = 10};
  // F 1, down 2 + 0.5, F 1, BW 2, back 1 + 3, BW 2.
  CHECK(pipeline_timeline{plan, costs}.run().seconds == 12.5);
}

TEST_CASE("links of one channel share the wire, others do not", "[pipeline]")
{
  // Stage 0 sends two micro-batches to stage 1, one right after the other.
  const schedule plan = make_schedule(gpipe{}, {.stages = 2, .micro_batches = 2, .seconds = {1, 1, 1, 4}});
  pipeline_costs costs = uniform_costs(plan, {.forward = 1, .backward_input = 0, .backward_weight = 0});
  costs.parts[0].output = bytes{4};
  costs.link(0, 1) = {.latency = 0, .bytes_per_second = 1};
  // Without a channel both are on their way at once: the second arrives at 2 + 4.
  CHECK(pipeline_timeline{plan, costs}.run().stages[1].last_end == 7);
  costs.link(0, 1).channel = 0;
  CHECK(pipeline_timeline{plan, costs}.run().stages[1].last_end == 10);
}

TEST_CASE("an update takes the stage's time, or runs aside until the version is read", "[pipeline]")
{
  const pipeline_shape shape{.stages = 1, .micro_batches = 2, .batches = 3};
  const schedule plan = make_schedule(pipedream_2bw{.versions = 2}, shape);
  pipeline_costs costs = uniform_costs(plan, shape.seconds);
  costs.parts[0].update = 3;
  CHECK(pipeline_timeline{plan, costs}.run().seconds == 3 * 6 + 3 * 3);
  costs.updates_aside = true;
  // One set of gradients: the next batch's first backward run waits, its forward run does not.
  CHECK(pipeline_timeline{plan, costs}.run().seconds == 3 * 6 + 2 * 2 + 3);
  schedule two_sets = plan;
  two_sets.gradient_sets = 2;
  CHECK(pipeline_timeline{two_sets, costs}.run().seconds == 3 * 6 + 3);
}

TEST_CASE("costs that do not fit a schedule, or cannot be, are refused", "[pipeline]")
{
  const schedule plan = one_trip();
  const pipeline_costs good = uniform_costs(plan, {});
  const auto refused = [&](const auto& change) {
    pipeline_costs costs = good;
    change(costs);
    CHECK_THROWS_AS((pipeline_timeline{plan, costs}), config_error);
  };
  refused([](pipeline_costs& it) { it.parts.pop_back(); });
  refused([](pipeline_costs& it) { it.links.pop_back(); });
  refused([](pipeline_costs& it) { it.stages = 3; });
  refused([](pipeline_costs& it) { it.parts[1].forward = -1; });
  refused([](pipeline_costs& it) { it.parts[0].update = std::numeric_limits<double>::quiet_NaN(); });
  refused([](pipeline_costs& it) { it.link(0, 1).latency = -1; });
  refused([](pipeline_costs& it) { it.link(1, 0).bytes_per_second = 0; });
  refused([](pipeline_costs& it) { it.link(1, 0).channel = 4; });
  refused([](pipeline_costs& it) { it.to_host_bytes_per_second = 0; });
}

}  // namespace pipeline_timeline_test
