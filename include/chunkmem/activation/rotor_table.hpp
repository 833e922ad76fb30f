// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/chain_slots.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// The least seconds to run stages i to j forward and backward in m slots, for all i, j and m, without swaps.
///
/// m counts neither the input of stage i nor other tensors from outside. m counts the gradient of the output of stage
/// j, which is there from the beginning. With `saved`, `input` and so on as in chain_slots:
///
///     seconds(i, i, m) = again(i) + backward(i)                            if m holds the runs of stage i
///     seconds(i, j, m) = min of
///       pass i to s - 1, keep the input of s:  sum of again + seconds(s, j, m - input(s)) + seconds(i, s - 1, m)
///       save all of stage i:                   again(i) + seconds(i + 1, j, m - saved(i)) + backward(i)
///
/// Optimal among schedules in which a saved tensor stays until its backward run has read it. All forward runs have the
/// time of a second one: the first ones differ by a constant. Source: rotor (Beaumont et al. 2019, arXiv 1911.13214),
/// with the gradient of stage j's output counted in its own size. Cost: O(stages^3 slots) time, O(stages^2 slots)
/// memory.
///
/// Use:
///
///     const rotor_table table{slots};
///     const double seconds = table.seconds(0, last, slots.budget - slots.input[0]);
///     table.append_steps(0, last, slots.budget - slots.input[0], plan.steps);
class rotor_table {
 public:
  static constexpr double never = std::numeric_limits<double>::infinity();

  /// @param slots   outlives the table
  explicit rotor_table(const chain_slots& slots) : slots_{slots}, stages_{slots.stages()}, width_{slots.budget + 1U}
  {
    seconds_.assign(static_cast<std::size_t>(stages_) * (stages_ + 1) / 2 * width_, never);
    passed_.push_back(0);
    for (const double seconds : slots.again) passed_.push_back(passed_.back() + seconds);
    for (std::uint32_t length = 0; length < stages_; ++length)
      for (std::uint32_t first = 0; first + length < stages_; ++first) fill(first, first + length);
  }

  /// @pre first <= last < stages   @return   infinity where the slots are too few
  [[nodiscard]] double seconds(std::uint32_t first, std::uint32_t last, std::int64_t room) const noexcept
  {
    return room < 0 ? never : row(first, last)[std::min<std::int64_t>(room, width_ - 1)];
  }

  /// Appends a fastest schedule. @pre seconds(first, last, room) is finite
  void append_steps(std::uint32_t first, std::uint32_t last, std::int64_t room, std::vector<chain_step>& steps) const
  {
    if (saves(first, last, room)) {
      steps.push_back({chain_run::saving, first});
      if (first < last) append_steps(first + 1, last, room - slots_.saved[first], steps);
      steps.push_back({chain_run::backward, first});
      return;
    }
    std::uint32_t split = first + 1;
    while (passing(first, split, last, room) > seconds(first, last, room)) ++split;
    for (std::uint32_t stage = first; stage < split; ++stage) steps.push_back({chain_run::passing, stage});
    append_steps(split, last, room - slots_.input[split], steps);
    append_steps(first, split - 1, room, steps);
  }

 private:
  [[nodiscard]] const double* row(std::uint32_t first, std::uint32_t last) const noexcept
  {
    return seconds_.data() + (static_cast<std::size_t>(last) * (last + 1) / 2 + first) * width_;
  }

  /// Slots of the saving run and of the backward run of `first`, while the gradient of `last`'s output waits.
  [[nodiscard]] std::uint32_t saving_limit(std::uint32_t first, std::uint32_t last) const noexcept
  {
    const auto& [s, f] = std::pair<const chain_slots&, std::uint32_t>{slots_, first};
    return s.saved[f] + std::max(s.gradient[last + 1] + s.forward_working[f],
                                 s.gradient[f + 1] + s.gradient[f] + s.backward_working[f]);
  }
  /// Slots of the passing runs of `first` to `last` - 1.
  [[nodiscard]] std::uint32_t passing_limit(std::uint32_t first, std::uint32_t last) const noexcept
  {
    std::uint32_t most = 0;
    for (std::uint32_t stage = first; stage < last; ++stage)
      most = std::max(
          most, (stage > first ? slots_.input[stage] : 0) + slots_.input[stage + 1] + slots_.passing_working[stage]);
    return slots_.gradient[last + 1] + most;
  }

  void fill(std::uint32_t first, std::uint32_t last)
  {
    double* const out = const_cast<double*>(row(first, last));
    const double own = slots_.again[first] + slots_.backward[first];
    if (first == last) {
      for (std::uint32_t room = saving_limit(first, last); room < width_; ++room) out[room] = own;
      return;
    }
    const std::uint32_t saved = slots_.saved[first];
    const double* const rest = row(first + 1, last);
    for (std::uint32_t room = saving_limit(first, last); room < width_; ++room) out[room] = own + rest[room - saved];
    const std::uint32_t least = passing_limit(first, last);
    for (std::uint32_t split = first + 1; split <= last; ++split) {
      const std::uint32_t kept = slots_.input[split];
      const double* const later = row(split, last);
      const double* const earlier = row(first, split - 1);
      const double passed = passed_[split] - passed_[first];
      for (std::uint32_t room = std::max(kept, least); room < width_; ++room)
        out[room] = std::min(out[room], passed + later[room - kept] + earlier[room]);
    }
  }

  [[nodiscard]] bool saves(std::uint32_t first, std::uint32_t last, std::int64_t room) const noexcept
  {
    if (first == last) return true;
    if (room < saving_limit(first, last)) return false;
    const double own = slots_.again[first] + slots_.backward[first];
    return own + seconds(first + 1, last, room - slots_.saved[first]) <= seconds(first, last, room);
  }
  [[nodiscard]] double passing(std::uint32_t first, std::uint32_t split, std::uint32_t last,
                               std::int64_t room) const noexcept
  {
    return passed_[split] - passed_[first] + seconds(split, last, room - slots_.input[split]) +
           seconds(first, split - 1, room);
  }

  const chain_slots& slots_;
  std::uint32_t stages_;
  std::uint32_t width_;          // of a row: slots 0 to the budget
  std::vector<double> passed_;   // by stage: the times of all stages before, run forward
  std::vector<double> seconds_;  // a row for each pair first <= last
};

}  // namespace activation

}  // namespace chunkmem::inline v0
