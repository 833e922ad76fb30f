// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/find_fault.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/no_flush.hpp>
#include <chunkmem/pipeline/one_f_one_b.hpp>
#include <chunkmem/pipeline/pipeline_costs.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/random_schedule.hpp>
#include <support/planted_schedule_faults.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace find_fault_test {

using namespace chunkmem;
using namespace chunkmem::pipeline;

namespace {

void accept_random_schedules(std::uint64_t seeds)
{
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    support::dice dice{seed};
    const schedule plan = support::random_schedule{dice}.plan();
    const auto found = find_fault(plan);
    CAPTURE(seed);
    REQUIRE(!found);
    const pipeline_costs costs = uniform_costs(plan, {.transfer = 0.25});
    REQUIRE(pipeline_timeline{plan, costs}.run().seconds > 0);  // no stage waits for ever
  }
}

void find_planted_faults(std::uint64_t seeds)
{
  const auto faults = support::planted_schedule_faults();
  std::vector<std::uint64_t> planted(faults.size(), 0);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    support::dice dice{seed};
    const schedule good = support::random_schedule{dice}.plan();
    for (std::size_t which = 0; which < faults.size(); ++which) {
      schedule plan = good;
      if (!faults[which].plant(plan, dice)) continue;
      ++planted[which];
      const auto found = find_fault(plan);
      CAPTURE(seed, std::string{faults[which].name});
      REQUIRE(found);
      CAPTURE(std::string{found->text().view()});
      REQUIRE(std::ranges::count(faults[which].found, found->fault) == 1);
    }
  }
  for (std::size_t which = 0; which < faults.size(); ++which) {
    CAPTURE(std::string{faults[which].name});
    CHECK(planted[which] >= seeds / 20);
  }
}

}  // namespace

TEST_CASE("random schedules that run have no fault", "[pipeline]")
{
  accept_random_schedules(support::sanitized ? 100 : 1'000);
}

TEST_CASE("a hundred thousand random schedules that run have no fault", "[pipeline][.slow]")
{
  accept_random_schedules(100'000);
}

TEST_CASE("each planted fault of a schedule is found, by its own rule", "[pipeline]")
{
  find_planted_faults(support::sanitized ? 40 : 500);
}

TEST_CASE("each planted fault is found in many schedules", "[pipeline][.slow]")
{
  find_planted_faults(20'000);
}

TEST_CASE("stages that wait for each other are found, and the timeline ends", "[pipeline]")
{
  const schedule plan = support::waiting_stages();
  const auto found = find_fault(plan);
  REQUIRE(found);
  CHECK(found->fault == schedule_fault::waits_for_ever);
  CHECK(found->stage == 0);
  CHECK(plan.stages[found->stage][found->index].kind == operation_kind::backward);
  const pipeline_costs costs = uniform_costs(plan, {});
  CHECK_THROWS_AS((pipeline_timeline{plan, costs}.run()), config_error);
}

TEST_CASE("a fault says where it is, and what to do", "[pipeline]")
{
  schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  plan.stages[1].pop_back();
  const auto found = find_fault(plan);
  REQUIRE(found);
  CHECK(found->fault == schedule_fault::update_missing);
  CHECK(found->text().view() ==
        "chunkmem: stage 1, update of micro-batch 1 in part 1: a batch ends without an update "
        "(change the schedule)");
  CHECK_THROWS_AS(check_schedule(plan), config_error);
}

TEST_CASE("a schedule without stages, or with owners that are not there, has a fault", "[pipeline]")
{
  CHECK(find_fault(schedule{})->fault == schedule_fault::no_stage);
  schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  plan.owners[1] = 2;
  CHECK(find_fault(plan)->fault == schedule_fault::owner_unknown);
}

TEST_CASE("gradients of a batch wait for the set of an earlier batch", "[pipeline]")
{
  schedule plan =
      make_schedule(no_flush{.versions = 2, .update_delay = 1}, {.stages = 2, .micro_batches = 4, .batches = 3});
  REQUIRE(plan.gradient_sets == 2);
  plan.gradient_sets = 1;
  CHECK(find_fault(plan)->fault == schedule_fault::gradients_in_use);
}

}  // namespace find_fault_test
