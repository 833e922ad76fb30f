// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/retention_rebuild.hpp>

#include <support/catch.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/retention_trace.hpp>

#include <cstdint>

namespace retention_rebuild_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::kept_gaps;
using transfer::retention_problem;
using transfer::retention_rebuild;
using transfer::row_prices;

TEST_CASE("rebuilding improves a bad choice, never moves more, and leaves what fits", "[transfer]")
{
  int better = 0;
  int equal = 0;
  int rolled = 0;
  for (std::uint64_t seed = 1; seed <= 900; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, true, false});
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    if (problem.gaps().size() < 2) continue;
    const row_prices none{problem.room().size()};
    kept_gaps choice{problem};
    for (std::uint32_t which = 0; which < problem.gaps().size(); ++which)  // badly: in the order of chunks
      if (choice.fits(which)) choice.keep(which);
    const std::uint64_t before = choice.moved_bytes();
    retention_rebuild{problem, none}.improve(choice, 500);
    const std::uint64_t best = support::fewest_moved_bytes{input}();
    CHECK(choice.moved_bytes() <= before);
    CHECK(problem.constant_bytes() + choice.moved_bytes() >= best);
    for (std::uint32_t which = 0; which < problem.gaps().size(); ++which) CHECK(choice.room_over(which) >= 0);
    better += choice.moved_bytes() < before ? 1 : 0;
    equal += problem.constant_bytes() + choice.moved_bytes() == best ? 1 : 0;
    ++rolled;
  }
  CHECK(better > 5);
  CHECK(equal >= rolled * 99 / 100);
}

TEST_CASE("no attempts change nothing, and the same attempts end the same way", "[transfer]")
{
  support::dice random{4};
  const retention_trace what = support::roll_large_trace(random, 60, 60, 200, 0.3);
  const retention_problem problem{what.input()};
  const row_prices none{problem.room().size()};
  kept_gaps choice{problem};
  retention_rebuild{problem, none}.improve(choice, 0);
  CHECK(choice.moved_bytes() == kept_gaps{problem}.moved_bytes());
  kept_gaps again{problem};
  retention_rebuild{problem, none}.improve(choice, 200);
  retention_rebuild{problem, none}.improve(again, 200);
  CHECK(choice.all() == again.all());
  CHECK(choice.moved_bytes() < kept_gaps{problem}.moved_bytes());
}

}  // namespace retention_rebuild_test
