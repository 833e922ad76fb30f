// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/gap_regrets.hpp>

#include <support/catch.hpp>
#include <support/oracles/retention_trace.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace gap_regrets_test {

using namespace chunkmem;
using transfer::retention_problem;
using transfer::row_prices;

namespace {

/// The least cost over all ways of an epoch in which one gap has one answer.
double least_with(const retention_problem& problem, const row_prices& price, const retention_problem::epoch& epoch,
                  std::uint32_t gap, bool kept)
{
  double best = std::numeric_limits<double>::infinity();
  const std::uint32_t count = epoch.end - epoch.begin;
  for (std::uint32_t way = 0; way < (1U << count); ++way) {
    if ((way >> (gap - epoch.begin) & 1U) != (kept ? 1U : 0U)) continue;
    double cost = epoch.writes_back && way != (1U << count) - 1 ? 1 : 0;
    for (std::uint32_t at = 0; at < count; ++at) {
      const auto& it = problem.gaps()[epoch.begin + at];
      cost += (way >> at & 1U) != 0 ? price(it) : it.loads ? 1 : 0;
    }
    best = std::min(best, cost);
  }
  return best;
}

}  // namespace

TEST_CASE("a regret is what one forced answer costs, over all ways of its epoch", "[transfer]")
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
    const transfer::gap_regrets regrets{problem, price};
    for (const auto& epoch : problem.epochs())
      for (std::uint32_t which = epoch.begin; which < epoch.end; ++which) {
        const double kept = least_with(problem, price, epoch, which, true);
        const double dropped = least_with(problem, price, epoch, which, false);
        CHECK(regrets.if_kept(which) == Catch::Approx(std::max(0.0, kept - dropped)).margin(1e-12));
        CHECK(regrets.if_dropped(which) == Catch::Approx(std::max(0.0, dropped - kept)).margin(1e-12));
        CHECK(regrets.either(which) == std::max(regrets.if_kept(which), regrets.if_dropped(which)));
        ++compared;
      }
    const std::vector<std::uint32_t> least = regrets.least_known(3);
    CHECK(least.size() == std::min<std::size_t>(3, problem.gaps().size()));
    CHECK(std::ranges::is_sorted(least, {}, [&](std::uint32_t which) { return regrets.either(which); }));
    for (std::uint32_t which = 0; which < problem.gaps().size() && !least.empty(); ++which)
      if (std::ranges::find(least, which) == least.end()) CHECK(regrets.either(which) >= regrets.either(least.back()));
  }
  CHECK(compared > 1000);
}

}  // namespace gap_regrets_test
