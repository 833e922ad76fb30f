// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checks/byte_poison.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/error_text.hpp>
#include <chunkmem/pipeline/pipeline_operation.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// Finds what a stage does wrong with its boundaries, for a stage_runner with checks::full.
///
///     boundary_watch watch{plan, stage};
///     watch.begin_output(output);                    // before a run
///     watch.expect_written(step, "output", output);  // behind it
///
/// Every word of an output has a mark until the stage writes it. The checksum of an input says whether it changed
/// between its runs. Bytes whose last run is over are NaN. Numbers and bytes only: it knows no runner.
/// Cost: two passes over the bytes of each boundary, and 8 B for each part and micro-batch.
class boundary_watch {
 public:
  boundary_watch(const schedule& plan, std::uint32_t stage)
      : plan_{&plan}, stage_{stage}, inputs_(std::size_t{plan.part_count()} * plan.all_micro_batches(), 0)
  {
  }

  /// A run is about to write all of it.
  static void begin_output(std::span<std::byte> output) noexcept
  {
    for (std::size_t at = 0; at < output.size(); ++at) output[at] = static_cast<std::byte>(mark >> 8 * (at % 4));
  }
  /// @throws usage_error   words of it still have their mark
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
  /// @throws usage_error   it is another one than in the forward run
  void expect_input(const operation& step, std::span<const std::byte> input) const
  {
    if (inputs_[plan_->cell_of(step)] == checks::sum_of_bytes(input)) return;
    throw usage_error{
        at(step) << "its input has changed since its forward run (a stage only reads its input, and writes "
                    "no byte past the end of another boundary)"};
  }
  /// No run of the schedule reads it any more.
  static void end(std::span<std::byte> content) noexcept { checks::fill_with_poison(content); }

 private:
  /// As two numbers of 16 bits or one of 32 it is a NaN that no arithmetic makes.
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
