// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/activation/pofo.hpp>
#include <chunkmem/activation/rotor.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/checkpointed_trainer.hpp>
#include <support/every_policy.hpp>
#include <support/failing.hpp>
#include <support/figures.hpp>
#include <support/oracles/exhaustive_activations.hpp>
#include <support/sanitized.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// Trains the chain of checkpointed_trainer under one setting, and compares the run with one that keeps everything.
namespace checkpointed_runs {

namespace cm = chunkmem;
namespace act = chunkmem::activation;
namespace chain = support::chain;
namespace mixed = support::mixed;
using namespace cm::literals;
using arena = cm::backend::host_arena;

inline constexpr std::uint32_t steps = 6;
inline constexpr cm::bytes frame = 512_B;
inline constexpr cm::bytes plenty = 256_KiB;

/// Every planner, chosen when the program runs. A chain that was planned before is not planned again.
class any_planner : public cm::policy_choice<act::keep_all, act::swap_all, act::capacity_prefix, act::recompute_all,
                                             act::karma, act::rotor, act::pofo, support::exhaustive, act::planned> {
 public:
  static constexpr std::string_view name = "any_planner";
  using policy_choice::policy_choice;
  [[nodiscard]] static any_planner named(std::string_view wanted)
  {
    // With this many slots a slot is a frame of the tight budget.
    return wanted == act::pofo::name ? any_planner{act::pofo{40}} : any_planner{wanted};
  }

  [[nodiscard]] act::activation_plan plan(const act::layer_chain& of, const act::activation_budget& budget) const
  {
    struct known_plan {
      act::layer_chain of;
      act::activation_budget budget;
      act::activation_plan plan;
    };
    static std::map<std::string_view, std::vector<known_plan>> known;
    std::vector<known_plan>& mine = known[chosen()];
    for (const known_plan& each : mine)
      if (each.of == of && each.budget == budget) return each.plan;
    mine.push_back({of, budget, ask([&](const auto& planner) { return planner.plan(of, budget); })});
    return mine.back().plan;
  }
};
static_assert(act::activation_planner<any_planner>);

/// The tight budget of a planner. Under it plans differ: they keep, swap and recompute.
[[nodiscard]] inline act::activation_budget budget_of(std::string_view planner)
{
  cm::bytes device = 20_KiB;
  if (planner == act::keep_all::name) device = 64_KiB;
  if (planner == act::recompute_all::name) device = 24_KiB;
  return {.device = device, .to_host_bytes_per_second = 1e6, .to_device_bytes_per_second = 1e6, .frame = frame};
}

/// An adversarial backend with copies that fail where a plan says so.
struct adversarial : support::failing<support::adversarial> {
  explicit adversarial(const support::adversarial_options& options, const support::failure_plan& plan = {})
      : failing{plan, options}
  {
  }
  void drain() { inner().drain(); }
  [[nodiscard]] const std::vector<std::string>& faults() { return inner().faults(); }
};

/// With a transfer policy that plans nothing a run compiles faster.
template <class Backend, class Transfer = cm::transfer::planned>
using manager = cm::manager<Backend, support::every_eviction, Transfer>;

/// The settings of a run, apart from its backend and the capacity.
struct setting {
  std::string_view planner = "planned";
  std::string_view eviction = "belady";
  std::uint32_t micro_batches = 1;
  bool knows_times = true;
  bool launched = false;  ///< kernels on compute and on an adopted agent, else by the caller
};

/// A backend, a manager and a trainer with one setting.
template <class Backend, class Transfer = cm::transfer::planned>
struct rig {
  using manager_type = manager<Backend, Transfer>;

  template <class... Options>
  explicit rig(const setting& how, const Options&... options)
      : memory{options...},
        m{memory, {.chunk_bytes = frame}, support::every_eviction{how.eviction}},
        run{m,
            memory,
            budget_of(how.planner),
            any_planner::named(how.planner),
            {.workers = how.launched ? support::crew{cm::agent::compute, memory.adopt()} : support::crew{},
             .micro_batches = how.micro_batches,
             .knows_times = how.knows_times}}
  {
    run.reserve(4 * steps);
    // The budget of a planner may be more than a device that a rehearsal proves: the manager moves the rest.
    if (m.report().capacity[cm::tier::device] < budget_of(how.planner).device) (void)run.rehearse();
  }

  Backend memory;
  manager_type m;
  chain::trainer<manager_type, Backend, any_planner> run;
};

/// Losses and parameters of a training that keeps every activation on a large device.
[[nodiscard]] inline const mixed::outcome& reference(std::uint32_t micro_batches = 1)
{
  static std::map<std::uint32_t, mixed::outcome> known;
  if (!known.contains(micro_batches))
    known[micro_batches] =
        rig<arena>{{.planner = "keep_all", .micro_batches = micro_batches},
                   cm::backend::host_arena_options{.device_capacity = plenty, .host_capacity = plenty}}
            .run.train(steps);
  return known[micro_batches];
}

/// The smallest device that a rehearsal proves.
template <class Backend, class Transfer = cm::transfer::planned, class Options>
[[nodiscard]] cm::bytes smallest_of(const setting& how, Options options)
{
  options.device_capacity = plenty;
  options.host_capacity = plenty;
  return rig<Backend, Transfer>{how, options}.run.rehearse().smallest_device;
}

/// Blocks of all runs, counted by block_action.
using actions = std::array<std::uint32_t, act::block_action_count>;

/// Runs of all matrices.
struct tally {
  std::uint32_t runs = 0;
  std::uint32_t identical = 0;  ///< to the reference
};
inline tally all_runs;

inline void write_figure()
{
  if (support::sanitized) return;  // it tries fewer runs
  support::write_figures(
      "test_activation.checkpointed", "build/bench/bin/test_activation.checkpointed",
      {{"activation.bits_identical_percent", 100.0 * all_runs.identical / all_runs.runs, "%", "==", 100}});
}

/// One run. Checks bits, capacity and faults.
template <class Backend, class Transfer = cm::transfer::planned, class Options>
void run_and_compare(const setting& how, const Options& options, actions& seen)
{
  rig<Backend, Transfer> it{how, options};
  const mixed::outcome left = it.run.train(steps);
  const std::string difference = reference(how.micro_batches).difference(left);
  ++all_runs.runs;
  all_runs.identical += difference.empty() ? 1 : 0;
  write_figure();
  REQUIRE(difference == "");
  REQUIRE(it.run.is_empty());
  const cm::report now = it.m.report();
  for (const cm::tier where : {cm::tier::device, cm::tier::host}) REQUIRE(now.peak[where] <= now.capacity[where]);
  if (how.knows_times) REQUIRE(now.divergences == 0);
  REQUIRE(now.abandoned_plans == 0);
  const act::activation_plan& plan = it.run.network().plan();
  for (std::uint32_t block = 0; block < chain::blocks; ++block) ++seen[static_cast<std::size_t>(plan.action_of(block))];
  if constexpr (requires { it.memory.faults(); }) {
    it.memory.drain();
    const std::string fault = it.memory.faults().empty() ? "" : it.memory.faults().front();
    REQUIRE(fault == "");
  }
}

/// Every planner x {lru, belady, cost_aware} x {smallest, 1.25x, 1.5x}.
/// @param whole   false: each planner has one eviction and one capacity
/// @param half    where it is not whole: planners of odd or of even numbers alone, or 0 for all of them
template <class Backend, class Transfer = cm::transfer::planned, class Options>
void run_matrix(bool launched, Options options, bool whole = !support::sanitized, std::uint32_t half = 0)
{
  actions seen{};
  constexpr std::string_view evictions[] = {"lru", "belady", "cost_aware"};
  constexpr std::uint64_t quarters[] = {4, 5, 6};
  options.host_capacity = plenty;
  std::uint32_t number = 0;
  for (const std::string_view planner : any_planner::names) {
    ++number;
    if (!whole && half != 0 && number % 2 != half % 2) continue;
    for (std::uint32_t which = 0; which < 3; ++which) {
      if (!whole && which != number % 3) continue;
      const setting how{.planner = planner, .eviction = evictions[which], .launched = launched};
      const cm::bytes smallest = smallest_of<Backend, Transfer>(how, options);
      for (std::uint32_t size = 0; size < 3; ++size) {
        if (!whole && size != number / 3 % 3) continue;
        options.device_capacity = cm::align_up(cm::bytes{smallest.count() * quarters[size] / 4}, frame);
        INFO("planner " << planner << ", eviction " << evictions[which] << ", device "
                        << options.device_capacity.count() << " of at least " << smallest.count());
        run_and_compare<Backend, Transfer>(how, options, seen);
      }
    }
  }
  for (const std::uint32_t blocks : seen) CHECK(blocks > 0);
}

}  // namespace checkpointed_runs
