// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The bytes of one part of the model, on its stage, for one micro-batch where they depend on it.
///
///     const part_memory layers{.weights = 24_MiB, .gradients = 24_MiB, .input = 2_MiB, .saved = 68_MiB};
struct part_memory {
  bytes weights{};           ///< of one version
  bytes gradients{};         ///< of one set
  bytes states{};            ///< of the optimizer, where they stay on the device
  bytes input{};             ///< the output of the part before, and the gradient that goes back to it
  bytes saved{};             ///< made by a forward run for the backward run, without the input
  bytes kept_for_weights{};  ///< left by the gradient of the input for the gradient of the weights
  bytes forward_working{};   ///< in addition while it runs forward
  bytes backward_working{};  ///< in addition while it runs backward
  bytes update_working{};    ///< in addition while it updates
};

/// The bytes of a stage at one moment, by purpose.
///
///     std::printf("%llu B of weights\n", static_cast<unsigned long long>(lines.weights.count()));
struct memory_lines {
  bytes weights{};    ///< of all versions
  bytes gradients{};  ///< of all sets
  bytes states{};
  bytes inputs{};  ///< of runs to come, and of runs whose backward run comes later
  bytes saved{};   ///< for backward runs, with the bytes that gradients of weights read
  bytes received_gradients{};
  bytes sent{};  ///< outputs and gradients until they have left
  bytes working{};

  [[nodiscard]] bool operator==(const memory_lines&) const = default;
  [[nodiscard]] bytes all() const
  {
    return weights + gradients + states + inputs + saved + received_gradients + sent + working;
  }
};

/// The most bytes that a stage holds.
///
///     const bytes needed = replay_memory(plan, parts)[stage].device;
struct stage_peak {
  bytes device{};
  bytes host{};          ///< of activations that were offloaded
  std::size_t step = 0;  ///< of its list, at the first peak of the device
  memory_lines lines{};  ///< at that step
};

namespace detail {

/// Replays one stage of a schedule. See replay_memory.
class stage_replay {
 public:
  stage_replay(const schedule& plan, const std::vector<part_memory>& parts, std::uint32_t stage)
      : plan_{plan}, parts_{parts}, steps_{plan.stages[stage]}
  {
    const std::size_t cells = std::size_t{plan.part_count()} * plan.all_micro_batches();
    again_.assign(cells, 0);
    for (const operation& step : steps_)
      if (step.kind == recompute) again_[plan_.cell_of(step)] = 1;
    for (std::uint32_t part = 0; part < plan.part_count(); ++part) {
      if (plan.owners[part] != stage) continue;
      now_.weights += parts[part].weights * plan.versions;
      now_.gradients += parts[part].gradients * plan.gradient_sets;
      now_.states += parts[part].states;
    }
  }

  [[nodiscard]] stage_peak run()
  {
    note(0);
    for (std::size_t index = 0; index < steps_.size(); ++index) take(index);
    return peak_;
  }

 private:
  using enum operation_kind;

  void take(std::size_t index)
  {
    const operation& step = steps_[index];
    const part_memory& part = parts_[step.part];
    if (computes(step.kind)) end_offloads();
    switch (step.kind) {
      case forward:
        if (step.part == 0) now_.inputs += part.input;
        if (!again_[plan_.cell_of(step)]) now_.saved += part.saved;
        if (step.part + 1 < plan_.part_count()) make_output(step.part);
        work(index, part.forward_working);
        break;
      case recompute:
        now_.saved += part.saved;
        work(index, part.forward_working);
        break;
      case backward: run_backward(index, step, bytes{}); break;
      case backward_input: run_backward(index, step, part.kept_for_weights); break;
      case backward_weight:
        work(index, part.backward_working);
        now_.saved -= part.kept_for_weights;
        break;
      case send_activation: send(parts_[step.part + 1].input); break;
      case send_gradient: send(part.input); break;
      case receive_activation: now_.inputs += part.input; break;
      case receive_gradient: now_.received_gradients += parts_[step.part + 1].input; break;
      case offload:
        host_ += part.saved;
        peak_.host = std::max(peak_.host, host_);
        leaving_.push_back({part.saved, 2});
        break;
      case reload:
        host_ -= part.saved;
        now_.saved += part.saved;
        break;
      case update: work(index, part.update_working); break;
    }
    note(index);
  }

  /// The gradient of the input goes to the part before, on this stage or on another one.
  void run_backward(std::size_t index, const operation& step, bytes kept)
  {
    const part_memory& part = parts_[step.part];
    if (step.part > 0) (plan_.crosses_after(step.part - 1) ? now_.sent : now_.received_gradients) += part.input;
    work(index, part.backward_working);
    if (step.part + 1 < plan_.part_count()) now_.received_gradients -= parts_[step.part + 1].input;
    now_.inputs -= part.input;
    now_.saved -= part.saved;
    now_.saved += kept;
  }

  void make_output(std::uint32_t part)
  {
    (plan_.crosses_after(part) ? now_.sent : now_.inputs) += parts_[part + 1].input;
  }
  void send(bytes size)
  {
    if (on_their_way_.size() == plan_.sends_in_flight) {
      now_.sent -= on_their_way_.front();
      on_their_way_.pop_front();
    }
    on_their_way_.push_back(size);
  }

  struct leaving {
    bytes size{};
    std::uint32_t runs = 0;  // until it has left
  };
  void end_offloads()
  {
    for (leaving& it : leaving_) --it.runs;
    while (!leaving_.empty() && leaving_.front().runs == 0) {
      now_.saved -= leaving_.front().size;
      leaving_.pop_front();
    }
  }
  void work(std::size_t index, bytes size)
  {
    now_.working = size;
    note(index);
    now_.working = bytes{};
  }
  void note(std::size_t index)
  {
    if (now_.all() <= peak_.device) return;
    peak_.device = now_.all();
    peak_.step = index;
    peak_.lines = now_;
  }

  const schedule& plan_;
  const std::vector<part_memory>& parts_;
  const std::vector<operation>& steps_;
  std::vector<std::uint8_t> again_;  // by part and micro-batch: a second forward run comes
  std::deque<bytes> on_their_way_;
  std::deque<leaving> leaving_;
  memory_lines now_;
  bytes host_{};
  stage_peak peak_;
};

}  // namespace detail

/// The most bytes that each stage of a schedule holds, from the order of its steps alone.
///
/// - Weights, gradients and states stay, with the versions and sets of the schedule.
/// - A receive takes the bytes of its buffer. An input stays until its backward run has ended.
/// - A forward run allocates its output and its saved bytes. Where the micro-batch is recomputed, it saves nothing.
/// - A backward run allocates the gradient of its input, and frees the bytes that it read.
/// - The bytes of a send are free when the schedule's `sends_in_flight`-th send after it begins.
/// - The bytes of an offload are free when the second run after it begins.
///
/// @param parts   by part
/// @pre    find_fault(plan) finds nothing
/// @throws config_error   another number of parts   @throws size_overflow   more than 64 bits
/// @complexity            O(steps)
[[nodiscard]] inline std::vector<stage_peak> replay_memory(const schedule& plan, const std::vector<part_memory>& parts)
{
  if (parts.size() != plan.part_count())
    throw config_error{error_text{} << "chunkmem: the memory of " << parts.size()
                                    << " parts is given, and the schedule has " << plan.part_count()
                                    << " (give each part's)"};
  std::vector<stage_peak> peaks;
  for (std::uint32_t stage = 0; stage < plan.stage_count(); ++stage)
    peaks.push_back(detail::stage_replay{plan, parts, stage}.run());
  return peaks;
}

/// The most bytes that each stage takes in a stage_runner, with its boundaries.
///
/// Boundaries have their places for the whole run, so their bytes are added to the peak of the rest. `replay_memory`
/// counts the boundaries of each moment instead, and gives less.
///
/// Use:
///
///     const bytes device = executor_memory(plan, parts)[stage];
///
/// @param parts   by part; the input of part 0 is the stage's own, and counts from its forward to its backward run
/// @pre    find_fault(plan) finds nothing
/// @throws config_error, size_overflow   as replay_memory and boundary_buffers
/// @complexity   O(steps times buffers that live together)
[[nodiscard]] inline std::vector<bytes> executor_memory(const schedule& plan, std::vector<part_memory> parts)
{
  std::vector<bytes> inputs(parts.size());
  for (std::size_t part = 1; part < parts.size(); ++part) inputs[part] = std::exchange(parts[part].input, bytes{});
  const std::vector<stage_peak> peaks = replay_memory(plan, parts);
  std::vector<bytes> needed;
  for (std::uint32_t stage = 0; stage < plan.stage_count(); ++stage)
    needed.push_back(boundary_buffers{plan, stage, inputs}.size() + peaks[stage].device);
  return needed;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
