// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// How long the input of a segment of stages stays on the device.
enum class segment_input : std::uint8_t {
  stays,  ///< until the segment has run backward: the backward run of the stage before reads it
  ends,   ///< until the last run of the segment that reads it, a backward run where that reads its stage's input
};

/// A chain with its sizes in slots, for dynamic programs over memory. Sizes are rounded up, the budget down: a plan
/// that fits in slots fits in bytes.
///
///     const chain_slots slots{chain, budget, 500};
///     const bool fits = slots.saved[0] <= slots.budget;
///
/// By stage, which is the index of a block. `input` and `gradient` have one more entry: the last entry of `input` is
/// the chain's output; `gradient[i]` is that of the input of stage i.
struct chain_slots {
  std::uint64_t budget = 0;
  double bytes_per_slot = 1;
  std::vector<std::uint64_t> input;
  std::vector<std::uint64_t> gradient;
  std::vector<std::uint64_t> saved;  ///< by the saving run of a stage, its output included
  std::vector<std::uint64_t> forward_working;
  std::vector<std::uint64_t> passing_working;
  std::vector<std::uint64_t> backward_working;
  std::vector<std::uint8_t> reads_input;  ///< 1: the backward run reads the stage's input
  std::vector<double> forward;            ///< of the first run [s]
  std::vector<double> again;              ///< of each other forward run [s]
  std::vector<double> backward;

  chain_slots() = default;
  static constexpr std::uint32_t most_slots = 1U << 20;  ///< a table with more would be too large for any machine

  /// @param most   slots that the budget is divided into, at most
  /// @throws config_error   0 slots, or more than `most_slots`
  chain_slots(const layer_chain& chain, const activation_budget& budgeted, std::uint32_t most)
  {
    if (most == 0 || most > most_slots)
      throw config_error{error_text{} << "chunkmem: a budget of activations cannot be divided into " << most
                                      << " slots (give 1 to " << most_slots
                                      << ", or 0 to a planner for its own number)"};
    const std::uint64_t device = budgeted.device.count();
    fill(chain, budgeted, std::max<std::uint64_t>(1, device / most + (device % most > 0 ? 1 : 0)));
  }
  /// Slots of one byte: nothing is rounded.
  [[nodiscard]] static chain_slots of_bytes(const layer_chain& chain, const activation_budget& budgeted)
  {
    chain_slots made;
    made.fill(chain, budgeted, 1);
    return made;
  }

  [[nodiscard]] std::uint32_t stages() const noexcept { return static_cast<std::uint32_t>(backward.size()); }
  /// Slots of the gradient that waits while the stages up to `last` run forward. The gradient of the chain's output
  /// does not wait: the first backward run makes it.
  [[nodiscard]] std::uint64_t waiting(std::uint32_t last) const noexcept
  {
    return last + 1 < stages() ? gradient[last + 1] : 0;
  }
  /// Slots of the input of a stage that are free once the stage has saved.
  [[nodiscard]] std::uint64_t freed(std::uint32_t stage, segment_input fate) const noexcept
  {
    return fate == segment_input::ends && reads_input[stage] == 0 ? input[stage] : 0;
  }
  /// Slots of the backward run of a stage, without its input.
  [[nodiscard]] std::uint64_t backward_limit(std::uint32_t stage) const noexcept
  {
    return saved[stage] + gradient[stage + 1] + gradient[stage] + backward_working[stage];
  }
  /// Slots of the saving and of the backward run of `first`, without its input, while the gradient of `last`'s output
  /// waits.
  [[nodiscard]] std::uint64_t saving_limit(std::uint32_t first, std::uint32_t last, segment_input fate) const noexcept
  {
    const std::uint64_t backward_run = backward_limit(first);
    return std::max(saved[first] + waiting(last) + forward_working[first],
                    backward_run - std::min(backward_run, freed(first, fate)));
  }
  /// Slots of the passing run of a stage in a segment that begins with `first`, without the segment's input.
  [[nodiscard]] std::uint64_t passing_limit(std::uint32_t first, std::uint32_t stage, std::uint32_t last) const noexcept
  {
    return (stage > first ? input[stage] : 0) + input[stage + 1] + passing_working[stage] + waiting(last);
  }

 private:
  void fill(const layer_chain& chain, const activation_budget& budgeted, std::uint64_t slot)
  {
    constexpr std::uint64_t most_bytes = std::uint64_t{1} << 60;  // of a chain: `check` of a budget refuses more
    budget = std::min(budgeted.device.count() / slot, most_bytes);
    bytes_per_slot = static_cast<double>(slot);
    const auto in_slots = [&](std::uint64_t size) {
      return std::min(size / slot + (size % slot > 0 ? 1 : 0), 2 * budget + 1);
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
      reads_input.push_back(block.reads_input ? 1 : 0);
      forward.push_back(block.forward_seconds);
      again.push_back(block.again_seconds());
      backward.push_back(block.backward_seconds);
    }
    input.push_back(of(chain.blocks.back().boundary));
  }
};

/// The least seconds to run stages i to j forward and backward in m slots, for all i, j and m, without swaps.
///
/// m counts neither the input of stage i nor other tensors from outside. m counts the gradient of the output of stage
/// j, which exists from the beginning unless j is the last stage of the chain. Where the input of stage i `ends`, its
/// slots are free once stage i has saved, if its backward run does not read them. With `saved`, `input` and so on as in
/// chain_slots, and f slots that become free in this way (0 where the input `stays`):
///
///     seconds(i, i, m) = again(i) + backward(i)                            if m holds the runs of stage i
///     seconds(i, j, m) = min of
///       pass i to s - 1, keep the input of s:
///                       sum of again + seconds(s, j, m - input(s)), whose input ends, + seconds(i, s - 1, m)
///       save all of stage i:
///                       again(i) + seconds(i + 1, j, m + f - saved(i)), whose input stays, + backward(i)
///
/// Optimal among such trees, in which a saved tensor stays until its last reader has run. Where stages do not read
/// their inputs, a schedule that is not a tree is better in rare cases: a stage saves before the stage ahead of it
/// does. All forward runs count with the time of a second run: the first runs differ by a constant. Source: rotor
/// (Beaumont et al. 2019, arXiv 1911.13214), with gradients in their own sizes, and inputs that end. Cost: O(stages^3
/// slots) time, O(stages^2 slots) memory.
///
/// Use:
///
///     const rotor_table table{slots, slots.budget};
///     const double seconds = table.seconds(0, last, slots.budget - slots.input[0], segment_input::ends);
///     table.append_steps(0, last, slots.budget - slots.input[0], segment_input::ends, plan.steps);
class rotor_table {
 public:
  static constexpr double never = std::numeric_limits<double>::infinity();

  /// @param slots   outlives the table
  /// @param most    the largest room of a query
  rotor_table(const chain_slots& slots, std::uint64_t most)
      : slots_{slots}, stages_{slots.stages()}, width_{static_cast<std::size_t>(most) + 1}
  {
    const std::size_t rows = static_cast<std::size_t>(stages_) * (stages_ + 1) / 2;
    seconds_[0].assign(rows * width_, never);
    if (!std::ranges::all_of(slots.reads_input, [](std::uint8_t reads) { return reads != 0; }))
      seconds_[1].assign(rows * width_, never);
    passed_.push_back(0);
    for (const double seconds : slots.again) passed_.push_back(passed_.back() + seconds);
    for (std::uint32_t length = 0; length < stages_; ++length)
      for (std::uint32_t first = 0; first + length < stages_; ++first) {
        fill(first, first + length, segment_input::stays);
        if (slots.reads_input[first] == 0) fill(first, first + length, segment_input::ends);
      }
  }

  /// @pre first <= last < stages   @return   infinity where the slots are too few
  [[nodiscard]] double seconds(std::uint32_t first, std::uint32_t last, std::int64_t room,
                               segment_input input) const noexcept
  {
    return room < 0 ? never : row(first, last, input)[std::min(static_cast<std::size_t>(room), width_ - 1)];
  }

  /// Appends a fastest schedule. @pre seconds(first, last, room, input) is finite
  void append_steps(std::uint32_t first, std::uint32_t last, std::int64_t room, segment_input input,
                    std::vector<chain_step>& steps) const
  {
    const double wanted = seconds(first, last, room, input);
    if (saving(first, last, room, input) <= wanted) {
      steps.push_back({chain_run::saving, first});
      if (first < last)
        append_steps(first + 1, last, room + signed_of(slots_.freed(first, input)) - signed_of(slots_.saved[first]),
                     segment_input::stays, steps);
      steps.push_back({chain_run::backward, first});
      return;
    }
    std::uint32_t split = first + 1;
    while (passing(first, split, last, room, input) > wanted) ++split;
    for (std::uint32_t stage = first; stage < split; ++stage) steps.push_back({chain_run::passing, stage});
    append_steps(split, last, room - signed_of(slots_.input[split]), segment_input::ends, steps);
    append_steps(first, split - 1, room, input, steps);
  }

 private:
  [[nodiscard]] static std::int64_t signed_of(std::uint64_t slots) noexcept { return static_cast<std::int64_t>(slots); }
  /// An input that its stage's backward run reads stays in any case.
  [[nodiscard]] const double* row(std::uint32_t first, std::uint32_t last, segment_input input) const noexcept
  {
    const bool ends = input == segment_input::ends && slots_.reads_input[first] == 0;
    return seconds_[ends ? 1 : 0].data() + (static_cast<std::size_t>(last) * (last + 1) / 2 + first) * width_;
  }
  void fill(std::uint32_t first, std::uint32_t last, segment_input input)
  {
    double* const out = const_cast<double*>(row(first, last, input));
    const double own = slots_.again[first] + slots_.backward[first];
    const std::size_t saves = std::min<std::size_t>(slots_.saving_limit(first, last, input), width_);
    if (first == last) {
      std::fill(out + saves, out + width_, own);
      return;
    }
    const std::uint64_t taken = slots_.saved[first];
    const std::uint64_t given = slots_.freed(first, input);
    const double* const rest = row(first + 1, last, segment_input::stays);
    for (std::size_t room = saves; room < width_; ++room)
      out[room] = own + rest[std::min<std::size_t>(room + given - taken, width_ - 1)];
    std::uint64_t least = 0;  // slots of the passing runs up to the split
    for (std::uint32_t split = first + 1; split <= last; ++split) {
      least = std::max(least, slots_.passing_limit(first, split - 1, last));
      const std::uint64_t kept = slots_.input[split];
      const double* const later = row(split, last, segment_input::ends);
      const double* const earlier = row(first, split - 1, input);
      const double passed = passed_[split] - passed_[first];
      for (std::size_t room = std::max(kept, least); room < width_; ++room)
        out[room] = std::min(out[room], passed + later[room - kept] + earlier[room]);
    }
  }

  [[nodiscard]] double saving(std::uint32_t first, std::uint32_t last, std::int64_t room,
                              segment_input input) const noexcept
  {
    if (room < signed_of(slots_.saving_limit(first, last, input))) return never;
    const double own = slots_.again[first] + slots_.backward[first];
    if (first == last) return own;
    const std::int64_t rest = room + signed_of(slots_.freed(first, input)) - signed_of(slots_.saved[first]);
    return own + seconds(first + 1, last, rest, segment_input::stays);
  }
  [[nodiscard]] double passing(std::uint32_t first, std::uint32_t split, std::uint32_t last, std::int64_t room,
                               segment_input input) const noexcept
  {
    return passed_[split] - passed_[first] +
           seconds(split, last, room - signed_of(slots_.input[split]), segment_input::ends) +
           seconds(first, split - 1, room, input);
  }

  const chain_slots& slots_;
  std::uint32_t stages_;
  std::size_t width_;               // of a row: slots 0 to the largest room
  std::vector<double> passed_;      // by stage: the times of all stages before, run forward
  std::vector<double> seconds_[2];  // by segment_input: a row for each pair first <= last
};

/// The schedule of a chain that needs the fewest slots, among those of rotor_table.
///
/// With slots of one byte nothing is rounded. Cost: O(stages^3) time, O(stages^2) memory.
///
/// Use:
///
///     const chain_slots sizes = chain_slots::of_bytes(chain, budget);
///     smallest_rooms{sizes}.append_steps(0, last, segment_input::ends, plan.steps);
class smallest_rooms {
 public:
  /// @param slots   outlives this
  explicit smallest_rooms(const chain_slots& slots) : slots_{slots}
  {
    const std::uint32_t stages = slots.stages();
    for (std::vector<choice>& kind : choices_) kind.resize(static_cast<std::size_t>(stages) * (stages + 1) / 2);
    for (std::uint32_t length = 0; length < stages; ++length)
      for (std::uint32_t first = 0; first + length < stages; ++first)
        for (const segment_input input : {segment_input::stays, segment_input::ends})
          choices_[static_cast<std::size_t>(input)][index(first, first + length)] =
              choose(first, first + length, input);
  }

  /// @pre first <= last < stages
  [[nodiscard]] std::uint64_t room(std::uint32_t first, std::uint32_t last, segment_input input) const noexcept
  {
    return at(first, last, input).room;
  }
  void append_steps(std::uint32_t first, std::uint32_t last, segment_input input, std::vector<chain_step>& steps) const
  {
    const std::uint32_t split = at(first, last, input).split;
    if (split == first) {
      steps.push_back({chain_run::saving, first});
      if (first < last) append_steps(first + 1, last, segment_input::stays, steps);
      steps.push_back({chain_run::backward, first});
      return;
    }
    for (std::uint32_t stage = first; stage < split; ++stage) steps.push_back({chain_run::passing, stage});
    append_steps(split, last, segment_input::ends, steps);
    append_steps(first, split - 1, input, steps);
  }

 private:
  struct choice {
    std::uint64_t room = 0;
    std::uint32_t split = 0;  // the stage whose input is kept; the first one: it saves
  };

  [[nodiscard]] static std::size_t index(std::uint32_t first, std::uint32_t last) noexcept
  {
    return static_cast<std::size_t>(last) * (last + 1) / 2 + first;
  }
  [[nodiscard]] const choice& at(std::uint32_t first, std::uint32_t last, segment_input input) const noexcept
  {
    return choices_[static_cast<std::size_t>(input)][index(first, last)];
  }
  [[nodiscard]] choice choose(std::uint32_t first, std::uint32_t last, segment_input input) const
  {
    choice best{slots_.saving_limit(first, last, input), first};
    if (first == last) return best;
    const std::uint64_t beside = slots_.saved[first] + room(first + 1, last, segment_input::stays);
    best.room = std::max(best.room, beside - std::min(beside, slots_.freed(first, input)));
    std::uint64_t least = 0;  // of the passing runs up to the split
    for (std::uint32_t split = first + 1; split <= last; ++split) {
      least = std::max(least, slots_.passing_limit(first, split - 1, last));
      const std::uint64_t needed = std::max(
          {least, slots_.input[split] + room(split, last, segment_input::ends), room(first, split - 1, input)});
      if (needed < best.room) best = {needed, split};
    }
    return best;
  }

  const chain_slots& slots_;
  std::vector<choice> choices_[2];  // by segment_input: for each pair first <= last
};

/// The plan that recomputes in the fewest bytes, in the name of a planner. Where it does not fit, no plan of rotor
/// does. @throws config_error   the chain or the budget is invalid
[[nodiscard]] inline activation_plan recompute_in_fewest_bytes(std::string_view planner, const layer_chain& chain,
                                                               const activation_budget& budget)
{
  budget.check(chain);
  activation_plan plan;
  plan.planner = planner;
  plan.inner_leaves.assign(chain.size(), 0);
  plan.input_leaves.assign(chain.size(), 0);
  const chain_slots sizes = chain_slots::of_bytes(chain, budget);
  smallest_rooms{sizes}.append_steps(0, chain.size() - 1, segment_input::ends, plan.steps);
  cost_plan(plan, chain, budget);
  return plan;
}

/// Recomputes without swaps, in the least time that memory allows: a forward run may start from any kept input.
///
///     const activation_plan plan = rotor{}.plan(chain, budget);
///
/// Sizes are rounded up to slots: the budget has 500 of them, and fewer for chains of more than 50 blocks. So the table
/// has more slots than the budget, and the fastest of its plans that fits in bytes is taken. Where none fits, the plan
/// is the one with the fewest bytes: a chain is refused only where no such plan fits. Good where the links are slow, or
/// busy. Poor where the links have time to spare: see pofo. Skips alone may leave the device. Source: rotor (Beaumont
/// et al. 2019, arXiv 1911.13214). Cost: O(blocks^3 slots), 0.5 s for 200 blocks.
class rotor {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "rotor";

  rotor() = default;
  /// @param slots   that the budget is divided into, at most; 0: by the number of blocks
  explicit rotor(std::uint32_t slots) : slots_{slots} {}

  /// @throws config_error   the chain or the budget is invalid
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    return better_with_skips(chain, budget, [&](const layer_chain& plain) { return plan_plain(plain, budget); });
  }

  /// A number of slots that takes about a third of a second.
  [[nodiscard]] static std::uint32_t slots_for(std::uint32_t blocks)
  {
    const double cubes = std::pow(double(blocks), 3) / 6;
    return static_cast<std::uint32_t>(std::clamp(2e8 / cubes, 50.0, 500.0));
  }

 private:
  [[nodiscard]] activation_plan plan_plain(const layer_chain& chain, const activation_budget& budget) const
  {
    const std::uint32_t last = chain.size() - 1;
    const chain_slots slots{chain, budget, slots_ > 0 ? slots_ : slots_for(chain.size())};
    // Rounding costs half a slot for each kept tensor, on average.
    const std::uint64_t lost =
        slots.bytes_per_slot > 1 ? std::min<std::uint64_t>(chain.size() / 2 + 1, slots.budget / 4) : 0;
    const rotor_table table{slots, slots.budget + lost};
    const auto seconds = [&](std::uint64_t all) {
      return table.seconds(0, last, static_cast<std::int64_t>(all) - static_cast<std::int64_t>(slots.input[0]),
                           segment_input::ends);
    };
    for (std::uint64_t all = slots.budget + lost;; --all) {
      if (seconds(all) == rotor_table::never) break;
      if (all > slots.budget && seconds(all) == seconds(all - 1)) continue;  // fewer slots are enough
      activation_plan plan;
      plan.planner = name;
      plan.inner_leaves.assign(chain.size(), 0);
      plan.input_leaves.assign(chain.size(), 0);
      table.append_steps(0, last, static_cast<std::int64_t>(all - slots.input[0]), segment_input::ends, plan.steps);
      cost_plan(plan, chain, budget);
      if (plan.costs.fits) return plan;
      if (all == slots.budget) break;
    }
    return recompute_in_fewest_bytes(name, chain, budget);
  }

  std::uint32_t slots_ = 0;
};

static_assert(activation_planner<rotor>);

}  // namespace activation

}  // namespace chunkmem::inline v0
