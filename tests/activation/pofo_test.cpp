// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/pofo.hpp>
#include <chunkmem/activation/rotor.hpp>

#include <support/catch.hpp>
#include <support/oracles/chain_checkpointing.hpp>
#include <support/oracles/random_chain.hpp>

#include "slot_problem.hpp"

#include <cstdint>

namespace pofo_test {

using namespace chunkmem;
using namespace chunkmem::activation;

namespace {

pofo_table table_of(const chain_slots& slots, const activation_budget& budget)
{
  return {slots, budget.to_host_bytes_per_second / slots.bytes_per_slot,
          budget.to_device_bytes_per_second / slots.bytes_per_slot};
}

void equal_oracle(std::uint64_t seeds, std::uint32_t most_stages)
{
  int slower = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::slot_problem it = support::roll_slots(dice, most_stages);
    const chain_slots slots{it.chain, it.budget, it.device()};
    const double expected = support::oracle_pofo(it.slots, it.device(), it.budget.to_host_bytes_per_second,
                                                 it.budget.to_device_bytes_per_second);
    const double found = table_of(slots, it.budget).seconds();
    REQUIRE(found == expected);
    slower += found < pofo_table::never && found > it.chain.unlimited_seconds() ? 1 : 0;
  }
  CHECK(slower > static_cast<int>(seeds) / 5);
}

}  // namespace

TEST_CASE("pofo's table has the time of a recursion from the top", "[activation]")
{
  equal_oracle(60, 6);
}

TEST_CASE("pofo's table has the time of a recursion from the top, for many longer chains", "[activation][.slow]")
{
  equal_oracle(1'000, 10);
}

TEST_CASE("pofo's plans fit in bytes, mostly within the table's time", "[activation]")
{
  int fit = 0;
  int slower = 0;
  int moved = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::slot_problem it = support::roll_slots(dice, 6);
    const chain_slots slots{it.chain, it.budget, it.device()};
    const double expected = table_of(slots, it.budget).seconds();
    const activation_plan plan = pofo{it.device()}.plan(it.chain, it.budget);
    REQUIRE_NOTHROW(expect_plan_fits(plan, it.chain.size()));
    if (expected == pofo_table::never) continue;
    ++fit;
    REQUIRE(plan.costs.fits);
    REQUIRE(plan.costs.seconds >= plan.costs.bound_seconds * (1 - 1e-12));
    REQUIRE(plan.costs.seconds <= expected * 1.05);
    slower += plan.costs.seconds > expected * (1 + 1e-12) ? 1 : 0;
    moved += plan.costs.moved > 0_B ? 1 : 0;
  }
  CHECK(fit > 30);
  CHECK(moved > 10);
  CHECK(slower <= fit / 20);  // an early load took free bytes, and the next run waited for bytes on their way out
}

TEST_CASE("pofo's plans of few slots fit in bytes", "[activation]")
{
  int fit = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    support::chain_problem it = support::roll_chain(dice, {.most_blocks = 6});
    it.budget.device += bytes{dice.below(40)};
    const std::uint32_t most = dice.between(5, 20);
    const chain_slots slots{it.chain, it.budget, most};
    if (slots.input[0] > slots.budget || table_of(slots, it.budget).seconds() == pofo_table::never) continue;
    ++fit;
    const activation_plan plan = pofo{most}.plan(it.chain, it.budget);
    REQUIRE(plan.costs.fits);
    REQUIRE(plan.costs.seconds >= plan.costs.bound_seconds * (1 - 1e-12));
  }
  CHECK(fit > 50);
}

TEST_CASE("pofo is never slower than rotor in slots, and a link gives it an advantage", "[activation]")
{
  int faster = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::slot_problem it = support::roll_slots(dice, 6);
    const chain_slots slots{it.chain, it.budget, it.device()};
    const double recomputed = rotor_table{slots, slots.budget}.seconds(
        0, it.last(), it.device() - static_cast<std::int64_t>(slots.input[0]), segment_input::ends);
    const double found = table_of(slots, it.budget).seconds();
    REQUIRE(found <= recomputed);
    faster += found < recomputed ? 1 : 0;
    activation_budget without = it.budget;
    without.to_host_bytes_per_second = without.to_device_bytes_per_second = 1e-9;
    REQUIRE(table_of(slots, without).seconds() >= found);
  }
  CHECK(faster > 5);
}

TEST_CASE("pofo with enough memory runs everything once", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    support::chain_problem it = support::roll_chain(dice, {.most_blocks = 6});
    for (const bytes device : {bytes{100'000}, bytes{UINT64_MAX}}) {
      it.budget.device = device;
      const activation_plan plan = pofo{15}.plan(it.chain, it.budget);
      REQUIRE(plan.costs.seconds == it.chain.unlimited_seconds());
      REQUIRE(plan.costs.moved == 0_B);
    }
  }
}

TEST_CASE("pofo tells what is missing where nothing fits", "[activation]")
{
  const layer_chain chain{.blocks = {{.name = "large", .saved = 100_B, .boundary = 10_B}}, .input = 5_B};
  for (const std::uint64_t device : {0U, 1U, 99U}) {
    const activation_budget budget{
        .device = bytes{device}, .to_host_bytes_per_second = 1, .to_device_bytes_per_second = 1};
    const activation_plan plan = pofo{}.plan(chain, budget);
    CHECK_FALSE(plan.costs.fits);
    CHECK(plan.costs.missing == bytes{105 - device});
  }
}

}  // namespace pofo_test
