// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checks/byte_poison.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The content of a buffer between parts.
enum class boundary_kind : std::uint8_t {
  input,            ///< of a part, from its receive or the run before until its backward run
  output,           ///< of a part, on its way to another stage
  output_gradient,  ///< of a part, from its receive or the run before until its backward run
  input_gradient,   ///< of a part, on its way to another stage
};

/// The places of the send and receive buffers of one stage, for every step of a schedule.
///
/// A buffer has the lifetime of `replay_memory`; the first part has no input here, since it reads the batch. Each
/// buffer has the lowest place that is free from its first step to its last. Where all boundaries have one size, the
/// total is the peak of live buffers. Otherwise gaps may remain. Cost: O(steps times live buffers) once; 4 bytes for
/// each part and micro-batch and kind.
///
/// Use:
///
///     const boundary_buffers buffers{plan, stage, {0_B, 2_MiB, 2_MiB, 2_MiB}};
///     auto memory = m.lease(tier::device, buffers.size());
///     ... memory.data() + buffers.place_of(boundary_kind::input, part, micro_batch)
class boundary_buffers {
 public:
  /// @param inputs   by part: the bytes of its input, which is the output of the part before; unused for the first part
  /// @pre   find_fault(plan) finds nothing
  /// @throws config_error   no such stage, another number of parts, or over 2^40 bytes
  boundary_buffers(const schedule& plan, std::uint32_t stage, std::vector<bytes> inputs)
      : stage_{stage},
        micro_batches_{plan.all_micro_batches()},
        made_for_{identity_of(plan)},
        inputs_{std::move(inputs)}
  {
    if (stage >= plan.stage_count())
      throw config_error{error_text{} << "chunkmem: there is no stage " << stage << " of " << plan.stage_count()};
    if (inputs_.size() != plan.part_count())
      throw config_error{error_text{} << "chunkmem: inputs of " << inputs_.size()
                                      << " parts are given, and the schedule"
                                      << " has " << plan.part_count() << " (give the bytes of each part's input)"};
    places_.assign(std::size_t{4} * plan.part_count() * plan.all_micro_batches(), nowhere);
    walk it{plan};
    for (const operation& step : plan.stages[stage]) take(it, step);
  }

  /// These are the buffers of this stage of this schedule. Another schedule of the same shape has other places.
  [[nodiscard]] bool are_of(const schedule& plan, std::uint32_t stage) const noexcept
  {
    return stage == stage_ && made_for_ == identity_of(plan);
  }
  /// The bytes of all buffers together.
  [[nodiscard]] bytes size() const noexcept { return bytes{end_ * tensor_alignment.count()}; }
  /// The bytes of the boundary before a part.
  [[nodiscard]] bytes input_of(std::uint32_t part) const noexcept { return inputs_[part]; }
  /// The offset of a buffer [bytes]. @pre the stage has this buffer
  [[nodiscard]] std::uint64_t place_of(boundary_kind kind, std::uint32_t part, std::uint32_t micro_batch) const noexcept
  {
    return places_[cell(kind, part, micro_batch)] * tensor_alignment.count();
  }
  [[nodiscard]] bool has(boundary_kind kind, std::uint32_t part, std::uint32_t micro_batch) const noexcept
  {
    return places_[cell(kind, part, micro_batch)] != nowhere;
  }

 private:
  using enum operation_kind;
  static constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();

  /// Places count in units of the alignment.
  struct live_buffer {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::size_t which = 0;
  };

  /// The progress in the list of steps.
  struct walk {
    const schedule& plan;
    std::vector<live_buffer> live{};         // in the order of places
    std::deque<std::size_t> on_their_way{};  // sends, oldest first
  };

  void take(walk& it, const operation& step)
  {
    const std::uint32_t part = step.part;
    const std::uint32_t micro_batch = step.micro_batch;
    const bool is_last = part + 1 == it.plan.part_count();
    switch (step.kind) {
      case receive_activation: add(it, boundary_kind::input, part, micro_batch, part); break;
      case receive_gradient: add(it, boundary_kind::output_gradient, part, micro_batch, part + 1); break;
      case forward:
        if (!is_last && it.plan.crosses_after(part)) add(it, boundary_kind::output, part, micro_batch, part + 1);
        if (!is_last && !it.plan.crosses_after(part)) add(it, boundary_kind::input, part + 1, micro_batch, part + 1);
        break;
      case backward:
      case backward_input:
        if (part > 0 && it.plan.crosses_after(part - 1))
          add(it, boundary_kind::input_gradient, part, micro_batch, part);
        if (part > 0 && !it.plan.crosses_after(part - 1))
          add(it, boundary_kind::output_gradient, part - 1, micro_batch, part);
        if (part > 0) remove(it, cell(boundary_kind::input, part, micro_batch));
        if (!is_last) remove(it, cell(boundary_kind::output_gradient, part, micro_batch));
        break;
      case send_activation: send(it, cell(boundary_kind::output, part, micro_batch)); break;
      case send_gradient: send(it, cell(boundary_kind::input_gradient, part, micro_batch)); break;
      default: break;
    }
  }

  /// @param boundary   the part whose input has this size
  void add(walk& it, boundary_kind kind, std::uint32_t part, std::uint32_t micro_batch, std::uint32_t boundary)
  {
    const std::uint64_t size = align_up(inputs_[boundary], tensor_alignment).count() / tensor_alignment.count();
    std::uint64_t begin = 0;
    auto at = it.live.begin();  // in the order of places
    for (; at != it.live.end() && at->begin < begin + size; ++at) begin = std::max(begin, at->end);
    if (begin + size >= nowhere) throw config_error{"the boundaries of a pipeline's stage take over 2^40 bytes"};
    const std::size_t which = cell(kind, part, micro_batch);
    it.live.insert(at, {begin, begin + size, which});
    places_[which] = static_cast<std::uint32_t>(begin);
    end_ = std::max(end_, begin + size);
  }
  static void remove(walk& it, std::size_t which)
  {
    it.live.erase(std::ranges::find(it.live, which, &live_buffer::which));
  }
  static void send(walk& it, std::size_t which)
  {
    if (it.on_their_way.size() == it.plan.sends_in_flight) {
      remove(it, it.on_their_way.front());
      it.on_their_way.pop_front();
    }
    it.on_their_way.push_back(which);
  }
  [[nodiscard]] std::size_t cell(boundary_kind kind, std::uint32_t part, std::uint32_t micro_batch) const noexcept
  {
    return (std::size_t{static_cast<std::uint8_t>(kind)} * inputs_.size() + part) * micro_batches_ + micro_batch;
  }

  std::uint32_t stage_;
  std::uint32_t micro_batches_;
  std::uint64_t made_for_;             // identity of the schedule
  std::vector<bytes> inputs_;          // by part
  std::vector<std::uint32_t> places_;  // by kind, part and micro-batch
  std::uint64_t end_ = 0;
};

/// Finds mistakes of a stage with its boundaries, for a stage_runner with checks::full.
///
///     boundary_watch watch{plan, stage};
///     watch.begin_output(output);                    // before a run
///     watch.expect_written(step, "output", output);  // after the run
///
/// Every word of an output has a mark until the stage writes it. The checksum of an input shows a change between its
/// runs. After the last run of a boundary, its bytes are NaN. Independent of the runner. Cost: two passes over the
/// bytes of each boundary, and 8 B for each part and micro-batch.
class boundary_watch {
 public:
  boundary_watch(const schedule& plan, std::uint32_t stage)
      : plan_{&plan}, stage_{stage}, inputs_(std::size_t{plan.part_count()} * plan.all_micro_batches(), 0)
  {
  }

  /// A run is about to write the whole output.
  static void begin_output(std::span<std::byte> output) noexcept
  {
    for (std::size_t at = 0; at < output.size(); ++at) output[at] = static_cast<std::byte>(mark >> 8 * (at % 4));
  }
  /// @throws usage_error   words of the output still have their mark
  void expect_written(const operation& step, std::string_view what, std::span<const std::byte> output) const
  {
    std::uint64_t unwritten = 0;
    std::uint64_t first = 0;
    for (std::size_t at = 0; at + 4 <= output.size(); at += 4) {
      std::uint32_t word = 0;
      std::memcpy(&word, &output[at], 4);
      if (word == mark && unwritten++ == 0) first = at;
    }
    if (unwritten == 0) return;
    throw usage_error{
        at(step) << unwritten * 4 << " of " << std::uint64_t{output.size()} << " B of its " << what
                 << " were never written, the first one is byte " << first
                 << " (write all of it, zeros too; where runs are enqueued, give the runner their agent)"};
  }

  /// The input of a forward run, which stays as it is until the backward run is over.
  void begin_input(const operation& step, std::span<const std::byte> input) noexcept
  {
    inputs_[plan_->cell_of(step)] = checks::sum_of_bytes(input);
  }
  /// @throws usage_error   the input changed since the forward run
  void expect_input(const operation& step, std::span<const std::byte> input) const
  {
    if (inputs_[plan_->cell_of(step)] == checks::sum_of_bytes(input)) return;
    throw usage_error{
        at(step) << "its input has changed since its forward run (a stage only reads its input, and writes "
                    "no byte past the end of another boundary)"};
  }
  /// No later run of the schedule reads these bytes.
  static void end(std::span<std::byte> content) noexcept { checks::fill_with_poison(content); }

 private:
  /// As two 16-bit numbers or one 32-bit number, this is a NaN that no arithmetic makes.
  static constexpr std::uint32_t mark = 0x7FA57FA5U;

  [[nodiscard]] error_text at(const operation& step) const noexcept
  {
    return error_text{} << "chunkmem: stage " << stage_ << ", " << name_of(step.kind) << " of part " << step.part
                        << ", micro-batch " << step.micro_batch << ": ";
  }

  const schedule* plan_;
  std::uint32_t stage_;
  std::vector<std::uint64_t> inputs_;  // by part and micro-batch: the checksum of its input
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
