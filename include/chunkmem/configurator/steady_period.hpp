// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The period of a simulated pipeline: its steps repeat after this many micro-batches and seconds.
///
///     if (const auto period = steady_period_of(plan, times, 1)) seconds += repeats * period->seconds;
struct steady_period {
  std::uint32_t micro_batches = 0;
  double seconds = 0;
};

/// The most micro-batches between two steps that wait for each other, in any periodic schedule of this many stages.
///
///     const bool can_repeat = period->micro_batches <= steady_depth(plan.stage_count());
[[nodiscard]] constexpr std::uint32_t steady_depth(std::uint32_t stages) noexcept
{
  return 4 * stages + 4;
}

/// The micro-batches of a batch that steady_period_of needs: a beginning, the window, and an end.
///
///     const pipeline::pipeline_shape shape{.stages = 4, .micro_batches = steady_window(4)};
[[nodiscard]] constexpr std::uint32_t steady_window(std::uint32_t stages) noexcept
{
  return 4 * steady_depth(stages);
}

namespace detail {

/// The times of one batch's steps in a window of micro-batches.
class steady_steps {
 public:
  steady_steps(const pipeline::schedule& plan, const pipeline::pipeline_times& times, std::uint32_t batch)
      : depth_{steady_depth(plan.stage_count())}, length_{2 * depth_}, tolerance_{1e-11 * times.seconds}
  {
    const std::uint32_t begin = batch * plan.micro_batches + plan.micro_batches / 2 - depth_;
    const std::uint32_t rows_of_part = static_cast<std::uint32_t>(pipeline::operation_kind::update) + 1;
    std::size_t row = 0;
    std::vector<std::size_t> row_of_part(plan.part_count());
    for (std::size_t& it : row_of_part) it = std::exchange(row, row + rows_of_part);
    steps_.resize(row * length_);
    for (std::uint32_t stage = 0; stage < plan.stage_count(); ++stage)
      for (std::size_t index = 0; index < plan.stages[stage].size(); ++index) {
        const pipeline::operation& step = plan.stages[stage][index];
        if (step.micro_batch < begin || step.micro_batch >= begin + length_) continue;
        const std::size_t of_kind = row_of_part[step.part] + static_cast<std::size_t>(step.kind);
        steps_[of_kind * length_ + (step.micro_batch - begin)] = times.steps[stage][index];
      }
  }

  /// The seconds after which every step repeats with this period, if it does. @pre period <= depth
  [[nodiscard]] std::optional<double> seconds_after(std::uint32_t period) const
  {
    std::optional<double> seconds;
    for (std::size_t row = 0; row < steps_.size(); row += length_)
      for (std::size_t it = row; it < row + depth_; ++it) {
        const pipeline::step_time &now = steps_[it], &then = steps_[it + period];
        if (now.end == 0 && then.end == 0) continue;  // no such step
        if (!seconds) seconds = then.end - now.end;
        if (std::abs(then.end - now.end - *seconds) > tolerance_ ||
            std::abs(then.begin - now.begin - *seconds) > tolerance_)
          return std::nullopt;
      }
    return seconds;
  }

 private:
  std::uint32_t depth_;
  std::uint32_t length_;
  double tolerance_;
  std::vector<pipeline::step_time> steps_;  // by part, kind and micro-batch
};

}  // namespace detail

/// The shortest period of all steps in the middle of each batch.
///
/// The times of a step follow from those of steps that are at most steady_depth micro-batches away. So where all steps
/// of this many micro-batches repeat, all later ones do, until the order of the schedule changes. A batch with n more
/// periods takes n times `seconds` longer.
///
///     const auto period = steady_period_of(plan, times, 1);
///     if (period) seconds += repeats * period->seconds;
///
/// @param times   of all steps
/// @param unit    micro-batches that the order of steps repeats in
/// @pre   batches of steady_window micro-batches or more
/// @return   nothing where the steps do not repeat yet
/// Cost: O(steps), and O(stages) times those of the window
[[nodiscard]] inline std::optional<steady_period> steady_period_of(const pipeline::schedule& plan,
                                                                   const pipeline::pipeline_times& times,
                                                                   std::uint32_t unit)
{
  std::vector<detail::steady_steps> batches;
  for (std::uint32_t batch = 0; batch < plan.batches; ++batch) batches.emplace_back(plan, times, batch);
  for (std::uint32_t period = unit; period <= steady_depth(plan.stage_count()); period += unit) {
    const std::optional<double> seconds = batches.front().seconds_after(period);
    const auto has_it = [&](const detail::steady_steps& it) {
      const std::optional<double> other = it.seconds_after(period);
      return other && std::abs(*other - *seconds) <= 1e-11 * times.seconds;
    };
    if (seconds && std::ranges::all_of(batches, has_it)) return steady_period{period, *seconds};
  }
  return std::nullopt;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
