// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/retention_solution.hpp>

#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/played_retention.hpp>
#include <support/oracles/retention_trace.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace retention_solution_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::plan_retention;
using transfer::retention_problem;
using transfer::retention_solution;

namespace {

/// The numbers of a plan have to be right. @return   its bytes
std::uint64_t check_plan(const retention_trace& what, const retention_problem& problem, const retention_solution& plan)
{
  const support::played_retention played{what.input(), plan.retained};
  CHECK(played.fits());
  CHECK(played.moved_bytes() == plan.moved_bytes);
  CHECK(transfer::moved_bytes(what.input(), plan.retained) == plan.moved_bytes);
  CHECK(plan.certified_bytes <= static_cast<double>(plan.moved_bytes));
  transfer::row_prices price{problem.room().size()};
  price.set(plan.prices);
  CHECK(transfer::certified_bytes(problem, price) == plan.certified_bytes);
  return plan.moved_bytes;
}

std::uint64_t fingerprint(const retention_solution& plan)
{
  std::uint64_t hash = 14'695'981'039'346'656'037U;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1'099'511'628'211U; };
  for (const std::uint8_t retained : plan.retained) add(retained);
  for (const double price : plan.prices) add(std::bit_cast<std::uint64_t>(price));
  add(std::bit_cast<std::uint64_t>(plan.certified_bytes));
  add(plan.moved_bytes);
  return hash;
}

}  // namespace

TEST_CASE("plans equal brute force: one shot and repeating, one size and two", "[transfer]")
{
  constexpr std::uint64_t traces = support::sanitized ? 200 : 1'000;
  double least_equal = 100;
  for (std::uint32_t family = 0; family < 4; ++family) {
    std::uint64_t equal = 0;
    std::uint64_t hard = 0;  // more than one pass by distance finds
    for (std::uint64_t seed = 1; seed <= traces; ++seed) {
      support::dice random{4 * seed + family};
      const retention_trace what = support::roll_small_trace(random, {family % 2 == 1, family >= 2, false});
      const transfer::retention_input input = what.input();
      const retention_problem problem{input};
      const std::uint64_t moved = check_plan(what, problem, plan_retention(problem));
      const std::uint64_t best = support::fewest_moved_bytes{input}();
      if (moved < best || static_cast<double>(moved) > 1.05 * static_cast<double>(best))
        FAIL("family " << family << ", seed " << 4 * seed + family << ": " << moved << " B for " << best);
      equal += moved == best ? 1 : 0;
      if (problem.room().empty()) continue;
      transfer::retention_candidates belady{problem};
      transfer::row_prices even{problem.room().size()};
      even.set(std::vector<double>(problem.room().size(), 1));
      belady.sweep(even, 0);
      hard += problem.constant_bytes() + belady.best().moved_bytes() > best ? 1 : 0;
    }
    CHECK(hard > traces * 3 / 100);
    least_equal = std::min(least_equal, 100.0 * static_cast<double>(equal) / static_cast<double>(traces));
  }
  CHECK(least_equal >= 99);
  support::write_figures("test_transfer", "build/bench/bin/test_transfer",
                         {{"transfer.planned_equals_brute_force_percent", least_equal, "%", ">=", 99}});
}

TEST_CASE("plans equal brute force with uses on the host and drops", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 1'000; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, seed % 4 < 2, true});
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    const std::uint64_t best = support::fewest_moved_bytes{input}();
    if (check_plan(what, problem, plan_retention(problem)) != best)
      FAIL("seed " << seed << ": " << best << " B are possible");
  }
}

TEST_CASE("uses that last and overlap are planned as they are", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice random{seed};
    retention_trace what{{}, {}, std::vector<std::uint64_t>(30, 0), seed % 2 == 0};
    for (std::uint32_t chunk = 0; chunk < 8; ++chunk) what.chunk_bytes.push_back(random.between(1, 3));
    std::vector<std::uint64_t> used(30, 0);
    for (std::uint32_t now = 0; now < 30; ++now) {
      const std::uint32_t chunk = random.below(8);
      what.use(chunk, now, static_cast<transfer::use_kind>(random.below(3)), random.between(1, std::min(30 - now, 5U)));
      for (std::uint32_t index = now; index < what.uses.back().end; ++index) used[index] += what.chunk_bytes[chunk];
    }
    for (std::uint32_t now = 0; now < 30; ++now) what.device_bytes[now] = used[now] + random.below(5);
    const retention_problem problem{what.input()};
    const retention_solution plan = plan_retention(problem);
    check_plan(what, problem, plan);
    if (plan.is_optimal) continue;
    CHECK(static_cast<double>(plan.moved_bytes) <= 1.1 * plan.certified_bytes + 3);
  }
}

TEST_CASE("a GPT's plan is near its certificate, and says the truth about itself", "[transfer]")
{
  for (const std::uint32_t on_device : {0U, 1U, 2U})
    for (const double share : {0.05, 0.3, 0.6, 0.9}) {
      const retention_trace what = support::gpt_retention_trace({16, 4, 32, on_device, 2}, share);
      const retention_problem problem{what.input()};
      const retention_solution plan = plan_retention(problem, {.climbs = 100, .rebuilds = 500});
      check_plan(what, problem, plan);
      CHECK(static_cast<double>(plan.moved_bytes) <= 1.02 * plan.certified_bytes + 4 * 2.0 * (1 << 20));
    }
}

TEST_CASE("no effort leaves a plan that is true", "[transfer]")
{
  support::dice random{2};
  const retention_trace what = support::roll_large_trace(random, 100, 120, 400, 0.3);
  const retention_problem problem{what.input()};
  const std::uint64_t little = check_plan(what, problem, plan_retention(problem, {.climbs = 0, .rebuilds = 0}));
  CHECK(check_plan(what, problem, plan_retention(problem)) <= little);
}

TEST_CASE("the same input gives the same plan, to the last bit of its prices", "[transfer]")
{
  support::dice random{1};
  const retention_trace rolled = support::roll_large_trace(random, 200, 150, 700, 0.3);
  const retention_trace gpt = support::gpt_retention_trace({16, 4, 32, 1, 2}, 0.3);
  CHECK(fingerprint(plan_retention(retention_problem{rolled.input()})) == 7762118723155980783U);
  CHECK(fingerprint(plan_retention(retention_problem{gpt.input()})) == 3930252905714638374U);
}

TEST_CASE("an iteration without uses has an empty plan", "[transfer]")
{
  const retention_trace what{{4}, {}, {4, 4}, true};
  const retention_solution plan = plan_retention(retention_problem{what.input()});
  CHECK(plan.moved_bytes == 0);
  CHECK(plan.retained.empty());
  CHECK(plan.is_optimal);
}

}  // namespace retention_solution_test
