// SPDX-License-Identifier: Apache-2.0
// The time of a step whose micro-batches are many, against the simulation of all of them.
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/rank_places.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/interruption.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include "exhaustive_search.hpp"

#include <cstdint>

namespace many_micro_batches_test {

using namespace chunkmem;
using namespace chunkmem::configurator;

namespace {

/// Every micro-batch simulated.
double whole_seconds(const step_latency& latency, const parallel_plan& plan)
{
  const pipeline::pipeline_costs costs = latency.costs(plan);
  const auto seconds = [&](std::uint32_t batches) {
    const pipeline::schedule schedule = schedule_of(plan, latency.typical_seconds(plan), batches);
    return pipeline::pipeline_timeline{schedule, costs}.run().seconds;
  };
  if (plan.schedule == schedule_kind::two_versions) return (seconds(4) - seconds(2)) / 2;
  return seconds(1);
}

}  // namespace

TEST_CASE("a step of many micro-batches takes as long as all of them simulated", "[configurator]")
{
  const workload::transformer_shape shape = exhaustive_search::shape();
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    support::dice dice{seed};
    const std::uint32_t stages = dice.between(1, 4);
    cluster whole = exhaustive_search::roll_cluster(dice, stages);
    if (dice.one_in(3))
      for (cluster_node& it : whole.nodes) it.device_flops_per_second = 1e13;
    const step_latency latency{whole, shape};
    parallel_plan plan{.stages = stages, .devices = identity_placement(stages)};
    plan.schedule = static_cast<schedule_kind>(seed % schedule_kinds);
    if (stages == 1) plan.schedule = schedule_kind::one_f_one_b;
    plan.parts = plan.schedule == schedule_kind::interleaved || plan.schedule == schedule_kind::zb_v ? 2 : 1;
    plan.micro_batches = stages * dice.between(60, 200);
    if (plan.schedule != schedule_kind::interleaved) plan.micro_batches += dice.below(3);
    CAPTURE(seed, name_of(plan.schedule), stages, plan.micro_batches);
    CHECK(latency.of(plan).step == Catch::Approx(whole_seconds(latency, plan)).epsilon(1e-9));
  }
}

TEST_CASE("hundreds of millions of micro-batches take no memory, and their share of the time", "[configurator]")
{
  const workload::transformer_shape shape = exhaustive_search::shape();
  support::dice dice{2};
  const cluster whole = exhaustive_search::roll_cluster(dice, 4);
  const step_latency latency{whole, shape};
  parallel_plan plan{.stages = 4, .micro_batches = 4'000, .devices = identity_placement(4)};
  const double few = latency.of(plan).step;
  plan.micro_batches = 400'000'000;
  CHECK(latency.of(plan).step == Catch::Approx(1e5 * few).epsilon(0.01));
  using Catch::Matchers::ContainsSubstring;
  plan.schedule = schedule_kind::gpipe;
  CHECK_THROWS_WITH(latency.of(plan), ContainsSubstring("400000000 micro-batches through 4 parts do not repeat"));
  CHECK_THROWS_WITH(schedule_of(plan, {}), ContainsSubstring("give a micro-batch more rows"));
}

TEST_CASE("too few micro-batches for 2bw are refused with numbers that a plan has", "[configurator]")
{
  const parallel_plan plan{.stages = 4, .micro_batches = 2, .schedule = schedule_kind::two_versions};
  CHECK_THROWS_WITH(schedule_of(plan, {}),
                    Catch::Matchers::ContainsSubstring("4 stages need 3 micro-batches in a batch, not 2"));
}

TEST_CASE("a simulation looks at its interruption after a bounded number of events", "[configurator]")
{
  const workload::transformer_shape shape = exhaustive_search::shape();
  support::dice dice{2};
  const cluster whole = exhaustive_search::roll_cluster(dice, 4);
  const parallel_plan plan{
      .stages = 4, .micro_batches = 400, .schedule = schedule_kind::gpipe, .devices = identity_placement(4)};
  std::uint64_t looks = 0;
  const pipeline::interruption counted{[&] { return ++looks == 0; }};
  (void)step_latency{whole, shape, counted}.of(plan);
  constexpr std::uint64_t runs = 4 * 400 * 2;
  CHECK(looks > 2 * (runs / pipeline::pipeline_timeline::events_between_looks));
  const std::uint64_t all = looks;
  for (std::uint64_t stops_at = 1; stops_at < all; stops_at += 5) {
    looks = 0;
    const pipeline::interruption stop{[&] { return ++looks == stops_at; }};
    const step_latency latency{whole, shape, stop};
    CHECK_THROWS_AS((void)latency.of(plan), pipeline::interrupted);
    CHECK(looks == stops_at);
  }
}

}  // namespace many_micro_batches_test
