// SPDX-License-Identifier: Apache-2.0
// How far is the step of the plan that plan_memory chooses from the least time that any plan could need?
//
// A representative rank of each machine trains GPTs of 1B to 175B parameters on virtual clocks, by the manager and the
// optimizer steps themselves: micro-batches of 1, 4 and 16, with a global norm and without one. plan_memory chooses
// chunk size, share of updates and room for gathered groups. The bound is planner::step_bound, which uses no result of
// a run. No case is left out of the median and of the percentile; a case that does not fit is listed with the reason.
//
// Two further checks. No step may be faster than its own bytes of links and of host memory, its products or its
// collectives. And each neighbour of the chosen point is simulated: one chunk of the share more or less, one gathered
// group of room more or less, the next sizes of chunks.
//
//   chosen_step_bench [letters of "machine model"]
//
// A part of the cases makes no figure.
#include "../transfer/planning_figures.hpp"
#include "machine_cases.hpp"

#include <chunkmem/planner/plan_memory.hpp>
#include <chunkmem/planner/step_bound.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

namespace cm = chunkmem;
namespace planner = cm::planner;

constexpr double median_bound = 1.05;
constexpr double percentile_bound = 1.15;
constexpr double neighbour_bound = 1;  // %

struct question {
  std::string name;
  cm::workload::transformer_shape shape;
  cm::workload::rank_share share;
  cm::workload::training_setup setup;
  planner::rank_settings settings;
};

/// All cases whose "machine model" contains these letters.
std::vector<question> questions(const std::string& only)
{
  std::vector<question> all;
  const auto add = [&](const std::string& machine, const std::string& model, const auto& shape, const auto& share) {
    for (const std::uint64_t batch : {1U, 4U, 16U})
      for (const bool norm : {false, true}) {
        planner::rank_settings settings;
        settings.takes_norm = norm;
        settings.known = planner::known_before::profile;
        all.push_back({machine + " " + model + " x" + std::to_string(batch) + (norm ? " norm" : ""),
                       shape,
                       share,
                       {.micro_batch = batch},
                       settings});
      }
  };
  bench::for_each_machine({"GPT2_1B", "GPT3_10B", "GPT3_18B", "175B"}, only, add);
  return all;
}

planner::training_forecast simulate(const question& it, const planner::plan_point& what)
{
  planner::rank_settings settings = it.settings;
  settings.chunk_elements = what.chunk_elements;
  settings.device_update_share = what.device_update_share;
  settings.gather_units = what.gather_units;
  return planner::forecast_training(it.shape, it.setup, it.share, settings);
}

/// Seconds of the bytes of a step alone, on each resource of the machine's file; the greatest.
double physics(const question& it, const planner::training_forecast& found)
{
  const auto& rates = it.share.rates;
  const auto& step = found.step;
  const double up = static_cast<double>(step.loaded_bytes) / rates.to_device_bytes_per_second;
  const double down = static_cast<double>(step.written_back_bytes) / rates.to_host_bytes_per_second;
  const double updates = static_cast<double>(step.updating) * 1e-9 * rates.host_memory_bytes_per_second;
  const double memory =
      (static_cast<double>(step.loaded_bytes + step.written_back_bytes) + updates) / rates.host_memory_bytes_per_second;
  return std::max({up, down, memory, static_cast<double>(std::max(step.computing, step.collecting)) * 1e-9});
}

/// By how much the fastest neighbour is faster [%].
double neighbours(const question& it, const planner::memory_plan_choice& chosen)
{
  const std::uint64_t chunk = chosen.plan.chunk_bytes.count() / 2;
  const std::uint64_t own = (cm::workload::parameters_of(it.shape) + it.share.ranks - 1) / it.share.ranks;
  const auto groups = [&](std::uint64_t size) { return static_cast<double>((own + size - 1) / size); };
  const planner::plan_point here{chunk, chosen.plan.device_update_share, chosen.plan.gather_units};
  std::vector<planner::plan_point> around(4, here);
  const double all = groups(chunk);
  const double on_device = std::round(here.device_update_share * all);
  around[0].device_update_share = std::min(1.0, (on_device + 1) / all);
  around[1].device_update_share = std::max(0.0, (on_device - 1) / all);
  if (it.share.ranks > 1) {
    around[2].gather_units = std::min(here.gather_units + 1, cm::most_gather_units);
    around[3].gather_units = std::max(here.gather_units - 1, 1U);
  }
  auto sizes = planner::chunk_candidates(it.shape, it.share.ranks);
  std::ranges::sort(sizes);
  const auto at = std::ranges::find(sizes, chunk) - sizes.begin();
  for (const std::ptrdiff_t next : {at - 1, at + 1}) {
    if (next < 0 || next >= std::ssize(sizes)) continue;
    const std::uint64_t size = sizes[static_cast<std::size_t>(next)];
    const double room = static_cast<double>(here.gather_units) * static_cast<double>(chunk) / static_cast<double>(size);
    around.push_back({size, std::round(here.device_update_share * groups(size)) / groups(size),
                      it.share.ranks > 1 ? static_cast<std::uint32_t>(std::clamp(room, 1.0, 1024.0)) : 1U});
  }
  double least = static_cast<double>(chosen.plan.step_nanoseconds);
  for (const planner::plan_point& each : around) {
    if (each == here) continue;
    const auto tried = std::ranges::find(chosen.trials, each, &planner::plan_trial::what);
    const auto seen = tried != chosen.trials.end() ? *tried : [&] {
      const planner::training_forecast found = simulate(it, each);
      return planner::plan_trial{each, found.fits, found.step.nanoseconds, {}};
    }();
    if (seen.fits) least = std::min(least, static_cast<double>(seen.nanoseconds));
  }
  return 100 * (1 - least / static_cast<double>(chosen.plan.step_nanoseconds));
}

struct seen_cases {
  std::vector<double> ratios;
  int below_physics = 0;
  double neighbour = 0;
};

void ask(const question& it, seen_cases& seen)
{
  const planner::step_bound bound = planner::step_bound_of(it.shape, it.setup, it.share, it.settings);
  const planner::memory_plan_choice chosen = planner::plan_memory(it.shape, it.setup, it.share, it.settings);
  if (!chosen.fits) {
    std::printf("%-34s does not fit: %s\n", it.name.c_str(),
                bound.fits ? chosen.why_not.c_str() : "neither in the bound");
    return;
  }
  const double step = static_cast<double>(chosen.plan.step_nanoseconds) * 1e-9;
  const double ratio = step / bound.seconds;
  seen.ratios.push_back(ratio);
  seen.below_physics += step < physics(it, chosen.forecast) * (1 - 1e-6) ? 1 : 0;
  const double faster = neighbours(it, chosen);
  seen.neighbour = std::max(seen.neighbour, faster);
  const auto& busy = chosen.forecast.step;
  std::printf("%-34s %9.3f %9.3f %6.3f %5.2f | %5.3f %5u %7.2f %3zu | %8.3f %8.3f %8.3f %8.3f %8.3f | %s%s\n",
              it.name.c_str(), step, bound.seconds, ratio, faster, chosen.plan.device_update_share,
              chosen.plan.gather_units, static_cast<double>(chosen.plan.chunk_bytes.count()) / 1048576,
              chosen.trials.size(), static_cast<double>(busy.computing) * 1e-9,
              static_cast<double>(busy.to_device) * 1e-9, static_cast<double>(busy.to_host) * 1e-9,
              static_cast<double>(busy.updating) * 1e-9, static_cast<double>(busy.collecting) * 1e-9,
              name_of(bound.limit), ratio > percentile_bound ? "  (far)" : "");
}

}  // namespace

int main(int count, char** arguments)
{
  const std::vector<question> all = questions(count > 1 ? arguments[1] : "");
  std::printf("%-34s %9s %9s %6s %5s | %5s %5s %7s %3s | %8s %8s %8s %8s %8s | %s\n", "machine, model, batch", "step",
              "bound [s]", "ratio", "near%", "share", "room", "MiB", "n", "compute", "up", "down", "host", "rings",
              "limit of the bound");
  seen_cases seen;
  for (const question& it : all) {
    ask(it, seen);
    std::fflush(stdout);
  }
  if (seen.ratios.empty()) return 1;  // nothing was measured
  std::ranges::sort(seen.ratios);
  const auto at = [&](double part) {
    return seen.ratios[static_cast<std::size_t>(part * static_cast<double>(seen.ratios.size() - 1))];
  };
  std::printf(
      "%zu cases, %zu fit: median %.3f, percentile 95 %.3f, worst %.3f; %d below physics; a neighbour is at most "
      "%.2f %% faster\n",
      all.size(), seen.ratios.size(), at(0.5), at(0.95), seen.ratios.back(), seen.below_physics, seen.neighbour);
  if (count > 1) return 0;  // some cases make no figure
  return transfer_bench::write_figures(
      "chosen_step_bench", {{"planner.chosen_step_over_free_bound_median", at(0.5), "ratio", "<=", median_bound},
                            {"planner.chosen_step_over_free_bound_p95", at(0.95), "ratio", "<=", percentile_bound},
                            {"planner.neighbour_of_choice_faster_percent", seen.neighbour, "%", "<=", neighbour_bound},
                            {"planner.simulated_below_physics_cases", 1.0 * seen.below_physics, "cases", "==", 0}});
}
