// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/replay_memory.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace pipeline_test {

using namespace chunkmem;
using namespace chunkmem::pipeline;
using chunkmem::pipeline::schedule;  // not that of a manager

/// A schedule and its times, with those of its shape.
struct timed_schedule {
  schedule plan;
  pipeline_times times;
};

template <class Generator>
timed_schedule timed(const Generator& generator, const pipeline_shape& shape)
{
  timed_schedule it{make_schedule(generator, shape), {}};
  const pipeline_costs costs = uniform_costs(it.plan, shape.seconds);
  it.times = pipeline_timeline{it.plan, costs}.run();
  return it;
}

/// The runs of a stage, as "F0 F1 B0": of several parts as "F0.1", the part of the stage after the dot.
inline std::string runs_of(const schedule& plan, std::uint32_t stage)
{
  const bool has_rounds = plan.part_count() > plan.stage_count();
  std::string text;
  for (const operation& step : plan.stages[stage]) {
    if (!computes(step.kind)) continue;
    if (!text.empty()) text += ' ';
    text += step.kind == operation_kind::backward ? "B" : std::string{letters_of(step.kind)};
    text += std::to_string(step.micro_batch);
    if (has_rounds) text += '.' + std::to_string(step.part / plan.stage_count());
  }
  return text;
}

/// What each stage saves at most, where a forward run of one part saves `saved` and leaves `kept` for W.
inline std::vector<std::uint64_t> saved_peaks(const schedule& plan, std::uint64_t saved, std::uint64_t kept)
{
  const std::vector<part_memory> parts(plan.part_count(),
                                       part_memory{.saved = bytes{saved}, .kept_for_weights = bytes{kept}});
  std::vector<std::uint64_t> peaks;
  for (const stage_peak& it : replay_memory(plan, parts)) peaks.push_back(it.device.count());
  return peaks;
}

}  // namespace pipeline_test
