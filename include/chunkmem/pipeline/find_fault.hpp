// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

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
    "the stages wait for each other forever",
};

/// The first fault of a schedule, and its place.
///
///     if (const auto found = find_fault(plan)) std::puts(found->text().c_str());
struct schedule_finding {
  static constexpr std::uint32_t nowhere = UINT32_MAX;

  schedule_fault fault = schedule_fault::no_stage;
  std::uint32_t stage = nowhere;  ///< `nowhere`: the fault is one of the whole schedule
  std::uint32_t index = nowhere;  ///< in the stage's list; `nowhere`: a missing step
  operation step{};               ///< that step, or the missing one

  /// @param file   name of the schedule's file; empty: none
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

namespace detail {

[[nodiscard]] constexpr std::uint16_t bit_of(operation_kind kind) noexcept
{
  return static_cast<std::uint16_t>(1U << static_cast<unsigned>(kind));
}

/// Looks for the first fault of a schedule. See find_fault.
class schedule_check {
 public:
  /// @param has_transfers   false: the schedule has the orders of a generator, without sends and receives
  schedule_check(const schedule& plan, bool has_transfers) : plan_{plan}, has_transfers_{has_transfers} {}

  [[nodiscard]] std::optional<schedule_finding> run()
  {
    if (const auto fault = fault_of_numbers()) return schedule_finding{.fault = *fault};
    seen_.assign(std::size_t{plan_.part_count()} * plan_.all_micro_batches(), 0);
    made_.assign(plan_.part_count(), 0);
    added_.assign(std::size_t{plan_.part_count()} * plan_.batches, 0);
    for (stage_ = 0; stage_ < plan_.stage_count(); ++stage_)
      if (!read_stage()) return found_;
    if (!is_complete() || (has_transfers_ && (!orders_match() || !ends()))) return found_;
    return std::nullopt;
  }

 private:
  using enum operation_kind;
  using mask = std::uint16_t;

  bool refuse(schedule_fault fault, std::uint32_t stage, std::uint32_t index, const operation& step)
  {
    found_ = {fault, stage, index, step};
    return false;
  }

  /// Faults of numbers alone, found before any step is read, so that a short schedule cannot need much memory.
  [[nodiscard]] std::optional<schedule_fault> fault_of_numbers() const
  {
    using enum schedule_fault;
    if (plan_.stages.empty() || plan_.owners.empty()) return no_stage;
    if (plan_.micro_batches == 0 || plan_.batches == 0 || plan_.versions == 0 || plan_.gradient_sets == 0 ||
        plan_.sends_in_flight == 0)
      return number_is_zero;
    if (std::uint64_t{plan_.micro_batches} * plan_.batches > INT32_MAX) return number_too_large;
    std::vector<std::uint8_t> owns(plan_.stage_count(), 0);
    for (const std::uint32_t owner : plan_.owners) {
      if (owner >= plan_.stage_count()) return owner_unknown;
      owns[owner] = 1;
    }
    if (std::ranges::count(owns, 0) != 0) return stage_without_part;
    std::uint64_t steps = 0;
    for (const std::vector<operation>& list : plan_.stages) steps += list.size();
    // Each micro-batch has at least two runs in each part.
    if (std::uint64_t{plan_.part_count()} * plan_.all_micro_batches() > steps) return run_missing;
    return std::nullopt;
  }

  // --- The steps of a stage, in order ---

  bool read_stage()
  {
    const std::vector<operation>& steps = plan_.stages[stage_];
    for (index_ = 0; index_ < steps.size(); ++index_) {
      const operation& step = steps[index_];
      if (const auto fault = fault_of(step)) return refuse(*fault, stage_, index_, step);
    }
    return true;
  }

  [[nodiscard]] std::optional<schedule_fault> fault_of(const operation& step)
  {
    using enum schedule_fault;
    if (static_cast<std::size_t>(step.kind) >= operation_names.size()) return kind_unknown;
    if (step.part >= plan_.part_count() || step.micro_batch >= plan_.all_micro_batches()) return number_too_large;
    if (plan_.owners[step.part] != stage_) return wrong_stage;
    if (step.kind == update) return fault_of_update(step);
    mask& seen = seen_[plan_.cell_of(step)];
    if ((seen & bit_of(step.kind)) != 0) return step_repeated;
    const auto fault = computes(step.kind)                           ? fault_of_run(step, seen)
                       : step.kind == offload || step.kind == reload ? fault_of_copy(step, seen)
                                                                     : fault_of_crossing(step, seen);
    seen = static_cast<mask>(seen | bit_of(step.kind));
    return fault;
  }

  [[nodiscard]] std::optional<schedule_fault> fault_of_run(const operation& step, mask seen)
  {
    using enum schedule_fault;
    if (const auto fault = fault_of_version(step)) return fault;
    switch (step.kind) {
      case forward:
        if (!has_input(step, seen)) return run_before_input;
        break;
      case recompute:
        if ((seen & bit_of(forward)) == 0 || (seen & (any_backward | bit_of(offload))) != 0) return recompute_misplaced;
        break;
      case backward_weight:
        if ((seen & bit_of(backward)) != 0) return backward_mixed;
        if ((seen & bit_of(backward_input)) == 0) return weight_before_input_gradient;
        break;
      default:
        if ((seen & any_backward) != 0) return backward_mixed;
        if ((seen & bit_of(forward)) == 0) return backward_before_forward;
        if ((seen & bit_of(offload)) != 0 && (seen & bit_of(reload)) == 0) return reload_missing;
        if (!has_output_gradient(step, seen)) return run_before_input;
    }
    return step.kind == backward || step.kind == backward_weight ? fault_of_gradient(step) : std::nullopt;
  }

  /// No run reads a version that has been dropped: the update that drops it comes after all runs of its batch.
  [[nodiscard]] std::optional<schedule_fault> fault_of_version(const operation& step) const
  {
    using enum schedule_fault;
    if (step.version != plan_.version_of(step.micro_batch)) return version_wrong;
    if (step.version > made_[step.part]) return version_not_made;
    return std::nullopt;
  }

  /// A gradient adds to its batch's set, which an earlier batch may still use.
  [[nodiscard]] std::optional<schedule_fault> fault_of_gradient(const operation& step)
  {
    const std::uint32_t batch = plan_.batch_of(step.micro_batch);
    if (batch >= made_[step.part] && batch - made_[step.part] >= plan_.gradient_sets)
      return schedule_fault::gradients_in_use;
    ++added_[std::size_t{step.part} * plan_.batches + batch];
    return std::nullopt;
  }

  [[nodiscard]] std::optional<schedule_fault> fault_of_update(const operation& step)
  {
    const std::uint32_t batch = made_[step.part];
    if (batch == plan_.batches || step.version != batch + 1 ||
        step.micro_batch != (batch + 1) * plan_.micro_batches - 1 ||
        added_[std::size_t{step.part} * plan_.batches + batch] != plan_.micro_batches)
      return schedule_fault::update_misplaced;
    ++made_[step.part];
    return std::nullopt;
  }

  [[nodiscard]] static std::optional<schedule_fault> fault_of_copy(const operation& step, mask seen)
  {
    const mask before = step.kind == offload ? bit_of(forward) : bit_of(offload);
    if ((seen & before) == 0 || (seen & (any_backward | bit_of(recompute))) != 0) return schedule_fault::copy_misplaced;
    return std::nullopt;
  }

  [[nodiscard]] std::optional<schedule_fault> fault_of_crossing(const operation& step, mask seen) const
  {
    using enum schedule_fault;
    const bool is_down = step.kind == send_activation || step.kind == receive_gradient;  // to or from the next part
    if (!has_transfers_) return transfer_in_orders;
    if (!(is_down ? plan_.crosses_after(step.part) : plan_.crosses_before(step.part))) return crossing_within_stage;
    if (step.kind == send_activation && (seen & bit_of(forward)) == 0) return send_before_run;
    if (step.kind == send_gradient && (seen & makes_gradient) == 0) return send_before_run;
    return std::nullopt;
  }

  [[nodiscard]] bool has_input(const operation& step, mask seen) const
  {
    if (step.part == 0) return true;
    if (plan_.crosses_before(step.part)) return !has_transfers_ || (seen & bit_of(receive_activation)) != 0;
    return (seen_[plan_.cell_of(step) - plan_.all_micro_batches()] & bit_of(forward)) != 0;
  }
  [[nodiscard]] bool has_output_gradient(const operation& step, mask seen) const
  {
    if (step.part + 1 == plan_.part_count()) return true;
    if (plan_.crosses_after(step.part)) return !has_transfers_ || (seen & bit_of(receive_gradient)) != 0;
    return (seen_[plan_.cell_of(step) + plan_.all_micro_batches()] & makes_gradient) != 0;
  }

  // --- All of them ---

  /// All receives exist: a run without its receive was refused.
  bool is_complete()
  {
    using enum schedule_fault;
    for (std::uint32_t part = 0; part < plan_.part_count(); ++part) {
      const std::uint32_t stage = plan_.owners[part];
      for (std::uint32_t micro_batch = 0; micro_batch < plan_.all_micro_batches(); ++micro_batch) {
        const mask seen = seen_[std::size_t{part} * plan_.all_micro_batches() + micro_batch];
        const auto lacks = [&](operation_kind kind) { return (seen & bit_of(kind)) == 0; };
        const auto missing = [&](schedule_fault fault, operation_kind kind) {
          return refuse(fault, stage, schedule_finding::nowhere,
                        {kind, part, micro_batch, plan_.version_of(micro_batch)});
        };
        if (lacks(forward)) return missing(run_missing, forward);
        if (lacks(backward) && lacks(backward_input)) return missing(run_missing, backward);
        if (lacks(backward) && lacks(backward_weight)) return missing(run_missing, backward_weight);
        if (has_transfers_ && plan_.crosses_after(part) && lacks(send_activation))
          return missing(send_missing, send_activation);
        if (has_transfers_ && plan_.crosses_before(part) && lacks(send_gradient))
          return missing(send_missing, send_gradient);
      }
      if (made_[part] != plan_.batches)
        return refuse(update_missing, stage, schedule_finding::nowhere,
                      {update, part, (made_[part] + 1) * plan_.micro_batches - 1, made_[part] + 1});
    }
    return true;
  }

  /// A send or receive as both ends know it.
  struct crossing {
    bool is_gradient = false;
    std::uint32_t part = 0;  // the receiving part
    std::uint32_t micro_batch = 0;

    [[nodiscard]] bool operator==(const crossing&) const = default;
  };
  [[nodiscard]] static crossing crossing_of(const operation& step)
  {
    const bool is_gradient = step.kind == send_gradient || step.kind == receive_gradient;
    const std::uint32_t part = step.kind == send_activation ? step.part + 1
                               : step.kind == send_gradient ? step.part - 1
                                                            : step.part;
    return {is_gradient, part, step.micro_batch};
  }
  [[nodiscard]] std::uint32_t peer_of(const operation& step) const
  {
    const bool is_down = step.kind == send_activation || step.kind == receive_gradient;
    return plan_.owners[is_down ? step.part + 1 : step.part - 1];
  }

  bool orders_match()
  {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<crossing>> sent;  // from a stage to another one
    for (std::uint32_t stage = 0; stage < plan_.stage_count(); ++stage)
      for (const operation& step : plan_.stages[stage])
        if (sends(step.kind)) sent[{stage, peer_of(step)}].push_back(crossing_of(step));
    for (std::uint32_t stage = 0; stage < plan_.stage_count(); ++stage) {
      const std::vector<operation>& steps = plan_.stages[stage];
      for (std::uint32_t index = 0; index < steps.size(); ++index) {
        if (!receives(steps[index].kind)) continue;
        std::deque<crossing>& next = sent[{peer_of(steps[index]), stage}];
        if (next.front() != crossing_of(steps[index]))
          return refuse(schedule_fault::crossing_order, stage, index, steps[index]);
        next.pop_front();
      }
    }
    return true;
  }

  /// Runs the steps without times: a stage stops where it waits for a step of another stage.
  bool ends()
  {
    const std::size_t cells = seen_.size();
    std::vector<std::uint8_t> reached(2 * cells, 0);  // by crossing: the ends that reached it
    std::vector<std::vector<std::size_t>> sent(plan_.stage_count());
    std::vector<std::size_t> next(plan_.stage_count(), 0);
    const auto crossing_index = [&](const crossing& it) {
      return (it.is_gradient ? cells : 0) + std::size_t{it.part} * plan_.all_micro_batches() + it.micro_batch;
    };
    const auto waits = [&](std::uint32_t stage, const operation& step) {
      if (sends(step.kind))
        return sent[stage].size() >= plan_.sends_in_flight &&
               reached[sent[stage][sent[stage].size() - plan_.sends_in_flight]] < 2;
      if (step.kind == forward) return plan_.crosses_before(step.part) && reached[plan_.cell_of(step)] < 2;
      if (step.kind == backward || step.kind == backward_input)
        return plan_.crosses_after(step.part) && reached[cells + plan_.cell_of(step)] < 2;
      return false;
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t stage = 0; stage < plan_.stage_count(); ++stage)
        for (; next[stage] < plan_.stages[stage].size(); ++next[stage], moved = true) {
          const operation& step = plan_.stages[stage][next[stage]];
          if (waits(stage, step)) break;
          if (!sends(step.kind) && !receives(step.kind)) continue;
          const std::size_t which = crossing_index(crossing_of(step));
          ++reached[which];
          if (sends(step.kind)) sent[stage].push_back(which);
        }
    }
    for (std::uint32_t stage = 0; stage < plan_.stage_count(); ++stage)
      if (next[stage] < plan_.stages[stage].size())
        return refuse(schedule_fault::waits_for_ever, stage, static_cast<std::uint32_t>(next[stage]),
                      plan_.stages[stage][next[stage]]);
    return true;
  }

  static constexpr mask makes_gradient = static_cast<mask>(bit_of(backward) | bit_of(backward_input));
  static constexpr mask any_backward = static_cast<mask>(makes_gradient | bit_of(backward_weight));

  const schedule& plan_;
  bool has_transfers_ = true;
  std::uint32_t stage_ = 0;
  std::uint32_t index_ = 0;
  std::vector<mask> seen_;            // by part and micro-batch: the kinds of steps so far
  std::vector<std::uint32_t> made_;   // by part: the newest version
  std::vector<std::uint32_t> added_;  // by part and batch: gradients so far
  schedule_finding found_;
};

}  // namespace detail

/// The first fault of a schedule, or none. A schedule without a fault has no deadlock, and each run reads the weights
/// that its micro-batch should read.
///
/// The rules: each micro-batch has one forward run and one whole backward run in every part, by the stage of that part.
/// A run comes after the runs and receives that make its input. Every boundary between stages has one send and one
/// receive, in the same order on both ends of a pair of stages. No run reads a version before it is made or after it is
/// dropped. An update comes after all gradients of its batch. There is no deadlock.
///
/// Cost: O(steps log stages), and O(steps times stages) where stages wait often.
///
///     if (const auto found = find_fault(plan)) throw config_error{found->text()};
[[nodiscard]] inline std::optional<schedule_finding> find_fault(const schedule& plan)
{
  return detail::schedule_check{plan, true}.run();
}

/// The first fault of the orders of a generator, which have no sends and receives yet, or none. Does not check for
/// deadlocks. Cost: O(steps).
///
///     if (const auto found = find_fault_in_orders(plan)) throw config_error{found->text()};
[[nodiscard]] inline std::optional<schedule_finding> find_fault_in_orders(const schedule& plan)
{
  return detail::schedule_check{plan, false}.run();
}

/// @throws config_error   the schedule has a fault
inline void check_schedule(const schedule& plan)
{
  if (const auto found = find_fault(plan)) throw config_error{found->text()};
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
