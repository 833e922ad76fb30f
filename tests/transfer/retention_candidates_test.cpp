// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/local_search.hpp>

#include <chunkmem/transfer/kept_intervals.hpp>
#include <chunkmem/transfer/lagrangian_dual.hpp>
#include <support/catch.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/retention_trace.hpp>

#include <cstdint>
#include <vector>

namespace retention_candidates_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::kept_intervals;
using transfer::retention_candidates;
using transfer::retention_problem;
using transfer::retention_sweep;
using transfer::row_prices;

namespace {

row_prices even(const retention_problem& problem)
{
  row_prices price{problem.room().size()};
  price.set(std::vector<double>(problem.room().size(), 1));
  return price;
}

/// Bytes of a sweep, all of whose intervals have to fit.
std::uint64_t moved_by(const retention_problem& problem, std::span<const std::uint8_t> retained)
{
  kept_intervals choice{problem};
  for (std::uint32_t which = 0; which < retained.size(); ++which) {
    if (retained[which] == 0) continue;
    REQUIRE(choice.fits(which));
    choice.keep(which);
  }
  return problem.constant_bytes() + choice.moved_bytes();
}

}  // namespace

TEST_CASE("good prices bring the candidates close to the optimum, and never below it", "[transfer]")
{
  int equal = 0;
  int rolled = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, seed % 4 < 2, false});
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    transfer::dual_ascent ascent{problem};
    retention_candidates candidates{problem};
    std::uint64_t before = candidates.best().moved_bytes();
    for (const double width : {1.0, 0.1, 0.01}) {
      ascent.climb(width, 40);
      candidates.greedy(ascent.reached());
      candidates.sweep(ascent.reached(), 1);
      CHECK(candidates.best().moved_bytes() <= before);
      before = candidates.best().moved_bytes();
    }
    const std::uint64_t best = support::fewest_moved_bytes{input}();
    CHECK(problem.constant_bytes() + before >= best);
    equal += problem.constant_bytes() + before == best ? 1 : 0;
    ++rolled;
  }
  CHECK(equal >= rolled * 90 / 100);
}

TEST_CASE("the best candidate gives way to one that moves less, and to no other", "[transfer]")
{
  support::dice random{1};
  const retention_trace what = support::roll_large_trace(random, 20, 30, 60, 0.3);
  const retention_problem problem{what.input()};
  retention_candidates candidates{problem};
  kept_intervals choice{problem};
  CHECK_FALSE(candidates.offer(choice));
  std::uint32_t which = 0;
  while (choice.saving(which) == 0) ++which;
  choice.keep(which);
  CHECK(candidates.offer(choice));
  CHECK_FALSE(candidates.offer(choice));
  CHECK(candidates.best().is_kept(which));
}

TEST_CASE("a sweep by distance alone is Belady's rule: optimal for reads of one size in one shot", "[transfer]")
{
  int hard = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice random{seed};
    retention_trace what = support::roll_small_trace(random, {false, false, false});
    for (auto& it : what.uses) it.kind = transfer::use_kind::read;
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    retention_sweep sweep{problem};
    const std::uint64_t moved = moved_by(problem, sweep(even(problem), 0));
    if (moved != support::fewest_moved_bytes{input}()) FAIL("seed " << seed << ": " << moved << " B");
    hard += problem.room().empty() ? 0 : 1;
  }
  CHECK(hard > 100);
}

TEST_CASE("what stays of a sweep fits together, around the end too", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice random{seed};
    const retention_trace what = seed % 2 == 0 ? support::roll_large_trace(random, 20, 30, 90, 0.2)
                                               : support::roll_small_trace(random, {true, true, seed % 3 == 0});
    const retention_problem problem{what.input()};
    retention_sweep sweep{problem};
    for (const double weight : {0.0, 3.0, 1000.0}) moved_by(problem, sweep(even(problem), weight));
  }
}

TEST_CASE("where cost comes first, a dirty chunk outlives a clean one that is wanted sooner", "[transfer]")
{
  using transfer::use_kind;
  retention_trace what{{1, 1, 1}, {}, std::vector<std::uint64_t>(9, 2), false};
  what.use(0, 0, use_kind::update);
  what.use(1, 1, use_kind::read);
  what.use(2, 3, use_kind::read);
  what.use(1, 5, use_kind::read);
  what.use(0, 8, use_kind::read);
  const retention_problem problem{what.input()};
  REQUIRE(problem.intervals().size() == 2);  // of chunk 0, then of chunk 1
  retention_sweep sweep{problem};
  CHECK(sweep(even(problem), 0) == std::vector<std::uint8_t>{0, 1});
  CHECK(sweep(even(problem), 100) == std::vector<std::uint8_t>{1, 0});
}

}  // namespace retention_candidates_test
