// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/find_fault.hpp>
#include <chunkmem/pipeline/interruption.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

namespace detail {

/// Puts sends and receives into lists that have none. See add_transfers.
class transfer_placement {
 public:
  transfer_placement(schedule& plan, const pass_seconds& seconds, const interruption& stop)
      : plan_{plan}, seconds_{with_lengths(seconds)}, stop_{stop}
  {
  }

  void run()
  {
    add_sends();
    const schedule draft = with_receives_first();
    const pipeline_costs costs = uniform_costs(draft, seconds_);
    const pipeline_times times = pipeline_timeline{draft, costs, stop_}.run(true);
    stop_.look();
    place_receives(draft, times);
    for (std::uint32_t stage = 0; stage < plan_.stage_count(); ++stage) insert_receives(stage);
  }

 private:
  using enum operation_kind;

  struct receive_place {
    operation step{};
    std::uint32_t sender = 0;
    std::size_t before = 0;  // the step of the list
  };

  /// A run without a length would place all receives of a batch first.
  [[nodiscard]] static pass_seconds with_lengths(pass_seconds seconds)
  {
    const double least = seconds.all() > 0 ? seconds.all() / 100 : 1;
    for (double* const it : {&seconds.forward, &seconds.backward_input, &seconds.backward_weight})
      *it = std::max(*it, least);
    return seconds;
  }

  void add_sends()
  {
    for (std::vector<operation>& steps : plan_.stages) {
      std::vector<operation> longer;
      for (const operation& step : steps) {
        longer.push_back(step);
        operation send = step;
        if (step.kind == forward && plan_.crosses_after(step.part)) {
          send.kind = send_activation;
          longer.push_back(send);
        } else if ((step.kind == backward || step.kind == backward_input) && plan_.crosses_before(step.part)) {
          send.kind = send_gradient;
          longer.push_back(send);
        }
      }
      steps = std::move(longer);
    }
  }

  /// The receive that has the bytes of a send.
  [[nodiscard]] operation receive_of(const operation& send) const
  {
    operation receive = send;
    receive.kind = send.kind == send_activation ? receive_activation : receive_gradient;
    receive.part = send.kind == send_activation ? send.part + 1 : send.part - 1;
    return receive;
  }

  /// No stage waits to send: each receive comes before everything else.
  [[nodiscard]] schedule with_receives_first() const
  {
    schedule draft = plan_;
    draft.sends_in_flight = UINT32_MAX;
    for (std::vector<operation>& steps : draft.stages) steps.clear();
    for (const std::vector<operation>& steps : plan_.stages)
      for (const operation& step : steps) {
        if (!sends(step.kind)) continue;
        const operation receive = receive_of(step);
        draft.stages[plan_.owners[receive.part]].push_back(receive);
      }
    for (std::uint32_t stage = 0; stage < plan_.stage_count(); ++stage)
      draft.stages[stage].insert(draft.stages[stage].end(), plan_.stages[stage].begin(), plan_.stages[stage].end());
    return draft;
  }

  /// Places each receive before the run during which the bytes are sent, at the latest before the run that reads them,
  /// and for each pair of stages in the order of its sends.
  void place_receives(const schedule& draft, const pipeline_times& times)
  {
    places_.assign(plan_.stage_count(), {});
    index_readers();
    for (std::uint32_t sender = 0; sender < plan_.stage_count(); ++sender) {
      const std::size_t ahead = draft.stages[sender].size() - plan_.stages[sender].size();
      std::vector<std::size_t> latest(plan_.stage_count(), SIZE_MAX);  // by receiver: of the sends after this one
      for (std::size_t index = plan_.stages[sender].size(); index-- > 0;) {
        const operation& send = plan_.stages[sender][index];
        if (!sends(send.kind)) continue;
        const operation receive = receive_of(send);
        const std::uint32_t receiver = plan_.owners[receive.part];
        const std::size_t at = running_at(draft, times, receiver, times.steps[sender][ahead + index].begin);
        latest[receiver] = std::min({latest[receiver], at, reader_of(receive)});
        places_[receiver].push_back({receive, sender, latest[receiver]});
      }
    }
  }

  /// The last run of a stage that begins before this time, as a step of its list without receives; 0: none.
  [[nodiscard]] std::size_t running_at(const schedule& draft, const pipeline_times& times, std::uint32_t stage,
                                       double seconds) const
  {
    const std::size_t ahead = draft.stages[stage].size() - plan_.stages[stage].size();
    std::size_t first = 0;  // runs_[stage][first - 1] begins before, runs_[stage][first] does not
    std::size_t last = runs_[stage].size();
    while (first < last) {
      const std::size_t middle = first + (last - first) / 2;
      if (times.steps[stage][ahead + runs_[stage][middle]].begin < seconds) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first == 0 ? 0 : runs_[stage][first - 1];
  }

  void index_readers()
  {
    const std::size_t cells = std::size_t{plan_.part_count()} * plan_.all_micro_batches();
    readers_.assign(2 * cells, SIZE_MAX);
    runs_.assign(plan_.stage_count(), {});
    for (std::uint32_t stage = 0; stage < plan_.stage_count(); ++stage)
      for (std::size_t index = 0; index < plan_.stages[stage].size(); ++index) {
        const operation& step = plan_.stages[stage][index];
        if (computes(step.kind)) runs_[stage].push_back(index);
        const std::size_t cell = plan_.cell_of(step);
        if (step.kind == forward) readers_[cell] = index;
        if (step.kind == backward || step.kind == backward_input) readers_[cells + cell] = index;
      }
  }
  [[nodiscard]] std::size_t reader_of(const operation& receive) const
  {
    return readers_[(receive.kind == receive_gradient ? readers_.size() / 2 : 0) + plan_.cell_of(receive)];
  }

  void insert_receives(std::uint32_t stage)
  {
    std::vector<receive_place>& places = places_[stage];  // by sender, the last send first
    std::ranges::reverse(places);
    std::ranges::stable_sort(places, {}, &receive_place::before);
    std::vector<operation> longer;
    std::size_t next = 0;
    for (std::size_t index = 0; index < plan_.stages[stage].size(); ++index) {
      for (; next < places.size() && places[next].before <= index; ++next) longer.push_back(places[next].step);
      longer.push_back(plan_.stages[stage][index]);
    }
    plan_.stages[stage] = std::move(longer);
  }

  schedule& plan_;
  pass_seconds seconds_;
  const interruption& stop_;
  std::vector<std::vector<receive_place>> places_;  // by receiver
  std::vector<std::vector<std::size_t>> runs_;      // by stage: its steps that compute
  std::vector<std::size_t> readers_;                // by direction, part and micro-batch: the step that reads
};

}  // namespace detail

/// Adds the sends and receives that the runs of a schedule need.
///
/// A send follows the run that makes its bytes. A receive comes before the last run of its stage that began before the
/// bytes are sent, with these times. So sent bytes have a buffer of the receiver, no sender waits for its receiver, and
/// a transfer overlaps with a run. With other times a sender may wait, but never forever.
///
/// @pre   find_fault_in_orders(plan) finds nothing
/// @throws config_error   runs wait for each other forever
/// @throws interrupted    the caller wants to end
/// @complexity            O(steps log steps)
inline void add_transfers(schedule& plan, const pass_seconds& seconds, const interruption& stop = {})
{
  detail::transfer_placement{plan, seconds, stop}.run();
}

/// The whole schedule of a generator, checked.
///
///     const schedule plan = make_schedule(pipedream_2bw{}, {.stages = 4, .micro_batches = 8, .batches = 10});
///
/// @param stop   checked between the passes over the steps, and within the longest of them
/// @throws config_error   the shape is impossible, the generator refuses it, or its orders have a fault
/// @throws interrupted    the caller wants to end
template <schedule_generator Generator>
[[nodiscard]] schedule make_schedule(const Generator& generator, const pipeline_shape& shape,
                                     const interruption& stop = {})
{
  shape.check();
  schedule plan = generator.orders(shape);
  stop.look();
  if (const auto found = find_fault_in_orders(plan)) throw config_error{found->text()};
  add_transfers(plan, shape.seconds, stop);
  stop.look();
  check_schedule(plan);
  return plan;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
