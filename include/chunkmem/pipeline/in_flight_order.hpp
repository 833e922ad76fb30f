// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The order of one stage that owns the part of its own number: some forward runs ahead, then a backward run and a
/// forward run in turn, then the backward runs that are left.
///
///     in_flight_order order{.ahead = 3};
///     order.append(plan, stage, 0, plan.micro_batches);
struct in_flight_order {
  static constexpr std::uint32_t fused = UINT32_MAX;

  std::uint32_t ahead = 1;           ///< forward runs before the first backward run; at least 1
  std::uint32_t weight_lag = fused;  ///< by how many backward runs the gradients of the weights come later; `fused`:
                                     ///< each in one run with the gradient of the input
  bool updates_within = false;       ///< an update after the last run of each batch; else one after the last run of all
  std::uint32_t update_delay = 0;    ///< by how many pairs of runs an update within comes later

  /// Appends the steps of the micro-batches from `begin` to `end` - 1. @pre begin < end, whole batches
  void append(schedule& plan, std::uint32_t stage, std::uint32_t begin, std::uint32_t end) const
  {
    using enum operation_kind;
    std::vector<operation>& steps = plan.stages[stage];
    const auto run = [&](operation_kind kind, std::uint32_t micro_batch) {
      steps.push_back({kind, stage, micro_batch, plan.version_of(micro_batch)});
    };
    const auto add_update = [&](std::uint32_t batch) {
      steps.push_back({operation_kind::update, stage, (batch + 1) * plan.micro_batches - 1, batch + 1});
    };
    std::uint32_t next_forward = begin;
    std::uint32_t next_weight = begin;
    std::uint32_t next_update = plan.batch_of(begin);
    while (next_forward < std::min(end, begin + ahead)) run(forward, next_forward++);
    for (std::uint32_t micro_batch = begin; micro_batch < end; ++micro_batch) {
      run(weight_lag == fused ? backward : backward_input, micro_batch);
      if (weight_lag != fused && micro_batch - begin >= weight_lag) run(backward_weight, next_weight++);
      if (updates_within && micro_batch + 1 == (next_update + 1) * plan.micro_batches + update_delay)
        add_update(next_update++);
      if (next_forward < end) run(forward, next_forward++);
    }
    if (weight_lag != fused)
      while (next_weight < end) run(backward_weight, next_weight++);
    while (next_update < plan.batch_of(end)) add_update(next_update++);
  }
};

/// A schedule in which every batch ends before the next one begins.
/// @param order_of   gives the order of a stage
template <class OrderOf>
[[nodiscard]] schedule flushed_schedule(std::string_view name, const pipeline_shape& shape, const OrderOf& order_of)
{
  schedule plan = empty_schedule(name, shape);
  for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
    const in_flight_order order = order_of(stage);
    for (std::uint32_t batch = 0; batch < shape.batches; ++batch)
      order.append(plan, stage, batch * shape.micro_batches, (batch + 1) * shape.micro_batches);
  }
  return plan;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
