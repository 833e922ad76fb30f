// SPDX-License-Identifier: Apache-2.0
// How much does it gain to share the update between host and device, on machines whose host memory is a limit and on
// one whose is not?
//
// 128 chunks of a rank on backend::simulated: all updated on the host, all streamed through the device, the split that
// the bound says, and the one that the search settles on. Beside them the bound, with host memory and without. States
// have room for two chunks on the device; what the manager keeps there from one update to the next may bring a step
// below the bound, which knows of no resident states.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/planner/update_phase.hpp>
#include <chunkmem/planner/update_split_search.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace {

namespace cm = chunkmem;

struct machine {
  const char* name;
  cm::transfer::update_rates rates;
};

/// Per device: updates of the host, bytes up and down and of the host's memory in billions a second; 0: unlimited.
constexpr machine of(const char* name, double updates, double up, double down, double memory)
{
  return {name, {updates * 1e9, 1e12, up * 1e9, down * 1e9, memory * 1e9}};
}

constexpr machine machines[] = {of("A100, PCIe 4, one of eight", 1.5, 24, 24, 42),
                                of("A100 alone on a socket", 7.1, 24, 24, 200),
                                of("H100, PCIe 5, one of eight", 2.2, 50, 50, 62),
                                of("H100 alone on a socket", 8.9, 50, 50, 250),
                                of("GH200", 17, 375, 297, 486),
                                of("RTX 4090, two channels", 2.5, 24, 24, 70),
                                of("weak cores, memory no limit", 2, 25, 25, 0)};

}  // namespace

int main()
{
  double over_pure = 0;
  double over_bound = 0;
  std::printf(
      "ns for each parameter          |       bound: host device   best at |  simulated: host device  at it   best at "
      "| over pure, over bound\n");
  for (const machine& it : machines) {
    const cm::planner::update_phase what{.rates = it.rates};
    const cm::transfer::update_bound bound{it.rates};
    const double nanoseconds = 1e9 / (static_cast<double>(what.chunk_parameters) * what.chunks);
    const auto simulate = [&](std::uint32_t streamed) { return cm::planner::simulate_update(what, streamed).seconds; };
    const cm::planner::split_choice found = cm::planner::search_update_split(bound, what.chunks, simulate);
    const auto ideal = static_cast<std::uint32_t>(std::lround(bound.best().device_share * what.chunks));
    const auto at_ideal = std::ranges::find(found.trials, ideal, &cm::planner::split_trial::streamed);
    const double gain = found.best.seconds / found.pure_seconds();
    const double excess = found.best.seconds * nanoseconds / 1e9 / bound.best().seconds;
    std::printf(
        "%-30s |             %.3f  %.3f  %.3f %.2f |            %.3f  %.3f  %.3f  %.3f %.2f |     %.3f      %.3f\n",
        it.name, bound.seconds(0) * 1e9, bound.seconds(1) * 1e9, bound.best().seconds * 1e9, bound.best().device_share,
        found.trials.front().seconds * nanoseconds, found.trials.back().seconds * nanoseconds,
        at_ideal->seconds * nanoseconds, found.best.seconds * nanoseconds,
        found.best.streamed / static_cast<double>(what.chunks), gain, excess);
    std::fflush(stdout);
    over_pure = std::max(over_pure, gain);
    over_bound = std::max(over_bound, excess);
  }
  std::printf("worst: %.3f of the better pure split, %.3f of the bound\n", over_pure, over_bound);
  return transfer_bench::write_figures("update_split_bench",
                                       {{"transfer.split_over_better_pure", over_pure, "", "<=", 1.0}});
}
