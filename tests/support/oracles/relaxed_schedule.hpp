// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace support {

/// The times of a schedule as the smallest numbers that its rules allow, without events and without an order of stages.
/// All begins are 0 at first, and every rule is applied again until nothing changes. For links that share no channel.
///
/// Cost: O(steps^2) and more.
class relaxed_schedule {
 public:
  relaxed_schedule(const chunkmem::pipeline::schedule& plan, const chunkmem::pipeline::pipeline_costs& costs)
      : plan_{plan}, costs_{costs}
  {
    for (const auto& steps : plan.stages) begins_.emplace_back(steps.size(), 0.0);
    index_steps();
    for (changed_ = true; changed_;) {
      changed_ = false;
      for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) apply_to(stage);
    }
  }

  [[nodiscard]] double begin_of(std::size_t stage, std::size_t index) const { return begins_[stage][index]; }

 private:
  using operation = chunkmem::pipeline::operation;
  using operation_kind = chunkmem::pipeline::operation_kind;
  using enum operation_kind;
  using key = std::tuple<operation_kind, std::uint32_t, std::uint32_t>;  // a kind, part and micro-batch

  void index_steps()
  {
    for (std::size_t stage = 0; stage < plan_.stages.size(); ++stage)
      for (std::size_t index = 0; index < plan_.stages[stage].size(); ++index) {
        const operation& step = plan_.stages[stage][index];
        where_[{step.kind, step.part, step.kind == update ? step.version : step.micro_batch}] = {stage, index};
      }
  }
  [[nodiscard]] double begin_of(operation_kind kind, std::uint32_t part, std::uint32_t number) const
  {
    const auto [stage, index] = where_.at({kind, part, number});
    return begins_[stage][index];
  }

  /// The time when the bytes of one boundary have crossed: after both ends reached it.
  [[nodiscard]] double crossed(bool is_gradient, std::uint32_t part, std::uint32_t micro_batch) const
  {
    const std::uint32_t from = is_gradient ? part + 1 : part - 1;
    const double sent = begin_of(is_gradient ? send_gradient : send_activation, from, micro_batch);
    const double received = begin_of(is_gradient ? receive_gradient : receive_activation, part, micro_batch);
    const auto& link = costs_.link(plan_.owners[from], plan_.owners[part]);
    const double size = static_cast<double>(costs_.parts[is_gradient ? part : part - 1].output.count());
    return std::max(sent, received) + link.latency + size / link.bytes_per_second;
  }

  [[nodiscard]] bool is_first_of_batch(const operation& step) const
  {
    return step.micro_batch == 0 || plan_.batch_of(step.micro_batch - 1) != plan_.batch_of(step.micro_batch);
  }
  /// The time for which the stage itself is busy with a step.
  [[nodiscard]] double busy(const operation& step) const
  {
    const auto& part = costs_.parts[step.part];
    switch (step.kind) {
      case forward: return part.forward + (is_first_of_batch(step) ? part.gather : 0);
      case backward: return part.backward_input + part.backward_weight;
      case backward_input: return part.backward_input;
      case backward_weight: return part.backward_weight;
      case recompute: return part.recompute;
      case update: return costs_.updates_aside ? 0 : part.update;
      default: return 0;
    }
  }

  void apply_to(std::size_t stage)
  {
    const auto& steps = plan_.stages[stage];
    double before = 0;
    double to_host = 0;
    double to_device = 0;
    double updating = 0;
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> on_host;
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> back;
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> made;
    std::vector<double> sends;
    std::vector<std::pair<int, double>> leaving;  // runs until one waits for a copy to the host, and its end
    for (std::size_t index = 0; index < steps.size(); ++index) {
      const operation& step = steps[index];
      const std::pair where{step.part, step.micro_batch};
      const double copied = static_cast<double>(costs_.parts[step.part].saved.count());
      double begin = before;
      if ((step.kind == forward || step.kind == recompute) && step.part > 0 && plan_.crosses_after(step.part - 1))
        begin = std::max(begin, crossed(false, step.part, step.micro_batch));
      if (step.kind == backward || step.kind == backward_input) {
        if (back.contains(where)) begin = std::max(begin, back.at(where));
        if (step.part + 1 < plan_.part_count() && plan_.crosses_after(step.part))
          begin = std::max(begin, crossed(true, step.part, step.micro_batch));
      }
      if (step.kind == backward || step.kind == backward_weight) {
        const std::uint32_t batch = plan_.batch_of(step.micro_batch);
        if (batch >= plan_.gradient_sets)
          begin = std::max(begin, made.at({step.part, batch + 1 - plan_.gradient_sets}));
      }
      if (chunkmem::pipeline::computes(step.kind)) {
        if (step.version > 0) begin = std::max(begin, made.at({step.part, step.version}));
        for (auto& [runs, end] : leaving)
          if (--runs == 0) begin = std::max(begin, end);
      }
      if (chunkmem::pipeline::sends(step.kind)) {
        if (sends.size() >= plan_.sends_in_flight) begin = std::max(begin, sends[sends.size() - plan_.sends_in_flight]);
        sends.push_back(step.kind == send_activation ? crossed(false, step.part + 1, step.micro_batch)
                                                     : crossed(true, step.part - 1, step.micro_batch));
      }
      if (step.kind == offload) {
        on_host[where] = to_host = std::max(begin, to_host) + copied / costs_.to_host_bytes_per_second;
        leaving.push_back({2, to_host});
      }
      if (step.kind == reload)
        back[where] = to_device =
            std::max({begin, to_device, on_host.at(where)}) + copied / costs_.to_device_bytes_per_second;
      if (step.kind == update) {
        updating = std::max(begin, costs_.updates_aside ? updating : 0) + costs_.parts[step.part].update;
        made[{step.part, step.version}] = updating;
      }
      changed_ = changed_ || begin > begins_[stage][index];
      begins_[stage][index] = begin;
      before = begin + busy(step);
    }
  }

  const chunkmem::pipeline::schedule& plan_;
  const chunkmem::pipeline::pipeline_costs& costs_;
  std::vector<std::vector<double>> begins_;
  std::map<key, std::pair<std::size_t, std::size_t>> where_;
  bool changed_ = false;
};

}  // namespace support
