// SPDX-License-Identifier: Apache-2.0
// How far are planners of activations from the best possible plan, and from the bound on measured chains?
//
// - rotor against every tree of recomputation, on 300 random chains of up to six blocks; an independent program runs
//   each tree.
// - planned against a search over all trees of recomputation with all sets of tensors that leave, on as many chains.
// - planned against the bound of all plans, on chains that were made from logs of trainings
//   (bench/activation/measured): at 30 to 80 % of the bytes that a step needs with enough memory, over links of 3 and
//   12 GB/s.
// - planned against a step with enough memory, on a transformer of 36 layers with 131,072 tokens.
//
// The first argument is the folder of the measured chains, from the root of the tree by default. The second one is the
// number of random chains.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/activation/rotor.hpp>
#include <support/measured_chain.hpp>
#include <support/oracles/random_chain.hpp>
#include <support/oracles/wide_search.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

namespace cm = chunkmem;
using namespace chunkmem::activation;

/// The value that a part of all values does not exceed.
double quantile(std::vector<double> values, double part)
{
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

support::chain_problem roll(std::uint64_t seed)
{
  support::dice dice{seed};
  return support::roll_chain(dice, {.fewest_blocks = 2, .most_blocks = 6, .has_all_members = !dice.one_in(3)});
}

/// @return   per cent of the chains in which rotor is as fast as the best tree, or both find no plan
double rotor_equal_percent(std::uint32_t chains)
{
  std::uint32_t equal = 0;
  for (std::uint64_t seed = 1; seed <= chains; ++seed) {
    const support::chain_problem it = roll(seed);
    const double least = support::least_seconds_without_swaps(it.chain, it.budget);
    const plan_costs found =
        rotor{static_cast<std::uint32_t>(it.budget.device.count())}.plan(it.chain, it.budget).costs;
    equal += (found.fits ? found.seconds : rotor_table::never) == least ? 1 : 0;
  }
  std::printf("rotor is as fast as the best tree of recomputation in %u of %u random chains\n", equal, chains);
  return 100.0 * equal / chains;
}

/// For each chain that fits: seconds of planned over those of the widest search.
std::vector<double> over_wide_search(std::uint32_t chains)
{
  std::vector<double> over;
  for (std::uint64_t seed = 1; over.size() < chains; ++seed) {
    const support::chain_problem it = roll(seed);
    const plan_costs best = support::widest_search(it.chain, it.budget).costs;
    if (!best.fits) continue;
    const activation_plan found = planned{}.plan(it.chain, it.budget);
    over.push_back(found.costs.fits ? found.costs.seconds / best.seconds : rotor_table::never);
    if (over.back() > 1.02)
      std::printf("seed %llu: %.3f of the widest search, by %s\n", static_cast<unsigned long long>(seed), over.back(),
                  found.planner.c_str());
  }
  std::printf("planned over the widest search on %u random chains: median %.4f, p90 %.4f, worst %.4f\n", chains,
              quantile(over, 0.5), quantile(over, 0.9), quantile(over, 1));
  return over;
}

void add_over_bound(std::vector<double>& over, const std::string& name, const layer_chain& chain)
{
  const double all = static_cast<double>(keep_all{}
                                             .plan(chain, {.device = cm::bytes{std::uint64_t{1} << 59},
                                                           .to_host_bytes_per_second = 1e9,
                                                           .to_device_bytes_per_second = 1e9})
                                             .costs.device_peak.count());
  for (const double rate : {3e9, 12e9})
    for (const int percent : {30, 40, 50, 60, 70, 80}) {
      const activation_budget budget{.device = cm::bytes{static_cast<std::uint64_t>(all * percent / 100)},
                                     .to_host_bytes_per_second = rate,
                                     .to_device_bytes_per_second = rate};
      const activation_plan plan = planned{}.plan(chain, budget);
      const double found = plan.costs.fits ? plan.costs.seconds / plan.costs.bound_seconds : rotor_table::never;
      std::printf("%-12s %2d %% of the memory, %2.0f GB/s: %.3f of the bound, %.3f of unlimited, by %s\n", name.c_str(),
                  percent, rate / 1e9, found, plan.costs.seconds / plan.costs.unlimited_seconds, plan.planner.c_str());
      std::fflush(stdout);
      over.push_back(found);
    }
}

/// 36 layers of width 4,096 at 400 TFLOP/s in 16 bits, with fused attention.
layer_chain long_context()
{
  constexpr std::uint64_t tokens = 131'072;
  constexpr std::uint64_t width = 4'096;
  constexpr double flops = 24.0 * tokens * width * width + 2.0 * tokens * tokens * width;
  const chain_block layer{.name = "layer",
                          .forward_seconds = flops / 400e12,
                          .backward_seconds = 2 * flops / 400e12,
                          .saved = cm::bytes{34 * tokens * width},
                          .boundary = cm::bytes{2 * tokens * width},
                          .gradient = cm::bytes{2 * tokens * width},
                          .passing_working = cm::bytes{4 * tokens * width},
                          .reads_input = true};
  return {.blocks = std::vector<chain_block>(36, layer), .input = cm::bytes{2 * tokens * width}};
}

double long_context_over_unlimited()
{
  const activation_budget budget{
      .device = cm::bytes{30'000'000'000}, .to_host_bytes_per_second = 12e9, .to_device_bytes_per_second = 12e9};
  const activation_plan plan = planned{}.plan(long_context(), budget);
  std::printf("36 layers of 131,072 tokens, 30 GB, 12 GB/s: %s", report_of(plan).c_str());
  return plan.costs.fits ? plan.costs.seconds / plan.costs.unlimited_seconds : rotor_table::never;
}

}  // namespace

int main(int argc, char** argv)
{
  const std::string folder = argc > 1 ? argv[1] : "bench/activation/measured";
  const auto chains = static_cast<std::uint32_t>(argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 300);
  const double equal = rotor_equal_percent(chains);
  const double over_unlimited = long_context_over_unlimited();
  std::vector<double> over_bound;
  for (const char* const name : {"resnet32", "transformer"})
    add_over_bound(over_bound, name, support::measured_chain(folder + "/chain_" + name + ".csv"));
  std::printf("planned over the bound on measured chains: median %.3f, p90 %.3f, worst %.3f\n",
              quantile(over_bound, 0.5), quantile(over_bound, 0.9), quantile(over_bound, 1));
  const std::vector<double> over_search = over_wide_search(chains);
  return transfer_bench::write_figures(
      "chains_bench",
      {{"activation.rotor_equal_percent", equal, "%", "==", 100},
       {"activation.planned_long_context_over_unlimited", over_unlimited, "ratio", "<=", 1.33},
       {"activation.planned_over_bound_measured_median", quantile(over_bound, 0.5), "ratio", "<=", 1.03},
       {"activation.planned_over_bound_measured_p90", quantile(over_bound, 0.9), "ratio", "<=", 1.10},
       {"activation.planned_over_wide_search_median", quantile(over_search, 0.5), "ratio", "<=", 1.02},
       {"activation.planned_over_wide_search_worst", quantile(over_search, 1), "ratio", "<=", 1.15}});
}
