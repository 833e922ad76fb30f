// SPDX-License-Identifier: Apache-2.0
// Plans on virtual clocks: small chains by hand, and random plans against a replay that moves single bytes.
#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/chain_timeline.hpp>

#include <support/catch.hpp>
#include <support/oracles/chain_replay.hpp>
#include <support/oracles/random_chain.hpp>

#include <cstdint>
#include <limits>
#include <vector>

namespace chain_timeline_test {

using namespace chunkmem;
using namespace chunkmem::activation;
using enum block_action;

namespace {

/// Two blocks: an input of 3 B, outputs of 4 B and 2 B, and 6 B more that each block saves.
layer_chain two_blocks()
{
  return {.blocks = {{.name = "wide", .forward_seconds = 2, .backward_seconds = 4, .saved = 10_B, .boundary = 4_B},
                     {.name = "narrow", .forward_seconds = 1, .backward_seconds = 2, .saved = 8_B, .boundary = 2_B}},
          .input = 3_B};
}

/// One byte in a second each way, and a copy for each tensor.
activation_budget slow_links(std::uint64_t device)
{
  return {
      .device = bytes{device}, .to_host_bytes_per_second = 1, .to_device_bytes_per_second = 1, .copy = bytes{1'000}};
}

activation_plan plan_with(const std::vector<block_action>& actions)
{
  activation_plan plan;
  plan.planner = "hand";
  set_actions(plan, actions);
  return plan;
}

plan_costs costs_of(const layer_chain& chain, const activation_budget& budget, const activation_plan& plan)
{
  return chain_timeline{chain, budget}.run(plan);
}
plan_costs costs_of(const layer_chain& chain, const activation_budget& budget, const std::vector<block_action>& actions)
{
  return costs_of(chain, budget, plan_with(actions));
}

using row = std::vector<std::uint64_t>;

row needed_of(const layer_chain& chain, const activation_budget& budget, const activation_plan& plan)
{
  chain_rows rows{chain, budget};
  rows.read(plan);
  return rows.needed();
}
row needed_of(const layer_chain& chain, const activation_budget& budget, const std::vector<block_action>& actions)
{
  return needed_of(chain, budget, plan_with(actions));
}

}  // namespace

TEST_CASE("a kept chain needs all that it saved until each backward run, and takes the time of its runs",
          "[activation]")
{
  const layer_chain chain = two_blocks();
  const activation_budget budget = slow_links(18);
  CHECK(needed_of(chain, budget, {keep, keep}) == row{13, 18, 18, 10});
  const plan_costs costs = costs_of(chain, budget, {keep, keep});
  CHECK(costs.fits);
  CHECK(costs.seconds == 9);
  CHECK(costs.unlimited_seconds == 9);
  CHECK(costs.device_peak == 18_B);
  CHECK(costs.moved == 0_B);
  CHECK(costs.host_peak == 0_B);
  CHECK(costs.recomputed_seconds == 0);
  const plan_costs lacking = costs_of(chain, slow_links(15), {keep, keep});
  CHECK_FALSE(lacking.fits);
  CHECK(lacking.missing == 3_B);
  CHECK(lacking.seconds == 0);
}

TEST_CASE("a swapped block waits for its copies where they have no room beside the next block", "[activation]")
{
  const layer_chain chain = two_blocks();
  CHECK(needed_of(chain, slow_links(13), {swap, keep}) == row{13, 12, 8, 10});
  // 0 to 2 wide; its 6 B leave until 8. Narrow needs 8 B: 3 B of the dead input and 5 B that left. 8 to 9 narrow; the
  // output of 4 B leaves until 13, and returns until 17. Narrow runs backward from 9 to 11. 6 B return until 23.
  const plan_costs tight = costs_of(chain, slow_links(13), {swap, keep});
  CHECK(tight.fits);
  CHECK(tight.seconds == 27);
  CHECK(tight.moved == 20_B);
  CHECK(tight.host_peak == 10_B);
  CHECK(tight.device_peak == 13_B);
  // Four bytes more. Narrow needs 1 B that left: all 6 B of one copy, at 8. Its output leaves until 13 all the same.
  CHECK(costs_of(chain, slow_links(17), {swap, keep}).seconds == 27);
  // With 21 B narrow waits for nothing: 2 to 3, then backward to 5. The output leaves from 8 to 12, and returns until
  // 16. The other 6 B return until 22.
  CHECK(costs_of(chain, slow_links(21), {swap, keep}).seconds == 26);
}

TEST_CASE("a copy in parts gives its first bytes free earlier", "[activation]")
{
  const layer_chain chain = two_blocks();
  activation_budget budget = slow_links(17);
  budget.copy = 2_B;
  // Narrow needs 1 B of those that leave: the first 2 B left at 4. 4 to 5 narrow, and backward to 7. The output leaves
  // from 8 to 12; its first part has returned at 12, its second part at 14. The other 6 B return until 20.
  CHECK(costs_of(chain, budget, {swap, keep}).seconds == 24);
}

TEST_CASE("each copy costs its fixed time once in each direction", "[activation]")
{
  layer_chain chain = two_blocks();
  activation_budget budget = slow_links(21);
  budget.seconds_per_copy = 10;
  // The first copy leaves from 2 to 18, the second one until 32. They return in the other order: until 46 and 62.
  CHECK(costs_of(chain, budget, {swap, keep}).seconds == 66);
  // A block that saves its output alone has one copy.
  chain.blocks[0].saved = 4_B;
  chain.blocks[0].boundary = 4_B;
  CHECK(costs_of(chain, budget, {swap, keep}).seconds == 3 + 14 + 14 + 4);
}

TEST_CASE("a link of its own serves each direction", "[activation]")
{
  const layer_chain chain = two_blocks();
  activation_budget budget = slow_links(21);
  budget.to_host_bytes_per_second = 2;
  // 6 B leave until 5, and 4 B until 7. They return until 11 and 17.
  CHECK(costs_of(chain, budget, {swap, keep}).seconds == 21);
  budget.to_device_bytes_per_second = 4;
  CHECK(costs_of(chain, budget, {swap, keep}).seconds == 7 + 1 + 1.5 + 4);
}

TEST_CASE("a recomputed block keeps its input, drops the rest, and runs forward again", "[activation]")
{
  layer_chain chain = two_blocks();
  chain.blocks[0].passing_working = 6_B;
  // The input, 4 B of output and 6 B of work; then the input, both outputs and 6 B; then the input and what narrow
  // saved; then wide as when it saves.
  CHECK(needed_of(chain, slow_links(15), {recompute, keep}) == row{13, 15, 11, 13, 10});
  const plan_costs costs = costs_of(chain, slow_links(15), {recompute, keep});
  CHECK(costs.seconds == 11);
  CHECK(costs.recomputed_seconds == 2);
  CHECK(costs.moved == 0_B);
  chain.blocks[0].recompute_seconds = 5;
  CHECK(costs_of(chain, slow_links(15), {recompute, keep}).seconds == 14);
}

TEST_CASE("a swapped block loads while a later block is recomputed", "[activation]")
{
  layer_chain chain = two_blocks();
  chain.blocks.push_back({.name = "last", .forward_seconds = 3, .backward_seconds = 3, .saved = 5_B, .boundary = 1_B});
  const activation_budget budget = slow_links(30);
  // wide 0 to 2; narrow 2 to 3; last 3 to 6, and backward to 9; narrow again 9 to 10, and backward to 12. 6 B of wide
  // leave from 2 to 8 and return until 14. Its output is the input of a recomputed block, and stays.
  const plan_costs costs = costs_of(chain, budget, {swap, recompute, keep});
  CHECK(costs.seconds == 18);
  CHECK(costs.moved == 12_B);
  CHECK(costs.recomputed_seconds == 1);
}

TEST_CASE("members of a block count where their comments say", "[activation]")
{
  layer_chain chain = two_blocks();
  const activation_budget budget = slow_links(100);
  chain.blocks[0].reads_input = true;
  CHECK(needed_of(chain, budget, {keep, keep}) == row{13, 21, 21, 13});
  CHECK(needed_of(chain, budget, {recompute, keep}) == row{7, 15, 11, 13, 13});
  chain = two_blocks();
  chain.blocks[0].gradient = 10_B;  // from the backward run of the next block on
  chain.blocks[1].gradient = 20_B;  // made by its own
  CHECK(needed_of(chain, budget, {keep, keep}) == row{13, 18, 48, 20});
  chain = two_blocks();
  chain.blocks[0].forward_working = 10_B;
  chain.blocks[0].passing_working = 20_B;
  chain.blocks[0].backward_working = 30_B;
  chain.blocks[1].carried = 40_B;
  CHECK(needed_of(chain, budget, {keep, keep}) == row{23, 58, 58, 40});
  CHECK(needed_of(chain, budget, {recompute, keep}) == row{27, 55, 51, 23, 40});
}

TEST_CASE("each tensor takes whole frames", "[activation]")
{
  const layer_chain chain = two_blocks();
  activation_budget budget = slow_links(100);
  budget.frame = 4_B;
  // Input 4, outputs 4 and 4, inner bytes 8 and 8.
  CHECK(needed_of(chain, budget, {keep, keep}) == row{16, 24, 24, 12});
  CHECK(costs_of(chain, budget, {swap, keep}).host_peak == 12_B);
  budget.device = 23_B;
  CHECK(costs_of(chain, budget, {keep, keep}).missing == 1_B);
  budget.frame = 1'000_B;
  CHECK(costs_of(chain, budget, {keep, keep}).missing == bytes{4'000 - 23});
}

TEST_CASE("a host without room is a plan that does not fit", "[activation]")
{
  activation_budget budget = slow_links(21);
  budget.host = 10_B;
  CHECK(costs_of(two_blocks(), budget, {swap, keep}).fits);
  budget.host = 7_B;
  const plan_costs costs = costs_of(two_blocks(), budget, {swap, keep});
  CHECK_FALSE(costs.fits);
  CHECK(costs.missing == 3_B);
  CHECK(costs_of(two_blocks(), budget, {keep, keep}).fits);
}

TEST_CASE("a tensor of no bytes takes no copy, and a tensor that exceeds the device no list of copies", "[activation]")
{
  layer_chain chain = two_blocks();
  chain.blocks[0].boundary = chain.blocks[0].saved;  // nothing but the output
  activation_budget budget = slow_links(100);
  budget.seconds_per_copy = 1'000;
  CHECK(costs_of(chain, budget, {swap, keep}).seconds < 4'000);  // one copy each way
  chain.blocks[0].saved = chain.blocks[0].boundary = bytes{UINT64_MAX / 4};
  budget.device = 0_B;
  budget.copy = 0_B;
  CHECK(costs_of(chain, budget, {swap, keep}).missing > bytes{UINT64_MAX / 4});
}

namespace {

struct replay_tally {
  int fit = 0;
  int moved = 0;
  int waited = 0;
};

void compare_with_replay(std::uint64_t seed, replay_tally& tally, bool has_skips)
{
  support::dice dice{seed};
  support::chain_problem it = support::roll_chain(dice, {.fewest_blocks = has_skips ? 2U : 1U, .most_blocks = 7});
  activation_plan plan = support::roll_plan(dice, it.chain.size());
  if (has_skips) {
    support::roll_skips(dice, it.chain);
    plan.skips_leave.clear();
    for (std::uint32_t block = 0; block < it.chain.size(); ++block) plan.skips_leave.push_back(dice.one_in(3) ? 0 : 1);
    it.budget.device += it.chain.skipped();
  }
  CAPTURE(seed);
  REQUIRE_NOTHROW(expect_plan_fits(plan, it.chain.size()));
  if (dice.one_in(2)) {  // exactly enough
    it.budget.device = bytes{UINT64_MAX};
    const auto needed = needed_of(it.chain, it.budget, plan);
    it.budget.device = bytes{*std::ranges::max_element(needed)};
  }
  const support::chain_replay replay{it.chain, it.budget, plan};
  REQUIRE(replay.mistake() == "");
  REQUIRE(needed_of(it.chain, it.budget, plan) == replay.needed());
  const plan_costs costs = costs_of(it.chain, it.budget, plan);
  REQUIRE(costs.fits == replay.fits());
  if (!costs.fits) {
    REQUIRE(costs.missing == bytes{replay.most_needed() - it.budget.device.count()});
    return;
  }
  REQUIRE(costs.seconds == replay.seconds());
  REQUIRE(costs.seconds < std::numeric_limits<double>::infinity());
  REQUIRE(costs.recomputed_seconds == replay.recomputed_seconds());
  REQUIRE(costs.host_peak == bytes{replay.host_bytes()});
  REQUIRE(costs.moved == bytes{replay.moved_bytes()});
  REQUIRE(costs.device_peak >= bytes{replay.most_needed()});
  REQUIRE(costs.device_peak <= it.budget.device);
  REQUIRE(activation_bound(it.chain, it.budget).seconds() <= costs.seconds * (1 + 1e-12));
  ++tally.fit;
  tally.moved += costs.moved > 0_B ? 1 : 0;
  tally.waited += costs.seconds > costs.unlimited_seconds + costs.recomputed_seconds ? 1 : 0;
}

void compare_with_replays(std::uint64_t seeds, bool has_skips = false)
{
  replay_tally tally;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) compare_with_replay(seed, tally, has_skips);
  CHECK(tally.fit > static_cast<int>(seeds) / 2);
  CHECK(tally.moved > static_cast<int>(seeds) / 4);
  CHECK(tally.waited > static_cast<int>(seeds) / 8);
}

}  // namespace

TEST_CASE("random plans need the bytes and take the time of a replay byte by byte, and none waits for itself",
          "[activation]")
{
  compare_with_replays(1'500);
}

TEST_CASE("plans with skips that leave between their uses are as their replays", "[activation]")
{
  compare_with_replays(700, true);
}

TEST_CASE("many more random plans are as their replays", "[activation][.slow]")
{
  compare_with_replays(60'000);
  compare_with_replays(20'000, true);
}

TEST_CASE("the bytes that steps need depend on neither the device nor the links", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::chain_problem it = support::roll_chain(dice);
    const activation_plan plan = support::roll_plan(dice, it.chain.size());
    const row needed = needed_of(it.chain, it.budget, plan);
    activation_budget other = it.budget;
    other.device = bytes{dice.below(200)};
    other.to_host_bytes_per_second *= 8;
    other.to_device_bytes_per_second /= 8;
    other.seconds_per_copy += 1;
    other.copy = bytes{dice.between(0, 5)};
    REQUIRE(needed_of(it.chain, other, plan) == needed);
  }
}

TEST_CASE("faster links never make a plan slower", "[activation]")
{
  int faster = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    support::chain_problem it = support::roll_chain(dice);
    it.budget.device += bytes{40};
    const activation_plan plan = support::roll_plan(dice, it.chain.size());
    const plan_costs slow = costs_of(it.chain, it.budget, plan);
    (dice.one_in(2) ? it.budget.to_host_bytes_per_second : it.budget.to_device_bytes_per_second) *= 2;
    const plan_costs fast = costs_of(it.chain, it.budget, plan);
    REQUIRE(fast.fits == slow.fits);
    REQUIRE(fast.seconds <= slow.seconds);
    faster += fast.seconds < slow.seconds ? 1 : 0;
  }
  CHECK(faster > 50);
}

TEST_CASE("a timeline that ran another plan gives the same costs", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::chain_problem it = support::roll_chain(dice);
    const activation_plan one = support::roll_plan(dice, it.chain.size());
    const activation_plan other = support::roll_plan(dice, it.chain.size());
    chain_timeline timeline{it.chain, it.budget};
    const plan_costs first = timeline.run(one);
    (void)timeline.run(other);
    REQUIRE(timeline.run(one) == first);
  }
}

TEST_CASE("a clock has the shortest run of each block, forward and backward apart", "[activation]")
{
  chain_clock clock;
  clock.begin(2);
  clock.note(chain_run::passing, 0, 3);
  clock.note(chain_run::saving, 0, 2);
  clock.note(chain_run::passing, 0, 4);
  clock.note(chain_run::backward, 0, 7);
  clock.note(chain_run::backward, 1, 5);
  CHECK(clock.forward(0) == 2);
  CHECK(clock.backward(0) == 7);
  CHECK(clock.forward(1) == 0);  // it did not run
  CHECK(clock.backward(1) == 5);
}

TEST_CASE("a run that seems to take no time, or less than none, is not measured", "[activation]")
{
  chain_clock clock;
  clock.begin(2);
  clock.note(chain_run::saving, 0, -0.5);
  clock.note(chain_run::backward, 0, 0);
  CHECK(clock.forward(0) == 0);
  CHECK(clock.backward(0) == 0);
  for (const double seconds : {2.0, -0.5, 0.0}) clock.note(chain_run::saving, 1, seconds);
  CHECK(clock.forward(1) == 2);
}

TEST_CASE("requests take the bytes that were free first", "[activation]")
{
  free_bytes room;
  room.give(2.5, 50);
  room.give(0.0, 100);
  CHECK(room.take(0) == 0);
  CHECK(room.take(90) == 0);
  CHECK(room.take(30) == 2.5);
  CHECK(room.take(30) == 2.5);
  CHECK(room.take(1) == std::numeric_limits<double>::infinity());
}

}  // namespace chain_timeline_test
