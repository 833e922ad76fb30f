// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>
#include <conformance/trials.hpp>
#include <support/oracles/dice.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace conformance {

inline chunkmem::pipeline::pipeline_shape roll_pipeline(std::uint64_t seed)
{
  support::dice dice{seed};
  const std::uint32_t stages = dice.between(1, 5);
  return {.stages = stages,
          .micro_batches = stages * dice.between(1, 3),
          .batches = dice.between(1, 3),
          .seconds = {1.0 + dice.below(3), 1.0 + dice.below(3), 1.0 + dice.below(3), dice.below(3) / 4.0}};
}

/// Gradients of a part come in the order of the micro-batches: the sum has the bits of one device that adds them up.
inline std::string mistake_in_sums(const chunkmem::pipeline::schedule& plan)
{
  using chunkmem::pipeline::operation_kind;
  for (const auto& steps : plan.stages) {
    std::vector<std::uint32_t> next(plan.part_count(), 0);
    for (const auto& step : steps)
      if ((step.kind == operation_kind::backward || step.kind == operation_kind::backward_weight) &&
          step.micro_batch != next[step.part]++)
        return "gradients of a part come in another order than the micro-batches";
  }
  return "";
}

/// One trial of the laws of schedule_generator.
template <chunkmem::pipeline::schedule_generator Generator>
[[nodiscard]] std::string mistake_in_schedules(const Generator& generator, std::uint64_t seed)
{
  using namespace chunkmem;
  using namespace chunkmem::pipeline;
  if (std::string_view{Generator::name}.empty()) return "a generator without a name";
  const Generator copy = generator;
  const pipeline_shape shape = roll_pipeline(seed);
  chunkmem::pipeline::schedule plan;
  try {
    plan = make_schedule(generator, shape);
  } catch (const config_error& wrong) {
    return std::string{"a schedule has a fault: "} + wrong.what();
  }
  if (plan.name != Generator::name) return "a schedule without the name of its generator";
  if (plan.stage_count() != shape.stages || plan.micro_batches != shape.micro_batches || plan.batches != shape.batches)
    return "a schedule of another shape";
  if (std::string mistake = mistake_in_sums(plan); !mistake.empty()) return mistake;
  if (make_schedule(generator, shape) != plan) return "two schedules for one shape";
  if (make_schedule(copy, shape) != plan) return "a copy makes another schedule";
  return "";
}

/// The broken law of schedule_generator; empty: none.
template <chunkmem::pipeline::schedule_generator Generator>
[[nodiscard]] std::string mistake_in_schedule_generator(const Generator& generator = {}, std::uint64_t count = 20)
{
  return first_mistake(count, [&](std::uint64_t seed) { return mistake_in_schedules(generator, seed); });
}

/// The laws of schedule_generator: schedules of the shape without a fault, gradients in the order of the micro-batches,
/// the same schedule for the same shape.
template <chunkmem::pipeline::schedule_generator Generator>
void schedule_generator_laws(const Generator& generator = {}, std::uint64_t count = 20)
{
  require_trials(count, [&](std::uint64_t seed) { return mistake_in_schedules(generator, seed); });
}

}  // namespace conformance
