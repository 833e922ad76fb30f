// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The steps of a stage. The letters in brackets are those of pictures and files.
enum class operation_kind : std::uint8_t {
  forward,             ///< [F] of a micro-batch through a part
  backward,            ///< [BW] the gradients of the input and of the weights
  backward_input,      ///< [B] the gradient of the input alone
  backward_weight,     ///< [W] the gradients of the weights, after [B]
  recompute,           ///< [R] a second forward run, for activations that the first one did not save
  send_activation,     ///< [SA] the output of a part, to the stage of the next part
  receive_activation,  ///< [RA] the input of a part
  send_gradient,       ///< [SG] the gradient of a part's input, to the stage of the part before
  receive_gradient,    ///< [RG] the gradient of a part's output
  offload,             ///< [O] the activations that a part saved, to the host
  reload,              ///< [L] these activations, back to the device
  update,              ///< [U] of the weights of a part, which makes a new version
};

inline constexpr std::array<std::string_view, 12> operation_letters{"F",  "BW", "B",  "W", "R", "SA",
                                                                    "RA", "SG", "RG", "O", "L", "U"};
inline constexpr std::array<std::string_view, 12> operation_names{"forward",
                                                                  "backward",
                                                                  "backward_input",
                                                                  "backward_weight",
                                                                  "recompute",
                                                                  "send_activation",
                                                                  "receive_activation",
                                                                  "send_gradient",
                                                                  "receive_gradient",
                                                                  "offload",
                                                                  "reload",
                                                                  "update"};

[[nodiscard]] constexpr std::string_view letters_of(operation_kind kind) noexcept
{
  const auto index = static_cast<std::size_t>(kind);
  return index < operation_letters.size() ? operation_letters[index] : "?";
}
[[nodiscard]] constexpr std::string_view name_of(operation_kind kind) noexcept
{
  const auto index = static_cast<std::size_t>(kind);
  return index < operation_names.size() ? operation_names[index] : "an unknown step";
}

/// The step computes. Transfers and copies run asynchronously.
[[nodiscard]] constexpr bool computes(operation_kind kind) noexcept
{
  return kind <= operation_kind::recompute;
}
[[nodiscard]] constexpr bool sends(operation_kind kind) noexcept
{
  return kind == operation_kind::send_activation || kind == operation_kind::send_gradient;
}
[[nodiscard]] constexpr bool receives(operation_kind kind) noexcept
{
  return kind == operation_kind::receive_activation || kind == operation_kind::receive_gradient;
}

/// One step of a stage, with its part of the model, its micro-batch and its version of the weights.
///
///     const operation first{.kind = operation_kind::forward, .part = 0, .micro_batch = 3, .version = 0};
struct operation {
  operation_kind kind = operation_kind::forward;
  std::uint32_t part = 0;         ///< of the model, counted from its input
  std::uint32_t micro_batch = 0;  ///< counted over all batches; of an update: the last one of its batch
  std::uint32_t version = 0;      ///< of the weights that it reads; of an update: the version that it makes

  [[nodiscard]] constexpr bool operator==(const operation&) const noexcept = default;
};

/// The steps of every stage of a pipeline, in the order in which the stage takes them. Plain data.
///
/// - The model is cut into parts. Each part belongs to one stage. A stage may own several parts.
/// - A batch has `micro_batches` micro-batches. Micro-batch k belongs to batch k / micro_batches.
/// - Batch t reads version max(0, t - (versions - 1)) of the weights, on every stage, forward and backward. Version
///   t + 1 comes from the gradients of batch t. One version is synchronous training. Two versions are PipeDream-2BW
///   (Narayanan et al., 2021, arXiv 2006.09503).
/// - Sends, receives, copies and updates are asynchronous: the list has their starts. A step waits for the bytes that
///   it reads.
/// - A stage has at most `sends_in_flight` sends in flight. A further send waits for the oldest of them.
///
/// Readers: `find_fault` (rules), `pipeline_timeline` (times), `replay_memory` (bytes).
///
///     const schedule plan = make_schedule(one_f_one_b{}, {.stages = 4, .micro_batches = 8});
///     for (const operation& step : plan.stages[0]) ...
struct schedule {
  std::string name;
  std::uint32_t micro_batches = 1;  ///< of a batch
  std::uint32_t batches = 1;        ///< that the lists describe
  std::uint32_t versions = 1;       ///< of the weights that a stage keeps at once
  std::uint32_t gradient_sets = 1;  ///< of a stage: two let an update run while gradients of the next batch accumulate
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
  /// The next part belongs to another stage (crosses_before: the part before does).
  [[nodiscard]] bool crosses_after(std::uint32_t part) const noexcept
  {
    return part + 1 < part_count() && owners[part] != owners[part + 1];
  }
  [[nodiscard]] bool crosses_before(std::uint32_t part) const noexcept { return part > 0 && crosses_after(part - 1); }
  /// The index of a part and micro-batch in a table of all.
  [[nodiscard]] std::size_t cell_of(const operation& step) const noexcept
  {
    return std::size_t{step.part} * all_micro_batches() + step.micro_batch;
  }
};

/// A hash of a schedule: every step of every stage, without its name. Objects that were made for one schedule (places
/// of boundaries, links) are compared by it.
///
///     if (identity_of(mine) != identity_of(theirs)) ...  // the stages follow other schedules
///
/// Never 0, which means unknown. Cost: O(steps of all stages).
[[nodiscard]] inline std::uint64_t identity_of(const schedule& plan) noexcept
{
  collective::fingerprint all;
  for (const std::uint64_t word :
       {std::uint64_t{plan.micro_batches}, std::uint64_t{plan.batches}, std::uint64_t{plan.versions},
        std::uint64_t{plan.gradient_sets}, std::uint64_t{plan.sends_in_flight}, std::uint64_t{plan.part_count()},
        std::uint64_t{plan.stage_count()}})
    all.add(word);
  for (const std::uint32_t owner : plan.owners) all.add(owner);
  for (const std::vector<operation>& steps : plan.stages) {
    all.add(steps.size());
    for (const operation& it : steps) {
      all.add(static_cast<std::uint64_t>(it.kind) << 32U | it.part);
      all.add(std::uint64_t{it.micro_batch} << 32U | it.version);
    }
  }
  return all.value() == 0 ? 1 : all.value();
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
