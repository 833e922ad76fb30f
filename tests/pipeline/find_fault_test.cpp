// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/find_fault.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/zero_bubble.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/random_schedule.hpp>
#include <support/planted_schedule_faults.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
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
  accept_random_schedules(support::sanitized ? 40 : 1'000);
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

TEST_CASE("steps of random numbers are refused, and break nothing", "[pipeline]")
{
  for (std::uint64_t seed = 1; seed <= (support::sanitized ? 60U : 2'000U); ++seed) {
    support::dice dice{seed};
    schedule plan = support::random_schedule{dice}.plan();
    const auto number = [&] { return dice.one_in(2) ? dice.below(12) : dice.below(UINT32_MAX); };
    for (std::uint32_t change = dice.between(1, 4); change > 0; --change) {
      std::vector<operation>& steps = dice.pick(plan.stages);
      operation& step = steps[dice.below(static_cast<std::uint32_t>(steps.size()))];
      const std::vector<std::uint32_t*> numbers{&step.part,          &step.micro_batch,     &step.version,
                                                &plan.micro_batches, &plan.batches,         &plan.versions,
                                                &plan.gradient_sets, &plan.sends_in_flight, &plan.owners[0]};
      *numbers[dice.below(9)] = number();
      if (dice.one_in(4)) step.kind = static_cast<operation_kind>(dice.below(256));
    }
    const auto found = find_fault(plan);
    if (found) {
      CHECK(!found->text().view().empty());
    } else {
      const pipeline_costs costs = uniform_costs(plan, {});
      CHECK_NOTHROW(pipeline_timeline{plan, costs}.run());
    }
  }
}

TEST_CASE("numbers that are 0, stages without a part, and steps of no kind are faults", "[pipeline]")
{
  const schedule good = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  for (std::uint32_t schedule::*const number : {&schedule::micro_batches, &schedule::batches, &schedule::versions,
                                                &schedule::gradient_sets, &schedule::sends_in_flight}) {
    schedule plan = good;
    plan.*number = 0;
    CHECK(find_fault(plan)->fault == schedule_fault::number_is_zero);
  }
  schedule plan = good;
  plan.stages.emplace_back();
  CHECK(find_fault(plan)->fault == schedule_fault::stage_without_part);
  plan = good;
  plan.micro_batches = 1U << 16;
  plan.batches = 1U << 16;
  CHECK(find_fault(plan)->fault == schedule_fault::number_too_large);
  plan.batches = 1;  // and no memory for what is not there
  CHECK(find_fault(plan)->fault == schedule_fault::run_missing);
  plan = good;
  plan.stages[0][0].kind = static_cast<operation_kind>(200);
  const auto found = find_fault(plan);
  REQUIRE(found);
  CHECK(found->fault == schedule_fault::kind_unknown);
  CHECK(found->text().view().find("an unknown step") != std::string_view::npos);
}

TEST_CASE("a backward run is whole or divided, not both", "[pipeline]")
{
  schedule plan = make_schedule(one_f_one_b{}, {.stages = 1, .micro_batches = 1});
  REQUIRE(plan.stages[0][1].kind == operation_kind::backward);
  plan.stages[0].insert(plan.stages[0].begin() + 2, {operation_kind::backward_input, 0, 0, 0});
  CHECK(find_fault(plan)->fault == schedule_fault::backward_mixed);
}

TEST_CASE("parts of one stage send each other nothing", "[pipeline]")
{
  schedule plan = make_schedule(zb_v{}, {.stages = 2, .micro_batches = 2});
  REQUIRE(plan.owners == std::vector<std::uint32_t>{0, 1, 1, 0});
  std::vector<operation>& steps = plan.stages[1];
  const auto turn = std::ranges::find(steps, operation{operation_kind::forward, 1, 0, 0});
  REQUIRE(turn != steps.end());
  steps.insert(turn + 1, {operation_kind::send_activation, 1, 0, 0});
  CHECK(find_fault(plan)->fault == schedule_fault::crossing_within_stage);
}

TEST_CASE("the orders of a generator have no sends", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  CHECK(find_fault_in_orders(plan)->fault == schedule_fault::transfer_in_orders);
}

TEST_CASE("what goes to the host is not computed again", "[pipeline]")
{
  schedule plan = make_schedule(one_f_one_b{}, {.stages = 1, .micro_batches = 1});
  const operation moved{operation_kind::offload, 0, 0, 0};
  const operation again{operation_kind::recompute, 0, 0, 0};
  plan.stages[0].insert(plan.stages[0].begin() + 1, {moved, again});
  CHECK(find_fault(plan)->fault == schedule_fault::recompute_misplaced);
  std::swap(plan.stages[0][1], plan.stages[0][2]);
  CHECK(find_fault(plan)->fault == schedule_fault::copy_misplaced);
}

TEST_CASE("a send that waits for the one before can make stages wait for ever", "[pipeline]")
{
  // Stage 0 sends four times before it receives. Stage 1 sends twice before it receives the third of them.
  using enum operation_kind;
  schedule plan;
  plan.micro_batches = 4;
  plan.owners = {0, 1};
  plan.stages.resize(2);
  const auto add = [&](std::uint32_t stage, std::initializer_list<operation_kind> kinds, std::uint32_t micro_batch) {
    for (const operation_kind kind : kinds) plan.stages[stage].push_back({kind, stage, micro_batch, 0});
  };
  for (std::uint32_t it = 0; it < 4; ++it) add(0, {forward, send_activation}, it);
  for (std::uint32_t it = 0; it < 4; ++it) add(0, {receive_gradient, backward}, it);
  add(1, {receive_activation}, 0);
  add(1, {receive_activation}, 1);
  for (std::uint32_t it = 0; it < 4; ++it) {
    if (it >= 2) add(1, {receive_activation}, it);
    add(1, {forward, backward, send_gradient}, it);
  }
  for (std::uint32_t stage = 0; stage < 2; ++stage) plan.stages[stage].push_back({update, stage, 3, 1});
  plan.sends_in_flight = 2;
  CHECK(!find_fault(plan));
  plan.sends_in_flight = 1;
  REQUIRE(find_fault(plan));
  CHECK(find_fault(plan)->fault == schedule_fault::waits_for_ever);
}

TEST_CASE("gradients of a batch wait for the set of an earlier batch", "[pipeline]")
{
  schedule plan =
      make_schedule(pipedream_2bw{.versions = 2, .update_delay = 1}, {.stages = 2, .micro_batches = 4, .batches = 3});
  REQUIRE(plan.gradient_sets == 2);
  plan.gradient_sets = 1;
  CHECK(find_fault(plan)->fault == schedule_fault::gradients_in_use);
}

}  // namespace find_fault_test
