// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/lagrangian_dual.hpp>

#include <chunkmem/transfer/retention_solution.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/retention_trace.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

namespace fused_sums_test {

using namespace chunkmem;

namespace {

std::vector<double> numbers(support::dice& dice, std::size_t count)
{
  std::vector<double> all;
  for (std::size_t index = 0; index < count; ++index)
    all.push_back(std::ldexp(static_cast<double>(dice.below(1U << 30)) - 5e8, static_cast<int>(dice.below(80)) - 60));
  return all;
}

}  // namespace

TEST_CASE("fused sums have the bits of std::fma, for every length", "[transfer]")
{
  support::dice dice{3};
  for (std::size_t count = 0; count < 70; ++count) {
    const std::vector<double> left = numbers(dice, count);
    const std::vector<double> right = numbers(dice, count);
    double lanes[4] = {};
    for (std::size_t index = 0; index < count; ++index) {
      double& sum = lanes[index < count / 4 * 4 ? index % 4 : 0];
      sum = std::fma(left[index], right[index], sum);
    }
    CHECK(fused_product(left, right) == (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));

    const double factor = numbers(dice, 1)[0];
    std::vector<double> sums = left;
    fused_add(sums, factor, right);
    for (std::size_t index = 0; index < count; ++index)
      CHECK(sums[index] == std::fma(factor, right[index], left[index]));
  }
}

TEST_CASE("one rounding for each product: a rest is not lost", "[transfer]")
{
  const std::vector<double> left{-1, 1 + 0x1p-30};
  const std::vector<double> right{1 + 0x1p-29, 1 + 0x1p-30};
  CHECK(fused_product(left, right) == 0x1p-60);
  std::vector<double> sum{-1 - 0x1p-29};
  fused_add(sum, 1 + 0x1p-30, std::vector<double>{1 + 0x1p-30});
  CHECK(sum[0] == 0x1p-60);
}

}  // namespace fused_sums_test

namespace lagrangian_dual_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::dual_ascent;
using transfer::lagrangian_dual;
using transfer::retention_problem;
using transfer::row_prices;
using transfer::use_kind;

namespace {

std::vector<std::uint32_t> all_rows(const retention_problem& problem)
{
  std::vector<std::uint32_t> rows(problem.room().size());
  std::iota(rows.begin(), rows.end(), 0U);
  return rows;
}

std::vector<double> roll_prices(support::dice& random, std::size_t rows)
{
  std::vector<double> prices(rows);
  for (double& it : prices) it = random.below(1000) / 1500.0;
  return prices;
}

void climb(dual_ascent& ascent)
{
  for (const double width : {1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001}) ascent.climb(width, 100);
}

}  // namespace

TEST_CASE("without a width the dual is what prices certify", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, true, seed % 3 == 0});
    const retention_problem problem{what.input()};
    const std::size_t rows = problem.room().size();
    lagrangian_dual dual{problem, all_rows(problem)};
    row_prices price{rows};
    price.set(roll_prices(random, rows));
    std::vector<double> slope(rows);
    const auto constant = static_cast<double>(problem.constant_bytes());
    const double value = dual(price, 0, slope) * static_cast<double>(problem.unit_bytes()) + constant;
    CHECK(std::max(value, constant) == Catch::Approx(transfer::certified_bytes(problem, price)).epsilon(1e-9));
  }
}

TEST_CASE("a width takes at most a quarter of it for each choice, and makes the slope true", "[transfer]")
{
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, true, seed % 3 == 0});
    const retention_problem problem{what.input()};
    const std::size_t rows = problem.room().size();
    lagrangian_dual dual{problem, all_rows(problem)};
    row_prices price{rows};
    std::vector<double> prices = roll_prices(random, rows);
    price.set(prices);
    std::vector<double> slope(rows);
    std::vector<double> unused(rows);
    const double exact = dual(price, 0, unused);
    for (const double width : {1.0, 0.1}) {
      const double smooth = dual(price, width, slope);
      CHECK(smooth <= exact + 1e-12);
      const double choices = 2.0 * dual.weight() * static_cast<double>(problem.intervals().size());
      CHECK(smooth >= exact - width / 4 * choices);
      for (std::size_t row = 0; row < rows; ++row) {
        constexpr double step = 1e-6;
        prices[row] += step;
        price.set(prices);
        const double right = dual(price, width, unused);
        prices[row] -= 2 * step;
        price.set(prices);
        const double left = dual(price, width, unused);
        prices[row] += step;
        price.set(prices);
        CHECK((right - left) / (2 * step) == Catch::Approx(slope[row]).margin(1e-4));
        ++compared;
      }
    }
  }
  CHECK(compared > 500);
}

TEST_CASE("with a short host the dual is what prices certify, host copies among them, and its slope is true",
          "[transfer]")
{
  int copied_to_host = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {true, seed % 2 == 0, seed % 5 == 0});
    transfer::retention_input input = what.input();
    const std::uint64_t all = std::accumulate(what.chunk_bytes.begin(), what.chunk_bytes.end(), std::uint64_t{0});
    const std::vector<std::uint64_t> host(what.device_bytes.size(), all - 1);
    input.host_bytes = host;
    std::optional<retention_problem> made;
    try {
      made.emplace(input);
    } catch (const out_of_memory&) {
      continue;
    }
    const retention_problem& problem = *made;
    const std::size_t rows = problem.room().size();
    lagrangian_dual dual{problem, all_rows(problem)};
    REQUIRE(dual.coordinates() == rows + 1);
    row_prices price{rows};
    std::vector<double> prices = roll_prices(random, rows + 1);
    price.set(prices);
    std::vector<double> slope(rows + 1);
    std::vector<double> unused(rows + 1);
    const auto constant = static_cast<double>(problem.constant_bytes());
    const double value = dual(price, 0, slope) * static_cast<double>(problem.unit_bytes()) + constant;
    CHECK(std::max(value, constant) == Catch::Approx(transfer::certified_bytes(problem, price)).epsilon(1e-9));
    (void)dual(price, 0.3, slope);
    for (std::size_t index = 0; index <= rows; ++index) {
      constexpr double step = 1e-6;
      const auto with = [&](double change) {
        std::vector<double> changed = prices;
        changed[index] += change;
        price.set(changed);
        return dual(price, 0.3, unused);
      };
      CHECK((with(step) - with(-step)) / (2 * step) == Catch::Approx(slope[index]).margin(1e-4));
    }
    copied_to_host += problem.host_copies().size() > 1 ? 1 : 0;
  }
  CHECK(copied_to_host > 50);
}

TEST_CASE("epochs of one shape are one class, whatever their sizes", "[transfer]")
{
  retention_trace what{{4, 4, 8, 12, 4}, {}, {30, 40, 30, 30, 30, 30, 30, 30}, true};
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) what.use(chunk, 1, use_kind::update);
  what.use(4, 3, use_kind::update);
  what.use(3, 6, use_kind::read);
  const retention_problem problem{what.input()};
  const lagrangian_dual dual{problem, all_rows(problem)};
  CHECK(problem.epochs().size() == 5);
  CHECK(dual.classes() == 3);  // chunks 0 to 2; 3, which has two intervals; 4
  CHECK(dual.weight() == 8);   // units of four bytes
}

TEST_CASE("rows that may have no price leave a dual that is true for the others", "[transfer]")
{
  support::dice random{11};
  const retention_trace what = support::roll_large_trace(random, 60, 80, 200, 0.3);
  const retention_problem problem{what.input()};
  std::vector<std::uint32_t> some;
  for (std::uint32_t row = 1; row < problem.room().size(); row += 3) some.push_back(row);
  lagrangian_dual dual{problem, some};
  const std::vector<double> prices = roll_prices(random, some.size());
  row_prices price{some.size()};
  price.set(prices);
  std::vector<double> all(problem.room().size(), 0);
  for (std::size_t index = 0; index < some.size(); ++index) all[some[index]] = prices[index];
  row_prices price_of_all{all.size()};
  price_of_all.set(all);
  lagrangian_dual whole{problem, all_rows(problem)};
  std::vector<double> slope(all.size());
  for (const double width : {0.0, 0.3})
    CHECK(dual(price, width, slope) == Catch::Approx(whole(price_of_all, width, slope)).epsilon(1e-9));
}

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
    dual_ascent ascent{problem};
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
  dual_ascent ascent{problem};
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
  REQUIRE(problem.room().size() > 2 * dual_ascent::most_priced_rows);
  dual_ascent ascent{problem};
  for (const double width : {1.0, 0.1, 0.01}) ascent.climb(width, 60);
  std::size_t priced = 0;
  for (const double price : ascent.best().prices()) priced += price > 0 ? 1 : 0;
  CHECK(priced <= dual_ascent::most_priced_rows);
  const transfer::retention_solution plan = transfer::plan_retention(problem, {.climbs = 40, .rebuilds = 0});
  CHECK(static_cast<double>(plan.moved_bytes) >= plan.certified_bytes);
  CHECK(static_cast<double>(plan.moved_bytes) <= 1.1 * transfer::certified_bytes(problem, ascent.best()));
}

TEST_CASE("nothing to decide needs no prices", "[transfer]")
{
  const retention_trace what{{4}, {}, {4, 4}, true};
  const retention_problem problem{what.input()};
  dual_ascent ascent{problem};
  climb(ascent);
  CHECK(ascent.best().prices().empty());
  CHECK(ascent.terms() == 0);
}

}  // namespace lagrangian_dual_test
