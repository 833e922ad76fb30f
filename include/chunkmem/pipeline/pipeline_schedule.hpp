// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/pipeline_operation.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The steps of every stage of a pipeline, in the order in which the stage takes them. Plain data.
///
/// - The model is cut into parts. Each part belongs to one stage. A stage may own several parts.
/// - A batch has `micro_batches` micro-batches. Micro-batch k belongs to batch k / micro_batches.
/// - Batch t reads version max(0, t - (versions - 1)) of the weights, on every stage, forward and backward. Version
///   t + 1 comes from the gradients of batch t. One version is synchronous training. Two versions are PipeDream-2BW
///   (Narayanan et al., 2021, arXiv 2006.09503).
/// - Sends, receives, copies and updates only start in their place of the list. A step waits for the bytes that it
///   reads.
/// - A stage has at most `sends_in_flight` sends on their way. A further send waits for the oldest of them.
///
/// Readers: `find_fault` (rules), `pipeline_timeline` (times), `replay_memory` (bytes).
///
///     const schedule plan = make_schedule(one_f_one_b{}, {.stages = 4, .micro_batches = 8});
///     for (const operation& step : plan.stages[0]) ...
struct schedule {
  std::string name;
  std::uint32_t micro_batches = 1;    ///< of a batch
  std::uint32_t batches = 1;          ///< that the lists describe
  std::uint32_t versions = 1;         ///< of the weights that a stage keeps at once
  std::uint32_t gradient_sets = 1;    ///< that a stage keeps: two let an update run while the next batch adds up
  std::uint32_t sends_in_flight = 2;  ///< of a stage
  std::vector<std::uint32_t> owners;  ///< by part: its stage
  std::vector<std::vector<operation>> stages;

  [[nodiscard]] bool operator==(const schedule&) const = default;

  [[nodiscard]] std::uint32_t stage_count() const noexcept { return static_cast<std::uint32_t>(stages.size()); }
  [[nodiscard]] std::uint32_t part_count() const noexcept { return static_cast<std::uint32_t>(owners.size()); }
  [[nodiscard]] std::uint32_t all_micro_batches() const noexcept { return micro_batches * batches; }
  [[nodiscard]] std::uint32_t batch_of(std::uint32_t micro_batch) const noexcept { return micro_batch / micro_batches; }
  /// The version that a micro-batch reads.
  [[nodiscard]] std::uint32_t version_of(std::uint32_t micro_batch) const noexcept
  {
    const std::uint32_t batch = batch_of(micro_batch);
    return batch < versions ? 0 : batch - (versions - 1);
  }
  /// Whether bytes go from this part to one of another stage, or from such a part to this one.
  [[nodiscard]] bool crosses_after(std::uint32_t part) const noexcept
  {
    return part + 1 < part_count() && owners[part] != owners[part + 1];
  }
  [[nodiscard]] bool crosses_before(std::uint32_t part) const noexcept { return part > 0 && crosses_after(part - 1); }
  /// The place of a part and micro-batch in a table of all of them.
  [[nodiscard]] std::size_t cell_of(const operation& step) const noexcept
  {
    return std::size_t{step.part} * all_micro_batches() + step.micro_batch;
  }
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
