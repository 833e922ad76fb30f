// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/retention_finish.hpp>

#include <chunkmem/transfer/price_ascent.hpp>
#include <support/catch.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/retention_trace.hpp>

#include <cstdint>

namespace retention_finish_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::kept_gaps;
using transfer::retention_finish;
using transfer::retention_problem;
using transfer::row_prices;

TEST_CASE("the finish finds the optimum from nothing, with any prices, and says so", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, seed % 4 < 2, seed % 3 == 0});
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    const std::uint64_t best = support::fewest_moved_bytes{input}();
    transfer::price_ascent ascent{problem};
    for (int round = 0; round < 2; ++round) {
      kept_gaps choice{problem};
      if (!retention_finish{problem, ascent.best()}(choice, 1'000'000)) FAIL("seed " << seed << ": no proof");
      if (problem.constant_bytes() + choice.moved_bytes() != best) FAIL("seed " << seed << ": not " << best << " B");
      ascent.climb(0.1, 40);
    }
  }
}

TEST_CASE("without nodes the finish changes nothing and proves nothing", "[transfer]")
{
  int unproven = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {true, true, false});
    const retention_problem problem{what.input()};
    kept_gaps choice{problem};
    const std::uint64_t before = choice.moved_bytes();
    if (before == 0) continue;
    unproven += retention_finish{problem, row_prices{problem.room().size()}}(choice, 0) ? 0 : 1;
    CHECK(choice.moved_bytes() == before);
  }
  CHECK(unproven > 20);
}

TEST_CASE("more gaps than can be tried: a choice gets no worse, and no proof is claimed", "[transfer]")
{
  support::dice random{9};
  const retention_trace what = support::roll_large_trace(random, 200, 100, 500, 0.3);
  const retention_problem problem{what.input()};
  REQUIRE(problem.gaps().size() > retention_finish::most_open);
  kept_gaps choice{problem};
  for (std::uint32_t which = 0; which < problem.gaps().size(); which += 2)
    if (choice.fits(which)) choice.keep(which);
  const std::uint64_t before = choice.moved_bytes();
  CHECK_FALSE(retention_finish{problem, row_prices{problem.room().size()}}(choice, 20'000));
  CHECK(choice.moved_bytes() <= before);
  for (std::uint32_t which = 0; which < problem.gaps().size(); ++which) CHECK(choice.room_over(which) >= 0);
}

}  // namespace retention_finish_test
