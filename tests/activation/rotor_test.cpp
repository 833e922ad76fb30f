// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/rotor.hpp>

#include <support/catch.hpp>
#include <support/oracles/chain_checkpointing.hpp>
#include <support/oracles/random_chain.hpp>
#include <support/oracles/wide_search.hpp>

#include "slot_problem.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace rotor_test {

using namespace chunkmem;
using namespace chunkmem::activation;

namespace {

double all_again(const layer_chain& chain)
{
  double seconds = 0;
  for (const chain_block& block : chain.blocks) seconds += block.again_seconds();
  return seconds;
}

/// Slots beside the chain's input.
std::int64_t room_of(const chain_slots& slots)
{
  return static_cast<std::int64_t>(slots.budget) - static_cast<std::int64_t>(slots.input[0]);
}

void equal_oracle(std::uint64_t seeds, std::uint32_t most_stages)
{
  int slower = 0;
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    support::dice dice{seed};
    const support::slot_problem it = support::roll_slots(dice, most_stages);
    const chain_slots slots{it.chain, it.budget, it.device()};
    const rotor_table table{slots, slots.budget};
    for (std::uint32_t room = 0; room + slots.input[0] <= it.device(); ++room) {
      CAPTURE(seed, room);
      const double found = table.seconds(0, it.last(), room, segment_input::ends);
      REQUIRE(found == support::oracle_rotor(it.slots, room));
      ++compared;
      slower += found < rotor_table::never && found > it.chain.unlimited_seconds() ? 1 : 0;
    }
  }
  CHECK(slower > compared / 8);
}

}  // namespace

TEST_CASE("rotor's table has the times of a recursion from the top, for every budget", "[activation]")
{
  equal_oracle(150, 7);
}

TEST_CASE("rotor's table has the times of a recursion from the top, for many longer chains", "[activation][.slow]")
{
  equal_oracle(2'000, 12);
}

TEST_CASE("rotor's plans fit where its table says so, and take the table's time", "[activation]")
{
  int fit = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::slot_problem it = support::roll_slots(dice, 8);
    const chain_slots slots{it.chain, it.budget, it.device()};
    const double expected = rotor_table{slots, slots.budget}.seconds(0, it.last(), room_of(slots), segment_input::ends);
    const activation_plan plan = rotor{it.device()}.plan(it.chain, it.budget);
    REQUIRE_NOTHROW(expect_plan_fits(plan, it.chain.size()));
    if (expected == rotor_table::never) continue;
    ++fit;
    REQUIRE(plan.costs.fits);
    REQUIRE(plan.costs.seconds == expected);
    REQUIRE(plan.costs.recomputed_seconds == expected - it.chain.unlimited_seconds());
    REQUIRE(plan.costs.moved == 0_B);
  }
  CHECK(fit > 150);
}

TEST_CASE("rotor's plans of few slots fit in bytes, with first runs that take another time", "[activation]")
{
  int fit = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    support::chain_problem it = support::roll_chain(dice, {.most_blocks = 8});
    it.budget.device += bytes{dice.below(40)};
    const chain_slots slots{it.chain, it.budget, dice.between(5, 30)};
    const rotor_table table{slots, slots.budget};
    const double expected = table.seconds(0, it.chain.size() - 1, room_of(slots), segment_input::ends);
    if (expected == rotor_table::never) continue;
    ++fit;
    activation_plan plan;
    plan.inner_leaves.assign(it.chain.size(), 0);
    plan.input_leaves.assign(it.chain.size(), 0);
    table.append_steps(0, it.chain.size() - 1, room_of(slots), segment_input::ends, plan.steps);
    cost_plan(plan, it.chain, it.budget);
    REQUIRE(plan.costs.fits);
    REQUIRE(plan.costs.seconds == expected - all_again(it.chain) + it.chain.forward_seconds());
  }
  CHECK(fit > 100);
}

TEST_CASE("rotor takes the least time of all trees of recomputation that fit in bytes", "[activation]")
{
  int slower = 0;
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::chain_problem it =
        support::roll_chain(dice, {.fewest_blocks = 2, .most_blocks = 6, .has_all_members = !dice.one_in(3)});
    const double least = support::least_seconds_without_swaps(it.chain, it.budget);
    const activation_plan plan = rotor{static_cast<std::uint32_t>(it.budget.device.count())}.plan(it.chain, it.budget);
    REQUIRE(plan.costs.fits == (least < rotor_table::never));
    if (!plan.costs.fits) {
      ++refused;
      continue;
    }
    REQUIRE(plan.costs.seconds == least);
    slower += least > it.chain.unlimited_seconds() ? 1 : 0;
  }
  CHECK(slower > 150);
  CHECK(refused > 10);
}

TEST_CASE("rotor of a few slots refuses no chain that a tree of recomputation fits", "[activation]")
{
  int fit = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::chain_problem it = support::roll_chain(dice, {.fewest_blocks = 2, .most_blocks = 6});
    const bool fits = support::least_seconds_without_swaps(it.chain, it.budget) < rotor_table::never;
    REQUIRE(rotor{dice.between(1, 12)}.plan(it.chain, it.budget).costs.fits == fits);
    fit += fits ? 1 : 0;
  }
  CHECK(fit > 150);
}

TEST_CASE("an input that no backward run reads leaves its room to the segment after it", "[activation]")
{
  // Three blocks that save 100 B, of which the output has 40. The second block begins with the first one's output,
  // which ends there: 200 B are enough to run the first block alone a second time.
  const chain_block one{.name = "block", .forward_seconds = 1, .backward_seconds = 2, .saved = 100_B, .boundary = 40_B};
  layer_chain chain{.blocks = std::vector<chain_block>(3, one)};
  const auto seconds = [&](std::uint64_t device) {
    const activation_budget budget{
        .device = bytes{device}, .to_host_bytes_per_second = 1e-9, .to_device_bytes_per_second = 1e-9};
    return rotor{}.plan(chain, budget).costs.seconds;
  };
  for (const std::uint64_t device : {200U, 220U, 239U}) CHECK(seconds(device) == 10);
  for (chain_block& block : chain.blocks) block.reads_input = true;
  for (const std::uint64_t device : {200U, 220U, 239U}) CHECK(seconds(device) == 11);
  CHECK(seconds(240) == 10);
}

TEST_CASE("rotor with enough memory runs everything once", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    support::chain_problem it = support::roll_chain(dice, {.most_blocks = 10});
    for (const bytes device : {bytes{100'000}, bytes{UINT64_MAX}}) {
      it.budget.device = device;
      const activation_plan plan = rotor{}.plan(it.chain, it.budget);
      REQUIRE(plan.costs.seconds == it.chain.unlimited_seconds());
      REQUIRE(plan.costs.recomputed_seconds == 0);
      REQUIRE(plan.steps.size() == 2 * it.chain.size());
    }
  }
}

TEST_CASE("rotor nests checkpoints where an input of each block has no room", "[activation]")
{
  // 16 blocks that save 10 B, of which 4 B are the output. All inputs take 60 B, the saved bytes of a block 10 B.
  const chain_block one{.name = "block", .forward_seconds = 1, .backward_seconds = 2, .saved = 10_B, .boundary = 4_B};
  const layer_chain chain{.blocks = std::vector<chain_block>(16, one), .input = 4_B};
  const activation_budget budget{.device = 30_B, .to_host_bytes_per_second = 1, .to_device_bytes_per_second = 1};
  CHECK_FALSE(plan_of("one pass", chain, budget, std::vector<block_action>(16, block_action::recompute)).costs.fits);
  const activation_plan plan = rotor{}.plan(chain, budget);
  REQUIRE(plan.costs.fits);
  const auto runs_of = [&](std::uint32_t block) {
    return std::ranges::count_if(
        plan.steps, [&](const chain_step& step) { return step.block == block && step.run != chain_run::backward; });
  };
  std::int64_t most = 0;
  for (std::uint32_t block = 0; block < 16; ++block) most = std::max(most, std::int64_t{runs_of(block)});
  CHECK(most > 2);
  CHECK(plan.costs.seconds < 2 * chain.unlimited_seconds());
}

TEST_CASE("rotor tells what is missing where nothing fits", "[activation]")
{
  const layer_chain chain{.blocks = {{.name = "large", .saved = 100_B, .boundary = 10_B}}, .input = 5_B};
  for (const std::uint64_t device : {0U, 1U, 99U}) {
    const activation_budget budget{
        .device = bytes{device}, .to_host_bytes_per_second = 1, .to_device_bytes_per_second = 1};
    const activation_plan plan = rotor{}.plan(chain, budget);
    CHECK_FALSE(plan.costs.fits);
    CHECK(plan.costs.missing == bytes{105 - device});
  }
}

TEST_CASE("rotor takes fewer slots for longer chains", "[activation]")
{
  CHECK(rotor::slots_for(1) == 500);
  CHECK(rotor::slots_for(50) == 500);
  CHECK(rotor::slots_for(200) < rotor::slots_for(100));
  CHECK(rotor::slots_for(100'000) == 50);
}

}  // namespace rotor_test
