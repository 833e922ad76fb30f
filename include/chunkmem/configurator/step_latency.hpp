// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/port_flows.hpp>
#include <chunkmem/configurator/replica_units.hpp>
#include <chunkmem/configurator/steady_period.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/interruption.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The seconds of a batch under a plan, and their parts.
///
///     const step_seconds found = step_latency{whole, shape}.of(plan);
///     const double tokens_per_second = static_cast<double>(plan.rows() * shape.sequence) / found.step;
struct step_seconds {
  double step = 0;     ///< from batch to batch, where batches follow each other
  double runs = 0;     ///< of the busiest stage, with gathers of ZeRO 3: no order of runs is faster
  double sums = 0;     ///< after the last run: of gradients, and gathers of ZeRO 1 and 2; of the slowest stage
  double updates = 0;  ///< of the slowest stage
  std::vector<double> pipelines{};  ///< by replica: the step if all replicas were like it
};

/// Model data that a rank moves because its device has no room for all of it.
///
///     const moved_bytes excess{.each_run = 2_GiB};
struct moved_bytes {
  bytes each_run{};   ///< from the host, under a forward run of a part, and under a backward run
  bytes each_step{};  ///< from the host for an update on the device, and back
  /// the share of divided weights that is gathered again for each run; the rest is gathered once for a batch
  double gathered_share = 0;

  [[nodiscard]] bool operator==(const moved_bytes&) const = default;
};

/// The most steps of one simulation, some two million of all stages. For zb-v, whose orders are searched, an eighth.
inline constexpr std::uint64_t most_simulated_steps = std::uint64_t{1} << 21;

namespace detail {

/// The seconds of a batch under a plan's schedule, for the costs of several pipelines.
class batch_simulation {
 public:
  /// @param plan, stop   outlive this   @param seconds   as schedule_of takes them
  batch_simulation(const parallel_plan& plan, const pipeline::pass_seconds& seconds, const pipeline::interruption& stop)
      : plan_{plan}, seconds_{seconds}, stop_{stop}
  {
  }

  /// @throws config_error   no such schedule, or too many steps that do not repeat
  [[nodiscard]] double seconds(const pipeline::pipeline_costs& costs)
  {
    const std::uint32_t all = plan_.micro_batches;
    const bool repeats = plan_.schedule != schedule_kind::gpipe && plan_.schedule != schedule_kind::zb_v;
    const std::uint32_t unit = plan_.schedule == schedule_kind::interleaved ? plan_.stages : 1;
    for (std::uint64_t first = steady_window(plan_.stages); repeats && 2 * first <= all; first *= 2) {
      const auto count = static_cast<std::uint32_t>(first + (all - first) % unit);
      if (!can_be_simulated(count)) break;
      const simulated it = simulate(count, costs, true);
      const auto period = steady_period_of(*it.plan, it.times, unit);
      if (!period) continue;
      const std::uint32_t rest = (all - count) % period->micro_batches;
      const double begins = rest == 0 ? it.seconds : simulate(count + rest, costs, false).seconds;
      return begins + static_cast<double>((all - count) / period->micro_batches) * period->seconds;
    }
    if (!can_be_simulated(all))
      throw config_error{error_text{} << "chunkmem: the steps of " << all << " micro-batches through "
                                      << plan_.all_parts() << " parts do not repeat within " << most_steps()
                                      << " steps, which are simulated at most (give a "
                                      << "micro-batch more rows)"};
    return simulate(all, costs, false).seconds;
  }

 private:
  struct simulated {
    const pipeline::schedule* plan = nullptr;
    pipeline::pipeline_times times{};
    double seconds = 0;
  };

  [[nodiscard]] std::uint64_t most_steps() const noexcept
  {
    return plan_.schedule == schedule_kind::zb_v ? most_simulated_steps / 8 : most_simulated_steps;
  }
  [[nodiscard]] bool flows() const noexcept { return plan_.schedule == schedule_kind::two_versions; }
  [[nodiscard]] bool can_be_simulated(std::uint32_t micro_batches) const
  {
    parallel_plan it = plan_;
    it.micro_batches = micro_batches;
    return schedule_steps(it, flows() ? 4 : 1) <= most_steps();
  }
  /// The time of one of many consecutive batches is half of the time that two more add.
  [[nodiscard]] simulated simulate(std::uint32_t micro_batches, const pipeline::pipeline_costs& costs, bool keep_steps)
  {
    simulated it{.plan = &schedule(micro_batches, flows() ? 4 : 1)};
    it.times = pipeline::pipeline_timeline{*it.plan, costs, stop_}.run(keep_steps);
    it.seconds = it.times.seconds;
    if (flows())
      it.seconds =
          (it.seconds - pipeline::pipeline_timeline{schedule(micro_batches, 2), costs, stop_}.run().seconds) / 2;
    return it;
  }
  [[nodiscard]] const pipeline::schedule& schedule(std::uint32_t micro_batches, std::uint32_t batches)
  {
    for (const pipeline::schedule& it : made_)
      if (it.micro_batches == micro_batches && it.batches == batches) return it;
    parallel_plan it = plan_;
    it.micro_batches = micro_batches;
    return made_.emplace_back(schedule_of(it, seconds_, batches, stop_));
  }

  const parallel_plan& plan_;
  pipeline::pass_seconds seconds_;
  const pipeline::interruption& stop_;
  std::deque<pipeline::schedule> made_;
};

}  // namespace detail

/// The time of a step under any plan, from an event simulation of its schedule on the links that its ranks have.
///
///     const step_latency latency{whole, shape};
///     for (const parallel_plan& it : plans) fastest = std::min(fastest, latency.of(it).step);
///
/// - A stage is as fast as its slowest rank. Ranks that share layers sum activations in a ring, twice for each layer in
///   the forward and in the backward run. Where times were measured with these sums, the rule of model_profile holds.
/// - A transfer between stages takes the slowest of the links between their ranks, latency included, in the direction
///   in which it goes. A link carries one transfer at a time in each direction. So the round trips of 1F1B count, which
///   closed forms leave out.
/// - Flows at the same time share ports and links as port_flows says: the sums of all stages, those of all ranks that
///   share layers, and the transfers of one boundary in one direction over all replicas.
/// - Replicas of a stage sum gradients over their real links, in a ring in the order of replicas or directly, as the
///   trainer does: with ZeRO 0 and 1 after the last run, with 2 and 3 in each micro-batch, overlapped with its runs.
///   Where a trainer hides sums, those of ZeRO 0 and 1 overlap the last backward run, except those of the last layer.
///   With ZeRO 0 each stage sums all gradients together. After an update weights are gathered once with 1 and 2. With
///   ZeRO 3 each part gathers its weights in its first run of a batch, each unit overlapped with the arithmetic of the
///   unit before. Units without room are gathered again for each run, during the run before. Sums and gathers move
///   whole units, one after the other.
/// - The gradients of copies of a tied table on the first and the last stage are summed before an update, in each
///   replica the shard that it updates.
/// - Updates take as much of Adam's time as they move of its bytes. Those of states on the host take the longest of
///   three: copies of gradients to the host, updates in its memory, which all ranks of a node share, and copies of
///   weights back.
/// - Messages take the arithmetic of a device, as `cluster_node::message_work` says: sends and receives of each run,
///   sums and gathers. During runs they make the runs longer. Sums after the last run take the longer of both times.
/// - With two versions, sums and updates run aside, in the slack. Gathers of ZeRO 3 take the stage's time.
///
/// The batch takes as long as its slowest pipeline. Of a batch with many micro-batches fewer are simulated, where all
/// steps repeat after some of them: the result is that of the whole simulation. Cost: that of one pipeline_timeline for
/// each replica that differs from the others.
/// Source: the idea of Pipette (Yim et al. 2024, arXiv 2405.18093), whose formula is replaced by the simulator.
class step_latency {
 public:
  /// @param whole   outlives this   @param stop   each simulation polls it
  /// @throws config_error   the cluster is invalid
  step_latency(const cluster& whole, const trained_model& model, pipeline::interruption stop = {})
      : whole_{whole}, model_{model}, node_of_{whole.nodes_of_ranks()}, lone_{whole}, stop_{std::move(stop)}
  {
    whole.check();
    has_ports_ = std::ranges::any_of(whole.nodes, [](const cluster_node& it) {
      return it.port_out_bytes_per_second > 0 || it.port_in_bytes_per_second > 0 ||
             it.inner_links == link_sharing::shared;
    });
  }

  /// @param moved   by stage, where its device has no room for all chunks and leases; empty: nothing moves
  /// @throws config_error   the plan is invalid, on this cluster or with this model; or it has more steps than can be
  ///   simulated, and they do not repeat
  /// @throws pipeline::interrupted   the caller stops it
  [[nodiscard]] step_seconds of(const parallel_plan& plan, const std::vector<moved_bytes>& moved = {}) const
  {
    plan.check(model_, static_cast<std::uint32_t>(node_of_.size()));
    const std::vector<model_part> parts = parts_of(model_, plan);
    const std::vector<std::uint32_t> owners = owners_of(plan);
    detail::batch_simulation batch{plan, typical(plan, parts), stop_};
    step_seconds found;
    const std::vector<shared_work> shared = shared_of(plan, parts, owners, moved, found);
    std::vector<pipeline::pipeline_costs> before;  // of replicas that differ
    std::vector<double> seconds_before;
    for (std::uint32_t replica = 0; replica < plan.replicas; ++replica) {
      pipeline::pipeline_costs costs = costs_of(plan, parts, owners, shared, replica);
      const auto same = std::ranges::find(before, costs);
      if (same != before.end()) {
        found.pipelines.push_back(seconds_before[static_cast<std::size_t>(same - before.begin())]);
        continue;
      }
      const double runs = busiest(plan, owners, costs);
      const double step = std::max(batch.seconds(costs), runs);  // few batches do not show all of it
      found.pipelines.push_back(step);
      found.step = std::max(found.step, step);
      found.runs = std::max(found.runs, runs);
      if (before.size() == most_kept) continue;
      before.push_back(std::move(costs));
      seconds_before.push_back(step);
    }
    return found;
  }

  /// The costs of one pipeline of a plan, for simulations of other schedules. @param replica   number of the pipeline
  [[nodiscard]] pipeline::pipeline_costs costs(const parallel_plan& plan, std::uint32_t replica = 0) const
  {
    plan.check(model_, static_cast<std::uint32_t>(node_of_.size()));
    step_seconds unused;
    const std::vector<model_part> parts = parts_of(model_, plan);
    const std::vector<std::uint32_t> owners = owners_of(plan);
    return costs_of(plan, parts, owners, shared_of(plan, parts, owners, {}, unused), replica);
  }

  /// The times of runs by which generators choose their orders: those of a stage of average speed.
  [[nodiscard]] pipeline::pass_seconds typical_seconds(const parallel_plan& plan) const
  {
    plan.check(model_, static_cast<std::uint32_t>(node_of_.size()));
    return typical(plan, parts_of(model_, plan));
  }

 private:
  static constexpr std::size_t most_kept = 64;  // replicas whose costs are looked up

  /// The work of a part that all replicas wait for together.
  struct shared_work {
    double half = 0;      // a reduce-scatter of gradients
    double gather = 0;    // of weights
    double work = 0;      // of the device's arithmetic for the messages of one of them
    double units = 1;     // that both move
    double update = 0;    // with the sums of a step
    double bringing = 0;  // of the bytes that each run has to load
  };

  [[nodiscard]] const cluster_node& node(std::uint32_t device) const { return whole_.nodes[node_of_[device]]; }

  [[nodiscard]] std::vector<std::uint32_t> nodes_of(const std::vector<std::uint32_t>& devices) const
  {
    std::vector<std::uint32_t> nodes;
    nodes.reserve(devices.size());
    for (const std::uint32_t device : devices) nodes.push_back(node_of_[device]);
    return nodes;
  }
  /// A reduce-scatter or an all-gather: half of an all-reduce.
  [[nodiscard]] double half_reduce(const std::vector<std::uint32_t>& devices, double size,
                                   const port_flows& flows) const
  {
    return flows.gather_seconds(nodes_of(devices), size, model_.trainer.sums);
  }
  /// The same for units one after the other, whose bytes are multiplied by `wider`.
  [[nodiscard]] double half_reduce(const std::vector<std::uint32_t>& devices, const replica_units& units, double wider,
                                   const port_flows& flows) const
  {
    if (devices.size() < 2) return 0;
    const auto count = static_cast<double>(units.count);
    return count * half_reduce(devices, wider * static_cast<double>(units.size.count()) / count, flows);
  }
  [[nodiscard]] double all_reduce(const std::vector<std::uint32_t>& devices, double size, const port_flows& flows) const
  {
    return 2 * half_reduce(devices, size, flows);
  }

  /// The sums of all stages at the same time.
  [[nodiscard]] port_flows flows_of_sums(const parallel_plan& plan) const
  {
    port_flows flows{whole_};
    if (has_ports_ && plan.replicas > 1)
      for (std::uint32_t stage = 0; stage < plan.stages; ++stage)
        for (std::uint32_t member = 0; member < plan.tensor; ++member)
          flows.add(nodes_of(replicas(plan, stage, member)), model_.trainer.sums);
    return flows;
  }
  /// The sums of all ranks that share layers.
  [[nodiscard]] port_flows flows_of_shares(const parallel_plan& plan) const
  {
    port_flows flows{whole_};
    if (has_ports_ && plan.tensor > 1)
      for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
        for (std::uint32_t stage = 0; stage < plan.stages; ++stage)
          flows.add(nodes_of(members(plan, replica, stage)), model_.trainer.sums);
    return flows;
  }
  /// The transfers from a stage to another one, of all replicas.
  [[nodiscard]] port_flows flows_between(const parallel_plan& plan, std::uint32_t from, std::uint32_t to) const
  {
    port_flows flows{whole_};
    for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
      for (std::uint32_t member = 0; member < plan.tensor; ++member)
        flows.add(node_of_[plan.devices[plan.rank(replica, from, member)]],
                  node_of_[plan.devices[plan.rank(replica, to, member)]]);
    return flows;
  }

  /// The arithmetic time that the slowest device loses to the same messages.
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
  /// The seconds of the runs of a part on ranks that share it, with their sums: those of the slowest rank.
  [[nodiscard]] run_seconds runs_on(const model_part& part, const parallel_plan& plan,
                                    const std::vector<std::uint32_t>& sharing, const port_flows& flows) const
  {
    run_seconds slowest;
    const auto take_slower = [&](const run_seconds& runs) {
      slowest.forward = std::max(slowest.forward, runs.forward);
      slowest.backward_input = std::max(slowest.backward_input, runs.backward_input);
      slowest.backward_weight = std::max(slowest.backward_weight, runs.backward_weight);
    };
    const bool is_one_node = std::ranges::all_of(
        sharing, [&](std::uint32_t device) { return node_of_[device] == node_of_[sharing.front()]; });
    if (!part.measured_with_sums || !is_one_node) {
      for (const std::uint32_t device : sharing) take_slower(part.computing_on(node(device)));
      const double adding = part.all_reduces * all_reduce(sharing, static_cast<double>(part.summed.count()), flows);
      slowest.forward += adding;
      slowest.backward_input += (plan.recomputes ? 2 : 1) * adding;
    }
    if (part.measured_with_sums)
      for (const std::uint32_t device : sharing) take_slower(part.measured_on(node(device).kind).seconds);
    return slowest;
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
                                             const port_flows& shares, std::uint32_t neighbours) const
  {
    const run_seconds runs = runs_on(part, plan, members(plan, replica, stage), shares);
    pipeline::part_costs costs;
    const auto boundary = static_cast<double>(part.boundary.count());
    const double passing = neighbours * longest_of(members(plan, replica, stage), [&](const cluster_node& it) {
                             return it.message_work.of_send(boundary);
                           });
    costs.forward = std::max(runs.forward + passing, shared.bringing);
    costs.backward_input = std::max(runs.backward_input + passing, shared.bringing);
    costs.backward_weight =
        plan.zero > 1 ? std::max(runs.backward_weight + shared.work, shared.half) : runs.backward_weight;
    costs.recompute = std::max(runs.forward, shared.bringing);
    if (plan.zero == 3 && shared.gather > 0) {
      // Unit by unit: no arithmetic before the first unit has arrived, and the last unit's follows the last gather.
      const double coming = std::max(shared.gather, shared.bringing);
      const double busy = runs.forward + passing + shared.work;
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
    const double updated = parameters * model_.trainer.states.update_over_adam();
    if (!plan.states_on_host) return updated / it.device_updates_per_second;
    return std::max({model_.trainer.gradient_bytes * parameters / it.to_host_bytes_per_second,
                     updated * ranks / it.host_updates_per_second,
                     model_.trainer.weight_bytes * parameters / it.to_device_bytes_per_second});
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
    const double tied = tied_sum(plan, parts, owners);
    const std::vector<replica_units> units = units_of(plan, parts);
    const port_flows flows = flows_of_sums(plan), shares = flows_of_shares(plan);
    const double wide_gradients = model_.trainer.gradient_bytes / 2.0, wide_weights = model_.trainer.weight_bytes / 2.0;
    std::vector<shared_work> all;
    std::vector<double> sums(plan.stages, 0), updates(plan.stages, 0);
    for (std::size_t index = 0; index < parts.size(); ++index) {
      const std::uint32_t stage = owners[index];
      const model_part& part = parts[index];
      shared_work it;
      const auto half = [&](double wider) {
        return slowest_group(plan, stage,
                             [&](const auto& group) { return half_reduce(group, units[index], wider, flows); });
      };
      it.half = half(wide_gradients);
      it.gather = wide_weights == wide_gradients ? it.half : half(wide_weights);
      it.work = slowest_group(plan, stage, [&](const auto& group) { return half_reduce_work(group, units[index]); });
      const double adding = visible(plan, part, stage,
                                    plan.zero == 0   ? 2 * std::max(it.half, it.work)
                                    : plan.zero == 1 ? std::max(it.half, it.work)
                                                     : 0,
                                    shares);
      const double sum =
          adding + (plan.zero == 1 || plan.zero == 2 ? std::max(it.gather, it.work) : 0);  // then the gather of weights
      const double own = static_cast<double>(part.parameters) / (plan.zero == 0 ? 1 : plan.replicas);
      const moved_bytes excess = moved.empty() ? moved_bytes{} : moved[stage];
      it.units = static_cast<double>(std::max<std::uint64_t>(1, units[index].count));
      if (plan.zero == 3) it.bringing = excess.gathered_share * it.gather;
      double updating = 0;
      for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
        for (const std::uint32_t device : members(plan, replica, stage)) {
          updating = std::max(updating, update(plan, own, device, on_node[node_of_[device]]) +
                                            copies_of_step(device, excess) / plan.parts);
          it.bringing = std::max(it.bringing, static_cast<double>(excess.each_run.count()) /
                                                  node(device).to_device_bytes_per_second / plan.parts);
        }
      const double tying = part.tied > 0 ? tied : 0;
      it.update = sum + tying + updating;
      sums[stage] += sum + tying;
      updates[stage] += updating;
      all.push_back(it);
    }
    found.sums = std::ranges::max(sums);
    found.updates = std::ranges::max(updates);
    return all;
  }
  /// The part of a sum after the last run that no backward run of its part hides.
  [[nodiscard]] double visible(const parallel_plan& plan, const model_part& part, std::uint32_t stage, double sum,
                               const port_flows& shares) const
  {
    if (!model_.trainer.hides_sums || sum == 0) return sum;
    double shortest = std::numeric_limits<double>::infinity();
    for (std::uint32_t replica = 0; replica < plan.replicas; ++replica) {
      const run_seconds runs = runs_on(part, plan, members(plan, replica, stage), shares);
      shortest = std::min(shortest, runs.backward_input + runs.backward_weight);
    }
    return std::max(sum / static_cast<double>(std::max<std::uint64_t>(1, part.layers)), sum - shortest);
  }
  /// The units by part; none where nothing is divided. With ZeRO 0 a part is one unit without gaps.
  [[nodiscard]] std::vector<replica_units> units_of(const parallel_plan& plan,
                                                    const std::vector<model_part>& parts) const
  {
    std::vector<replica_units> all(plan.all_parts());
    if (plan.replicas == 1) return all;
    if (plan.zero == 0) {
      for (std::size_t part = 0; part < parts.size(); ++part) all[part] = {1, bytes{2} * parts[part].parameters};
      return all;
    }
    const std::vector<std::vector<std::uint64_t>> tensors = tensors_of_parts(model_, plan);
    const bytes chunk = planned_chunk(tensors, plan.replicas);
    for (std::size_t part = 0; part < tensors.size(); ++part)
      all[part] = part > 0 && tensors[part] == tensors[part - 1]
                      ? all[part - 1]
                      : replica_units_of(tensors[part], chunk, plan.replicas);
    return all;
  }
  /// The time in which the gradients of a tied tensor's copies are summed: that of the slowest pipeline.
  [[nodiscard]] double tied_sum(const parallel_plan& plan, const std::vector<model_part>& parts,
                                const std::vector<std::uint32_t>& owners) const
  {
    const auto is_tied = [](const model_part& it) { return it.tied > 0; };
    const auto first = std::ranges::find_if(parts, is_tied);
    if (first == parts.end()) return 0;
    const auto second = std::find_if(first + 1, parts.end(), is_tied);
    if (second == parts.end()) return 0;
    const std::uint32_t stage = owners[static_cast<std::size_t>(first - parts.begin())];
    const std::uint32_t other = owners[static_cast<std::size_t>(second - parts.begin())];
    if (stage == other) return 0;
    const double table = static_cast<double>(model_.trainer.tied_bytes) * static_cast<double>(first->tied) /
                         (plan.zero == 0 ? 1 : plan.replicas);
    port_flows flows{whole_};
    std::vector<std::vector<std::uint32_t>> pairs;
    for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
      for (std::uint32_t member = 0; member < plan.tensor; ++member) {
        pairs.push_back(
            {plan.devices[plan.rank(replica, stage, member)], plan.devices[plan.rank(replica, other, member)]});
        flows.add(nodes_of(pairs.back()), model_.trainer.sums);
      }
    double longest = 0;
    for (const std::vector<std::uint32_t>& pair : pairs) longest = std::max(longest, all_reduce(pair, table, flows));
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
    const port_flows shares = flows_of_shares(plan);
    for (std::size_t index = 0; index < parts.size(); ++index) {
      const std::uint32_t owner = owners[index];
      const std::uint32_t neighbours = (index > 0 && owners[index - 1] != owner ? 1U : 0U) +
                                       (index + 1 < parts.size() && owners[index + 1] != owner ? 1U : 0U);
      costs.parts.push_back(runs_of(plan, parts[index], shared[index], replica, owner, shares, neighbours));
    }
    costs.links.resize(std::size_t{plan.stages} * plan.stages);
    for (std::uint32_t from = 0; from < plan.stages; ++from)
      for (std::uint32_t to = 0; to < plan.stages; ++to)
        if (from != to) costs.link(from, to) = link_of(plan, replica, from, to);
    return costs;
  }
  /// The slowest of the links between the ranks of two stages, while all replicas use theirs.
  [[nodiscard]] pipeline::stage_link link_of(const parallel_plan& plan, std::uint32_t replica, std::uint32_t from,
                                             std::uint32_t to) const
  {
    pipeline::stage_link slowest{.channel = from * plan.stages + to};  // one transfer at a time
    std::optional<port_flows> crossing;
    const port_flows& flows = has_ports_ ? crossing.emplace(flows_between(plan, from, to)) : lone_;
    for (std::uint32_t member = 0; member < plan.tensor; ++member) {
      const pair_link it = flows.part_of(node_of_[plan.devices[plan.rank(replica, from, member)]],
                                         node_of_[plan.devices[plan.rank(replica, to, member)]]);
      slowest.latency = std::max(slowest.latency, it.latency);
      slowest.bytes_per_second = std::min(slowest.bytes_per_second, it.bytes_per_second);
    }
    return slowest;
  }

  [[nodiscard]] pipeline::pass_seconds typical(const parallel_plan& plan, const std::vector<model_part>& parts) const
  {
    std::map<std::string_view, std::pair<const cluster_node*, std::uint32_t>> kinds;  // and how many devices
    for (const std::uint32_t device : plan.devices) {
      auto& [there, count] = kinds[node(device).kind];
      there = &node(device);
      ++count;
    }
    pipeline::pass_seconds seconds{.forward = 0, .backward_input = 0, .backward_weight = 0};
    for (const model_part& it : parts)
      for (const auto& [kind, found] : kinds) {
        const auto& [there, count] = found;
        const double share = count / static_cast<double>(plan.devices.size());
        const run_seconds runs = it.measured.empty() ? it.computing_on(*there) : it.measured_on(kind).seconds;
        seconds.forward += share * runs.forward / plan.stages;
        seconds.backward_input += share * runs.backward_input / plan.stages;
        seconds.backward_weight += share * runs.backward_weight / plan.stages;
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
  port_flows lone_;  // a flow has all of its ports
  bool has_ports_ = false;
  pipeline::interruption stop_;
};

}  // namespace configurator

}  // namespace chunkmem::inline v0
