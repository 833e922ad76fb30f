// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/retention_candidates.hpp>

#include <chunkmem/transfer/price_ascent.hpp>
#include <support/catch.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/retention_trace.hpp>

#include <cstdint>
#include <vector>

namespace retention_candidates_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::kept_gaps;
using transfer::retention_candidates;
using transfer::retention_problem;

TEST_CASE("good prices bring the candidates close to the optimum, and never below it", "[transfer]")
{
  int equal = 0;
  int rolled = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, seed % 4 < 2, false});
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    transfer::price_ascent ascent{problem};
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
  kept_gaps choice{problem};
  CHECK_FALSE(candidates.offer(choice));
  std::uint32_t which = 0;
  while (choice.saving(which) == 0) ++which;
  choice.keep(which);
  CHECK(candidates.offer(choice));
  CHECK_FALSE(candidates.offer(choice));
  CHECK(candidates.best().is_kept(which));
}

}  // namespace retention_candidates_test
