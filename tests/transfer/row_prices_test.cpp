// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/row_prices.hpp>

#include <support/catch.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/retention_trace.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

namespace row_prices_test {

using namespace chunkmem;
using transfer::retention_problem;
using transfer::row_prices;

TEST_CASE("a gap costs the sum of the prices of its rows", "[transfer]")
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

TEST_CASE("an epoch takes the cheaper of staying throughout and of each gap's own answer with a write-back",
          "[transfer]")
{
  row_prices price{3};
  price.set(std::vector<double>{0.75, 0.5, 3});
  using gap = retention_problem::gap;
  const std::vector<gap> gaps{{.first = 0, .last = 1, .loads = true},
                              {.first = 1, .last = 2, .loads = true},
                              {.first = 2, .last = 3, .loads = true}};
  CHECK(transfer::least_cost(std::span{gaps}.first(2), true, price) == 1.25);   // stays
  CHECK(transfer::least_cost(std::span{gaps}.first(2), false, price) == 1.25);  // the same without a write-back
  CHECK(transfer::least_cost(gaps, true, price) == 3.25);  // leaves over the last one: 0.75 + 0.5 + 1 + 1
  CHECK(transfer::least_cost(std::span{gaps}.last(1), false, price) == 1);
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

}  // namespace row_prices_test
