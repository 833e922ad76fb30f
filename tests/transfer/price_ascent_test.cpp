// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/price_ascent.hpp>

#include <chunkmem/transfer/retention_plan.hpp>
#include <support/catch.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/retention_trace.hpp>

#include <cstdint>

namespace price_ascent_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::price_ascent;
using transfer::retention_problem;
using transfer::use_kind;

namespace {

void climb(price_ascent& ascent)
{
  for (const double width : {1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001}) ascent.climb(width, 100);
}

}  // namespace

TEST_CASE("reads of chunks of one size in one shot: the prices reach the optimum", "[transfer]")
{
  // An interval matrix: the linear program has whole solutions, so that its dual is the optimum.
  int hard = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice random{seed};
    retention_trace what = support::roll_small_trace(random, {false, false, false});
    for (auto& it : what.uses) it.kind = use_kind::read;
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    const auto best = static_cast<double>(support::fewest_moved_bytes{input}());
    price_ascent ascent{problem};
    climb(ascent);
    const double certified = transfer::certified_bytes(problem, ascent.best());
    if (certified > best || certified < 0.98 * best)
      FAIL("seed " << seed << ": certifies " << certified << " B of " << best << " B");
    hard += best > static_cast<double>(problem.constant_bytes()) ? 1 : 0;
  }
  CHECK(hard > 100);
}

TEST_CASE("climbing longer certifies no less", "[transfer]")
{
  support::dice random{3};
  const retention_trace what = support::roll_large_trace(random, 100, 120, 400, 0.3);
  const retention_problem problem{what.input()};
  price_ascent ascent{problem};
  double before = transfer::certified_bytes(problem, ascent.best());
  for (int round = 0; round < 5; ++round) {
    ascent.climb(0.1, 10);
    const double now = transfer::certified_bytes(problem, ascent.best());
    CHECK(now >= before);
    before = now;
  }
}

TEST_CASE("more rows than may have a price: the prices still certify", "[transfer]")
{
  support::dice random{5};
  const retention_trace what = support::roll_large_trace(random, 400, 3'000, 3'000, 0.3);
  const retention_problem problem{what.input()};
  REQUIRE(problem.room().size() > 2 * price_ascent::most_priced_rows);
  price_ascent ascent{problem};
  for (const double width : {1.0, 0.1, 0.01}) ascent.climb(width, 60);
  std::size_t priced = 0;
  for (const double price : ascent.best().prices()) priced += price > 0 ? 1 : 0;
  CHECK(priced <= price_ascent::most_priced_rows);
  const transfer::retention_plan plan =
      transfer::plan_retention(problem, {.climbs = 40, .rebuilds = 0});
  CHECK(static_cast<double>(plan.moved_bytes) >= plan.certified_bytes);
  CHECK(static_cast<double>(plan.moved_bytes) <= 1.1 * transfer::certified_bytes(problem, ascent.best()));
}

TEST_CASE("nothing to decide needs no prices", "[transfer]")
{
  const retention_trace what{{4}, {}, {4, 4}, true};
  const retention_problem problem{what.input()};
  price_ascent ascent{problem};
  climb(ascent);
  CHECK(ascent.best().prices().empty());
  CHECK(ascent.terms() == 0);
}

}  // namespace price_ascent_test
