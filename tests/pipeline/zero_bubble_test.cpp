// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/filled_orders.hpp>
#include <chunkmem/pipeline/order_search.hpp>
#include <chunkmem/pipeline/zero_bubble.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/zero_bubble_table.hpp>

#include "schedule_runs.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace zero_bubble_test {

using namespace pipeline_test;

namespace {

void rates_are_printed(const support::zero_bubble_row& row)
{
  for (const support::zero_bubble_rate& it : support::zero_bubble_rates(row)) {
    CAPTURE(it.name, it.found, it.printed);
    CHECK(it.is_right());
  }
}

/// The least bubble rate of all filled orders.
double filled_rate_of(const support::zero_bubble_heuristic_row& row)
{
  const double saved = 34 * support::zero_bubble_heuristic_width + 5 * support::zero_bubble_heuristic_heads * 1024;
  const pass_seconds times = support::zero_bubble_heuristic_times;
  order_problem problem{.stages = row.stages,
                        .micro_batches = 3 * row.stages,
                        .owners = {},
                        .forward = times.forward,
                        .backward_input = times.backward_input,
                        .backward_weight = times.backward_weight,
                        .transfer = times.transfer,
                        .kept = 32 * support::zero_bubble_heuristic_width / saved,
                        .limit = row.limit * row.stages};
  for (std::uint32_t stage = 0; stage < row.stages; ++stage) problem.owners.push_back(stage);
  double least = pass_clock::never;
  for (const filling_rules& rules : filling_rules::all())
    if (const pass_orders orders = filled_orders{problem}.make(rules); !orders[0].empty())
      least = std::min(least, pass_clock{problem}.run(orders).longest);
  return 1 - times.all() * problem.micro_batches / least;
}

void stays_below(const schedule& plan, std::uint64_t saved, std::uint64_t kept, std::uint64_t limit)
{
  for (const std::uint64_t peak : saved_peaks(plan, saved, kept)) CHECK(peak <= limit);
}

}  // namespace

TEST_CASE("bubble rates are those that the zero bubble paper printed, or better where a search decides", "[pipeline]")
{
  rates_are_printed(support::zero_bubble_table()[0]);
}

TEST_CASE("bubble rates are the printed ones in all rows", "[pipeline][.slow]")
{
  for (const support::zero_bubble_row& row : support::zero_bubble_table()) rates_are_printed(row);
}

TEST_CASE("filled orders for 4 to 48 stages idle as long as those of the published heuristic, or shorter", "[pipeline]")
{
  for (const support::zero_bubble_heuristic_row& row : support::zero_bubble_heuristic()) {
    CAPTURE(row.stages, row.limit);
    CHECK(filled_rate_of(row) <= row.rate + 5e-7);
    if (row.stages <= 32) CHECK(filled_rate_of(row) >= row.rate - 5e-7);  // the same orders, with fewer stages
    if (row.stages <= 12) CHECK(support::searched_rate_of(row, 0) <= row.rate + 5e-7);
  }
}

TEST_CASE("filled orders run every micro-batch and keep to their limit, or are none, for any times", "[pipeline]")
{
  support::dice dice{5};
  for (int trial = 0; trial < 2'000; ++trial) {
    order_problem problem{.stages = dice.between(1, 9),
                          .micro_batches = dice.between(1, 20),
                          .owners = {},
                          .forward = 1.0 + dice.below(4),
                          .backward_input = 1.0 + dice.below(4),
                          .backward_weight = dice.below(4) * 1.0,
                          .transfer = dice.below(3) / 4.0,
                          .kept = dice.below(5) / 4.0,
                          .limit = 1.0 + dice.below(20) / 2.0};
    for (std::uint32_t stage = 0; stage < problem.stages; ++stage) problem.owners.push_back(stage);
    CAPTURE(trial, problem.stages, problem.micro_batches, problem.limit);
    std::vector<std::int64_t> counts;
    for (const filling_rules& rules : filling_rules::all()) {
      const pass_orders orders = filled_orders{problem}.make(rules);
      if (orders[0].empty()) continue;
      CHECK(pass_clock{problem}.run(orders).longest < pass_clock::never);
      for (const std::vector<pass>& runs : orders) {
        CHECK(fits(problem, runs, counts));
        CHECK(runs.size() == 3 * std::size_t{problem.micro_batches});
        for (const auto kind :
             {operation_kind::forward, operation_kind::backward_input, operation_kind::backward_weight})
          CHECK(std::ranges::count(runs, kind, &pass::kind) == problem.micro_batches);
      }
    }
  }
}

TEST_CASE("a search tells how far it is", "[pipeline]")
{
  static std::vector<std::uint32_t> told;
  const search_listener listener = [](std::uint32_t done, std::uint32_t trials) {
    CHECK(trials == 5'000);
    told.push_back(done);
  };
  told.clear();
  (void)make_schedule(zero_bubble{.limit = 1.5, .trials = 5'000, .tell = listener},
                      {.stages = 4, .micro_batches = 12, .seconds = {3, 4, 1.5, 0.25}});
  CHECK(told == std::vector<std::uint32_t>{0, 1024, 2048, 3072, 4096});
}

TEST_CASE("searched orders keep to their limit, for any times", "[pipeline]")
{
  support::dice dice{11};
  for (int trial = 0; trial < 12; ++trial) {
    const std::uint32_t stages = dice.between(1, 5);
    const pipeline_shape shape{
        .stages = stages,
        .micro_batches = dice.between(1, 9),
        .batches = 2,
        .seconds = {1.0 + dice.below(4), 1.0 + dice.below(4), dice.below(4) * 1.0, dice.below(3) / 4.0}};
    CAPTURE(trial, stages, shape.micro_batches);
    stays_below(make_schedule(zero_bubble{.limit = 1, .kept = 0.5, .trials = 500}, shape), 10, 5, stages * 10);
    stays_below(make_schedule(zero_bubble{.limit = 2, .kept = 0.8, .trials = 500}, shape), 10, 8, stages * 20);
    stays_below(make_schedule(zb_v{.limit = 1, .kept = 0.5, .trials = 500}, shape), 10, 5, 2 * stages * 10);
  }
}

TEST_CASE("a search gives the same orders each time, and never worse ones than its rules", "[pipeline]")
{
  const pipeline_shape shape{.stages = 4, .micro_batches = 12, .seconds = {3, 4, 1.5, 0.25}};
  const timed_schedule greedy = timed(zero_bubble{.limit = 1.5, .trials = 0}, shape);
  const timed_schedule searched = timed(zero_bubble{.limit = 1.5, .trials = 5'000}, shape);
  CHECK(searched.times.span() <= greedy.times.span());
  CHECK(searched.plan == timed(zero_bubble{.limit = 1.5, .trials = 5'000}, shape).plan);
}

TEST_CASE("ZB-V is never idle where all runs take equally long, and saves d micro-batches", "[pipeline]")
{
  for (const std::uint32_t p : {2U, 3U, 4U, 5U, 8U, 12U})
    for (const std::uint32_t m : {2 * p, 3 * p + 1}) {
      const timed_schedule it = timed(zb_v{}, {.stages = p, .micro_batches = m});
      CAPTURE(p, m);
      CHECK(it.times.bubble_rate() == 0);
      for (const std::uint64_t peak : saved_peaks(it.plan, 2, 1)) CHECK(peak == 2 * 2 * p);
    }
}

TEST_CASE("ZB-V puts the first and the last part on one stage", "[pipeline]")
{
  const schedule plan = make_schedule(zb_v{}, {.stages = 3, .micro_batches = 6});
  CHECK(plan.owners == std::vector<std::uint32_t>{0, 1, 2, 2, 1, 0});
}

TEST_CASE("limits that no micro-batch fits are refused", "[pipeline]")
{
  const pipeline_shape shape{.stages = 4, .micro_batches = 8};
  CHECK_THROWS_AS(make_schedule(zero_bubble{.limit = 0.2}, shape), config_error);
  CHECK_THROWS_AS(make_schedule(zero_bubble{.kept = 1.5}, shape), config_error);
  CHECK_THROWS_AS(make_schedule(zb_v{.limit = 0}, shape), config_error);
  CHECK_THROWS_AS(make_schedule(zb_v{.kept = -1}, shape), config_error);
}

TEST_CASE("V-shaped orders save no more than V-Half and V-Min, and wait as long", "[pipeline]")
{
  const auto limited = [](std::uint32_t d, std::uint32_t units, std::uint32_t trials) {
    return zb_v{.limit = static_cast<double>(units) / d, .kept = 1, .trials = trials};
  };
  for (std::uint32_t d = 2; d <= 16; ++d)
    for (const std::uint32_t units : {(d + 2) / 2, (d + 4) / 3}) {
      CAPTURE(d, units);
      const schedule plan = make_schedule(limited(d, units, 0), {.stages = d, .micro_batches = 3 * d});
      const std::vector<part_memory> parts(2 * std::size_t{d},
                                           part_memory{.saved = bytes{1}, .kept_for_weights = bytes{1}});
      for (const stage_peak& it : replay_memory(plan, parts)) CHECK(it.device <= bytes{2 * units});
    }
  // As a part of the time that 1F1B waits. The bounds are what the generator of the authors gives, to three decimals.
  const auto part_of_bubble = [&](std::uint32_t d, std::uint32_t units) {
    const pipeline_shape shape{.stages = d, .micro_batches = 3 * d};
    const double busy = 3.0 * shape.micro_batches;
    return (timed(limited(d, units, 0), shape).times.seconds - busy) / (3.0 * (d - 1));
  };
  struct row {
    std::uint32_t d;
    double half, least;
  };
  for (const auto [d, half, least] :
       {row{4, 0.278, 0.611}, {8, 0.405, 0.643}, {16, 0.456, 0.656}, {32, 0.478, 0.661}}) {
    CAPTURE(d);
    CHECK(part_of_bubble(d, (d + 2) / 2) <= half + 0.0005);
    CHECK(part_of_bubble(d, (d + 4) / 3) <= least + 0.0005);
  }
}

}  // namespace zero_bubble_test
