// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/activation/rotor.hpp>
#include <chunkmem/core/bytes.hpp>

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

/// The least seconds of a step with swaps and recomputed segments, in the model of POFO.
///
/// A state describes the moment before a stage's first run: `kept` slots of earlier tensors stay on the device;
/// `leaving` slots are on their way to the host; `owed` slots have to be back when the backward run of this stage has
/// ended. The stage's input lies on the device as well: alone, or with all that the stage before saved (`full`).
///
/// - A stage saves all. Where its run has too little room, it waits for copies. Where its input is alone, and its
///   backward run does not read the input, the input ends with the forward run.
/// - Or the stages i to j pass, and run again later by a rotor_table, in the room that is left when all owed slots are
///   back.
/// - Each other input, of the stage or of the segment, stays or leaves.
///
/// Slots that a link moves during a run are rounded down. The value of a state does not depend on the states before, so
/// the table is filled from the last stage to the first. Source: POFO (Beaumont et al. 2021, NeurIPS). Cost:
/// O(stages^2 slots^3) time, O(stages slots^3) memory, with 1/3 as factor.
///
/// Use:
///
///     const pofo_table table{slots, to_host, to_device};   // slots per second
///     if (table.seconds() < pofo_table::never) table.append_steps(plan);
class pofo_table {
 public:
  static constexpr double never = std::numeric_limits<double>::infinity();

  /// @param slots   outlives the table
  pofo_table(const chain_slots& slots, double to_host, double to_device)
      : slots_{slots}, to_host_{to_host}, to_device_{to_device}, stages_{slots.stages()}, again_{slots, slots.budget}
  {
    first_passed_.push_back(0);
    for (const double seconds : slots.forward) first_passed_.push_back(first_passed_.back() + seconds);
    values_.assign(stages_ * std::size_t{2}, {});
    for (std::uint32_t stage = stages_; stage-- > 0;)
      for (const bool full : {false, true})
        if (!full || stage > 0) fill(stage, full);
  }

  [[nodiscard]] double seconds() const noexcept { return value({0, false, 0, 0, 0}); }

  /// Appends a fastest schedule to a plan without steps, and sets the tensors that leave. @pre seconds() is finite
  void append_steps(activation_plan& plan) const
  {
    plan.inner_leaves.assign(stages_, 0);
    plan.input_leaves.assign(stages_, 0);
    append(plan, {0, false, 0, 0, 0});
  }

 private:
  struct state {
    std::uint32_t stage = 0;
    bool full = false;
    std::uint32_t kept = 0;
    std::uint32_t leaving = 0;
    std::uint32_t owed = 0;
  };
  /// The best decision in a state.
  struct decision {
    double seconds = never;
    std::uint32_t last = 0;  ///< of the segment that passes
    bool saves = false;
    bool leaves = false;
    state next;
  };

  [[nodiscard]] std::uint32_t input(std::uint32_t stage, bool full) const noexcept
  {
    return static_cast<std::uint32_t>(full ? slots_.saved[stage - 1] : slots_.input[stage]);
  }
  /// 1 + 4 + 9 + ... + count^2: states of `leaving` and `owed`, a square for each number of kept slots.
  [[nodiscard]] static std::size_t squares(std::size_t count) noexcept
  {
    return count * (count + 1) * (2 * count + 1) / 6;
  }
  [[nodiscard]] std::size_t index(const state& it) const noexcept
  {
    const std::size_t all = slots_.budget + std::size_t{1} - input(it.stage, it.full);
    const std::size_t width = all - it.kept;
    return squares(all) - squares(width) + it.leaving * width + it.owed;
  }
  [[nodiscard]] double value(const state& it) const noexcept
  {
    const std::uint64_t full = std::uint64_t{it.kept} + input(it.stage, it.full);
    if (full + std::max(it.leaving, it.owed) > slots_.budget) return never;
    return values_[it.stage * std::size_t{2} + (it.full ? 1 : 0)][index(it)];
  }

  void fill(std::uint32_t stage, bool full)
  {
    std::vector<double>& out = values_[stage * std::size_t{2} + (full ? 1 : 0)];
    const std::uint32_t own = input(stage, full);
    if (own > slots_.budget) return;
    const auto most = static_cast<std::uint32_t>(slots_.budget - own);
    out.assign(squares(most + std::size_t{1}), never);
    for (std::uint32_t kept = 0; kept <= most; ++kept)
      for (std::uint32_t leaving = 0; leaving + kept <= most; ++leaving)
        for (std::uint32_t owed = 0; owed + kept <= most; ++owed) {
          const state it{stage, full, kept, leaving, owed};
          out[index(it)] = decide(it).seconds;
        }
  }

  [[nodiscard]] decision decide(const state& it) const
  {
    const std::int64_t room = room_of(it);
    decision best;
    save(it, room, best);
    double passed = 0;
    std::int64_t deepest = INT64_MIN;  // slots that passing runs need, beyond what the link moved until then
    for (std::uint32_t last = it.stage; last + 1 < stages_; ++last) {
      const auto needed = static_cast<std::int64_t>(slots_.passing_limit(it.stage, last, stages_ - 1));
      if (needed > room) break;
      deepest = std::max(deepest, needed - moved(to_host_, passed));
      passed = first_passed_[last + 1] - first_passed_[it.stage];
      pass(it, room, last, std::max<std::int64_t>(0, deepest - (room - it.leaving)), best);
    }
    return best;
  }

  /// Slots without those that earlier stages keep and without the input of this stage.
  [[nodiscard]] std::int64_t room_of(const state& it) const noexcept
  {
    return static_cast<std::int64_t>(slots_.budget) - it.kept - input(it.stage, it.full);
  }
  /// An input that the stage before saved stays for its backward run.
  [[nodiscard]] static segment_input fate_of(const state& it) noexcept
  {
    return it.full ? segment_input::stays : segment_input::ends;
  }
  [[nodiscard]] static std::int64_t moved(double rate, double seconds) noexcept
  {
    return static_cast<std::int64_t>(std::min(std::floor(rate * seconds), 1e9));
  }
  [[nodiscard]] static double stall(std::int64_t slots, double rate) noexcept
  {
    return slots == 0 ? 0 : static_cast<double>(slots) / rate;
  }

  /// The stage saves all that backward needs.
  void save(const state& it, std::int64_t room, decision& best) const
  {
    const std::uint32_t s = it.stage;
    const bool ends = !it.full && slots_.reads_input[s] == 0;
    const auto forward = static_cast<std::int64_t>(slots_.saved[s] + slots_.forward_working[s]);
    const auto backward = static_cast<std::int64_t>(slots_.backward_limit(s));
    const std::int64_t way_back = room + static_cast<std::int64_t>(slots_.freed(s, fate_of(it)));
    if (forward > room || backward > way_back) return;
    const std::int64_t out_stall = std::max<std::int64_t>(0, forward - (room - it.leaving));
    const std::int64_t back_stall = std::max<std::int64_t>(0, backward - (way_back - it.owed));
    const std::int64_t out = moved(to_host_, slots_.forward[s]) + out_stall;
    const std::int64_t back = moved(to_device_, slots_.backward[s]) + back_stall;
    const double own =
        slots_.forward[s] + slots_.backward[s] + stall(out_stall, to_host_) + stall(back_stall, to_device_);
    if (s + 1 < stages_) return go_on(it, {own, s, true, false, {s + 1, true, 0, 0, 0}}, out, back, ends, best);
    const std::int64_t leaving = std::max<std::int64_t>(0, it.leaving - out);
    const std::int64_t owed = std::max<std::int64_t>(0, it.owed - back);
    const double seconds = own + stall(leaving, to_host_) + stall(owed, to_device_);
    if (seconds < best.seconds) best = {seconds, s, true, false, {stages_, true, 0, 0, 0}};
  }

  /// The stages up to `last` pass, and run again on the way back.
  void pass(const state& it, std::int64_t room, std::uint32_t last, std::int64_t out_stall, decision& best) const
  {
    const double again = again_.seconds(it.stage, last, room - it.owed, fate_of(it));
    if (again == never) return;
    const double passed = first_passed_[last + 1] - first_passed_[it.stage];
    const double own = passed + stall(out_stall, to_host_) + again;
    go_on(it, {own, last, false, false, {last + 1, false, 0, 0, 0}}, moved(to_host_, passed) + out_stall,
          moved(to_device_, again), false, best);
  }

  /// @param ends   the input is dead: it neither stays nor leaves
  void go_on(const state& it, decision way, std::int64_t out, std::int64_t back, bool ends, decision& best) const
  {
    const std::uint32_t own = ends ? 0 : input(it.stage, it.full);
    const auto rest = [](std::int64_t slots) { return static_cast<std::uint32_t>(std::max<std::int64_t>(0, slots)); };
    const double before = way.seconds;
    for (const bool leaves : {false, true}) {
      if (leaves && ends) break;
      way.leaves = leaves;
      way.next.kept = it.kept + (leaves ? 0 : own);
      way.next.leaving = rest(std::int64_t{it.leaving} + (leaves ? own : 0) - out);
      way.next.owed = rest(std::int64_t{it.owed} - back) + (leaves ? own : 0);
      way.seconds = before + value(way.next);
      if (way.seconds < best.seconds) best = way;
    }
  }

  void append(activation_plan& plan, const state& it) const
  {
    const decision way = decide(it);
    if (way.leaves) {
      plan.input_leaves[it.stage] = 1;
      if (it.full) plan.inner_leaves[it.stage - 1] = 1;
    }
    if (way.saves) {
      plan.steps.push_back({chain_run::saving, it.stage});
      if (it.stage + 1 < stages_) append(plan, way.next);
      plan.steps.push_back({chain_run::backward, it.stage});
      return;
    }
    for (std::uint32_t stage = it.stage; stage <= way.last; ++stage) plan.steps.push_back({chain_run::passing, stage});
    append(plan, way.next);
    again_.append_steps(it.stage, way.last, room_of(it) - it.owed, fate_of(it), plan.steps);
  }

  const chain_slots& slots_;
  double to_host_;
  double to_device_;
  std::uint32_t stages_;
  rotor_table again_;
  std::vector<double> first_passed_;         // by stage: the first runs of all stages before
  std::vector<std::vector<double>> values_;  // two for each stage, by `full`: a value for each kept, leaving and owed
};

/// Swaps inputs and saved tensors, and recomputes segments between them, by a dynamic program over memory and links.
///
///     const activation_plan plan = pofo{}.plan(chain, budget);
///
/// Sizes are rounded up to slots, fewer than rotor has. So budgets with a few slots more are tried too, and the best
/// plan that fits in bytes is taken; the plan of rotor is a candidate as well. The program counts seconds in slots; the
/// plan has the seconds of the virtual clocks. Good for short chains. Poor above some 60 blocks: the slots are few
/// then. Source: POFO (Beaumont et al. 2021, NeurIPS). Cost: O(blocks^2 slots^3), half a minute for 200 blocks.
class pofo {
 public:
  using policy_kind = activation_kind;
  static constexpr std::string_view name = "pofo";

  pofo() = default;
  /// @param slots   that the budget is divided into, at most; 0: by the number of blocks
  explicit pofo(std::uint32_t slots) : slots_{slots} {}

  /// @throws config_error   the chain or the budget is invalid
  [[nodiscard]] activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    return better_with_skips(chain, budget, [&](const layer_chain& plain) { return plan_plain(plain, budget); });
  }

  /// As many slots as take half a minute for 200 blocks, and less for fewer blocks; 30 to 80.
  [[nodiscard]] static std::uint32_t slots_for(std::uint32_t blocks)
  {
    return static_cast<std::uint32_t>(std::clamp(std::cbrt(6e8 / (double(blocks) * blocks)), 30.0, 80.0));
  }

 private:
  [[nodiscard]] activation_plan plan_plain(const layer_chain& chain, const activation_budget& budget) const
  {
    activation_plan best = rotor{}.plan(chain, budget);
    best.planner = name;
    const std::uint32_t most = slots_ > 0 ? slots_ : slots_for(chain.size());
    for (const double more : {0.0, 0.25, 0.5}) {  // slots that rounding costs for each tensor
      activation_budget wider = budget;
      wider.device = widened(budget.device, more * chain.size() / most);
      const chain_slots slots{chain, wider, most};
      consider(best, slots, chain, budget);
      if (slots.bytes_per_slot == 1) break;  // nothing was rounded
    }
    return best;
  }

  static bytes widened(bytes device, double part)
  {
    const double more = static_cast<double>(device.count()) * std::min(part, 0.5);
    const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - device.count();
    return more < static_cast<double>(room) ? device + bytes{static_cast<std::uint64_t>(more)} : device;
  }
  static void consider(activation_plan& best, const chain_slots& slots, const layer_chain& chain,
                       const activation_budget& budget)
  {
    if (slots.input[0] > slots.budget) return;
    const pofo_table table{slots, budget.to_host_bytes_per_second / slots.bytes_per_slot,
                           budget.to_device_bytes_per_second / slots.bytes_per_slot};
    if (table.seconds() == pofo_table::never) return;
    activation_plan plan;
    plan.planner = name;
    table.append_steps(plan);
    cost_plan(plan, chain, budget);
    if (is_better(plan.costs, best.costs)) best = std::move(plan);
  }

  std::uint32_t slots_ = 0;
};

static_assert(activation_planner<pofo>);

}  // namespace activation

}  // namespace chunkmem::inline v0
