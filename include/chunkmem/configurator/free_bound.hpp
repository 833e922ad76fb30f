// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/least_memory.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/plan_space.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// Lower bounds of the seconds and bytes of a plan for any placement on some devices, without a simulation.
///
///     const free_bound bound{whole, devices};
///     if (!bound.memory_of(plan, parts).fits) continue;  // no rehearsal would fit
///     if (bound.of(plan, parts) > best) continue;        // the optimum is never cut off
///
/// A stage waits for the first forward run of the stages before it, runs all its micro-batches, and updates. Where
/// backward runs are whole, stages before it run their last ones after it. With several versions only the runs count.
/// Runs load the bytes for which the largest device has no room; replicas sum gradients, and gather weights. Every
/// device counts as fast and as large as the best, and every link as fast as the best, or as the best between two nodes
/// where more ranks sum than a node has devices. Each kind of device runs at least one stage. Numbers of 4 bytes count
/// as 2.
/// Cost: O(parts)
class free_bound {
 public:
  /// @param devices   that have a rank each; each once   @param trainer   of the model
  free_bound(const cluster& whole, const std::vector<std::uint32_t>& devices, const trainer_traits& trainer = {},
             const process_allowance& beside = {})
      : trainer_{trainer}
  {
    const std::vector<std::uint32_t> node_of = whole.nodes_of_ranks();
    std::vector<std::uint32_t> used(whole.nodes.size(), 0);
    for (const std::uint32_t device : devices) ++used[node_of[device]];
    for (std::uint32_t from = 0; from < whole.nodes.size(); ++from) {
      if (used[from] == 0) continue;
      add_node(whole.nodes[from], used[from], beside);
      for (std::uint32_t to = 0; to < whole.nodes.size(); ++to) {
        if (used[to] == 0) continue;
        if (from != to) improve(across_, whole.links(from, to));
        if (from != to || used[from] > 1) improve(best_, whole.links(from, to));
      }
    }
  }
  /// For all devices.
  explicit free_bound(const cluster& whole, const trainer_traits& trainer = {})
      : free_bound{whole, all_of(whole), trainer}
  {
  }

  /// @param parts   of the plan   @pre   the plan has as many ranks as there are devices
  [[nodiscard]] double of(const parallel_plan& plan, const std::vector<model_part>& parts) const
  {
    const std::vector<std::uint32_t> owners = owners_of(plan);
    const std::vector<least_memory> memory = least_memory_of(plan, parts, trainer_);
    const bool flows = plan.schedule == schedule_kind::two_versions;
    const bool is_whole_backward = !detail::divides_backward(plan.schedule) && !flows;
    std::vector<double> work(plan.stages, 0);  // of a micro-batch [s]
    std::vector<double> once(plan.stages, 0);  // of a batch
    std::vector<std::vector<double>> computing(kinds_.size(), std::vector<double>(plan.stages, 0));  // by kind
    std::vector<double> begin(plan.stages, -1);                                                      // of the first run
    std::vector<double> behind(plan.stages, 0);  // backward runs of stages before it
    for (std::uint32_t stage = 0; stage < plan.stages; ++stage) once[stage] = copies(memory[stage], plan);
    double ahead = 0, back = 0;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const std::uint32_t stage = owners[part];
      run_seconds runs{infinite, infinite, infinite};  // the least of all kinds
      for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        const run_seconds here = runs_on(parts[part], kinds_[kind]);
        computing[kind][stage] += here.sum();
        runs = {std::min(runs.forward, here.forward), std::min(runs.backward_input, here.backward_input),
                std::min(runs.backward_weight, here.backward_weight)};
      }
      const part_bound it = bound_of(plan, parts[part], runs, memory[stage]);
      work[stage] += it.forward + it.backward_input + it.backward_weight;
      once[stage] += it.once;
      const bool crosses = part > 0 && owners[part] != owners[part - 1];
      const double transfer = crosses ? best_.seconds(static_cast<double>(parts[part - 1].boundary.count())) : 0;
      if (begin[stage] < 0) {
        begin[stage] = ahead + transfer;
        behind[stage] = is_whole_backward ? back + transfer : 0;
      }
      ahead += transfer + it.forward;
      back += transfer + it.backward_input + it.backward_weight;
    }
    double longest = 0;
    for (std::uint32_t stage = 0; stage < plan.stages; ++stage) {
      const double waits =
          flows ? 0 : begin[stage] + std::max(once[stage], behind[stage] > 0 ? behind[stage] + once[0] : 0);
      longest = std::max(longest, waits + plan.micro_batches * work[stage]);
    }
    for (const std::vector<double>& of_kind : computing)
      longest = std::max(longest, plan.micro_batches * std::ranges::min(of_kind));
    return longest;
  }

  /// Whether the largest device has room for the activations that each stage usually has in flight. An estimate: a plan
  /// for which this is false may fit.
  [[nodiscard]] bool likely_fits(const parallel_plan& plan, const std::vector<model_part>& parts) const
  {
    return std::ranges::none_of(least_memory_of(plan, parts, trainer_),
                                [&](const least_memory& stage) { return stage.usual_leases > room_[tier::device]; });
  }
  /// Whether the largest device and the largest share of a host have room for the least bytes of each stage. The proof
  /// has no stages.
  /// @param parts   of the plan   @pre   the plan has as many ranks as there are devices
  [[nodiscard]] memory_proof memory_of(const parallel_plan& plan, const std::vector<model_part>& parts) const
  {
    memory_proof proof{.fits = true, .why_not = {}, .why_class = {}, .stages = {}};
    const std::vector<least_memory> memory = least_memory_of(plan, parts, trainer_);
    for (std::uint32_t stage = 0; stage < plan.stages && proof.fits; ++stage) {
      stage_memory least{.leases = memory[stage].leases, .smallest_device = memory[stage].leases};
      least.smallest_host = memory[stage].beside(room_[tier::device]);
      detail::compare(proof, stage, least, room_, {});
    }
    return proof;
  }

 private:
  /// Seconds of one part for a micro-batch, and for a batch.
  struct part_bound {
    double forward = 0;
    double backward_input = 0;
    double backward_weight = 0;
    double once = 0;
  };

  [[nodiscard]] static std::vector<std::uint32_t> all_of(const cluster& whole)
  {
    std::vector<std::uint32_t> all(whole.ranks());
    std::iota(all.begin(), all.end(), 0U);
    return all;
  }
  static void improve(pair_link& best, const pair_link& by)
  {
    best.latency = std::min(best.latency, by.latency);
    best.bytes_per_second = std::max(best.bytes_per_second, by.bytes_per_second);
  }
  void add_node(const cluster_node& it, std::uint32_t ranks, const process_allowance& beside)
  {
    most_on_node_ = std::max(most_on_node_, ranks);
    if (std::ranges::find(kinds_, it.kind, &cluster_node::kind) == kinds_.end()) kinds_.push_back(it);
    to_device_ = std::max(to_device_, it.to_device_bytes_per_second);
    both_ways_ = std::max(both_ways_, std::min(it.to_device_bytes_per_second, it.to_host_bytes_per_second));
    device_updates_ = std::max(device_updates_, it.device_updates_per_second);
    host_updates_ = std::max(host_updates_, it.host_updates_per_second / ranks);
    const auto left = [](bytes there, bytes taken) { return there - std::min(there, taken); };
    room_[tier::device] = std::max(room_[tier::device], left(it.device_bytes, beside.device));
    room_[tier::host] = std::max(room_[tier::host], left(bytes{it.host_bytes.count() / ranks}, beside.host));
  }

  /// A reduce-scatter or an all-gather over this many ranks.
  [[nodiscard]] double half_sum(double ranks, double size) const
  {
    if (ranks < 2) return 0;
    const double piece = size / ranks;
    const double here = std::min<double>(ranks, most_on_node_);
    if (ranks <= here) return (ranks - 1) * piece / best_.bytes_per_second;
    if (trainer_.sums == sum_route::ring) return (ranks - 1) * piece / across_.bytes_per_second;
    return (ranks - here) * piece / across_.bytes_per_second + (here - 1) * piece / best_.bytes_per_second;
  }
  /// Seconds of a part's runs; 0 on a kind of device that was not measured.
  [[nodiscard]] static run_seconds runs_on(const model_part& part, const cluster_node& kind)
  {
    if (part.measured.empty()) return part.computing_on(kind);
    const auto found = std::ranges::find(part.measured, kind.kind, &measured_runs::kind);
    return found == part.measured.end() ? run_seconds{} : found->seconds;
  }
  /// @param runs   of the part, at least
  [[nodiscard]] part_bound bound_of(const parallel_plan& plan, const model_part& part, const run_seconds& runs,
                                    const least_memory& memory) const
  {
    const double adding = part.measured_with_sums
                              ? 0
                              : part.all_reduces * 2 * half_sum(plan.tensor, static_cast<double>(part.summed.count()));
    const double half = half_sum(plan.replicas, sizeof(std::uint16_t) * static_cast<double>(part.parameters));
    const moved_bytes moved = least_moved(plan, memory, room_[tier::device]);
    double bringing = static_cast<double>(moved.each_run.count()) / to_device_ / plan.parts;
    if (plan.zero == 3) bringing = std::max(bringing, moved.gathered_share * half);
    const double own = static_cast<double>(part.parameters) / (plan.zero == 0 ? 1 : plan.replicas);
    part_bound it;
    it.forward = std::max(runs.forward + adding, bringing);
    it.backward_input = std::max(runs.backward_input + (plan.recomputes ? 2 : 1) * adding, bringing);
    it.backward_weight = std::max(runs.backward_weight, plan.zero > 1 ? half : 0);
    if (plan.zero <= 1 && !trainer_.hides_sums) it.once += half;  // the sum of gradients
    if (plan.zero <= 2 && !(plan.zero == 0 && trainer_.hides_sums)) it.once += half;
    const double updated = own * trainer_.states.update_over_adam();
    it.once += plan.states_on_host ? std::max(updated / host_updates_, sizeof(std::uint16_t) * own / both_ways_)
                                   : updated / device_updates_;
    return it;
  }
  /// Seconds of copying states to the device for an update.
  [[nodiscard]] double copies(const least_memory& memory, const parallel_plan& plan) const
  {
    return static_cast<double>(least_moved(plan, memory, room_[tier::device]).each_step.count()) / both_ways_;
  }

  trainer_traits trainer_;
  std::uint32_t most_on_node_ = 0;
  static constexpr double infinite = std::numeric_limits<double>::infinity();
  std::vector<cluster_node> kinds_;  // one node of each
  double to_device_ = 0;
  double both_ways_ = 0;       // to the device and to the host at once
  double device_updates_ = 0;  // parameters per second
  double host_updates_ = 0;    // of one rank, while all ranks of its node update
  per_tier<bytes> room_{};
  static constexpr pair_link none{.latency = std::numeric_limits<double>::infinity(), .bytes_per_second = 0};
  pair_link best_ = none;
  pair_link across_ = none;
};

}  // namespace configurator

}  // namespace chunkmem::inline v0
