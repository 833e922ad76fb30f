// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/pipeline_operation.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The faults of schedules.
enum class schedule_fault : std::uint8_t {
  no_stage,
  number_is_zero,
  owner_unknown,
  stage_without_part,
  kind_unknown,
  number_too_large,
  wrong_stage,
  step_repeated,
  run_missing,
  run_before_input,
  backward_before_forward,
  weight_before_input_gradient,
  backward_mixed,
  recompute_misplaced,
  copy_misplaced,
  reload_missing,
  crossing_within_stage,
  transfer_in_orders,
  send_before_run,
  send_missing,
  crossing_order,
  version_wrong,
  version_not_made,
  update_misplaced,
  update_missing,
  gradients_in_use,
  waits_for_ever,
};

inline constexpr std::array<std::string_view, 27> schedule_fault_sentences{
    "there is no stage, or no part of the model",
    "micro-batches, batches, versions, sets of gradients and sends in flight are at least 1",
    "a part belongs to a stage that is not there",
    "a stage has no part of the model",
    "there is no such kind of step",
    "its part or micro-batch is not there, or there are more than 2^31 of them",
    "its part belongs to another stage",
    "it comes a second time",
    "a micro-batch has no forward run, or no whole backward run, through a part",
    "its input comes later, or never",
    "its forward run comes later, or never",
    "the gradient of the input comes later, or never",
    "a whole backward run and a divided one are given for one micro-batch",
    "computing again belongs between a forward run and its backward run, without a copy to the host",
    "a copy belongs between a forward run and its backward run, to the host first, and nothing is computed again then",
    "its activations are on the host, and no reload comes before it",
    "the next part belongs to the same stage, or is not there",
    "sends and receives are added to the orders of a generator, so orders have none",
    "what it sends is made later, or never",
    "another stage waits for a send that is not there",
    "two stages send and receive in different orders",
    "its micro-batch reads another version of the weights",
    "its version of the weights is not made yet",
    "an update comes after all backward runs of its batch, one for each batch in order",
    "a batch ends without an update",
    "an earlier batch still uses the stage's gradients",
    "the stages wait for each other for ever",
};

/// The first fault of a schedule, and its place.
///
///     if (const auto found = find_fault(plan)) std::puts(found->text().c_str());
struct schedule_finding {
  static constexpr std::uint32_t nowhere = UINT32_MAX;

  schedule_fault fault = schedule_fault::no_stage;
  std::uint32_t stage = nowhere;  ///< `nowhere`: the fault is one of the whole schedule
  std::uint32_t index = nowhere;  ///< in the stage's list; `nowhere`: a step that is not there
  operation step{};               ///< that step, or the one that is not there

  /// @param file   that the schedule was read from; empty: none
  [[nodiscard]] error_text text(std::string_view file = {}) const
  {
    error_text words;
    words << "chunkmem: ";
    if (!file.empty()) words << file << ": ";
    if (stage != nowhere) {
      words << "stage " << stage << ", ";
      if (index != nowhere) words << "step " << index << ", ";
      words << name_of(step.kind) << " of micro-batch " << step.micro_batch << " in part " << step.part << ": ";
    }
    words << schedule_fault_sentences[static_cast<std::size_t>(fault)] << " (change the schedule)";
    return words;
  }
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
