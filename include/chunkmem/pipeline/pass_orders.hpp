// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/pipeline_operation.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// A run of a divided backward pass, without its micro-batch: runs of one kind in one part come in the order of the
/// micro-batches. Gradients of weights come in the order of the gradients of inputs of their stage, whatever the part.
///
///     const pass first{.kind = operation_kind::forward, .part = 0};
struct pass {
  operation_kind kind = operation_kind::forward;
  std::uint32_t part = 0;  ///< 0 for a gradient of weights

  [[nodiscard]] bool operator==(const pass&) const = default;
};

/// The input of a search for the orders of one batch. Times are those of one part.
///
///     const order_problem problem{.stages = 4, .micro_batches = 8, .owners = {0, 1, 2, 3}, .limit = 4};
struct order_problem {
  std::uint32_t stages = 1;
  std::uint32_t micro_batches = 1;
  std::vector<std::uint32_t> owners;  ///< by part: its stage
  double forward = 1;                 ///< [s]
  double backward_input = 1;          ///< [s]
  double backward_weight = 1;         ///< [s]
  double transfer = 0;                ///< between stages [s]
  double kept = 0.5;                  ///< what a gradient of weights reads, as a part of what a forward run saves
  double limit = 1;                   ///< that a stage saves at once, counted in forward runs of one part

  [[nodiscard]] std::uint32_t part_count() const noexcept { return static_cast<std::uint32_t>(owners.size()); }
  [[nodiscard]] double seconds_of(operation_kind kind) const noexcept
  {
    if (kind == operation_kind::forward) return forward;
    return kind == operation_kind::backward_input ? backward_input : backward_weight;
  }
  /// By how much a run changes what its stage saves.
  [[nodiscard]] double change_of(operation_kind kind) const noexcept
  {
    if (kind == operation_kind::forward) return 1;
    return kind == operation_kind::backward_input ? kept - 1 : -kept;
  }
  /// @param saved   so far; rounding errors of many changes do not count
  [[nodiscard]] bool has_room(double saved) const noexcept { return saved + 1 <= limit + 1e-9; }
};

/// The runs of each stage for one batch.
using pass_orders = std::vector<std::vector<pass>>;

/// Whether a stage saves no more than the limit, and every run comes after the run of its stage that it needs.
/// `counts` is room for numbers, so that a search does not allocate.
[[nodiscard]] inline bool fits(const order_problem& problem, const std::vector<pass>& runs,
                               std::vector<std::int64_t>& counts)
{
  counts.assign(problem.part_count() + std::size_t{1}, 0);  // by part: to come back; the last: gradients of weights
  double saved = 0;
  for (const pass& run : runs) {
    std::int64_t& weights = counts.back();
    switch (run.kind) {
      case operation_kind::forward:
        if (!problem.has_room(saved)) return false;
        ++counts[run.part];
        break;
      case operation_kind::backward_input:
        if (--counts[run.part] < 0) return false;
        ++weights;
        break;
      default:
        if (--weights < 0) return false;
    }
    saved += problem.change_of(run.kind);
  }
  return true;
}

/// Appends one batch of these orders to a schedule, with an update of each part at the end.
inline void append_orders(schedule& plan, const pass_orders& orders, std::uint32_t batch)
{
  for (std::uint32_t stage = 0; stage < plan.stage_count(); ++stage) {
    std::vector<std::uint32_t> forwards(plan.part_count(), 0);
    std::vector<std::uint32_t> backwards(plan.part_count(), 0);
    std::vector<operation> weights;  // in the order of their gradients of inputs
    std::size_t next_weight = 0;
    std::vector<operation>& steps = plan.stages[stage];
    const std::uint32_t first = batch * plan.micro_batches;
    for (const pass& run : orders[stage]) {
      if (run.kind == operation_kind::backward_weight) {
        steps.push_back(weights[next_weight++]);
        continue;
      }
      std::uint32_t& count = run.kind == operation_kind::forward ? forwards[run.part] : backwards[run.part];
      steps.push_back({run.kind, run.part, first + count, plan.version_of(first + count)});
      ++count;
      if (run.kind != operation_kind::backward_input) continue;
      weights.push_back(steps.back());
      weights.back().kind = operation_kind::backward_weight;
    }
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      if (plan.owners[part] == stage)
        steps.push_back({operation_kind::update, part, first + plan.micro_batches - 1, batch + 1});
  }
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
