// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/find_fault.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

namespace schedules = chunkmem::pipeline;

/// A mistake that is planted in a good schedule, and the errors that may be found: the first error depends on the
/// place.
struct planted_schedule_fault {
  std::string_view name;
  std::vector<schedules::schedule_fault> found;
  std::function<bool(schedules::schedule&, dice&)> plant;  ///< false: this schedule has no place for it
};

namespace detail {

using schedules::operation;
using schedules::operation_kind;
using schedules::schedule;

struct step_place {
  std::size_t stage = 0;
  std::size_t index = 0;
};

/// A random step that satisfies a condition.
template <class Question>
std::optional<step_place> pick_step(const schedule& plan, dice& numbers, const Question& is_wanted)
{
  std::vector<step_place> all;
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage)
    for (std::size_t index = 0; index < plan.stages[stage].size(); ++index)
      if (is_wanted(plan.stages[stage][index])) all.push_back({stage, index});
  if (all.empty()) return std::nullopt;
  return numbers.pick(all);
}
inline auto is(operation_kind kind)
{
  return [kind](const operation& step) { return step.kind == kind; };
}
inline bool comes_back(const operation& step)
{
  return step.kind == operation_kind::backward || step.kind == operation_kind::backward_input;
}

template <class Question>
bool remove_step(schedule& plan, dice& numbers, const Question& is_wanted)
{
  const auto it = pick_step(plan, numbers, is_wanted);
  if (!it) return false;
  auto& steps = plan.stages[it->stage];
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(it->index));
  return true;
}

/// Moves a step next to another one of the same part and micro-batch: directly before the first, or after the last.
template <class Question, class Other>
bool move_step(schedule& plan, dice& numbers, const Question& is_wanted, const Other& is_other, bool before)
{
  const auto it = pick_step(plan, numbers, is_wanted);
  if (!it) return false;
  auto& steps = plan.stages[it->stage];
  const operation moved = steps[it->index];
  const auto other = std::ranges::find_if(steps, [&](const operation& step) {
    return is_other(step) && step.part == moved.part && step.micro_batch == moved.micro_batch;
  });
  if (other == steps.end()) return false;
  const auto from = static_cast<std::ptrdiff_t>(it->index);
  const std::ptrdiff_t to = other - steps.begin();
  if (before ? to > from : to < from) return false;
  steps.erase(steps.begin() + from);
  steps.insert(steps.begin() + to, moved);
  return true;
}

}  // namespace detail

/// The mistakes. A rule of its own finds each of them.
inline std::vector<planted_schedule_fault> planted_schedule_faults()
{
  using namespace detail;
  using enum schedules::schedule_fault;
  using enum operation_kind;
  const auto any_backward = [](const operation& step) { return comes_back(step); };
  std::vector<planted_schedule_fault> all;
  all.push_back({"a forward run is lost",
                 {backward_before_forward, run_before_input, send_before_run, recompute_misplaced, copy_misplaced},
                 [](schedule& plan, dice& numbers) { return remove_step(plan, numbers, is(forward)); }});
  all.push_back({"a step comes twice", {step_repeated, update_misplaced}, [](schedule& plan, dice& numbers) {
                   const auto it = pick_step(plan, numbers, [](const operation&) { return true; });
                   auto& steps = plan.stages[it->stage];
                   const operation again = steps[it->index];
                   steps.push_back(again);
                   return true;
                 }});
  all.push_back(
      {"a backward run comes before its forward run", {backward_before_forward}, [=](schedule& plan, dice& numbers) {
         return move_step(plan, numbers, any_backward, is(forward), true);
       }});
  all.push_back({"a gradient of weights comes before the gradient of the input",
                 {weight_before_input_gradient},
                 [](schedule& plan, dice& numbers) {
                   return move_step(plan, numbers, is(backward_weight), is(backward_input), true);
                 }});
  all.push_back({"a gradient of weights is lost", {run_missing, update_misplaced}, [](schedule& plan, dice& numbers) {
                   return remove_step(plan, numbers, is(backward_weight));
                 }});
  all.push_back({"a step is another stage's", {wrong_stage}, [](schedule& plan, dice& numbers) {
                   const auto it = pick_step(plan, numbers, [](const operation&) { return true; });
                   if (it->stage == 0) return false;
                   auto& steps = plan.stages[it->stage];
                   const operation moved = steps[it->index];
                   steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(it->index));
                   plan.stages[0].insert(plan.stages[0].begin(), moved);
                   return true;
                 }});
  all.push_back({"a send is lost", {send_missing}, [](schedule& plan, dice& numbers) {
                   return remove_step(plan, numbers, [](const operation& step) { return schedules::sends(step.kind); });
                 }});
  all.push_back({"a receive is lost", {run_before_input}, [](schedule& plan, dice& numbers) {
                   return remove_step(plan, numbers,
                                      [](const operation& step) { return schedules::receives(step.kind); });
                 }});
  all.push_back({"a receive comes after the run that reads", {run_before_input}, [](schedule& plan, dice& numbers) {
                   return move_step(plan, numbers, is(receive_activation), is(forward), false);
                 }});
  all.push_back({"two sends change places", {crossing_order, send_before_run}, [](schedule& plan, dice& numbers) {
                   const auto it = pick_step(plan, numbers, is(send_activation));
                   if (!it) return false;
                   auto& steps = plan.stages[it->stage];
                   const operation first = steps[it->index];
                   for (std::size_t index = it->index + 1; index < steps.size(); ++index)
                     if (steps[index].kind == send_activation && steps[index].part == first.part) {
                       std::swap(steps[it->index], steps[index]);
                       return true;
                     }
                   return false;
                 }});
  all.push_back({"a send comes before its run", {send_before_run}, [](schedule& plan, dice& numbers) {
                   return move_step(plan, numbers, is(send_activation), is(forward), true);
                 }});
  all.push_back({"a run reads another version", {version_wrong}, [=](schedule& plan, dice& numbers) {
                   const auto it =
                       pick_step(plan, numbers, [](const operation& step) { return schedules::computes(step.kind); });
                   ++plan.stages[it->stage][it->index].version;
                   return true;
                 }});
  all.push_back({"a forward run comes before its version",
                 {version_not_made, run_before_input},
                 [](schedule& plan, dice& numbers) {
                   const auto it = pick_step(
                       plan, numbers, [](const operation& step) { return step.kind == forward && step.version > 0; });
                   if (!it) return false;
                   auto& steps = plan.stages[it->stage];
                   const operation moved = steps[it->index];
                   const auto made = std::ranges::find_if(steps, [&](const operation& step) {
                     return step.kind == update && step.part == moved.part && step.version == moved.version;
                   });
                   const std::ptrdiff_t to = made - steps.begin();
                   steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(it->index));
                   steps.insert(steps.begin() + to, moved);
                   return true;
                 }});
  all.push_back(
      {"an update comes before a gradient of its batch", {update_misplaced}, [=](schedule& plan, dice& numbers) {
         return move_step(
             plan, numbers, is(update),
             [](const operation& step) { return step.kind == backward || step.kind == backward_weight; }, true);
       }});
  all.push_back({"an update is lost",
                 {update_missing, update_misplaced, version_not_made, gradients_in_use},
                 [](schedule& plan, dice& numbers) { return remove_step(plan, numbers, is(update)); }});
  all.push_back({"a reload is lost", {reload_missing, run_before_input}, [](schedule& plan, dice& numbers) {
                   return remove_step(plan, numbers, is(reload));
                 }});
  all.push_back({"a reload comes before its offload", {copy_misplaced}, [](schedule& plan, dice& numbers) {
                   return move_step(plan, numbers, is(reload), is(offload), true);
                 }});
  all.push_back(
      {"a run is computed again after it came back", {recompute_misplaced}, [](schedule& plan, dice& numbers) {
         const auto it = pick_step(plan, numbers, is(recompute));
         if (!it) return false;
         auto& steps = plan.stages[it->stage];
         const operation moved = steps[it->index];
         steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(it->index));
         steps.push_back(moved);
         return true;
       }});
  all.push_back({"a part that is not there", {number_too_large}, [](schedule& plan, dice& numbers) {
                   const auto it = pick_step(plan, numbers, [](const operation&) { return true; });
                   plan.stages[it->stage][it->index].part = plan.part_count();
                   return true;
                 }});
  all.push_back({"an owner that is not there", {owner_unknown}, [](schedule& plan, dice& numbers) {
                   numbers.pick(plan.owners) = plan.stage_count();
                   return true;
                 }});
  return all;
}

/// Two stages that wait for each other: each runs a micro-batch backward before it continues with the other one.
inline schedules::schedule waiting_stages()
{
  using enum schedules::operation_kind;
  schedules::schedule plan;
  plan.name = "waiting";
  plan.micro_batches = 2;
  plan.owners = {0, 1};
  plan.stages = {{{forward, 0, 0, 0},
                  {send_activation, 0, 0, 0},
                  {receive_gradient, 0, 0, 0},
                  {backward, 0, 0, 0},
                  {forward, 0, 1, 0},
                  {send_activation, 0, 1, 0},
                  {receive_gradient, 0, 1, 0},
                  {backward, 0, 1, 0},
                  {update, 0, 1, 1}},
                 {{receive_activation, 1, 0, 0},
                  {forward, 1, 0, 0},
                  {receive_activation, 1, 1, 0},
                  {forward, 1, 1, 0},
                  {backward, 1, 0, 0},
                  {send_gradient, 1, 0, 0},
                  {backward, 1, 1, 0},
                  {send_gradient, 1, 1, 0},
                  {update, 1, 1, 1}}};
  return plan;
}

}  // namespace support
