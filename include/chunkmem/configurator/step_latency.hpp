// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/replica_units.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The seconds of a batch under a plan, and what they are made of.
///
///     const step_seconds found = step_latency{whole, shape}.of(plan);
///     const double tokens_per_second = static_cast<double>(plan.rows() * shape.sequence) / found.step;
struct step_seconds {
  double step = 0;     ///< from batch to batch, where batches follow each other
  double runs = 0;     ///< of the busiest stage, with gathers of ZeRO 3: no order of runs is faster
  double sums = 0;     ///< behind the last run: of gradients, and gathers of ZeRO 1 and 2; of the slowest stage
  double updates = 0;  ///< of the slowest stage
  std::vector<double> pipelines{};  ///< by replica: the step if all replicas were like it
};

/// Model data that a rank moves because its device has not room for all of it.
///
///     const moved_bytes excess{.each_run = 2_GiB};
struct moved_bytes {
  bytes each_run{};   ///< from the host, under a forward run of a part, and under a backward run
  bytes each_step{};  ///< from the host for an update on the device, and back
  /// the share of divided weights that is gathered again for each run; the rest is gathered once for a batch
  double gathered_share = 0;

  [[nodiscard]] bool operator==(const moved_bytes&) const = default;
};

/// The time of a step under any plan, from an event simulation of its schedule on the links that its ranks have.
///
///     const step_latency latency{whole, shape};
///     for (const parallel_plan& it : plans) fastest = std::min(fastest, latency.of(it).step);
///
/// - A stage is as fast as its slowest rank. Ranks that share layers add activations up in a ring, twice for each layer
///   on the way forward and on the way back.
/// - A transfer between stages takes the slowest of the links between their ranks, latency included, in the direction
///   in which it goes. A link carries one transfer at a time in each direction. So the round trips of 1F1B count, which
///   closed forms leave out.
/// - Replicas of a stage add gradients up over their real links, in a ring in the order of replicas or directly, as
///   the trainer does: with ZeRO 1 behind the last run, with 2 and 3 in each micro-batch, under its runs. Behind an
///   update weights are gathered once with 1 and 2. With ZeRO 3 each part gathers its weights in its first run of a
///   batch, each unit under the arithmetic of the unit before. Units without room are gathered again for each run,
///   under the run before. Sums and gathers move whole units, one after the other.
/// - Copies of a tied table on the first and the last stage add their gradients up before an update, each replica the
///   share that it updates.
/// - Updates of states on the host take the longest of three: copies of gradients to the host, updates in its memory,
///   which all ranks of a node share, and copies of weights back.
/// - Messages take the arithmetic of a device, as `cluster_node::message_work` says: sends and receives of each run,
///   sums and gathers. Under runs they make the runs longer. Sums behind the last run take the longer of both times.
/// - With two versions, sums and updates run aside, in the slack. Gathers of ZeRO 3 take the stage's time.
///
/// The batch takes as long as its slowest pipeline. Cost: that of one pipeline_timeline for each
/// replica that differs from the others.
/// Source: the idea of Pipette (Yim et al. 2024, arXiv 2405.18093), whose formula is replaced by the simulator.
class step_latency {
 public:
  /// @param whole   outlives this   @throws config_error   the cluster cannot be
  step_latency(const cluster& whole, const trained_model& model)
      : whole_{whole}, model_{model}, node_of_{whole.nodes_of_ranks()}
  {
    whole.check();
  }

  /// @param moved   by stage, where its device has not room for all that works there; empty: nothing moves
  /// @throws config_error   the plan cannot be, on this cluster or with this model
  [[nodiscard]] step_seconds of(const parallel_plan& plan, const std::vector<moved_bytes>& moved = {}) const
  {
    plan.check(model_.shape, static_cast<std::uint32_t>(node_of_.size()));
    const std::vector<model_part> parts = parts_of(model_, plan);
    const pipeline::pass_seconds seconds = typical(plan, parts);
    const bool flows = plan.schedule == schedule_kind::two_versions;
    const std::uint32_t longer = flows ? 4 : 1;
    const pipeline::schedule schedule = schedule_of(plan, seconds, longer);
    const pipeline::schedule shorter = schedule_of(plan, seconds, flows ? 2 : 1);
    step_seconds found;
    const std::vector<shared_work> shared = shared_of(plan, parts, schedule.owners, moved, found);
    std::vector<pipeline::pipeline_costs> before;  // of replicas that differ
    std::vector<double> seconds_before;
    for (std::uint32_t replica = 0; replica < plan.replicas; ++replica) {
      pipeline::pipeline_costs costs = costs_of(plan, parts, schedule.owners, shared, replica);
      const auto same = std::ranges::find(before, costs);
      if (same != before.end()) {
        found.pipelines.push_back(seconds_before[static_cast<std::size_t>(same - before.begin())]);
        continue;
      }
      double step = pipeline::pipeline_timeline{schedule, costs}.run().seconds;
      if (flows) step = (step - pipeline::pipeline_timeline{shorter, costs}.run().seconds) / 2;
      const double runs = busiest(plan, schedule.owners, costs);
      step = std::max(step, runs);  // few batches do not show all of it
      found.pipelines.push_back(step);
      found.step = std::max(found.step, step);
      found.runs = std::max(found.runs, runs);
      if (before.size() == most_kept) continue;
      before.push_back(std::move(costs));
      seconds_before.push_back(step);
    }
    return found;
  }

  /// The costs of one pipeline of a plan, for simulations of other schedules. @param replica   whose
  [[nodiscard]] pipeline::pipeline_costs costs(const parallel_plan& plan, std::uint32_t replica = 0) const
  {
    plan.check(model_.shape, static_cast<std::uint32_t>(node_of_.size()));
    step_seconds unused;
    const std::vector<model_part> parts = parts_of(model_, plan);
    const std::vector<std::uint32_t> owners = schedule_of(plan, typical(plan, parts)).owners;
    return costs_of(plan, parts, owners, shared_of(plan, parts, owners, {}, unused), replica);
  }

  /// The times of runs by which generators choose their orders: those of a stage of average speed.
  [[nodiscard]] pipeline::pass_seconds typical_seconds(const parallel_plan& plan) const
  {
    plan.check(model_.shape, static_cast<std::uint32_t>(node_of_.size()));
    return typical(plan, parts_of(model_, plan));
  }

 private:
  static constexpr double bytes_of_number = 2;  // of weights and gradients, in 16 bits
  static constexpr std::size_t most_kept = 64;  // replicas whose costs are looked up

  /// The work of a part that all replicas wait for together.
  struct shared_work {
    double half = 0;      // a reduce-scatter of gradients, or a gather of weights
    double work = 0;      // of the device's arithmetic for its messages
    double units = 1;     // that it moves
    double update = 0;    // with the sums of a step
    double bringing = 0;  // of what each run has to bring
  };

  [[nodiscard]] const cluster_node& node(std::uint32_t device) const { return whole_.nodes[node_of_[device]]; }
  [[nodiscard]] const pair_link& link(std::uint32_t from, std::uint32_t to) const
  {
    return whole_.link(node_of_[from], node_of_[to]);
  }

  /// Each of them sends `size / n` bytes to the next one, `rounds` times; a round is as slow as its slowest link.
  [[nodiscard]] double ring(const std::vector<std::uint32_t>& devices, double size, double rounds) const
  {
    const auto count = static_cast<double>(devices.size());
    double slowest = 0;
    for (std::size_t it = 0; it < devices.size(); ++it)
      slowest = std::max(slowest, link(devices[it], devices[(it + 1) % devices.size()]).seconds(size / count));
    return rounds * slowest;
  }
  /// Each of them sends `size / n` bytes to every other one at once. What leaves a device, or comes to it, shares its
  /// way: it takes as long as if one were sent behind the other.
  [[nodiscard]] double direct(const std::vector<std::uint32_t>& devices, double size) const
  {
    const double piece = size / static_cast<double>(devices.size());
    double longest = 0;
    for (const std::uint32_t it : devices) {
      double leaves = 0, comes = 0, latency = 0;
      for (const std::uint32_t other : devices) {
        if (other == it) continue;
        leaves += piece / link(it, other).bytes_per_second;
        comes += piece / link(other, it).bytes_per_second;
        latency = std::max({latency, link(it, other).latency, link(other, it).latency});
      }
      longest = std::max(longest, latency + std::max(leaves, comes));
    }
    return longest;
  }
  /// A reduce-scatter or an all-gather: half of an all-reduce.
  [[nodiscard]] double half_reduce(const std::vector<std::uint32_t>& devices, double size) const
  {
    if (devices.size() < 2) return 0;
    if (model_.trainer.sums == sum_route::direct) return direct(devices, size);
    return ring(devices, size, static_cast<double>(devices.size()) - 1);
  }
  /// The same of one unit after the other.
  [[nodiscard]] double half_reduce(const std::vector<std::uint32_t>& devices, const replica_units& units) const
  {
    if (devices.size() < 2) return 0;
    const auto count = static_cast<double>(units.count);
    return count * half_reduce(devices, static_cast<double>(units.size.count()) / count);
  }
  [[nodiscard]] double all_reduce(const std::vector<std::uint32_t>& devices, double size) const
  {
    return 2 * half_reduce(devices, size);
  }

  /// The arithmetic that a device loses to the same messages; of the slowest of them.
  [[nodiscard]] double half_reduce_work(const std::vector<std::uint32_t>& devices, const replica_units& units) const
  {
    if (devices.size() < 2 || units.count == 0) return 0;
    const auto ranks = static_cast<std::uint32_t>(devices.size());
    const auto count = static_cast<double>(units.count);
    const double sent = static_cast<double>(units.size.count()) / count * (ranks - 1) / ranks;
    return count * longest_of(devices, [&](const cluster_node& it) { return it.message_work.of_group(ranks, sent); });
  }
  template <class Work>
  [[nodiscard]] double longest_of(const std::vector<std::uint32_t>& devices, Work work) const
  {
    double longest = 0;
    for (const std::uint32_t device : devices) longest = std::max(longest, work(node(device)));
    return longest;
  }

  [[nodiscard]] static std::vector<std::uint32_t> members(const parallel_plan& plan, std::uint32_t replica,
                                                          std::uint32_t stage)
  {
    const auto first = plan.devices.begin() + plan.rank(replica, stage);
    return {first, first + plan.tensor};
  }
  [[nodiscard]] static std::vector<std::uint32_t> replicas(const parallel_plan& plan, std::uint32_t stage,
                                                           std::uint32_t member)
  {
    std::vector<std::uint32_t> all;
    for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
      all.push_back(plan.devices[plan.rank(replica, stage, member)]);
    return all;
  }
  [[nodiscard]] double slowest_flops(const std::vector<std::uint32_t>& devices) const
  {
    double flops = std::numeric_limits<double>::infinity();
    for (const std::uint32_t device : devices) flops = std::min(flops, node(device).device_flops_per_second);
    return flops;
  }
  /// The longest time of `work(devices)` over the groups of replicas of a stage.
  template <class Work>
  [[nodiscard]] static double slowest_group(const parallel_plan& plan, std::uint32_t stage, Work work)
  {
    double longest = 0;
    for (std::uint32_t member = 0; member < plan.tensor; ++member)
      longest = std::max(longest, work(replicas(plan, stage, member)));
    return longest;
  }

  [[nodiscard]] pipeline::part_costs runs_of(const parallel_plan& plan, const model_part& part,
                                             const shared_work& shared, std::uint32_t replica, std::uint32_t stage,
                                             std::uint32_t neighbours) const
  {
    const std::vector<std::uint32_t> sharing = members(plan, replica, stage);
    const double flops = slowest_flops(sharing);
    const double adding = part.all_reduces * all_reduce(sharing, static_cast<double>(part.boundary.count()));
    pipeline::part_costs costs;
    const auto boundary = static_cast<double>(part.boundary.count());
    const double passing =
        neighbours * longest_of(sharing, [&](const cluster_node& it) { return it.message_work.of_send(boundary); });
    const double arithmetic = part.forward_flops / flops + adding + passing;
    costs.forward = std::max(arithmetic, shared.bringing);
    costs.backward_input =
        std::max(part.backward_input_flops / flops + (plan.recomputes ? 2 : 1) * adding + passing, shared.bringing);
    const double weights = part.backward_weight_flops / flops;
    costs.backward_weight = plan.zero > 1 ? std::max(weights + shared.work, shared.half) : weights;
    costs.recompute = std::max(arithmetic - passing, shared.bringing);
    if (plan.zero == 3 && shared.half > 0) {
      // Unit by unit: no arithmetic before the first unit has come, and that of the last unit follows the last gather.
      const double coming = std::max(shared.half, shared.bringing);
      const double busy = arithmetic + shared.work;
      costs.gather = std::max(coming, busy) + std::min(coming, busy) / shared.units - costs.forward;
    }
    costs.update = shared.update;
    costs.output = part.boundary;
    return costs;
  }
  /// The time of an update. One rank updates `parameters`, and `ranks` ranks of its node update at the same time.
  [[nodiscard]] double update(const parallel_plan& plan, double parameters, std::uint32_t device,
                              std::uint32_t ranks) const
  {
    const cluster_node& it = node(device);
    if (!plan.states_on_host) return parameters / it.device_updates_per_second;
    return std::max({bytes_of_number * parameters / it.to_host_bytes_per_second,
                     parameters * ranks / it.host_updates_per_second,
                     bytes_of_number * parameters / it.to_device_bytes_per_second});
  }
  /// Ranks of the plan on each node.
  [[nodiscard]] std::vector<std::uint32_t> ranks_of_nodes(const parallel_plan& plan) const
  {
    std::vector<std::uint32_t> count(whole_.nodes.size(), 0);
    for (const std::uint32_t device : plan.devices) ++count[node_of_[device]];
    return count;
  }

  [[nodiscard]] std::vector<shared_work> shared_of(const parallel_plan& plan, const std::vector<model_part>& parts,
                                                   const std::vector<std::uint32_t>& owners,
                                                   const std::vector<moved_bytes>& moved, step_seconds& found) const
  {
    const std::vector<std::uint32_t> on_node = ranks_of_nodes(plan);
    const double tied = tied_sum(plan, owners);
    const std::vector<replica_units> units = units_of(plan);
    std::vector<shared_work> all;
    std::vector<double> sums(plan.stages, 0), updates(plan.stages, 0);
    for (std::size_t index = 0; index < parts.size(); ++index) {
      const std::uint32_t stage = owners[index];
      const model_part& part = parts[index];
      shared_work it;
      it.half = slowest_group(plan, stage, [&](const auto& group) { return half_reduce(group, units[index]); });
      it.work = slowest_group(plan, stage, [&](const auto& group) { return half_reduce_work(group, units[index]); });
      // The sum of gradients, then the gather of weights.
      const double sum = ((plan.zero == 1 ? 1 : 0) + (plan.zero < 3 ? 1 : 0)) * std::max(it.half, it.work);
      const double own = static_cast<double>(part.parameters) / plan.replicas;
      const moved_bytes excess = moved.empty() ? moved_bytes{} : moved[stage];
      it.units = static_cast<double>(std::max<std::uint64_t>(1, units[index].count));
      if (plan.zero == 3) it.bringing = excess.gathered_share * it.half;
      double updating = 0;
      for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
        for (const std::uint32_t device : members(plan, replica, stage)) {
          updating = std::max(updating, update(plan, own, device, on_node[node_of_[device]]) +
                                            copies_of_step(device, excess) / plan.parts);
          it.bringing = std::max(it.bringing, static_cast<double>(excess.each_run.count()) /
                                                  node(device).to_device_bytes_per_second / plan.parts);
        }
      const double tying = index == 0 || index + 1 == parts.size() ? tied : 0;
      it.update = sum + tying + updating;
      sums[stage] += sum + tying;
      updates[stage] += updating;
      all.push_back(it);
    }
    found.sums = std::ranges::max(sums);
    found.updates = std::ranges::max(updates);
    return all;
  }
  /// By part; none where nothing is divided.
  [[nodiscard]] std::vector<replica_units> units_of(const parallel_plan& plan) const
  {
    std::vector<replica_units> all(plan.all_parts());
    if (plan.replicas == 1) return all;
    const std::vector<std::vector<std::uint64_t>> tensors = tensors_of_parts(model_.shape, plan);
    const bytes chunk = planned_chunk(tensors, plan.replicas);
    for (std::size_t part = 0; part < tensors.size(); ++part)
      all[part] = part > 0 && tensors[part] == tensors[part - 1]
                      ? all[part - 1]
                      : replica_units_of(tensors[part], chunk, plan.replicas);
    return all;
  }
  /// The time in which copies of a tied table add their gradients up: that of the slowest pipeline.
  [[nodiscard]] double tied_sum(const parallel_plan& plan, const std::vector<std::uint32_t>& owners) const
  {
    const workload::transformer_shape& shape = model_.shape;
    if (!shape.ties_embedding || owners.front() == owners.back()) return 0;
    const double table = bytes_of_number * static_cast<double>(shape.vocabulary) *
                         static_cast<double>(shape.embedding) / plan.tensor / plan.replicas;
    double longest = 0;
    for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
      for (std::uint32_t member = 0; member < plan.tensor; ++member) {
        const std::uint32_t first = plan.devices[plan.rank(replica, owners.front(), member)];
        const std::uint32_t last = plan.devices[plan.rank(replica, owners.back(), member)];
        longest = std::max(longest, all_reduce({first, last}, table));
      }
    return longest;
  }
  /// States that come to the device and go back, both ways at once.
  [[nodiscard]] double copies_of_step(std::uint32_t device, const moved_bytes& excess) const
  {
    const cluster_node& it = node(device);
    return static_cast<double>(excess.each_step.count()) /
           std::min(it.to_device_bytes_per_second, it.to_host_bytes_per_second);
  }
  [[nodiscard]] pipeline::pipeline_costs costs_of(const parallel_plan& plan, const std::vector<model_part>& parts,
                                                  const std::vector<std::uint32_t>& owners,
                                                  const std::vector<shared_work>& shared, std::uint32_t replica) const
  {
    pipeline::pipeline_costs costs;
    costs.stages = plan.stages;
    costs.updates_aside = plan.schedule == schedule_kind::two_versions;
    for (std::size_t index = 0; index < parts.size(); ++index) {
      const std::uint32_t owner = owners[index];
      const std::uint32_t neighbours = (index > 0 && owners[index - 1] != owner ? 1U : 0U) +
                                       (index + 1 < parts.size() && owners[index + 1] != owner ? 1U : 0U);
      costs.parts.push_back(runs_of(plan, parts[index], shared[index], replica, owner, neighbours));
    }
    costs.links.resize(std::size_t{plan.stages} * plan.stages);
    for (std::uint32_t from = 0; from < plan.stages; ++from)
      for (std::uint32_t to = 0; to < plan.stages; ++to)
        if (from != to) costs.link(from, to) = link_of(plan, replica, from, to);
    return costs;
  }
  /// The slowest of the links between the ranks of two stages.
  [[nodiscard]] pipeline::stage_link link_of(const parallel_plan& plan, std::uint32_t replica, std::uint32_t from,
                                             std::uint32_t to) const
  {
    pipeline::stage_link slowest{.channel = from * plan.stages + to};  // one transfer at a time
    for (std::uint32_t member = 0; member < plan.tensor; ++member) {
      const pair_link& it =
          link(plan.devices[plan.rank(replica, from, member)], plan.devices[plan.rank(replica, to, member)]);
      slowest.latency = std::max(slowest.latency, it.latency);
      slowest.bytes_per_second = std::min(slowest.bytes_per_second, it.bytes_per_second);
    }
    return slowest;
  }

  [[nodiscard]] pipeline::pass_seconds typical(const parallel_plan& plan, const std::vector<model_part>& parts) const
  {
    double flops = 0;
    for (const std::uint32_t device : plan.devices) flops += node(device).device_flops_per_second;
    flops /= static_cast<double>(plan.devices.size());
    pipeline::pass_seconds seconds{.forward = 0, .backward_input = 0, .backward_weight = 0};
    for (const model_part& it : parts) {
      seconds.forward += it.forward_flops / flops / plan.stages;
      seconds.backward_input += it.backward_input_flops / flops / plan.stages;
      seconds.backward_weight += it.backward_weight_flops / flops / plan.stages;
    }
    for (std::uint32_t stage = 0; stage + 1 < plan.stages; ++stage) {
      const pipeline::stage_link it = link_of(plan, 0, stage, stage + 1);
      const double size = static_cast<double>(parts.front().boundary.count());
      seconds.transfer = std::max(seconds.transfer, it.latency + size / it.bytes_per_second);
    }
    return seconds;
  }

  [[nodiscard]] static double busiest(const parallel_plan& plan, const std::vector<std::uint32_t>& owners,
                                      const pipeline::pipeline_costs& costs)
  {
    std::vector<double> of_stage(plan.stages, 0);
    for (std::size_t part = 0; part < owners.size(); ++part) {
      const pipeline::part_costs& it = costs.parts[part];
      of_stage[owners[part]] += it.gather + plan.micro_batches * (it.forward + it.backward_input + it.backward_weight);
    }
    return std::ranges::max(of_stage);
  }

  const cluster& whole_;
  trained_model model_;
  std::vector<std::uint32_t> node_of_;
};

}  // namespace configurator

}  // namespace chunkmem::inline v0
