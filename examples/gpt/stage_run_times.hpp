// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/pipeline_timeline.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpt {

/// The kinds of runs whose times differ. A whole backward run counts as one of inputs.
enum class stage_run : std::uint8_t { forward, backward_input, backward_weight, update };
inline constexpr std::size_t stage_runs = 4;

/// The seconds of the runs of each part of a stage. Waits for copies and for replicas are included. Of the waits for
/// other stages, only those in which an update agrees on its norm are included.
class stage_run_times {
 public:
  explicit stage_run_times(std::size_t parts) : now_(parts), shortest_(parts) {}

  void add(std::size_t part, stage_run run, double seconds)
  {
    entry& it = now_[part][static_cast<std::size_t>(run)];
    it.seconds += seconds;
    ++it.runs;
  }
  /// Called after an update. Keeps the shortest mean time of each kind of run, over the batches that count.
  void end_batch(bool counts)
  {
    for (std::size_t part = 0; part < now_.size(); ++part)
      for (std::size_t run = 0; run < stage_runs; ++run) {
        const entry it = now_[part][run];
        now_[part][run] = {};
        if (!counts || it.runs == 0) continue;
        const double mean = it.seconds / static_cast<double>(it.runs);
        entry& least = shortest_[part][run];
        least = {least.runs == 0 ? mean : std::min(least.seconds, mean), 1};
      }
  }
  /// By part and kind; 0 where another stage has the part.
  [[nodiscard]] std::vector<double> seconds() const
  {
    std::vector<double> all;
    for (const auto& part : shortest_)
      for (const entry& it : part) all.push_back(it.seconds);
    return all;
  }

 private:
  struct entry {
    double seconds = 0;
    std::uint64_t runs = 0;
  };
  std::vector<std::array<entry, stage_runs>> now_, shortest_;
};

/// The times of all stages, as the simulation of a pipeline takes them.
/// @param seconds   as stage_run_times::seconds, of all stages   @param boundary   bytes between two parts
/// @param link      of each pair of stages
[[nodiscard]] inline chunkmem::pipeline::pipeline_costs costs_of_runs(const chunkmem::pipeline::schedule& plan,
                                                                      const std::vector<double>& seconds,
                                                                      chunkmem::bytes boundary,
                                                                      chunkmem::pipeline::stage_link link)
{
  chunkmem::pipeline::pipeline_costs costs;
  costs.stages = plan.stage_count();
  for (std::size_t part = 0; part < plan.part_count(); ++part) {
    const double* const it = &seconds[part * stage_runs];
    costs.parts.push_back(
        {.forward = it[0], .backward_input = it[1], .backward_weight = it[2], .update = it[3], .output = boundary});
  }
  for (std::uint32_t from = 0; from < costs.stages; ++from)
    for (std::uint32_t to = 0; to < costs.stages; ++to) {
      link.channel = from * costs.stages + to;  // one transfer at a time
      costs.links.push_back(link);
    }
  return costs;
}

/// The mean seconds between updates of a stage, from the one numbered `first` to the one numbered `last`.
/// @pre   the schedule has these batches
[[nodiscard]] inline double seconds_between_updates(const chunkmem::pipeline::schedule& plan,
                                                    const chunkmem::pipeline::pipeline_costs& costs,
                                                    std::uint32_t stage, std::uint32_t first, std::uint32_t last)
{
  const auto times = chunkmem::pipeline::pipeline_timeline{plan, costs}.run(true);
  double begin = 0, end = 0;
  const auto& steps = plan.stages[stage];
  for (std::size_t index = 0; index < steps.size(); ++index) {
    if (steps[index].kind != chunkmem::pipeline::operation_kind::update) continue;
    if (steps[index].version == first) begin = times.steps[stage][index].end;
    if (steps[index].version == last) end = times.steps[stage][index].end;
  }
  return (end - begin) / (last - first);
}

}  // namespace gpt
