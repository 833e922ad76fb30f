// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/activation/rotor.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <support/catch.hpp>
#include <support/chain_execution.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <cstdint>

namespace executed_plans_test {

/// A manager executes a plan of activations in virtual time; its bytes and times are compared with those of the plan.

namespace cm = chunkmem;
namespace act = chunkmem::activation;
using namespace cm::literals;

namespace {

constexpr cm::bytes frame = 4_KiB;
constexpr double unit = 1e-3;  // seconds of the shortest run
constexpr int steps = 6;
constexpr std::uint64_t chains = support::sanitized ? 2 : 10;
constexpr std::uint32_t most_blocks = support::sanitized ? 4 : 12;

/// The last of some steps.
struct execution {
  double seconds = 0;
  cm::bytes peak{};   ///< of all steps
  cm::bytes moved{};  ///< both directions
  std::uint64_t divergences = 0;
};

execution execute(const support::chain_problem& it, const act::activation_plan& plan, cm::bytes device)
{
  cm::backend::simulated memory{{.device_capacity = device,
                                 .host_capacity = 1_GiB,
                                 .costs = support::costs_of(it.budget),
                                 .host_runs_ahead = true}};
  support::chain_execution<cm::backend::simulated> run{memory, it.chain, it.budget, plan};
  for (int step = 1; step < steps; ++step) run.step();
  const cm::report before = run.report();
  const std::uint64_t begin = memory.clock(cm::agent::compute);
  run.step();
  const cm::report after = run.report();
  const cm::report copies = after.copies_since(before);
  return {static_cast<double>(memory.clock(cm::agent::compute) - begin) * 1e-9, after.peak[cm::tier::device],
          copies.loaded + copies.written_back, after.divergences};
}

/// The plans of all planners that fit.
template <class Visit>
void for_each_plan(const support::chain_problem& it, const Visit& visit)
{
  const auto offer = [&](const auto& planner) {
    const act::activation_plan plan = planner.plan(it.chain, it.budget);
    if (plan.costs.fits) visit(plan);
  };
  offer(act::planned{}), offer(act::rotor{}), offer(act::recompute_all{});
  offer(act::swap_all{}), offer(act::capacity_prefix{});
}

}  // namespace

TEST_CASE("a manager takes the device's bytes of a plan, to the byte, and moves no more than the plan", "[activation]")
{
  int swapped = 0;
  int recomputed = 0;
  double slowest = 0;
  for (std::uint64_t seed = 1; seed <= chains; ++seed) {
    support::dice dice{seed};
    const support::chain_problem it =
        support::roll_executable_chain(dice, {.fewest_blocks = 3, .most_blocks = most_blocks}, frame, unit);
    for_each_plan(it, [&](const act::activation_plan& plan) {
      INFO("seed " << seed << ", " << plan.planner);
      const execution found = execute(it, plan, it.budget.device);
      CHECK(found.peak == plan.costs.device_peak);
      CHECK(found.divergences == 0);
      CHECK(found.moved <= plan.costs.moved);
      if (plan.costs.moved > 0_B) {
        ++swapped;
      } else {
        recomputed += plan.costs.recomputed_seconds > 0 ? 1 : 0;
        CHECK(found.seconds == Catch::Approx(plan.costs.seconds).epsilon(1e-6));
        const execution tight = execute(it, plan, plan.costs.device_peak);
        CHECK(tight.peak == plan.costs.device_peak);
        CHECK(tight.seconds == Catch::Approx(plan.costs.seconds).epsilon(1e-6));
      }
      slowest = std::max(slowest, found.seconds / plan.costs.seconds);
    });
  }
  CHECK(slowest <= 1.10);
  if (support::sanitized) return;  // too few plans
  CHECK(swapped >= 2 * static_cast<int>(chains));
  CHECK(recomputed >= static_cast<int>(chains));
}

}  // namespace executed_plans_test
