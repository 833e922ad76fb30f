// SPDX-License-Identifier: Apache-2.0
// How far is a step with swapped and recomputed activations above a step with enough memory, and above the bound of all
// plans? How much faster is a plan of both remedies than a plan of one?
//
// Eight batches of convolutional networks on a device with 14 GB for activations and a link of 12 GB/s each way, in
// virtual time. A batch that no plan fits is named, and is not counted. Planners of one remedy get the best of several
// numbers of merged blocks, as karma does. Then random chains of up to seven blocks, on which every plan can be tried.
// Then the seconds of planning 200 blocks, unless the argument is `brief`.
#include "../median.hpp"
#include "../transfer/planning_figures.hpp"

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/activation/pofo.hpp>
#include <chunkmem/activation/rotor.hpp>
#include <support/convnet_problems.hpp>
#include <support/oracles/exhaustive_activations.hpp>
#include <support/oracles/random_chain.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace {

using bench::median;
namespace cm = chunkmem;
using namespace chunkmem::activation;
using support::exhaustive;

constexpr std::uint32_t random_chains = 300;
constexpr std::uint32_t pofo_slots = 40;

/// One number for each network that some plan fits.
struct summary {
  std::vector<std::string> networks;
  std::vector<std::string> without_plan;
  std::vector<double> karma_over_bound;
  std::vector<double> planned_over_single;
  std::vector<double> gain_over_single;  // of karma, over the best plan of one remedy
  std::vector<double> gain_over_swap;    // of karma, over the best plan that only swaps
};

double worst(const std::vector<double>& values)
{
  return *std::ranges::max_element(values);
}

/// Prints a plan. @return   its seconds, infinity where it does not fit
double show(std::string_view what, const activation_plan& plan)
{
  if (!plan.costs.fits) {
    std::printf("  %-28s does not fit, %5.2f GB are missing\n", std::string{what}.c_str(),
                static_cast<double>(plan.costs.missing.count()) * 1e-9);
    return std::numeric_limits<double>::infinity();
  }
  std::printf("  %-28s %6.3f of unlimited  %6.3f of the bound\n", std::string{what}.c_str(),
              plan.costs.seconds / plan.costs.unlimited_seconds, plan.costs.seconds / plan.costs.bound_seconds);
  return plan.costs.seconds;
}

/// A single remedy: on the chain as it is, and with its best merge. @return   the seconds of the latter
template <class Planner>
double show_remedy(const Planner& planner, const layer_chain& chain, const activation_budget& budget)
{
  const std::string name{Planner::name};
  (void)show(name + ", not merged", planner.plan(chain, budget));
  return show(name, plan_blocked(planner, chain, budget));
}

/// The plan of a planner for a chain that is merged to one of these numbers of blocks.
template <class Planner>
activation_plan plan_merged(const Planner& planner, const layer_chain& chain, const activation_budget& budget,
                            std::vector<std::uint32_t> counts)
{
  for (std::uint32_t& count : counts) count = std::min(count, chain.size());
  return best_blocking(chain, budget, counts, [&](const layer_chain& coarse) { return planner.plan(coarse, budget); });
}

void measure(const support::picture_training& training, summary& all)
{
  const auto [chain, budget] = support::problem_of(training);
  const bound_parts bound = activation_bound(chain, budget);
  std::printf("%s, %llu pictures: %.1f GB in %u blocks, %.3f s with enough memory, bound %.3f of that\n",
              std::string{training.network}.c_str(), static_cast<unsigned long long>(training.pictures),
              static_cast<double>((chain.saved() + chain.blocks.back().carried).count()) * 1e-9, chain.size(),
              chain.unlimited_seconds(), bound.seconds() / chain.unlimited_seconds());
  const double all_swapped = show_remedy(swap_all{}, chain, budget);
  const double swap = std::min(all_swapped, show_remedy(capacity_prefix{}, chain, budget));
  const double single = std::min(swap, show_remedy(recompute_all{}, chain, budget));
  const double mixed = show("karma", karma{}.plan(chain, budget));
  (void)show("rotor", plan_merged(rotor{}, chain, budget, {100}));
  (void)show("pofo", plan_merged(pofo{pofo_slots}, chain, budget, {8, 12, 21}));
  const double best = show("planned", planned{}.plan(chain, budget));
  const std::string name = std::string{training.network} + ", " + std::to_string(training.pictures);
  std::fflush(stdout);
  if (best == std::numeric_limits<double>::infinity()) return all.without_plan.push_back(name);
  std::printf("  karma gains %.3f over the best single remedy, %.3f over swaps alone\n", single / mixed, swap / mixed);
  all.networks.push_back(name);
  all.karma_over_bound.push_back(mixed / bound.seconds());
  all.planned_over_single.push_back(best / single);
  all.gain_over_single.push_back(single / mixed);
  all.gain_over_swap.push_back(swap / mixed);
}

/// Random chains that fit: karma against every plan. @return   per cent of them in which karma is as fast
double equal_percent()
{
  std::uint32_t tried = 0;
  std::uint32_t equal = 0;
  std::vector<double> over_bound;
  for (std::uint64_t seed = 1; tried < random_chains; ++seed) {
    support::dice dice{seed};
    const support::chain_problem it =
        support::roll_chain(dice, {.fewest_blocks = 2, .most_blocks = 7, .has_all_members = dice.one_in(2)});
    const activation_plan best = exhaustive{}.plan(it.chain, it.budget);
    if (!best.costs.fits) continue;
    ++tried;
    const activation_plan found = karma{}.plan(it.chain, it.budget);
    equal += found.costs.fits && found.costs.seconds == best.costs.seconds ? 1 : 0;
    over_bound.push_back(best.costs.seconds / best.costs.bound_seconds);
  }
  std::printf(
      "%u random chains: karma is as fast as the best of all plans in %u; the best is %.3f of the bound as a "
      "median, %.3f as the worst\n",
      tried, equal, median(over_bound), worst(over_bound));
  return 100.0 * equal / tried;
}

/// 200 blocks that save some 15 times the bytes of the device.
support::chain_problem long_problem()
{
  support::dice dice{200};
  support::chain_problem made;
  for (std::uint32_t block = 0; block < 200; ++block)
    made.chain.blocks.push_back({.name = "block " + std::to_string(block),
                                 .forward_seconds = 1 + 0.1 * dice.below(10),
                                 .backward_seconds = 2 + 0.2 * dice.below(10),
                                 .saved = cm::bytes{1'000 + dice.below(1'000)},
                                 .boundary = cm::bytes{100},
                                 .gradient = cm::bytes{100}});
  made.budget = {.device = cm::bytes{100'000}, .to_host_bytes_per_second = 500, .to_device_bytes_per_second = 500};
  return made;
}

template <class Planner>
void time(const Planner& planner, double bound)
{
  const support::chain_problem it = long_problem();
  const std::clock_t begin = std::clock();
  const activation_plan plan = planner.plan(it.chain, it.budget);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("200 blocks by %-6s %7.3f s of a processor to plan (bound %g s)%s, %.3f of the plan's bound\n",
              std::string{Planner::name}.c_str(), seconds, bound, seconds <= bound ? "" : ": MISSED",
              plan.costs.seconds / plan.costs.bound_seconds);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv)
{
  summary all;
  for (const support::picture_training& training : support::picture_trainings) measure(training, all);
  std::printf("%-24s over the bound  gain over single remedies  gain over swaps\n", "karma");
  for (std::size_t index = 0; index < all.networks.size(); ++index)
    std::printf("%-24s %14.3f %26.3f %16.3f\n", all.networks[index].c_str(), all.karma_over_bound[index],
                all.gain_over_single[index], all.gain_over_swap[index]);
  for (const std::string& name : all.without_plan) std::printf("%-24s   does not fit\n", name.c_str());
  std::printf("%-24s %14.3f %26.3f %16.3f\n", "median", median(all.karma_over_bound), median(all.gain_over_single),
              median(all.gain_over_swap));
  const double equal = equal_percent();
  if (argc < 2 || std::string_view{argv[1]} != "brief") {
    time(karma{}, 1);
    time(rotor{}, 1);
    time(pofo{}, 30);
    time(planned{}, 5);
  }
  return transfer_bench::write_figures(
      "planners_bench",
      {{"activation.karma_over_bound_median", median(all.karma_over_bound), "ratio", "<=", 1.05},
       {"activation.karma_over_bound_worst", worst(all.karma_over_bound), "ratio", "<=", 1.15},
       {"activation.planned_over_best_single_worst", worst(all.planned_over_single), "ratio", "<=", 1.0},
       {"activation.exhaustive_equal_percent", equal, "%", "==", 100},
       {"activation.karma_gain_over_single_median", median(all.gain_over_single), "ratio", ">=", 1},
       {"activation.karma_gain_over_swap_median", median(all.gain_over_swap), "ratio", ">=", 1}});
}
