// SPDX-License-Identifier: Apache-2.0
#include "simulation.hpp"

#include "../gpt/problem.hpp"
#include "../progress_line.hpp"

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/pipeline/find_fault.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/replay_memory.hpp>
#include <chunkmem/pipeline/schedule_text.hpp>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

namespace schedule_example {

namespace pipeline = chunkmem::pipeline;
using chunkmem::bytes;
using pipeline::operation_kind;

namespace {

pipeline::schedule schedule_of_file(const std::filesystem::path& where)
{
  std::ifstream in{where};
  if (!in) throw gpt::problem{"--schedule '" + where.string() + "' cannot be read"};
  return pipeline::schedule_text::read(in, where.string());
}

std::vector<std::uint32_t> parts_of_stages(const pipeline::schedule& plan)
{
  std::vector<std::uint32_t> parts(plan.stage_count(), 0);
  for (const std::uint32_t owner : plan.owners) ++parts[owner];
  return parts;
}

pipeline::pipeline_costs costs_of(const pipeline::schedule& plan, const options& chosen)
{
  pipeline::pass_seconds seconds = chosen.shape.seconds;
  seconds.update = chosen.update;
  pipeline::pipeline_costs costs = pipeline::uniform_costs(plan, seconds);
  costs.updates_aside = chosen.updates_aside;
  return costs;
}

/// In micro-batches of a stage. The gradients of the weights read half of the activations that a forward run saves.
std::vector<double> peaks_of(const pipeline::schedule& plan)
{
  constexpr std::uint64_t whole = std::uint64_t{1} << 40;  // many parts divide it with a small rest
  const std::vector<std::uint32_t> parts = parts_of_stages(plan);
  std::vector<pipeline::part_memory> memory;
  for (const std::uint32_t owner : plan.owners) {
    const std::uint64_t half = whole / 2 / parts[owner];
    memory.push_back({.saved = bytes{2 * half}, .kept_for_weights = bytes{half}});
  }
  std::vector<double> peaks;
  for (const pipeline::stage_peak& peak : pipeline::replay_memory(plan, memory))
    peaks.push_back(static_cast<double>(peak.device.count()) / static_cast<double>(whole));
  return peaks;
}

}  // namespace

namespace {

/// Shows the progress of a search on a terminal.
void tell_search(std::uint32_t done, std::uint32_t trials)
{
  static command_line::progress_line progress{"changes tried"};
  if (done + 1024 < trials)
    progress.tell(done, trials);
  else
    progress.erase();
}

}  // namespace

pipeline::schedule chosen_schedule(const options& chosen)
{
  if (chosen.file) return schedule_of_file(*chosen.file);
  auto plan = named_schedule(chosen.schedule, chosen.shape, chosen.numbers, &tell_search);
  if (!plan) throw gpt::problem{"no schedule has the name '" + chosen.schedule + "'"};
  return *std::move(plan);
}

void add_recompute(pipeline::schedule& plan)
{
  for (std::vector<pipeline::operation>& steps : plan.stages) {
    std::vector<pipeline::operation> longer;
    for (const pipeline::operation& step : steps) {
      if (step.kind == operation_kind::backward || step.kind == operation_kind::backward_input) {
        pipeline::operation again = step;
        again.kind = operation_kind::recompute;
        longer.push_back(again);
      }
      longer.push_back(step);
    }
    steps = std::move(longer);
  }
  pipeline::check_schedule(plan);
}

simulation simulate(const options& chosen)
{
  simulation it;
  it.plan = chosen_schedule(chosen);
  if (chosen.recomputes) add_recompute(it.plan);
  if (chosen.gradient_sets) {
    it.plan.gradient_sets = *chosen.gradient_sets;
    pipeline::check_schedule(it.plan);
  }
  const pipeline::pipeline_costs costs = costs_of(it.plan, chosen);
  it.times = pipeline::pipeline_timeline{it.plan, costs}.run(true);
  it.peaks = peaks_of(it.plan);
  it.updates_aside = chosen.updates_aside;
  return it;
}

std::vector<std::uint32_t> ranks_of_parts(const pipeline::schedule& plan)
{
  std::vector<std::uint32_t> seen(plan.stage_count(), 0);
  std::vector<std::uint32_t> ranks;
  for (const std::uint32_t owner : plan.owners) ranks.push_back(seen[owner]++);
  return ranks;
}

std::vector<bar> bars_of(const simulation& it)
{
  const std::vector<std::uint32_t> ranks = ranks_of_parts(it.plan);
  std::vector<bar> bars;
  for (std::uint32_t stage = 0; stage < it.plan.stage_count(); ++stage)
    for (std::size_t index = 0; index < it.plan.stages[stage].size(); ++index) {
      const pipeline::operation& step = it.plan.stages[stage][index];
      const pipeline::step_time& time = it.times.steps[stage][index];
      const bool is_update = step.kind == operation_kind::update;
      if ((!is_update && !pipeline::computes(step.kind)) || time.end <= time.begin) continue;
      bars.push_back({.step = step,
                      .stage = stage,
                      .part_of_stage = ranks[step.part],
                      .is_aside = is_update && it.updates_aside,
                      .begin = time.begin,
                      .end = time.end});
    }
  return bars;
}

double cell_seconds(const std::vector<bar>& bars)
{
  double shortest = std::numeric_limits<double>::max();
  double longest = 0;
  for (const bar& it : bars) {
    if (it.step.kind == operation_kind::update) continue;
    shortest = std::min(shortest, it.end - it.begin);
    longest = std::max(longest, it.end - it.begin);
  }
  return longest > 0 ? std::max(shortest, longest / 8) : 1;
}

}  // namespace schedule_example
