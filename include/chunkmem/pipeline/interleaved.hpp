// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// 1F1B with several parts of the model on each stage: less idle time, more transfers.
///
/// Stage s owns the parts s, s + d, s + 2d and so on. Micro-batches pass in groups: all micro-batches of a group pass a
/// part before the group's first one passes the stage's next part. The idle time is that of `one_f_one_b` over
/// `parts`, and `parts` times as many bytes cross between stages.
/// Source: Megatron-LM (Narayanan et al., 2021, arXiv 2104.04473). Cost: O(steps).
///
///     const schedule plan = make_schedule(interleaved{.parts = 2}, {.stages = 4, .micro_batches = 8});
class interleaved {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "interleaved";

  std::uint32_t parts = 2;  ///< of a stage
  std::uint32_t group = 0;  ///< micro-batches; 0: as many as stages

  /// @throws config_error   no part, or a group that does not work: smaller than the number of stages, larger than a
  ///   batch, or with fewer micro-batches than stages left for the last group
  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    const std::uint32_t size = group == 0 ? shape.stages : group;
    check(shape, size);
    schedule plan = empty_schedule(name, shape);
    for (std::uint32_t part = shape.stages; part < shape.stages * parts; ++part)
      plan.owners.push_back(part % shape.stages);
    const std::vector<turn> turns = turns_of(shape.micro_batches, size);
    for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
      const std::uint32_t ahead =
          std::min(2 * (shape.stages - 1 - stage) + (parts - 1) * size, static_cast<std::uint32_t>(turns.size()));
      for (std::uint32_t batch = 0; batch < shape.batches; ++batch) append(plan, stage, batch, turns, ahead);
    }
    return plan;
  }

 private:
  struct turn {
    std::uint32_t micro_batch = 0;  // within its batch
    std::uint32_t round = 0;        // which part of the stage
  };

  void check(const pipeline_shape& shape, std::uint32_t size) const
  {
    if (parts == 0) throw config_error{"a stage has no part of the model (give parts 1 or more)"};
    if (std::uint64_t{parts} * shape.stages > UINT16_MAX)
      throw config_error{"a pipeline has more than 65,535 parts (give fewer)"};
    if (size < shape.stages || size > shape.micro_batches)
      throw config_error{error_text{} << "chunkmem: micro-batches cannot pass in groups of " << size
                                      << ": a group has at least as many as there are stages (" << shape.stages
                                      << "), and at most as many as a batch (" << shape.micro_batches << ")"};
    const std::uint32_t rest = shape.micro_batches % size;
    if (rest != 0 && rest < shape.stages)
      throw config_error{error_text{} << "chunkmem: " << shape.micro_batches << " micro-batches in groups of " << size
                                      << " leave a partial group of " << rest << ", fewer than the " << shape.stages
                                      << " stages (change the group or the batch)"};
  }

  [[nodiscard]] std::vector<turn> turns_of(std::uint32_t micro_batches, std::uint32_t size) const
  {
    std::vector<turn> turns;
    for (std::uint32_t first = 0; first < micro_batches; first += size)
      for (std::uint32_t round = 0; round < parts; ++round)
        for (std::uint32_t next = first; next < std::min(first + size, micro_batches); ++next)
          turns.push_back({next, round});
    return turns;
  }

  void append(schedule& plan, std::uint32_t stage, std::uint32_t batch, const std::vector<turn>& turns,
              std::uint32_t ahead) const
  {
    const std::uint32_t stages = plan.stage_count();
    std::vector<operation>& steps = plan.stages[stage];
    const auto run = [&](operation_kind kind, const turn& it, std::uint32_t round) {
      const std::uint32_t micro_batch = batch * plan.micro_batches + it.micro_batch;
      steps.push_back({kind, round * stages + stage, micro_batch, plan.version_of(micro_batch)});
    };
    for (std::size_t index = 0; index < turns.size() + ahead; ++index) {
      if (index < turns.size()) run(operation_kind::forward, turns[index], turns[index].round);
      if (index < ahead) continue;
      const turn& back = turns[index - ahead];
      run(operation_kind::backward, back, parts - 1 - back.round);
    }
    for (std::uint32_t round = 0; round < parts; ++round)
      steps.push_back(
          {operation_kind::update, round * stages + stage, (batch + 1) * plan.micro_batches - 1, batch + 1});
  }
};

static_assert(schedule_generator<interleaved>);

}  // namespace pipeline

}  // namespace chunkmem::inline v0
