// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The times of the runs of one micro-batch on one stage [s], all parts of the stage together. Generators that compare
/// times read them; add_transfers places receives by them.
///
///     const pass_seconds measured{.forward = 0.0185, .backward_input = 0.0181, .backward_weight = 0.0093,
///                                 .transfer = 0.0006};
struct pass_seconds {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double transfer = 0;  ///< of one boundary between stages
  double update = 0;    ///< of the weights of a stage, all parts together; no run of a micro-batch

  [[nodiscard]] bool operator==(const pass_seconds&) const = default;
  /// The sum of all runs of a micro-batch on one stage.
  [[nodiscard]] constexpr double all() const noexcept { return forward + backward_input + backward_weight; }
};

/// The shape of the schedule that a generator makes.
///
///     const pipeline_shape shape{.stages = 4, .micro_batches = 8};
struct pipeline_shape {
  std::uint32_t stages = 1;
  std::uint32_t micro_batches = 1;  ///< of a batch
  std::uint32_t batches = 1;
  pass_seconds seconds{};

  static constexpr double longest_time = 1e100;  ///< sums of times stay finite [s]

  /// @throws config_error   a number is 0, there are more than 2^31 micro-batches, or a time is impossible
  void check() const
  {
    if (stages == 0) throw config_error{"a pipeline has no stage (give stages 1 or more)"};
    if (micro_batches == 0) throw config_error{"a batch has no micro-batch (give micro_batches 1 or more)"};
    if (batches == 0) throw config_error{"a schedule has no batch (give batches 1 or more)"};
    if (std::uint64_t{micro_batches} * batches > INT32_MAX)
      throw config_error{"a schedule has more than 2^31 micro-batches (give fewer batches)"};
    for (const double time :
         {seconds.forward, seconds.backward_input, seconds.backward_weight, seconds.transfer, seconds.update})
      if (!(time >= 0 && time <= longest_time))
        throw config_error{"a time of a pass is negative, no number, or above 1e100 (give seconds)"};
  }
};

/// Decides the order in which each stage runs the parts of micro-batches.
///
/// `orders` returns runs, copies and updates. `make_schedule` adds the sends and receives, which follow from the runs.
/// The same shape gives the same schedule on every machine.
///
///     template <schedule_generator Generator>
///     schedule one_batch(const Generator& generator)
///     {
///       return make_schedule(generator, {.stages = 4, .micro_batches = 8});
///     }
template <class Policy>
concept schedule_generator = names_itself<Policy> && std::same_as<typename Policy::policy_kind, pipeline_kind> &&
                             requires(const Policy& policy, const pipeline_shape& shape) {
                               {
                                 policy.orders(shape)
                               } -> std::same_as<schedule>;
                             };

/// A schedule without steps, one part for each stage.
[[nodiscard]] inline schedule empty_schedule(std::string_view name, const pipeline_shape& shape)
{
  schedule plan;
  plan.name = name;
  plan.micro_batches = shape.micro_batches;
  plan.batches = shape.batches;
  for (std::uint32_t stage = 0; stage < shape.stages; ++stage) plan.owners.push_back(stage);
  plan.stages.resize(shape.stages);
  return plan;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
