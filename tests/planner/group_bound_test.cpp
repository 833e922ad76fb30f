// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/group_bound.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace group_bound_test {

using namespace chunkmem;
using namespace chunkmem::planner;

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

group_times ring_of(std::uint32_t ranks, double rate, std::uint64_t start)
{
  return {{.of_node = ranks,
           .nodes = 1,
           .peer_bytes_per_second = rate,
           .network_bytes_per_second = rate,
           .start_nanoseconds = start,
           .peer_nanoseconds = 0}};
}

struct steps {
  group_work work;
  group_times exchange;
  bool takes_norm = false;
};

/// Steps of groups of one size, with room for everything, one collective at a time. Collectives that could run are
/// taken in an order of chance that is the same in each step.
/// @return   from step to step [s]
double run(const steps& it, std::uint64_t size, support::dice& dice)
{
  std::vector<double> groups;
  for (double left = it.work.parameters; left > 0; left -= static_cast<double>(size))
    groups.push_back(std::min(left, static_cast<double>(size)));
  const std::size_t count = groups.size();
  const auto collective = [&](std::size_t group) {
    return static_cast<double>(it.exchange.nanoseconds(bytes{2 * static_cast<std::uint64_t>(groups[group])})) * 1e-9;
  };
  const double third = it.work.parameter_seconds / 3;
  std::vector<std::uint32_t> order;
  for (std::size_t index = 0; index < 2 * count; ++index) order.push_back(dice.below(1'000));
  std::vector<double> updated(count, 0);  // when the weights of a group may be gathered
  double computed = 0;
  double ring = 0;
  double second = 0;
  constexpr int last_step = 8;
  for (int step = 0; step <= last_step; ++step) {
    if (step == 2) second = computed;
    std::vector<double> gathered(count, never);
    std::vector<double> ready = updated;  // gathers, then sums
    ready.resize(2 * count, never);
    std::size_t forward = 0;
    std::size_t backward = count;
    for (std::size_t done = 0; done < 2 * count; ++done) {
      // Compute as far as the collectives so far allow.
      for (; forward < count && gathered[forward] < never; ++forward) {
        computed = std::max(computed, gathered[forward]) + third * groups[forward];
        if (forward + 1 == count) computed += it.work.head_seconds;
      }
      for (; forward == count && backward > 0; --backward) {
        computed += 2 * third * groups[backward - 1];
        ready[count + backward - 1] = computed;
      }
      std::size_t next = 2 * count;
      for (std::size_t index = 0; index < 2 * count; ++index) {
        if (ready[index] == never) continue;
        if (next == 2 * count) next = index;
        const double begin = std::max(ring, ready[index]);
        const double other = std::max(ring, ready[next]);
        if (begin < other || (begin == other && order[index] < order[next])) next = index;
      }
      ring = std::max(ring, ready[next]) + collective(next % count);
      ready[next] = never;
      next < count ? gathered[next] = ring : updated[next - count] = ring;
    }
    for (std::size_t group = 0; group < count; ++group)
      updated[group] = (it.takes_norm ? ring : updated[group]) + it.work.update_seconds * groups[group];
  }
  return (computed - second) / (last_step - 1);
}

steps roll(support::dice& dice)
{
  const std::uint32_t ranks = dice.between(2, 8);
  steps it;
  it.work.parameters = 1'024.0 * ranks * dice.between(2, 30);
  it.work.parameter_seconds = 3e-9 * dice.between(1, 30);
  it.work.head_seconds = dice.one_in(2) ? 0 : 1e-6 * dice.between(1, 200);
  it.work.forward_seconds = it.work.parameter_seconds / 3 * it.work.parameters + it.work.head_seconds / 3;
  it.work.backward_seconds = 2 * it.work.parameter_seconds / 3 * it.work.parameters + 2 * it.work.head_seconds / 3;
  it.exchange = ring_of(ranks, 2e7 * dice.between(1, 100), 1'000 * dice.between(0, 200));
  it.takes_norm = dice.one_in(2);
  return it;
}

/// The fastest of many sizes of groups [s].
double least_of_sizes(const steps& it, support::dice& dice)
{
  double least = never;
  const auto all = static_cast<std::uint64_t>(it.work.parameters);
  for (std::uint64_t size = 256 * it.exchange.network.ranks(); size / 2 < all; size += size / 8 / 256 * 256 + 256)
    least = std::min(least, run(it, size, dice));
  return least;
}

}  // namespace

TEST_CASE("no size of groups and no order of collectives makes a step shorter than the bound of groups", "[planner]")
{
  std::vector<double> reached;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice dice{seed};
    const steps it = roll(dice);
    const double bound = least_group_step(it.work, it.exchange, it.takes_norm);
    REQUIRE(bound > 0);
    const double least = least_of_sizes(it, dice);
    INFO("seed " << seed << ": " << least << " s, bound " << bound << " s");
    CHECK(bound <= least * (1 + 1e-9));
    reached.push_back(bound / least);
  }
  std::ranges::sort(reached);
  CHECK(reached[reached.size() / 2] > 0.9);
  CHECK(reached.front() > 0.5);
}

TEST_CASE("the update of the first group is a part of the bound of groups", "[planner]")
{
  std::vector<double> reached;
  int longer = 0;  // than without updates
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    support::dice dice{seed};
    steps it = roll(dice);
    const double without = least_group_step(it.work, it.exchange, it.takes_norm);
    it.work.update_seconds = 1e-9 * dice.between(1, 30);
    const double bound = least_group_step(it.work, it.exchange, it.takes_norm);
    const double least = least_of_sizes(it, dice);
    INFO("seed " << seed << ": " << least << " s, bound " << bound << " s");
    CHECK(bound >= without);
    longer += bound > without * (1 + 1e-9) ? 1 : 0;
    CHECK(bound <= least * (1 + 1e-9));
    reached.push_back(bound / least);
  }
  std::ranges::sort(reached);
  CHECK(reached[reached.size() / 2] > 0.9);
  CHECK(longer > 50);
}

TEST_CASE("with a norm the smallest group can be updated first, and its gather covers an update of another",
          "[planner]")
{
  // the backward pass hides all sums but the last one, and the host updates one group behind the other
  for (const double update_seconds : {0.5e-9, 2e-9, 8e-9})
    for (const std::uint64_t start : {1'000U, 100'000U, 400'000U}) {
      group_work work{.parameters = 4e5, .forward_seconds = 4e-8, .backward_seconds = 1, .parameter_seconds = 1e-13};
      work.update_seconds = update_seconds;
      const group_times exchange = ring_of(4, 1e9, start);
      const auto gather = [&](double parameters) {
        return static_cast<double>(exchange.nanoseconds(bytes{2 * static_cast<std::uint64_t>(parameters)})) * 1e-9;
      };
      double least = never;
      for (std::uint64_t size = 4'000; size <= 400'000; size += 4'000) {
        std::vector<double> groups;  // the smallest one first
        for (double left = work.parameters; left > 0; left -= static_cast<double>(size))
          groups.insert(groups.begin(), std::min(left, static_cast<double>(size)));
        double host = work.backward_seconds + gather(groups.back());
        double ring = host;
        for (const double group : groups) {
          host += update_seconds * group;
          ring = std::max(ring, host) + gather(group);
        }
        least = std::min(least, ring + work.forward_seconds);
      }
      CAPTURE(update_seconds, start, least);
      CHECK(least_group_step(work, exchange, true) <= least * (1 + 1e-9));
    }
}

TEST_CASE("the bound of groups counts what a step needs, and no more where a collective costs nothing", "[planner]")
{
  group_work work{.parameters = 1e6, .forward_seconds = 1, .backward_seconds = 3, .parameter_seconds = 4e-6};
  CHECK(least_group_step(work, ring_of(1, 1e9, 1'000), false) == 0);
  CHECK(least_group_step(work, ring_of(4, 1e15, 0), false) == Catch::Approx(4));
  // a gather of all takes 1.5 s: the last group is what the collectives wait for, and groups can be small
  CHECK(least_group_step(work, ring_of(4, 1e6, 0), false) == Catch::Approx(4).epsilon(0.01));
  // with a start of 10 ms, both ends cost 20 ms at least, whatever the size
  CHECK(least_group_step(work, ring_of(4, 1e9, 10'000'000), false) >= 4.02);
  // a gather of all takes 3 s, and there are two
  CHECK(least_group_step(work, ring_of(4, 0.5e6, 1'000), false) >= 5.99);
  // with a norm the forward pass gathers everything anew
  CHECK(least_group_step(work, ring_of(4, 1e6, 0), true) == Catch::Approx(3 + 1.5).epsilon(0.01));
}

TEST_CASE("the compute at the turn is that of matrices, with a head that shares its table", "[planner]")
{
  workload::transformer_shape shape{workload::transformer_style::gpt, 20, 256, 4, 4, 1'024, 500, 256, 32, 32, true};
  const double rate = 1e12;
  const group_work tied = group_work_of(shape, {.micro_batch = 2}, rate);
  CHECK(tied.parameters == static_cast<double>(workload::parameters_of(shape)));
  CHECK(tied.head_seconds == Catch::Approx(6.0 * 500 * 256 * 64 / rate));
  CHECK(tied.tables == 500 * 256 + 32 * 256);
  CHECK(tied.vectors < 0.01 * tied.parameters);
  CHECK(tied.vectors > 0);
  CHECK(tied.at_turn(0) == tied.head_seconds);
  CHECK(tied.at_turn(1e5) == Catch::Approx(tied.head_seconds + tied.parameter_seconds * (1e5 - tied.vectors)));
  CHECK(tied.at_turn(1e12) < tied.head_seconds + tied.parameter_seconds * (tied.parameters - tied.tables));
  shape.ties_embedding = false;
  const group_work apart = group_work_of(shape, {.micro_batch = 2}, rate);
  CHECK(apart.head_seconds == 0);
  CHECK(apart.parameter_seconds == Catch::Approx(6.0 * 64 / rate));
}

}  // namespace group_bound_test
