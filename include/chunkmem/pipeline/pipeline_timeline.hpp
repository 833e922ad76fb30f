// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/interruption.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The times of one part's runs for one micro-batch, and the bytes that they move.
///
///     const part_costs layers{.forward = 0.018, .backward_input = 0.018, .backward_weight = 0.009, .output = 8_MiB};
struct part_costs {
  double forward = 0;          ///< [s]
  double backward_input = 0;   ///< [s]; a whole backward run takes both times
  double backward_weight = 0;  ///< [s]
  double recompute = 0;        ///< [s]
  double gather = 0;           ///< of weights over replicas, in the forward run of a batch's first micro-batch [s]
  double update = 0;           ///< of the weights, with its sums over replicas [s]
  bytes output{};              ///< to the next part, and back as a gradient
  bytes saved{};               ///< that an offload copies to the host, and a reload back

  [[nodiscard]] bool operator==(const part_costs&) const = default;
};

/// A link from one stage to another one, in one direction.
///
/// A transfer takes bytes / bytes_per_second on the link's channel, then `latency`. Links with the same channel share
/// one wire: their transfers are serialized in the order in which both ends are ready. A link with the channel
/// `unshared` never waits, as if the wire carried all transfers at once.
///
///     const stage_link slow{.latency = 14e-6, .bytes_per_second = 12e9, .channel = 0};
struct stage_link {
  static constexpr std::uint32_t unshared = UINT32_MAX;

  double latency = 0;  ///< [s]
  double bytes_per_second = std::numeric_limits<double>::infinity();
  std::uint32_t channel = unshared;

  [[nodiscard]] bool operator==(const stage_link&) const = default;
};

/// The costs of each kind of step on a pipeline.
///
///     pipeline_costs costs = uniform_costs(plan, {.forward = 0.02, .backward_input = 0.02, .backward_weight = 0.01});
///     costs.link(0, 1).bytes_per_second = 2e9;
struct pipeline_costs {
  std::vector<part_costs> parts;
  std::vector<stage_link> links;  ///< from stage a to stage b: element a * stages + b
  std::uint32_t stages = 0;
  double to_host_bytes_per_second = std::numeric_limits<double>::infinity();    ///< of each stage
  double to_device_bytes_per_second = std::numeric_limits<double>::infinity();  ///< of each stage
  bool updates_aside = false;  ///< an update overlaps with the stage's runs, as on a CPU; else it takes their time

  [[nodiscard]] bool operator==(const pipeline_costs&) const = default;
  [[nodiscard]] stage_link& link(std::uint32_t from, std::uint32_t to)
  {
    return links[std::size_t{from} * stages + to];
  }
  [[nodiscard]] const stage_link& link(std::uint32_t from, std::uint32_t to) const
  {
    return links[std::size_t{from} * stages + to];
  }

  /// @throws config_error   other numbers of parts or stages than in the schedule, or an impossible time or rate
  void check(const schedule& plan) const
  {
    if (parts.size() != plan.part_count() || stages != plan.stage_count() ||
        links.size() != std::size_t{stages} * stages)
      throw config_error{error_text{} << "chunkmem: costs of " << parts.size() << " parts and " << stages
                                      << " stages do not fit a schedule of " << plan.part_count() << " parts and "
                                      << plan.stage_count() << " stages (give costs of each part and link)"};
    constexpr double most = std::numeric_limits<double>::max();
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const part_costs& it = parts[part];
      for (const double seconds :
           {it.forward, it.backward_input, it.backward_weight, it.recompute, it.gather, it.update})
        if (!(seconds >= 0 && seconds <= most))
          throw config_error{error_text{} << "chunkmem: a time of part " << part << " is negative or no number"};
    }
    const auto refuse_link = [&](std::size_t index, std::string_view why) {
      throw config_error{error_text{} << "chunkmem: the link from stage " << index / stages << " to stage "
                                      << index % stages << " has " << why};
    };
    for (std::size_t index = 0; index < links.size(); ++index) {
      if (!(links[index].latency >= 0 && links[index].latency <= most))
        refuse_link(index, "a negative latency, or none");
      if (!(links[index].bytes_per_second > 0)) refuse_link(index, "a rate that is not above 0");
      if (links[index].channel != stage_link::unshared && links[index].channel >= links.size())
        refuse_link(index, "a channel that is not below the number of links");
    }
    if (!(to_host_bytes_per_second > 0) || !(to_device_bytes_per_second > 0))
      throw config_error{"a copy rate of a pipeline's stages is not above 0 (give bytes per second)"};
  }
};

/// The same times for every stage, divided equally among its parts, and the same latency for every link.
/// A second forward run takes as long as the first one.
[[nodiscard]] inline pipeline_costs uniform_costs(const schedule& plan, const pass_seconds& seconds)
{
  pipeline_costs costs;
  costs.stages = plan.stage_count();
  costs.links.resize(std::size_t{costs.stages} * costs.stages, stage_link{.latency = seconds.transfer});
  std::vector<double> parts_of(costs.stages, 0);
  for (const std::uint32_t owner : plan.owners) ++parts_of[owner];
  for (const std::uint32_t owner : plan.owners) {
    const double share = 1 / parts_of[owner];
    costs.parts.push_back({.forward = share * seconds.forward,
                           .backward_input = share * seconds.backward_input,
                           .backward_weight = share * seconds.backward_weight,
                           .recompute = share * seconds.forward,
                           .update = share * seconds.update});
  }
  return costs;
}

/// The begin and the end of a step; for a send or a receive, of its transfer.
///
///     const double seconds = times.steps[stage][index].end - times.steps[stage][index].begin;
struct step_time {
  double begin = 0;  ///< [s]
  double end = 0;    ///< [s]
};

/// The times of one stage.
///
///     const double idle = it.last_end - it.first_begin - it.computing;
struct stage_time {
  double first_begin = 0;  ///< of its first run [s]
  double last_end = 0;     ///< of its last run [s]
  double computing = 0;    ///< the sum of its runs [s], with updates that take the stage's time

  [[nodiscard]] double span() const noexcept { return last_end - first_begin; }
};

/// The times of a whole schedule.
///
///     std::printf("%.1f %% idle\n", 100 * times.bubble_rate());
struct pipeline_times {
  double seconds = 0;  ///< until the last step of all stages has ended
  std::vector<stage_time> stages;
  std::vector<std::vector<step_time>> steps;  ///< by stage and place in its list, where they were requested

  /// The longest span of a stage, as zero bubble pipelines (arXiv 2401.10241) count.
  [[nodiscard]] double span() const noexcept
  {
    double longest = 0;
    for (const stage_time& it : stages) longest = std::max(longest, it.span());
    return longest;
  }
  /// The part of that span in which the busiest stage does not compute.
  [[nodiscard]] double bubble_rate() const noexcept
  {
    double busiest = 0;
    for (const stage_time& it : stages) busiest = std::max(busiest, it.computing);
    return span() > 0 ? 1 - busiest / span() : 0;
  }
};

/// Runs a schedule on virtual clocks, event by event.
///
/// - A stage takes its steps in the order of its list, one run at a time.
/// - A run begins when the stage is free, its input has arrived and its version of the weights is made.
/// - A transfer begins when the sender has reached its send and the receiver its receive. Then both continue.
/// - Copies to the host and to the device have a queue each, in order. Overlapping updates have one queue.
/// - The second run after an offload waits for its copy, which frees the bytes.
///
/// The same schedule and costs give the same times on every machine. Events at one time come in the order of stages.
/// Cost: O(steps log stages); 24 bytes for each part and micro-batch and direction.
///
/// Use:
///
///     pipeline_timeline timeline{plan, costs};
///     const pipeline_times times = timeline.run();
class pipeline_timeline {
 public:
  /// Events between two checks of an interruption. An event is a step that takes time, or waits.
  static constexpr std::uint32_t events_between_looks = 256;

  /// @param plan, costs   outlive the timeline   @pre   find_fault(plan) finds nothing, or waits_for_ever
  /// @throws config_error   the costs do not fit
  pipeline_timeline(const schedule& plan, const pipeline_costs& costs, interruption stop = {})
      : plan_{plan}, costs_{costs}, stop_{std::move(stop)}
  {
    costs.check(plan);
  }

  /// @param keep_steps   the result has the times of every step
  /// @throws config_error   the stages wait for each other forever; names a stage and its step
  /// @throws interrupted    the caller wants to end
  [[nodiscard]] pipeline_times run(bool keep_steps = false)
  {
    stop_.look();
    begin(keep_steps);
    for (std::uint32_t stage = 0; stage < plan_.stage_count(); ++stage) resume(stage, 0);
    for (std::uint32_t events = 1; !events_.empty(); ++events) {
      if (events % events_between_looks == 0) stop_.look();
      std::ranges::pop_heap(events_, is_later);
      const event next = events_.back();
      events_.pop_back();
      advance(next.stage, next.seconds);
    }
    for (std::uint32_t stage = 0; stage < plan_.stage_count(); ++stage)
      if (stages_[stage].next < plan_.stages[stage].size())
        throw config_error{error_text{} << "chunkmem: stage " << stage << " waits forever at step "
                                        << stages_[stage].next << " of its schedule"};
    for (stage_time& it : times_.stages)
      if (it.first_begin == unknown) it.first_begin = 0;  // a stage without runs
    return std::move(times_);
  }

 private:
  static constexpr double unknown = -1;
  static constexpr std::size_t nothing = SIZE_MAX;

  struct event {
    double seconds = 0;
    std::uint32_t stage = 0;
  };
  static constexpr auto is_later = [](const event& left, const event& right) {
    return left.seconds != right.seconds ? left.seconds > right.seconds : left.stage > right.stage;
  };

  /// The bytes of one boundary for one micro-batch, in one direction.
  struct crossing {
    double arrival = unknown;
    std::uint32_t sender_step = UINT32_MAX;  // in the lists; UINT32_MAX: not reached yet
    std::uint32_t receiver_step = UINT32_MAX;
  };
  /// A copy to the host, and the run that waits for it.
  struct leaving {
    std::uint64_t run = 0;
    double end = 0;
  };
  struct stage_state {
    std::size_t next = 0;                  // step of the list
    std::size_t waits_for = nothing;       // a crossing that has not begun
    std::deque<std::size_t> on_their_way;  // crossings of its last sends, oldest first
    std::deque<leaving> offloads;          // for which the next two runs have not waited
    std::uint64_t runs = 0;
    double host_free = 0;
    double device_free = 0;
    double update_free = 0;
  };

  void begin(bool keep_steps)
  {
    const std::size_t cells = std::size_t{plan_.part_count()} * plan_.all_micro_batches();
    crossings_.assign(2 * cells, {});
    offloaded_.assign(cells, unknown);
    reloaded_.assign(cells, unknown);
    made_.assign(std::size_t{plan_.part_count()} * (plan_.batches + 1), 0);
    channel_free_.assign(costs_.links.size(), 0);
    stages_.assign(plan_.stage_count(), {});
    events_.clear();
    times_ = {};
    times_.stages.assign(plan_.stage_count(), {.first_begin = unknown});
    if (!keep_steps) return;
    for (const auto& steps : plan_.stages) times_.steps.emplace_back(steps.size());
  }

  void resume(std::uint32_t stage, double seconds)
  {
    events_.push_back({seconds, stage});
    std::ranges::push_heap(events_, is_later);
  }

  /// Takes steps of a stage until one takes time, or has to wait.
  void advance(std::uint32_t stage, double now)
  {
    stage_state& it = stages_[stage];
    const std::vector<operation>& steps = plan_.stages[stage];
    while (it.next < steps.size()) {
      const operation& step = steps[it.next];
      const std::size_t awaited = crossing_before(it, step);
      double ready = computes(step.kind) ? std::max(stage_inputs_of(step), end_of_offloads(it)) : 0;
      if (awaited != nothing) {
        const double arrival = crossings_[awaited].arrival;
        if (arrival == unknown) {
          it.waits_for = awaited;
          return;
        }
        ready = std::max(ready, arrival);
      }
      if (ready > now) return resume(stage, ready);
      const double end = start(stage, step, now);
      ++it.next;
      if (end > now) return resume(stage, end);
    }
  }

  /// The crossing that has to end before a step: for a run its input, for a send the oldest send in flight where there
  /// is no room for another.
  [[nodiscard]] std::size_t crossing_before(const stage_state& it, const operation& step) const
  {
    using enum operation_kind;
    if (sends(step.kind)) return it.on_their_way.size() < plan_.sends_in_flight ? nothing : it.on_their_way.front();
    if (step.kind == forward || step.kind == recompute)
      return plan_.crosses_before(step.part) ? plan_.cell_of(step) : nothing;
    if (step.kind == backward || step.kind == backward_input)
      return plan_.crosses_after(step.part) ? gradients() + plan_.cell_of(step) : nothing;
    return nothing;
  }

  /// The time at which the stage itself is ready for a run: weights, reloaded activations, room for gradients.
  [[nodiscard]] double stage_inputs_of(const operation& step) const
  {
    using enum operation_kind;
    const double* const made = made_.data() + std::size_t{step.part} * (plan_.batches + 1);
    double ready = made[step.version];
    if (step.kind == backward || step.kind == backward_input) ready = std::max(ready, reloaded_[plan_.cell_of(step)]);
    if (step.kind == backward || step.kind == backward_weight) {
      const std::uint32_t batch = plan_.batch_of(step.micro_batch);
      if (batch >= plan_.gradient_sets) ready = std::max(ready, made[batch - plan_.gradient_sets + 1]);
    }
    return ready;
  }

  /// The end of the copies that the next run waits for.
  [[nodiscard]] static double end_of_offloads(const stage_state& it)
  {
    double end = 0;
    for (const leaving& copy : it.offloads)
      if (copy.run <= it.runs) end = std::max(end, copy.end);
    return end;
  }

  /// @return   the time at which the stage continues
  double start(std::uint32_t stage, const operation& step, double now)
  {
    using enum operation_kind;
    stage_state& it = stages_[stage];
    const std::size_t cell = plan_.cell_of(step);
    switch (step.kind) {
      case send_activation: send(it, cell + plan_.all_micro_batches(), now); break;
      case send_gradient: send(it, gradients() + cell - plan_.all_micro_batches(), now); break;
      case receive_activation: receive(it, cell, now); break;
      case receive_gradient: receive(it, gradients() + cell, now); break;
      case offload: {
        const double from = std::max(now, it.host_free);
        offloaded_[cell] = it.host_free = from + seconds_of(step, costs_.to_host_bytes_per_second);
        it.offloads.push_back({it.runs + 1, it.host_free});
        keep(stage, it.next, from, it.host_free);
        break;
      }
      case reload: {
        const double from = std::max({now, it.device_free, offloaded_[cell]});
        reloaded_[cell] = it.device_free = from + seconds_of(step, costs_.to_device_bytes_per_second);
        keep(stage, it.next, from, it.device_free);
        break;
      }
      case update: return start_update(stage, step, now);
      default:
        while (!it.offloads.empty() && it.offloads.front().run <= it.runs) it.offloads.pop_front();
        ++it.runs;
        return compute(stage, it.next, now, seconds_of(step));
    }
    return now;
  }

  double start_update(std::uint32_t stage, const operation& step, double now)
  {
    const double seconds = costs_.parts[step.part].update;
    stage_state& it = stages_[stage];
    double& made = made_[std::size_t{step.part} * (plan_.batches + 1) + step.version];
    if (!costs_.updates_aside) {
      made = now + seconds;
      if (seconds > 0) return compute(stage, it.next, now, seconds);
      keep(stage, it.next, now, now);
      return now;
    }
    const double from = std::max(now, it.update_free);
    made = it.update_free = from + seconds;
    keep(stage, it.next, from, made);
    times_.seconds = std::max(times_.seconds, made);
    return now;
  }

  double compute(std::uint32_t stage, std::size_t index, double now, double seconds)
  {
    stage_time& it = times_.stages[stage];
    if (it.first_begin == unknown) it.first_begin = now;
    it.last_end = now + seconds;
    it.computing += seconds;
    keep(stage, index, now, it.last_end);
    times_.seconds = std::max(times_.seconds, it.last_end);
    return it.last_end;
  }

  void send(stage_state& it, std::size_t which, double now)
  {
    if (it.on_their_way.size() == plan_.sends_in_flight) it.on_their_way.pop_front();
    it.on_their_way.push_back(which);
    crossings_[which].sender_step = static_cast<std::uint32_t>(it.next);
    if (crossings_[which].receiver_step != UINT32_MAX) transfer(which, now);
  }
  void receive(const stage_state& it, std::size_t which, double now)
  {
    crossings_[which].receiver_step = static_cast<std::uint32_t>(it.next);
    if (crossings_[which].sender_step != UINT32_MAX) transfer(which, now);
  }

  /// Both ends are ready. A waiting receiver, or a sender without room for another send, may continue when the transfer
  /// ends.
  void transfer(std::size_t which, double now)
  {
    const bool is_gradient = which >= gradients();
    const auto part =
        static_cast<std::uint32_t>((is_gradient ? which - gradients() : which) / plan_.all_micro_batches());
    const std::uint32_t receiver = plan_.owners[part];
    const std::uint32_t sender = plan_.owners[is_gradient ? part + 1 : part - 1];
    const stage_link& link = costs_.link(sender, receiver);
    const double size = static_cast<double>(costs_.parts[is_gradient ? part : part - 1].output.count());
    crossing& it = crossings_[which];
    double from = now;
    if (link.channel != stage_link::unshared) {
      from = std::max(now, channel_free_[link.channel]);
      channel_free_[link.channel] = from + size / link.bytes_per_second;
    }
    it.arrival = from + size / link.bytes_per_second + link.latency;
    keep(sender, it.sender_step, from, it.arrival);
    keep(receiver, it.receiver_step, from, it.arrival);
    for (const std::uint32_t stage : {receiver, sender}) {
      if (stages_[stage].waits_for != which) continue;
      stages_[stage].waits_for = nothing;
      resume(stage, it.arrival);
    }
  }

  [[nodiscard]] double seconds_of(const operation& step) const
  {
    using enum operation_kind;
    const part_costs& part = costs_.parts[step.part];
    switch (step.kind) {
      case forward: return part.forward + (step.micro_batch % plan_.micro_batches == 0 ? part.gather : 0);
      case backward: return part.backward_input + part.backward_weight;
      case backward_input: return part.backward_input;
      case backward_weight: return part.backward_weight;
      default: return part.recompute;
    }
  }
  [[nodiscard]] double seconds_of(const operation& step, double rate) const
  {
    return static_cast<double>(costs_.parts[step.part].saved.count()) / rate;
  }
  void keep(std::uint32_t stage, std::size_t index, double from, double until)
  {
    if (!times_.steps.empty()) times_.steps[stage][index] = {from, until};
  }
  /// The index of the first crossing of gradients. A crossing has the number of the receiving part.
  [[nodiscard]] std::size_t gradients() const { return crossings_.size() / 2; }

  const schedule& plan_;
  const pipeline_costs& costs_;
  interruption stop_;
  pipeline_times times_;
  std::vector<crossing> crossings_;  // by direction, receiving part, micro-batch
  std::vector<double> offloaded_;    // by part and micro-batch: the end of its copy
  std::vector<double> reloaded_;
  std::vector<double> made_;  // by part and version: the end of its update
  std::vector<double> channel_free_;
  std::vector<stage_state> stages_;
  std::vector<event> events_;  // a heap, at most one for each stage
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
