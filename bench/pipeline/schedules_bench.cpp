// SPDX-License-Identifier: Apache-2.0
// Does the simulator of pipelines give the bubble rates of the zero bubble paper? Do searched orders idle longer than
// those of the paper's own heuristic, with 4 to 48 stages? Does the check of schedules find planted faults, and accept
// schedules that run? How many steps does the simulator take in a second?
//
// Six rows of the paper's tables with six schedules each. 20 rates of the released heuristic. Then random schedules,
// each of them unchanged and with each possible planted fault: as many as the argument says, or 100,000. Then long
// schedules of 16 stages, on links that share wires and on links that do not: the slowest counts, in steps of lists,
// sends and receives included.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/pipeline/find_fault.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/random_schedule.hpp>
#include <support/planted_schedule_faults.hpp>
#include <support/zero_bubble_table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <vector>

namespace {

using namespace chunkmem::pipeline;

int wrong_rates()
{
  int wrong = 0;
  for (const support::zero_bubble_row& row : support::zero_bubble_table()) {
    std::printf("%4.0f wide, %2u micro-batches:", row.width, row.micro_batches);
    for (const support::zero_bubble_rate& it : support::zero_bubble_rates(row)) {
      std::printf("  %s %.4f (%.4f)%s", it.name.c_str(), it.found, it.printed, it.is_right() ? "" : " WRONG");
      wrong += it.is_right() ? 0 : 1;
    }
    std::printf("\n");
  }
  return wrong;
}

int worse_than_heuristic()
{
  int worse = 0;
  for (const support::zero_bubble_heuristic_row& row : support::zero_bubble_heuristic()) {
    const std::clock_t begin = std::clock();
    const double rate = support::searched_rate_of(row, 50'000);
    const bool is_worse = rate > row.rate + 5e-7;  // half of the last digit
    std::printf("%2u stages, limit %.0f: %.6f (heuristic %.6f), %.1f s%s\n", row.stages, row.limit, rate, row.rate,
                static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, is_worse ? " WORSE" : "");
    worse += is_worse ? 1 : 0;
  }
  return worse;
}

struct random_result {
  std::uint64_t refused = 0;  // schedules that run
  std::uint64_t planted = 0;
  std::uint64_t found = 0;
};

random_result try_random_schedules(std::uint64_t count)
{
  const auto faults = support::planted_schedule_faults();
  random_result all;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    support::dice dice{seed};
    const schedule good = support::random_schedule{dice}.plan();
    all.refused += find_fault(good) ? 1 : 0;
    for (const support::planted_schedule_fault& fault : faults) {
      schedule plan = good;
      if (!fault.plant(plan, dice)) continue;
      ++all.planted;
      const auto found = find_fault(plan);
      all.found += found && std::ranges::count(fault.found, found->fault) == 1 ? 1 : 0;
    }
  }
  std::printf("%llu random schedules, %llu refused; %llu planted faults of %zu kinds, %llu found\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(all.refused),
              static_cast<unsigned long long>(all.planted), faults.size(), static_cast<unsigned long long>(all.found));
  return all;
}

double steps_per_second(const schedule& plan, bool shares_wires)
{
  pipeline_costs costs = uniform_costs(plan, {.transfer = 0.0625});
  for (part_costs& part : costs.parts) {
    part.output = chunkmem::bytes{1'000};
    part.update = 0.5;
  }
  costs.updates_aside = true;
  for (stage_link& link : costs.links) link = {.latency = 0.0625, .bytes_per_second = 16'000};
  if (shares_wires)
    for (std::uint32_t from = 0; from < costs.stages; ++from)
      for (std::uint32_t to = 0; to < costs.stages; ++to) costs.link(from, to).channel = from / 8;
  std::size_t steps = 0;
  for (const auto& list : plan.stages) steps += list.size();
  const std::clock_t begin = std::clock();
  const double simulated = pipeline_timeline{plan, costs}.run().seconds;
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const double rate = static_cast<double>(steps) / seconds;
  std::printf("%-12s %8zu steps%s: %.1f million a second (%.0f simulated seconds)\n", plan.name.c_str(), steps,
              shares_wires ? ", shared wires" : "", rate / 1e6, simulated);
  return rate;
}

double slowest_steps_per_second()
{
  double slowest = std::numeric_limits<double>::infinity();
  const pipeline_shape shape{.stages = 16, .micro_batches = 64, .batches = 100};
  const std::vector<schedule> plans{make_schedule(one_f_one_b{}, shape), make_schedule(interleaved{.parts = 2}, shape),
                                    make_schedule(zb_h2{}, shape), make_schedule(pipedream_2bw{}, shape)};
  for (const schedule& plan : plans)
    for (const bool shares_wires : {false, true}) slowest = std::min(slowest, steps_per_second(plan, shares_wires));
  return slowest;
}

}  // namespace

int main(int count, char** arguments)
{
  const std::uint64_t schedules = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 100'000;
  const int wrong = wrong_rates();
  const int worse = worse_than_heuristic();
  const random_result random = try_random_schedules(schedules);
  const double found = 100.0 * static_cast<double>(random.found) / static_cast<double>(random.planted);
  return transfer_bench::write_figures(
      "schedules_bench",
      {{"pipeline.oracle_a_rows_wrong", static_cast<double>(wrong), "rates", "==", 0},
       {"pipeline.zb_rows_worse_than_published", static_cast<double>(worse), "rates", "==", 0},
       {"pipeline.random_schedules_refused", static_cast<double>(random.refused), "schedules", "==", 0},
       {"pipeline.planted_faults_found_percent", found, "%", "==", 100},
       {"pipeline.simulator_operations_per_second", slowest_steps_per_second(), "1/s", ">=", 1e6}});
}
