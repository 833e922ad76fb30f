// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/kept_intervals.hpp>

#include <support/catch.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/retention_trace.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace kept_intervals_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::kept_intervals;
using transfer::retention_problem;
using transfer::row_prices;

namespace {

bool covers(const retention_problem::interval& it, std::size_t row)
{
  return it.wraps ? row >= it.first || row < it.last : row >= it.first && row < it.last;
}

std::uint64_t moved_by_definition(const retention_problem& problem, std::span<const std::uint8_t> kept)
{
  std::uint64_t bytes = 0;
  for (const auto& epoch : problem.epochs()) {
    bool any_dropped = false;
    for (std::uint32_t which = epoch.begin; which < epoch.end; ++which) {
      any_dropped = any_dropped || kept[which] == 0;
      bytes += kept[which] == 0 && problem.intervals()[which].loads ? epoch.size : 0;
    }
    bytes += any_dropped && epoch.writes_back ? epoch.size : 0;
  }
  return bytes;
}

std::vector<std::int64_t> room_by_definition(const retention_problem& problem, std::span<const std::uint8_t> kept)
{
  std::vector<std::int64_t> room(problem.room().begin(), problem.room().end());
  for (std::size_t which = 0; which < kept.size(); ++which)
    for (std::size_t row = 0; row < room.size(); ++row)
      if (kept[which] != 0 && covers(problem.intervals()[which], row))
        room[row] -= static_cast<std::int64_t>(problem.epochs()[problem.intervals()[which].epoch].size);
  return room;
}

}  // namespace

TEST_CASE("a choice knows its bytes and its room after every change", "[transfer]")
{
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_large_trace(random, 12, 24, 48, 0.3);
    const retention_problem problem{what.input()};
    if (problem.intervals().empty()) continue;
    kept_intervals choice{problem};
    for (int step = 0; step < 60; ++step) {
      const std::uint32_t which = random.below(static_cast<std::uint32_t>(problem.intervals().size()));
      const std::vector<std::int64_t> room = room_by_definition(problem, choice.all());
      std::int64_t least = INT64_MAX;
      for (std::size_t row = 0; row < room.size(); ++row)
        if (covers(problem.intervals()[which], row)) least = std::min(least, room[row]);
      REQUIRE(choice.room_over(which) == least);
      const std::uint64_t before = choice.moved_bytes();
      if (choice.is_kept(which)) {
        const std::uint64_t loss = choice.loss(which);
        choice.drop(which);
        REQUIRE(choice.moved_bytes() == before + loss);
      } else if (choice.fits(which)) {
        const std::uint64_t saving = choice.saving(which);
        choice.keep(which);
        REQUIRE(choice.moved_bytes() == before - saving);
      } else {
        REQUIRE(least < static_cast<std::int64_t>(choice.size_of(which)));
        ++refused;
      }
      REQUIRE(choice.moved_bytes() == moved_by_definition(problem, choice.all()));
    }
  }
  CHECK(refused > 300);
}

TEST_CASE("an epoch is kept as a whole or not at all, and what saves nothing is let go", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_large_trace(random, 12, 24, 48, 0.3);
    const retention_problem problem{what.input()};
    kept_intervals choice{problem};
    for (std::uint32_t index = 0; index < problem.epochs().size(); ++index) {
      const sequence<std::uint8_t> before = choice.all();
      const auto& epoch = problem.epochs()[index];
      const bool kept = choice.keep_epoch(index);
      CHECK((choice.dropped_of(index) == 0) == kept);
      if (!kept) CHECK(choice.all() == before);
      for (std::uint32_t which = epoch.begin; which < epoch.end; ++which) CHECK(choice.is_kept(which) == kept);
    }
    std::vector<std::uint32_t> order;
    for (std::uint32_t which = 0; which < problem.intervals().size(); ++which) order.push_back(which);
    choice.fill(order);
    for (const std::uint32_t which : order) {
      if (choice.is_kept(which)) continue;
      CHECK((choice.saving(which) == 0 || !choice.fits(which)));
    }
    CHECK(std::ranges::all_of(room_by_definition(problem, choice.all()), [](std::int64_t free) { return free >= 0; }));
  }
}

namespace {

/// The least cost over all ways of an epoch in which one interval has one answer.
double least_with(const retention_problem& problem, const row_prices& price, const retention_problem::epoch& epoch,
                  std::uint32_t interval, bool kept)
{
  double best = std::numeric_limits<double>::infinity();
  const std::uint32_t count = epoch.end - epoch.begin;
  for (std::uint32_t way = 0; way < (1U << count); ++way) {
    if ((way >> (interval - epoch.begin) & 1U) != (kept ? 1U : 0U)) continue;
    double cost = epoch.writes_back && way != (1U << count) - 1 ? 1 : 0;
    for (std::uint32_t index = 0; index < count; ++index) {
      const auto& it = problem.intervals()[epoch.begin + index];
      cost += (way >> index & 1U) != 0 ? price(it) : it.loads ? 1 : 0;
    }
    best = std::min(best, cost);
  }
  return best;
}

}  // namespace

TEST_CASE("an interval costs the sum of the prices of its rows", "[transfer]")
{
  row_prices price{4};
  price.set(std::vector<double>{0.5, 0, 2, 0.25});
  CHECK(price({.first = 0, .last = 3}) == 2.5);
  CHECK(price({.first = 1, .last = 2}) == 0);
  CHECK(price({.first = 3, .last = 1, .wraps = true}) == 0.75);
  CHECK(price({.first = 2, .last = 2, .wraps = true}) == 2.75);
  CHECK(price.all() == 2.75);
  CHECK(price.before(3) == 2.5);
}

TEST_CASE("an epoch takes the cheaper of staying throughout and of each interval's own answer with a write-back",
          "[transfer]")
{
  row_prices price{3};
  price.set(std::vector<double>{0.75, 0.5, 3});
  using interval = retention_problem::interval;
  const std::vector<interval> intervals{{.first = 0, .last = 1, .loads = true},
                                        {.first = 1, .last = 2, .loads = true},
                                        {.first = 2, .last = 3, .loads = true}};
  CHECK(transfer::least_cost(std::span{intervals}.first(2), true, price) == 1.25);   // stays
  CHECK(transfer::least_cost(std::span{intervals}.first(2), false, price) == 1.25);  // the same without a write-back
  CHECK(transfer::least_cost(intervals, true, price) == 3.25);  // leaves over the last one: 0.75 + 0.5 + 1 + 1
  CHECK(transfer::least_cost(std::span{intervals}.last(1), false, price) == 1);
}

TEST_CASE("no prices certify more than the fewest bytes", "[transfer]")
{
  double closest = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice random{seed};
    const support::retention_trace what =
        support::roll_small_trace(random, {seed % 2 == 0, seed % 4 < 2, seed % 3 == 0});
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    const auto best = static_cast<double>(support::fewest_moved_bytes{input}());
    row_prices price{problem.room().size()};
    CHECK(transfer::certified_bytes(problem, price) == static_cast<double>(problem.constant_bytes()));
    for (int roll = 0; roll < 20; ++roll) {
      std::vector<double> prices(problem.room().size());
      for (double& it : prices)
        it = random.one_in(2) ? 0 : random.below(100) * std::pow(10.0, -static_cast<double>(random.between(1, 4)));
      price.set(prices);
      const double certified = transfer::certified_bytes(problem, price);
      if (certified > best) FAIL("seed " << seed << ": certifies " << certified << " B, " << best << " B are possible");
      if (best > static_cast<double>(problem.constant_bytes())) closest = std::max(closest, certified / best);
    }
  }
  CHECK(closest > 0.9);  // some of them say much
}

TEST_CASE("a reduced cost is what the dearer answer costs more, over all choices of its epoch", "[transfer]")
{
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    support::dice random{seed};
    const support::retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, true, seed % 3 == 0});
    const retention_problem problem{what.input()};
    row_prices price{problem.room().size()};
    std::vector<double> prices(problem.room().size());
    for (double& it : prices) it = random.below(1000) / 1000.0;
    price.set(prices);
    const sequence<double> costs = transfer::reduced_costs(problem, price);
    for (const auto& epoch : problem.epochs())
      for (std::uint32_t which = epoch.begin; which < epoch.end; ++which) {
        const double kept = least_with(problem, price, epoch, which, true);
        const double dropped = least_with(problem, price, epoch, which, false);
        CHECK(costs[which] == Catch::Approx(std::max(kept - dropped, dropped - kept)).margin(1e-12));
        ++compared;
      }
    const sequence<std::uint32_t> least = transfer::least_known(problem, price, 3);
    CHECK(least.size() == std::min<std::size_t>(3, problem.intervals().size()));
    CHECK(std::ranges::is_sorted(least, {}, [&](std::uint32_t which) { return costs[which]; }));
    for (std::uint32_t which = 0; which < problem.intervals().size() && !least.empty(); ++which)
      if (std::ranges::find(least, which) == least.end()) CHECK(costs[which] >= costs[least.back()]);
  }
  CHECK(compared > 1000);
}

}  // namespace kept_intervals_test
