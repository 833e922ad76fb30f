// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/core/error.hpp>
#include <conformance/trials.hpp>
#include <support/oracles/random_chain.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace conformance {

/// The settings of the laws.
struct planner_trials {
  std::uint64_t count = 20;
  /// A device with room for everything gives the time of a step with enough memory. A planner that swaps or recomputes
  /// in any case has false.
  bool uses_all_memory = true;
};

/// A chain of up to five blocks, a third of them with skips. Some of them fit in no way.
inline support::chain_problem roll_planning(std::uint64_t seed)
{
  support::dice dice{seed};
  support::chain_problem made = support::roll_chain(dice, {.most_blocks = 5, .has_all_members = !dice.one_in(3)});
  if (made.chain.size() > 1 && dice.one_in(3)) support::roll_skips(dice, made.chain);
  return made;
}

/// The plan is one of its chain, and has the numbers of the virtual clocks.
inline std::string mistake_in_costs(chunkmem::activation::activation_plan plan, const support::chain_problem& it)
{
  using namespace chunkmem;
  if (plan.planner.empty()) return "a plan without the name of its planner";
  const activation::plan_costs told = plan.costs;
  try {
    cost_plan(plan, it.chain, it.budget);
  } catch (const config_error& wrong) {
    return std::string{"a plan is not one of its chain: "} + wrong.what();
  }
  if (told.fits != plan.costs.fits) return "a plan fits, or does not, and tells the contrary";
  if (!told.fits && told.missing == bytes{}) return "a plan does not fit, and nothing is missing";
  return told == plan.costs ? "" : "costs are not those of the plan";
}

template <chunkmem::activation::activation_planner Planner>
[[nodiscard]] bool refuses(const Planner& planner, const support::chain_problem& it)
{
  return is_refused_as<chunkmem::config_error>([&] { (void)planner.plan(it.chain, it.budget); });
}

/// Impossible chains and budgets are refused, on a device with any room.
template <chunkmem::activation::activation_planner Planner>
[[nodiscard]] std::string mistake_in_refusals(const Planner& planner, support::chain_problem it)
{
  using namespace chunkmem;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const support::chain_problem right = it;
  it.chain.blocks.clear();
  if (!refuses(planner, it)) return "a chain without blocks was planned";
  for (const double bad : {0.0, -1.0, nan}) {
    it = right;
    it.budget.to_host_bytes_per_second = bad;
    if (!refuses(planner, it)) return "a link to the host without a rate was planned";
    it = right;
    it.budget.to_device_bytes_per_second = bad;
    if (!refuses(planner, it)) return "a link to the device without a rate was planned";
  }
  for (const double bad : {-1.0, nan}) {
    it = right;
    it.chain.blocks.back().forward_seconds = bad;
    if (!refuses(planner, it)) return "a forward time that is no time was planned";
    it = right;
    it.chain.blocks.front().backward_seconds = bad;
    if (!refuses(planner, it)) return "a backward time that is no time was planned";
  }
  it = right;
  it.chain.blocks.back().boundary = it.chain.blocks.back().saved + chunkmem::bytes{1};
  if (!refuses(planner, it)) return "an output larger than all that is saved was planned";
  // Sums beyond 64 bits: a sum that wraps would fit, and a sum that throws may end the program.
  using activation::chain_block;
  constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  constexpr bytes chain_block::*sizes[] = {
      &chain_block::saved,           &chain_block::gradient,         &chain_block::forward_working,
      &chain_block::passing_working, &chain_block::backward_working, &chain_block::carried};
  for (const std::uint64_t size : {std::uint64_t{1} << 63, all / 3, all - 511, all})
    for (const auto member : sizes) {
      it = right;
      it.chain.blocks.resize(3, right.chain.blocks.back());
      for (chain_block& block : it.chain.blocks) block.*member = bytes{size};
      if (!refuses(planner, it)) return "a chain of more bytes than a number counts was planned";
    }
  it = right;
  it.chain.input = bytes{all};
  if (!refuses(planner, it)) return "an input of more bytes than a number counts was planned";
  it = right;
  it.budget.frame = bytes{all};
  if (!refuses(planner, it)) return "a frame of all bytes was planned";
  it = right;
  it.chain.blocks.resize(2, right.chain.blocks.back());
  for (chain_block& block : it.chain.blocks) block.backward_seconds = std::numeric_limits<double>::max();
  return refuses(planner, it) ? "" : "a step of more seconds than a number holds was planned";
}

/// One trial of the laws of activation_planner.
template <chunkmem::activation::activation_planner Planner>
[[nodiscard]] std::string mistake_in_plans(const Planner& planner, std::uint64_t seed, bool uses_all_memory)
{
  using namespace chunkmem;
  if (std::string_view{Planner::name}.empty()) return "a planner without a name";
  const Planner copy = planner;
  support::chain_problem it = roll_planning(seed);
  const activation::activation_plan plan = planner.plan(it.chain, it.budget);
  if (std::string mistake = mistake_in_costs(plan, it); !mistake.empty()) return mistake;
  support::chain_problem roomy = it;
  for (const bytes device : {bytes{UINT64_MAX}, bytes{1'000'000}}) {
    roomy.budget.device = device;
    const activation::activation_plan all = planner.plan(roomy.chain, roomy.budget);
    if (std::string mistake = mistake_in_costs(all, roomy); !mistake.empty()) return "with all memory: " + mistake;
    if (!all.costs.fits) return "a plan does not fit into all memory";
    if (uses_all_memory && all.costs.seconds != all.costs.unlimited_seconds)
      return "a plan with all memory is slower than a step with all memory";
  }
  if (planner.plan(it.chain, it.budget) != plan) return "two plans for one chain and one budget";
  if (copy.plan(it.chain, it.budget) != plan) return "a copy makes another plan";
  if (std::string mistake = mistake_in_refusals(planner, it); !mistake.empty()) return mistake;
  return mistake_in_refusals(planner, roomy);
}

/// The broken law of activation_planner; empty: none.
template <chunkmem::activation::activation_planner Planner>
[[nodiscard]] std::string mistake_in_activation_planner(const Planner& planner = {}, const planner_trials& trials = {})
{
  return first_mistake(trials.count,
                       [&](std::uint64_t seed) { return mistake_in_plans(planner, seed, trials.uses_all_memory); });
}

/// The laws of activation_planner: plans of their chains with the costs of the virtual clocks, the same plan for the
/// same chain and budget, the least time where everything has room, and a refusal of everything impossible.
template <chunkmem::activation::activation_planner Planner>
void activation_planner_laws(const Planner& planner = {}, const planner_trials& trials = {})
{
  require_trials(trials.count,
                 [&](std::uint64_t seed) { return mistake_in_plans(planner, seed, trials.uses_all_memory); });
}

}  // namespace conformance
