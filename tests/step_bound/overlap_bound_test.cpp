// SPDX-License-Identifier: Apache-2.0
#include <overlap/overlap_bound.hpp>

#include "every_order.hpp"

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace overlap_bound_test {

using overlap::least_step;
using overlap::moment;
using overlap::place;
using overlap::step_seconds;
using overlap::step_work;
using step_bound_test::block_access;
using step_bound_test::block_set;
using step_bound_test::every_order;
using support::dice;

namespace {

/// A training of a few layers. Each layer has a weight, a gradient, an activation and a state, of a byte each.
struct tiny_training {
  place where = place::device;
  moment when = moment::at_once;
  int layers = 2;
  int micro_batches = 2;
  int frames = 3;
  int ticks_of_block = 1;
  int forward = 0, backward = 0, update = 0;  // ticks of a layer

  [[nodiscard]] block_set weight(int layer) const { return 1U << layer; }
  [[nodiscard]] block_set gradient(int layer) const { return 1U << (layers + layer); }
  [[nodiscard]] block_set activation(int layer) const { return 1U << (2 * layers + layer); }
  [[nodiscard]] block_set state(int layer) const { return where == place::host ? 0 : 1U << (3 * layers + layer); }
  [[nodiscard]] int blocks() const { return (where == place::host ? 3 : 4) * layers; }

  void back(std::vector<block_access>& made, bool first) const
  {
    for (int layer = layers; layer-- > 0;)
      made.push_back({.reads = weight(layer) | activation(layer) | (first ? 0 : gradient(layer)),
                      .makes = first ? gradient(layer) : 0,
                      .changes = first ? 0 : gradient(layer),
                      .ends = activation(layer),
                      .ticks = backward});
  }
  /// A step from the begin of its last backward pass to there again.
  [[nodiscard]] std::vector<block_access> accesses() const
  {
    std::vector<block_access> made;
    const auto update_layer = [&](int layer) {
      made.push_back({.on_host = where == place::host,
                      .reads = weight(layer) | gradient(layer) | state(layer),
                      .changes = weight(layer) | state(layer),
                      .ends = gradient(layer),
                      .ticks = update});
    };
    back(made, false);
    for (int layer = 0; layer < layers && when == moment::at_once; ++layer) update_layer(layer);
    for (int batch = 0; batch < micro_batches; ++batch) {
      for (int layer = 0; layer < layers; ++layer) {
        if (batch == 0 && when == moment::late) update_layer(layer);
        made.push_back({.reads = weight(layer), .makes = activation(layer), .ticks = forward});
      }
      if (batch + 1 < micro_batches) back(made, batch == 0);
    }
    return made;
  }
  [[nodiscard]] int fastest() const { return fastest(accesses()); }
  [[nodiscard]] int fastest_pass() const
  {
    std::vector<block_access> pass;
    back(pass, false);
    return fastest(pass);
  }

  [[nodiscard]] step_work work() const
  {
    const double all = layers;
    return {where, when, micro_batches, all, all, where == place::host ? 0 : all, 3 * all};
  }
  /// A tick is a second.
  [[nodiscard]] step_seconds computed() const
  {
    const double pass = layers * backward;
    const double updates = layers * update;
    const bool is_late = when == moment::late;
    return {.whole = micro_batches * (layers * forward + pass) + updates,
            .forward = layers * forward + (is_late ? updates : 0),
            .between = pass,
            .backward = pass,
            .update = is_late ? 0 : updates};
  }
  [[nodiscard]] double bound() const { return least_step(work(), computed(), frames, 1.0 / ticks_of_block); }
  [[nodiscard]] double bound_without_passes() const
  {
    step_work without = work();
    without.read_back = 0;
    return least_step(without, computed(), frames, 1.0 / ticks_of_block);
  }

 private:
  [[nodiscard]] int fastest(const std::vector<block_access>& all) const
  {
    return every_order{all, blocks(), frames, ticks_of_block}.least_ticks();
  }
};

tiny_training roll(dice& random)
{
  tiny_training made;
  made.where = random.one_in(2) ? place::host : place::device;
  made.when = random.one_in(2) ? moment::late : moment::at_once;
  made.micro_batches = static_cast<int>(random.between(2, 3));
  made.frames = static_cast<int>(random.between(3, 5));
  made.ticks_of_block = static_cast<int>(random.between(1, 3));
  made.forward = static_cast<int>(random.below(4));
  made.backward = static_cast<int>(random.below(6));
  made.update = static_cast<int>(random.below(4));
  return made;
}

/// @return   trainings whose passes take longer for their bytes
int compare(std::uint64_t trainings)
{
  int longer = 0;
  for (std::uint64_t seed = 1; seed <= trainings; ++seed) {
    dice random{seed};
    const tiny_training it = roll(random);
    INFO("seed " << seed);
    REQUIRE(it.bound() <= it.fastest());
    if (it.bound() > it.bound_without_passes()) ++longer;
  }
  return longer;
}

}  // namespace

TEST_CASE("no order of loads, write-backs and evictions is faster than the bound of overlap", "[step_bound]")
{
  CHECK(compare(60) >= 10);
}

TEST_CASE("no order is faster than the bound of overlap in many trainings", "[step_bound][.slow]")
{
  CHECK(compare(2'000) >= 500);
}

TEST_CASE("a backward pass reaches its bound where it computes nothing, and where all has room", "[step_bound]")
{
  for (int frames = 3; frames <= 6; ++frames)
    for (int ticks_of_block = 1; ticks_of_block <= 3; ++ticks_of_block)
      for (int backward = 0; backward <= 9; ++backward) {
        CAPTURE(frames, ticks_of_block, backward);
        const tiny_training it{.frames = frames, .ticks_of_block = ticks_of_block, .backward = backward};
        const double pass = it.computed().backward + it.bound() - it.bound_without_passes();
        const int fastest = it.fastest_pass();
        REQUIRE(pass <= fastest);
        if (backward == 0 || frames == 6) REQUIRE(pass == fastest);
      }
}

TEST_CASE("a backward pass takes as long as the bytes that have no room before it", "[step_bound]")
{
  // Of 6 blocks that a pass reads, 3 come up; the weights come up once more behind their updates.
  const tiny_training slow{.where = place::host, .micro_batches = 3, .frames = 3, .ticks_of_block = 4};
  CHECK(slow.bound() == 4 * (3 + 3 + 2));
  CHECK(slow.bound_without_passes() == 4 * 2);
  CHECK(slow.fastest() >= 4 * (3 + 3 + 2));
  // Gradients go down while the last pass waits for its blocks.
  tiny_training both = slow;
  both.micro_batches = 2;
  both.forward = 4;
  CHECK(both.bound() == both.computed().whole + 4 * 3);
  // Where it computes as long, nothing is added.
  tiny_training hidden = slow;
  hidden.backward = 6;
  CHECK(hidden.bound() == hidden.computed().whole + 4 * 2);
}

}  // namespace overlap_bound_test
