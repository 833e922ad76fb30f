// SPDX-License-Identifier: Apache-2.0
// The oracles of checkpointed chains against each other and against closed forms.
#include <support/catch.hpp>
#include <support/oracles/chain_checkpointing.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace checkpointing_oracles_test {

using support::brute_force_rotor;
using support::oracle_pofo;
using support::oracle_rotor;
using support::slot_chain;

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// Whole seconds, so that sums are exact. Sizes may be 0, and transient slots may exceed all others.
slot_chain roll_chain(support::dice& dice, std::uint32_t stages)
{
  slot_chain made;
  for (std::uint32_t index = 0; index <= stages; ++index) {
    made.input.push_back(dice.below(4));
    made.saved.push_back(made.input.back() + (dice.one_in(3) ? 0 : dice.below(4)));
  }
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    made.forward_extra.push_back(dice.one_in(3) ? dice.below(6) : 0);
    made.backward_extra.push_back(dice.one_in(3) ? dice.below(6) : 0);
    made.forward.push_back(dice.between(1, 9));
    made.backward.push_back(dice.between(1, 9));
  }
  for (std::uint32_t stage = 0; stage < stages; ++stage) made.reads_input.push_back(dice.one_in(2) ? 1 : 0);
  return made;
}

/// Slots that are enough for all values and transients at once.
std::uint32_t all_slots(const slot_chain& it)
{
  std::uint32_t sum = 0;
  for (const auto* part : {&it.input, &it.input, &it.saved, &it.forward_extra, &it.backward_extra})
    sum = std::accumulate(part->begin(), part->end(), sum);
  return sum;
}

double all_seconds(const slot_chain& it)
{
  return std::accumulate(it.forward.begin(), it.forward.end(), 0.0) +
         std::accumulate(it.backward.begin(), it.backward.end(), 0.0);
}

/// Stages of one second forward and none backward: the time counts forwards.
slot_chain equal_stages(std::uint32_t count, std::uint32_t saved)
{
  return {.input = std::vector<std::uint32_t>(count + 1, 1),
          .saved = std::vector<std::uint32_t>(count + 1, saved),
          .forward_extra = std::vector<std::uint32_t>(count, 0),
          .backward_extra = std::vector<std::uint32_t>(count, 0),
          .forward = std::vector<double>(count, 1),
          .backward = std::vector<double>(count, 0),
          .reads_input = std::vector<std::uint8_t>(count, 1)};
}

std::uint64_t binomial(std::uint64_t from, std::uint64_t taken)
{
  std::uint64_t result = 1;
  for (std::uint64_t index = 1; index <= taken; ++index) result = result * (from - taken + index) / index;
  return result;
}

/// Forwards that reverse `steps` steps with `snapshots`, the first input included: those that advance are
/// r steps - C(snapshots + r, r - 1), where r is the least with C(snapshots + r, r) >= steps, and each step is once
/// recorded (Griewank and Walther, Algorithm 799: revolve, 2000).
std::uint64_t griewank_walther(std::uint64_t steps, std::uint64_t snapshots)
{
  std::uint64_t repeats = 0;
  while (binomial(snapshots + repeats, repeats) < steps) ++repeats;
  const std::uint64_t saved = repeats == 0 ? 0 : binomial(snapshots + repeats, repeats - 1);
  return repeats * steps - saved + steps;
}

}  // namespace

TEST_CASE(
    "the recursion of rotor is the best of all schedules that keep what they store, where stages read their inputs",
    "[activation]")
{
  std::uint32_t tight = 0;  // memories where something is computed again
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    support::dice dice{seed};
    slot_chain chain = roll_chain(dice, dice.between(1, 5));
    std::ranges::fill(chain.reads_input, std::uint8_t{1});
    for (std::uint32_t slots = 0; slots <= all_slots(chain); ++slots) {
      CAPTURE(seed, slots);
      const double expected = brute_force_rotor(chain, slots);
      REQUIRE(oracle_rotor(chain, slots) == expected);
      tight += expected > all_seconds(chain) && expected < never ? 1 : 0;
    }
  }
  CHECK(tight >= 100);
}

TEST_CASE("where stages do not read their inputs, hardly any schedule is better than the best tree of rotor",
          "[activation]")
{
  // A stage may save from its input alone, and the stage before it save then, to make the input again. No tree has
  // that order. It pays where the room for working bytes is there before the other stage has saved.
  std::uint32_t compared = 0;
  std::uint32_t better = 0;
  for (std::uint64_t seed = 1; seed <= 160; ++seed) {
    support::dice dice{seed};
    const slot_chain chain = roll_chain(dice, dice.between(1, 5));
    for (std::uint32_t slots = 0; slots <= all_slots(chain); ++slots) {
      CAPTURE(seed, slots);
      const double best = brute_force_rotor(chain, slots);
      const double found = oracle_rotor(chain, slots);
      REQUIRE(found >= best);
      ++compared;
      better += best < found ? 1 : 0;
    }
  }
  CHECK(better > 0);
  CHECK(better <= compared / 1'000);
}

TEST_CASE("the gradient of the loss's output waits in no forward run", "[activation]")
{
  slot_chain chain = equal_stages(2, 1);
  chain.input[2] = chain.saved[2] = 3;  // of the loss
  chain.forward_extra[0] = 7;
  CHECK(oracle_rotor(chain, 7) == never);  // 1 of the output and 7; the backward of the loss takes 1 + 3 + 3 + 1
  CHECK(oracle_rotor(chain, 8) == 2);
}

TEST_CASE("more slots never take more time, and enough slots take no more than each stage once", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    support::dice dice{seed};
    const slot_chain chain = roll_chain(dice, dice.between(1, 8));
    const double to_host = dice.between(0, 96) / 64.0;
    const double to_device = dice.between(0, 96) / 64.0;
    double rotor_before = never;
    double pofo_before = never;
    for (std::uint32_t slots = 0; slots <= all_slots(chain) && pofo_before > all_seconds(chain); ++slots) {
      CAPTURE(seed, slots);
      const double rotor = oracle_rotor(chain, slots);
      REQUIRE(rotor <= rotor_before);
      rotor_before = rotor;
      const double pofo = oracle_pofo(chain, slots, to_host, to_device);
      REQUIRE(pofo <= pofo_before);
      pofo_before = pofo;
    }
    CHECK(pofo_before == all_seconds(chain));
    CHECK(oracle_rotor(chain, all_slots(chain)) == all_seconds(chain));
  }
}

TEST_CASE("equal stages recorded one at a time take Griewank's and Walther's binomial counts", "[activation]")
{
  constexpr std::uint32_t saved = 20;  // there is never room for two records
  for (std::uint32_t steps = 1; steps <= 16; ++steps)
    for (std::uint32_t snapshots = 1; snapshots <= 6; ++snapshots) {
      CAPTURE(steps, snapshots);
      // A record, two gradients and the input of the stage; the first snapshot is x_0, which is not counted.
      const std::uint32_t slots = saved + 2 + 1 + (snapshots - 1);
      const double forwards = oracle_rotor(equal_stages(steps, saved), slots);
      CHECK(forwards == static_cast<double>(griewank_walther(steps, snapshots)));
    }
}

TEST_CASE("equal stages whose record is their output need at most the binomial counts", "[activation]")
{
  for (std::uint32_t steps = 1; steps <= 16; ++steps)
    for (std::uint32_t snapshots = 1; snapshots <= 6; ++snapshots) {
      CAPTURE(steps, snapshots);
      const double forwards = oracle_rotor(equal_stages(steps, 1), snapshots + 3);
      const double binomial_count = static_cast<double>(griewank_walther(steps, snapshots));
      CHECK((forwards < binomial_count) == (steps > 1));  // a snapshot that is a record saves its recording
      CHECK((forwards == steps) == (steps <= snapshots + 1));
      if (snapshots == 1 && steps > 1) CHECK(forwards == binomial_count - 1);
    }
}

TEST_CASE("pofo without a link is rotor, and a faster link never takes more time", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    support::dice dice{seed};
    const slot_chain chain = roll_chain(dice, dice.between(1, 6));
    const std::uint32_t first = chain.input[0];
    const std::uint32_t slots = first + dice.below(all_slots(chain) - first + 1);
    CAPTURE(seed, slots);
    double before = oracle_pofo(chain, slots, 0, 0);
    const double rotor = oracle_rotor(chain, slots - first);
    CHECK(before == rotor);
    for (const double rate : {0.125, 0.5, 1.0, 2.0, 8.0}) {
      const double now = oracle_pofo(chain, slots, rate, rate);
      CHECK(now <= before);
      before = now;
    }
    CHECK(oracle_pofo(chain, slots, 2, 1) >= oracle_pofo(chain, slots, 2, 2));
    CHECK(oracle_pofo(chain, slots, 1, 2) >= oracle_pofo(chain, slots, 2, 2));
  }
}

TEST_CASE("pofo sends the first input away where its slot is missing and the link is fast enough", "[activation]")
{
  // Two stages of ten seconds each way that save six slots, and a loss that saves none. Without a second forward the
  // backward of stage 1 takes 6 + 6 slots saved, two gradients and x_0: 15.
  const slot_chain chain{.input = {1, 1, 1, 0},
                         .saved = {1, 6, 6, 0},
                         .forward_extra = {0, 0, 0},
                         .backward_extra = {0, 0, 0},
                         .forward = {10, 10, 10},
                         .backward = {10, 10, 10},
                         .reads_input = {1, 1, 1}};
  CHECK(oracle_pofo(chain, 15, 0, 0) == 60);
  CHECK(oracle_rotor(chain, 13) == 70);  // stage 0 forward again
  CHECK(oracle_pofo(chain, 14, 0, 0) == 70);
  CHECK(oracle_pofo(chain, 14, 1, 1) == 61);  // x_0 returns when stage 1 has gone backward
  CHECK(oracle_pofo(chain, 14, 1, 0.5) == 62);
  CHECK(oracle_pofo(chain, 14, 0.125, 1) == 61);
  CHECK(oracle_pofo(chain, 14, 0.0625, 1) == 70);  // 16 s more, as no forward sends a whole slot
}

}  // namespace checkpointing_oracles_test
