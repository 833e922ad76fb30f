// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// A chain with its sizes in slots, for dynamic programs over memory. Sizes are rounded up, the budget down: a plan
/// that fits in slots fits in bytes.
///
///     const chain_slots slots{chain, budget, 500};
///     const bool fits = slots.saved[0] <= slots.budget;
///
/// By stage, which is the index of a block. `input` and `gradient` have an entry more: the last entry of `input` is the
/// chain's output; `gradient[i]` is that of the input of stage i.
struct chain_slots {
  std::uint32_t budget = 0;
  double bytes_per_slot = 1;
  std::vector<std::uint32_t> input;
  std::vector<std::uint32_t> gradient;
  std::vector<std::uint32_t> saved;  ///< by the saving run of a stage, its output included
  std::vector<std::uint32_t> forward_working;
  std::vector<std::uint32_t> passing_working;
  std::vector<std::uint32_t> backward_working;
  std::vector<double> forward;  ///< of the first run [s]
  std::vector<double> again;    ///< of each other forward run [s]
  std::vector<double> backward;

  chain_slots() = default;
  static constexpr std::uint32_t most_slots = 1U << 20;  ///< a table of more has no room on any machine

  /// @param most   slots that the budget is divided into, at most
  /// @throws config_error   0 slots, or more than `most_slots`
  chain_slots(const layer_chain& chain, const activation_budget& budgeted, std::uint32_t most)
  {
    if (most == 0 || most > most_slots)
      throw config_error{error_text{} << "chunkmem: a budget of activations cannot be divided into " << most
                                      << " slots (give 1 to " << most_slots
                                      << ", or 0 to a planner for its own number)"};
    const std::uint64_t device = budgeted.device.count();
    const std::uint64_t slot = std::max<std::uint64_t>(1, device / most + (device % most > 0 ? 1 : 0));
    budget = static_cast<std::uint32_t>(device / slot);
    bytes_per_slot = static_cast<double>(slot);
    const auto in_slots = [&](std::uint64_t size) {
      const std::uint64_t count = size / slot + (size % slot > 0 ? 1 : 0);
      return static_cast<std::uint32_t>(std::min<std::uint64_t>(count, budget + std::uint64_t{1}));
    };
    const auto of = [&](bytes size) { return in_slots(budgeted.in_frames(size)); };
    gradient.push_back(0);
    for (std::uint32_t stage = 0; stage < chain.size(); ++stage) {
      const chain_block& block = chain.blocks[stage];
      input.push_back(of(chain.input_of(stage)));
      gradient.push_back(of(block.gradient));
      saved.push_back(in_slots(budgeted.in_frames(block.inner()) + budgeted.in_frames(block.boundary)));
      forward_working.push_back(of(block.forward_working) + of(block.carried));
      passing_working.push_back(of(block.passing_working) + of(block.carried));
      backward_working.push_back(of(block.backward_working) + of(block.carried));
      forward.push_back(block.forward_seconds);
      again.push_back(block.again_seconds());
      backward.push_back(block.backward_seconds);
    }
    input.push_back(of(chain.blocks.back().boundary));
  }

  [[nodiscard]] std::uint32_t stages() const noexcept { return static_cast<std::uint32_t>(backward.size()); }
};

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

/// Recomputes without swaps, in the least time that memory allows: a run forward may start from any input that was
/// kept.
///
///     const activation_plan plan = rotor{}.plan(chain, budget);
///
/// Sizes are rounded up to slots: the budget has 500 of them, and fewer for chains of more than 50 blocks. A plan that
/// fits may therefore be missed by a slot for each block. Good where the links are slow, or busy. Poor where the links
/// have time to spare: see pofo. Source: rotor (Beaumont et al. 2019, arXiv 1911.13214). Cost: O(blocks^3 slots), 0.3 s
/// for 200 blocks.
class rotor {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "rotor";

  rotor() = default;
  /// @param slots   that the budget is divided into, at most; 0: by the number of blocks
  explicit rotor(std::uint32_t slots) : slots_{slots} {}

  /// @throws config_error   the chain or the budget cannot be
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    budget.check(chain);
    const chain_slots slots{chain, budget, slots_ > 0 ? slots_ : slots_for(chain.size())};
    const rotor_table table{slots};
    const std::int64_t room = std::int64_t{slots.budget} - slots.input[0];
    if (table.seconds(0, chain.size() - 1, room) == rotor_table::never)
      return recompute_every_block(name, chain, budget);
    activation_plan plan;
    plan.planner = name;
    plan.inner_leaves.assign(chain.size(), 0);
    plan.input_leaves.assign(chain.size(), 0);
    table.append_steps(0, chain.size() - 1, room, plan.steps);
    cost_plan(plan, chain, budget);
    return plan;
  }

  /// Slots that take about a third of a second.
  [[nodiscard]] static std::uint32_t slots_for(std::uint32_t blocks)
  {
    const double cubes = std::pow(double(blocks), 3) / 6;
    return static_cast<std::uint32_t>(std::clamp(2e8 / cubes, 50.0, 500.0));
  }

 private:
  std::uint32_t slots_ = 0;
};

static_assert(activation_planner<rotor>);

}  // namespace activation

}  // namespace chunkmem::inline v0
