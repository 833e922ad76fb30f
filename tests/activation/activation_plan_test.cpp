// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/chain_timeline.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>
#include <support/oracles/random_chain.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace activation_plan_test {

using namespace chunkmem;
using namespace chunkmem::activation;
using enum block_action;
using enum chain_run;

namespace {

using flags = std::vector<std::uint8_t>;
using steps = std::vector<chain_step>;

activation_plan plan_with(const std::vector<block_action>& actions)
{
  activation_plan plan;
  set_actions(plan, actions);
  return plan;
}

activation_plan plan_with(const steps& given, std::uint32_t blocks)
{
  activation_plan plan;
  plan.steps = given;
  plan.inner_leaves.assign(blocks, 0);
  plan.input_leaves.assign(blocks, 0);
  return plan;
}

/// The step, the block and the reason that a refusal names.
void expect_refused(const activation_plan& plan, std::uint32_t blocks, const std::string& where, const std::string& why)
{
  using Catch::Matchers::ContainsSubstring;
  CAPTURE(where, why);
  CHECK_THROWS_AS(expect_plan_fits(plan, blocks), config_error);
  CHECK_THROWS_WITH(expect_plan_fits(plan, blocks), ContainsSubstring(where + ": ") && ContainsSubstring(why));
}

}  // namespace

TEST_CASE("a plan of actions runs all blocks forward, then each one backward, after a second run where it wants one",
          "[activation]")
{
  const activation_plan plan = plan_with({swap, recompute, keep});
  CHECK(plan.steps ==
        steps{{saving, 0}, {passing, 1}, {saving, 2}, {backward, 2}, {saving, 1}, {backward, 1}, {backward, 0}});
  CHECK(plan.inner_leaves == flags{1, 0, 0});
  CHECK(plan.input_leaves == flags{0, 0, 0});  // a recomputed block's input stays
  CHECK(plan_with({swap, swap, keep}).input_leaves == flags{0, 1, 1});
  CHECK(plan_with({keep, swap, recompute, keep}).input_leaves == flags{0, 0, 0, 0});
}

TEST_CASE("a plan tells the actions that it was made of", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const std::vector<block_action> actions = support::roll_actions(dice, dice.between(1, 12));
    const activation_plan plan = plan_with(actions);
    for (std::uint32_t block = 0; block < actions.size(); ++block) REQUIRE(plan.action_of(block) == actions[block]);
    REQUIRE_NOTHROW(expect_plan_fits(plan, static_cast<std::uint32_t>(actions.size())));
  }
}

TEST_CASE("a plan that takes the place of another one keeps nothing of it", "[activation]")
{
  activation_plan plan = plan_with({swap, recompute, swap, keep});
  set_actions(plan, {keep, swap});
  CHECK(plan == plan_with({keep, swap}));
}

TEST_CASE("each way to break a plan is refused with its step and its block", "[activation]")
{
  const steps right{{saving, 0}, {saving, 1}, {backward, 1}, {backward, 0}};
  CHECK_NOTHROW(expect_plan_fits(plan_with(right, 2), 2));
  expect_refused(plan_with(right, 3), 2, "step 0, block 3", "another number of blocks");
  expect_refused(plan_with(right, 1), 2, "step 0, block 1", "another number of blocks");
  activation_plan uneven = plan_with(right, 2);
  uneven.input_leaves.pop_back();
  expect_refused(uneven, 2, "step 0, block 2", "another number of blocks");
  expect_refused(plan_with({{saving, 0}, {saving, 7}}, 2), 2, "step 1, block 7", "no such block");
  expect_refused(plan_with({{saving, 1}}, 2), 2, "step 0, block 1", "input was never made");
  expect_refused(plan_with({{saving, 0}, {saving, 1}, {backward, 0}}, 2), 2, "step 2, block 0", "reverse order");
  expect_refused(plan_with({{saving, 0}, {saving, 1}, {backward, 1}, {backward, 1}}, 2), 2, "step 3, block 1",
                 "reverse order");
  expect_refused(plan_with({{saving, 0}, {saving, 1}, {backward, 1}, {saving, 1}}, 2), 2, "step 3, block 1",
                 "forward after its backward run");
  expect_refused(plan_with({{saving, 0}, {passing, 1}, {backward, 1}}, 2), 2, "step 2, block 1", "saved nothing");
  expect_refused(plan_with({{saving, 0}, {saving, 1}, {backward, 1}}, 2), 2, "step 3, block 0", "never runs backward");
  expect_refused(plan_with(steps{}, 2), 2, "step 0, block 1", "never runs backward");
}

TEST_CASE("a run that passes after one that saved is refused before a backward run", "[activation]")
{
  expect_refused(plan_with({{saving, 0}, {saving, 1}, {passing, 0}, {backward, 1}, {backward, 0}}, 2), 2,
                 "step 4, block 0", "its last run saved nothing");
  CHECK_NOTHROW(expect_plan_fits(
      plan_with({{saving, 0}, {passing, 0}, {saving, 1}, {saving, 0}, {backward, 1}, {backward, 0}}, 2), 2));
}

TEST_CASE("each random schedule is a plan, and is none without any of its backward runs", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const std::uint32_t blocks = dice.between(1, 8);
    activation_plan plan = support::roll_plan(dice, blocks);
    REQUIRE_NOTHROW(expect_plan_fits(plan, blocks));
    REQUIRE_THROWS_AS(expect_plan_fits(plan, blocks + 1), config_error);
    auto lost = plan.steps.begin() + dice.below(static_cast<std::uint32_t>(plan.steps.size()));
    while (lost->run != backward) ++lost;
    plan.steps.erase(lost);
    REQUIRE_THROWS_AS(expect_plan_fits(plan, blocks), config_error);
  }
}

TEST_CASE("a merged block's run is a run of each of its blocks, in order, and backward in reverse", "[activation]")
{
  const layer_chain chain{.blocks = std::vector<chain_block>(5)};
  activation_plan coarse = plan_with({swap, recompute, keep});
  coarse.planner = "coarse";
  coarse.input_leaves[0] = 1;
  const activation_plan plan = expanded(coarse, {0, 2, 4}, chain);
  CHECK(plan.planner == "coarse");
  CHECK(plan.steps == steps{{saving, 0},
                            {saving, 1},
                            {passing, 2},
                            {passing, 3},
                            {saving, 4},
                            {backward, 4},
                            {saving, 2},
                            {saving, 3},
                            {backward, 3},
                            {backward, 2},
                            {backward, 1},
                            {backward, 0}});
  CHECK(plan.inner_leaves == flags{1, 1, 0, 0, 0});
  CHECK(plan.input_leaves == flags{1, 1, 0, 0, 0});
}

TEST_CASE("an expanded plan is a plan of its chain, and moves and recomputes what the merged plan does", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    support::chain_problem it = support::roll_chain(dice, {.fewest_blocks = 2, .most_blocks = 10});
    it.budget.device = 1'000'000_B;
    it.budget.frame = 1_B;
    std::vector<std::uint32_t> begins{0};
    for (std::uint32_t block = 1; block < it.chain.size(); ++block)
      if (dice.one_in(2)) begins.push_back(block);
    const layer_chain coarse = merged(it.chain, begins);
    const activation_plan merged_plan = support::roll_plan(dice, coarse.size());
    const activation_plan plan = expanded(merged_plan, begins, it.chain);
    REQUIRE_NOTHROW(expect_plan_fits(plan, it.chain.size()));
    const plan_costs costs = chain_timeline{it.chain, it.budget}.run(plan);
    const plan_costs merged_costs = chain_timeline{coarse, it.budget}.run(merged_plan);
    REQUIRE(costs.recomputed_seconds == merged_costs.recomputed_seconds);
    REQUIRE(costs.host_peak == merged_costs.host_peak);
    REQUIRE(costs.seconds >= it.chain.unlimited_seconds());
  }
}

TEST_CASE("a chain merged to itself has the plan that it had", "[activation]")
{
  support::dice dice{5};
  const support::chain_problem it = support::roll_chain(dice, {.fewest_blocks = 6, .most_blocks = 6});
  const activation_plan plan = support::roll_plan(dice, 6);
  CHECK(expanded(plan, {0, 1, 2, 3, 4, 5}, it.chain) == plan);
}

TEST_CASE("costs of a plan name the bound, and refuse a plan of another chain", "[activation]")
{
  support::dice dice{7};
  const support::chain_problem it = support::roll_chain(dice, {.fewest_blocks = 4, .most_blocks = 4});
  activation_plan plan = plan_with({keep, swap, recompute, keep});
  cost_plan(plan, it.chain, it.budget);
  CHECK(plan.costs.bound_seconds == activation_bound(it.chain, it.budget).seconds());
  CHECK(plan.costs.unlimited_seconds == it.chain.unlimited_seconds());
  plan = plan_with({keep, keep});
  CHECK_THROWS_AS(cost_plan(plan, it.chain, it.budget), config_error);
  CHECK_THROWS_AS(plan_of("short", it.chain, it.budget, {keep}), config_error);
}

TEST_CASE("a report has the costs of a plan and a letter for each block", "[activation]")
{
  activation_plan plan = plan_with({swap, recompute, keep});
  plan.planner = "hand";
  plan.costs = {.fits = true,
                .seconds = 3,
                .unlimited_seconds = 2,
                .bound_seconds = 2.5,
                .recomputed_seconds = 0.25,
                .moved = bytes{3'200'000'000},
                .device_peak = bytes{13'900'000'000},
                .host_peak = bytes{1'600'000'000}};
  CHECK(report_of(plan) ==
        "plan of hand: 3 s, 1.500 of a step with enough memory, 1.200 of the bound\n"
        "moved 3.2 GB, recomputed 0.25 s, peak on the device 13.9 GB, on the host 1.6 GB\n"
        "blocks SRK\n");
  plan.costs = {.fits = false, .missing = bytes{1'500'000'000}};
  CHECK(report_of(plan) == "plan of hand: does not fit, 1.5 GB are missing\n");
}

}  // namespace activation_plan_test
