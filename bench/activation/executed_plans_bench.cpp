// SPDX-License-Identifier: Apache-2.0
// Does a step take as long as its plan of activations says?
//
// Random chains of 3 to 20 blocks, whose activations exceed the device: the first 50 for which `planned` finds a plan,
// and keep_all does not.
// The manager executes each plan on throttled_arena: real threads, real bytes, copies that take the time of the
// budget's links, callbacks that take the time of their blocks. The plan of the manager decides when the tensors of a
// swapped block leave. Reported are the median of five steps in the steady state over the seconds of the plan, the peak
// of the device and the bytes moved against those of the plan, and the same for three planners of one remedy.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/activation/planners.hpp>
#include <support/chain_execution.hpp>
#include <support/throttled_arena.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

namespace cm = chunkmem;
using namespace chunkmem::activation;
using namespace cm::literals;

constexpr std::uint32_t plans = 50;
constexpr cm::bytes frame = 4_KiB;
constexpr double unit = 2e-3;  // seconds of the shortest run
constexpr int warm_up = 4;
constexpr int steps = 5;

/// The execution of a plan.
struct outcome {
  double over_plan = 0;
  bool is_peak_equal = false;
  bool moves_no_more = false;
};

outcome execute(const support::chain_problem& it, const activation_plan& plan)
{
  support::throttled_arena memory{{.device_capacity = it.budget.device, .host_capacity = 64_MiB, .async_compute = true},
                                  support::costs_of(it.budget),
                                  support::pace::caller};
  support::chain_execution<support::throttled_arena> run{memory, it.chain, it.budget, plan};
  std::vector<double> seconds;
  cm::report before;
  for (int step = -warm_up; step < steps; ++step) {
    if (step == 0) before = run.report();
    const std::uint64_t begin = memory.now();
    run.step();
    memory.wait(cm::agent::host, memory.record(cm::agent::compute));
    if (step >= 0) seconds.push_back(static_cast<double>(memory.now() - begin) * 1e-9);
  }
  std::ranges::sort(seconds);
  const cm::report copies = run.report().copies_since(before);
  return {seconds[steps / 2] / plan.costs.seconds, run.report().peak[cm::tier::device] == plan.costs.device_peak,
          copies.loaded + copies.written_back <= plan.costs.moved * steps};
}

/// The executions of all plans of one planner.
struct summary {
  std::vector<double> over_plan;
  std::uint32_t peaks_equal = 0;
  std::uint32_t moves_no_more = 0;

  void add(const outcome& it)
  {
    over_plan.push_back(it.over_plan);
    peaks_equal += it.is_peak_equal ? 1 : 0;
    moves_no_more += it.moves_no_more ? 1 : 0;
  }
  void print(const char* planner)
  {
    std::ranges::sort(over_plan);
    std::printf(
        "%-16s %2zu plans: step over plan %.3f as the least, %.3f as the median, %.3f as the worst; peak equal "
        "in %u, no more bytes moved in %u\n",
        planner, over_plan.size(), over_plan.front(), over_plan[over_plan.size() / 2], over_plan.back(), peaks_equal,
        moves_no_more);
  }
};

}  // namespace

int main()
{
  summary of_default;
  summary of_swaps;
  summary of_prefix;
  summary of_recompute;
  for (std::uint64_t seed = 1; of_default.over_plan.size() < plans; ++seed) {
    support::dice dice{seed};
    const support::chain_problem it =
        support::roll_executable_chain(dice, {.fewest_blocks = 3, .most_blocks = 20}, frame, unit);
    const activation_plan plan = planned{}.plan(it.chain, it.budget);
    if (!plan.costs.fits || plan.planner == "keep_all") continue;
    const outcome found = execute(it, plan);
    std::printf("seed %3llu: %.3f of the plan%s%s\n%s", static_cast<unsigned long long>(seed), found.over_plan,
                found.is_peak_equal ? "" : ", another peak", found.moves_no_more ? "" : ", more bytes moved",
                report_of(plan).c_str());
    std::fflush(stdout);
    of_default.add(found);
    const auto add = [&](summary& all, const activation_plan& other) {
      if (other.costs.fits) all.add(execute(it, other));
    };
    add(of_swaps, swap_all{}.plan(it.chain, it.budget));
    add(of_prefix, capacity_prefix{}.plan(it.chain, it.budget));
    add(of_recompute, recompute_all{}.plan(it.chain, it.budget));
  }
  of_default.print("planned");
  of_swaps.print("swap_all");
  of_prefix.print("capacity_prefix");
  of_recompute.print("recompute_all");
  return transfer_bench::write_figures(
      "executed_plans_bench",
      {{"activation.planned_step_over_plan", of_default.over_plan.back(), "ratio", "<=", 1.10},
       {"activation.peak_equals_plan_percent", 100.0 * of_default.peaks_equal / plans, "%", "==", 100},
       {"activation.moves_no_more_than_plan_percent", 100.0 * of_default.moves_no_more / plans, "%", "==", 100}});
}
