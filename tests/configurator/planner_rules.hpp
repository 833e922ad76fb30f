// SPDX-License-Identifier: Apache-2.0
// Rules by which published planners choose a plan. Each rule has the cost model of its own paper.
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace planner_rules {

using namespace chunkmem;
using namespace chunkmem::configurator;
using workload::transformer_shape;

/// A model of memory says whether a plan fits. The rules have no model of their own.
using memory_verdict = std::function<bool(const parallel_plan&)>;

// ---- Shared by all rules ----

/// Seconds of a stage for one micro-batch, as a profile on real devices has them.
struct stage_profile {
  double forward = 0;    ///< with the sums over the ranks that share layers
  double backward = 0;   ///< without a second forward run
  double gradients = 0;  ///< [B] of one rank

  /// @param recomputes   the stage runs forward again   @return   seconds of a whole micro-batch
  [[nodiscard]] double both(bool recomputes) const noexcept { return (recomputes ? 2 : 1) * forward + backward; }
};

/// The slowest link within any node. A node of one device has none.
[[nodiscard]] inline pair_link slowest_inner(const cluster& whole)
{
  pair_link slowest;
  for (std::uint32_t node = 0; node < whole.nodes.size(); ++node) {
    if (whole.nodes[node].devices == 1) continue;
    slowest.latency = std::max(slowest.latency, whole.link(node, node).latency);
    slowest.bytes_per_second = std::min(slowest.bytes_per_second, whole.link(node, node).bytes_per_second);
  }
  return slowest;
}

/// The slowest of the links between `node` and other nodes, in both directions.
[[nodiscard]] inline pair_link slowest_outer(const cluster& whole, std::uint32_t node)
{
  pair_link slowest;
  for (std::uint32_t other = 0; other < whole.nodes.size(); ++other)
    for (const pair_link& link : {whole.link(node, other), whole.link(other, node)}) {
      if (other == node) continue;
      slowest.latency = std::max(slowest.latency, link.latency);
      slowest.bytes_per_second = std::min(slowest.bytes_per_second, link.bytes_per_second);
    }
  return slowest;
}

/// The slowest link between any two nodes.
[[nodiscard]] inline pair_link slowest_outer(const cluster& whole)
{
  pair_link slowest;
  for (std::uint32_t node = 0; node < whole.nodes.size(); ++node) {
    const pair_link link = slowest_outer(whole, node);
    slowest.latency = std::max(slowest.latency, link.latency);
    slowest.bytes_per_second = std::min(slowest.bytes_per_second, link.bytes_per_second);
  }
  return slowest;
}

/// Bytes that one rank sends in an all-reduce by a ring, for each byte that it adds up.
[[nodiscard]] inline double ring_factor(std::uint32_t ranks) noexcept
{
  return 2 * (ranks - 1.0) / ranks;
}

/// A profile of the stages of a plan. Layer times are means over the devices, as AMP takes them for unequal nodes.
[[nodiscard]] inline std::vector<stage_profile> profile_of(const cluster& whole, const transformer_shape& shape,
                                                           parallel_plan plan)
{
  plan.recomputes = false;  // a second forward run is counted by both()
  const pair_link inner = slowest_inner(whole);
  std::vector<stage_profile> stages;
  for (const model_part& part : parts_of(shape, plan)) {
    const double piece = static_cast<double>(part.boundary.count()) / plan.tensor;
    const double sums = part.all_reduces * 2 * (plan.tensor - 1.0) * inner.seconds(piece);
    double forward = 0, backward = 0;
    for (const cluster_node& node : whole.nodes) {
      const run_seconds runs = part.computing_on(node);
      const double share = node.devices / static_cast<double>(whole.ranks());
      forward += share * runs.forward;
      backward += share * (runs.backward_input + runs.backward_weight);
    }
    stages.push_back({.forward = forward + sums,
                      .backward = backward + sums,
                      .gradients = 2 * static_cast<double>(part.parameters)});
  }
  return stages;
}

/// Bytes that a stage sends to the next one for each micro-batch.
[[nodiscard]] inline double boundary_of(const transformer_shape& shape, const parallel_plan& plan)
{
  return static_cast<double>(parts_of(shape, plan).front().boundary.count());
}

/// Seconds of a micro-batch on the slowest stage.
[[nodiscard]] inline double slowest_stage(std::span<const stage_profile> stages, bool recomputes)
{
  double slowest = 0;
  for (const stage_profile& stage : stages) slowest = std::max(slowest, stage.both(recomputes));
  return slowest;
}

[[nodiscard]] inline std::vector<std::uint64_t> divisors_of(std::uint64_t number)
{
  std::vector<std::uint64_t> all;
  for (std::uint64_t divisor = 1; divisor <= number; ++divisor)
    if (number % divisor == 0) all.push_back(divisor);
  return all;
}

/// Degrees of tensor parallelism whose ranks never leave a node, when ranks take devices in order.
[[nodiscard]] inline std::vector<std::uint32_t> tensor_degrees(const cluster& whole, const transformer_shape& shape,
                                                               bool with_tensor)
{
  std::uint64_t most = 0;
  for (const cluster_node& node : whole.nodes) most = std::gcd(most, node.devices);
  most = std::gcd(most, std::gcd(shape.heads, shape.kv_heads));
  std::vector<std::uint32_t> degrees;
  for (const std::uint64_t degree : divisors_of(with_tensor ? most : 1))
    degrees.push_back(static_cast<std::uint32_t>(degree));
  return degrees;
}

/// Stage counts that leave each stage a layer and each rank a device.
[[nodiscard]] inline std::uint32_t most_stages(const cluster& whole, const transformer_shape& shape,
                                               std::uint32_t tensor)
{
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(shape.layers, whole.ranks() / tensor));
}

/// As many replicas as devices and rows allow, each with as many rows as the others.
[[nodiscard]] inline std::uint32_t most_replicas(std::uint32_t devices, std::uint64_t rows)
{
  std::uint32_t replicas = devices;
  while (rows % replicas != 0) --replicas;
  return replicas;
}

/// Rank i has device i.
[[nodiscard]] inline parallel_plan in_order(parallel_plan plan, std::uint64_t rows)
{
  plan.micro_batches = static_cast<std::uint32_t>(rows / plan.replicas / plan.micro_batch);
  plan.devices.resize(plan.ranks());
  std::iota(plan.devices.begin(), plan.devices.end(), 0U);
  return plan;
}

/// The cheapest plan so far that fits.
struct cheapest_plan {
  std::optional<parallel_plan> plan{};
  double cost = std::numeric_limits<double>::infinity();

  /// Costs that only rounding tells apart are equal: the earlier plan stays.
  void offer(const parallel_plan& offered, double offered_cost, const memory_verdict& fits)
  {
    const bool is_cheaper = !plan || offered_cost < cost * (1 - 1e-9);
    if (!is_cheaper || !fits(offered)) return;
    plan = offered;
    cost = offered_cost;
  }
};

/// The papers have no states on the host. So a rule puts states there only where no plan of its own fits.
/// @param search   from where states are to the rule's choice
template <class Search>
[[nodiscard]] std::optional<parallel_plan> on_device_first(Search search)
{
  const std::optional<parallel_plan> found = search(false);
  return found ? found : search(true);
}

// ---- Megatron-LM (Narayanan et al. 2021, arXiv 2104.04473) ----

/// The smallest model parallelism that fits: tensor degrees within a node first, and more stages only as needed. Data
/// parallelism takes the other devices. The best micro-batch of that shape is offered to `best`.
inline void offer_smallest_model_parallelism(const cluster& whole, const transformer_shape& shape, std::uint64_t rows,
                                             const memory_verdict& fits, std::span<const std::uint32_t> degrees,
                                             const parallel_plan& settings, cheapest_plan& best)
{
  for (std::uint32_t stages = 1; stages <= most_stages(whole, shape, 1); ++stages)
    for (const std::uint32_t tensor : degrees) {
      if (stages > most_stages(whole, shape, tensor)) continue;
      cheapest_plan of_shape;
      parallel_plan plan = settings;
      plan.tensor = tensor;
      plan.stages = stages;
      plan.replicas = most_replicas(whole.ranks() / (tensor * stages), rows);
      for (const std::uint64_t micro_batch : divisors_of(rows / plan.replicas)) {
        plan.micro_batch = micro_batch;
        const parallel_plan placed = in_order(plan, rows);
        if (!fits(placed)) break;  // larger ones need more memory
        const double run = slowest_stage(profile_of(whole, shape, placed), plan.recomputes);
        of_shape.offer(placed, (placed.micro_batches + stages - 1.0) * run, [](const auto&) { return true; });
      }
      if (!of_shape.plan) continue;
      best.offer(*of_shape.plan, of_shape.cost, [](const auto&) { return true; });
      return;
    }
}

/// The takeaways of the paper: tensor parallelism up to the devices of a node, then stages, then replicas. 1F1B. The
/// micro-batch b has the smallest (b' / b + stages - 1) (forward + backward), with b' rows of a replica. The same
/// estimate decides about recomputation.
[[nodiscard]] inline std::optional<parallel_plan> megatron_default(const cluster& whole, const transformer_shape& shape,
                                                                   std::uint64_t rows, const memory_verdict& fits,
                                                                   bool with_tensor)
{
  const std::vector<std::uint32_t> degrees = tensor_degrees(whole, shape, with_tensor);
  return on_device_first([&](bool on_host) {
    cheapest_plan best;
    for (const bool recomputes : {false, true})
      offer_smallest_model_parallelism(whole, shape, rows, fits, degrees,
                                       {.recomputes = recomputes, .states_on_host = on_host}, best);
    return best.plan;
  });
}

// ---- AMP (Li et al. 2022, arXiv 2210.07297) ----

/// The terms that AMP adds up for a batch.
struct amp_terms {
  double micro_batches = 1;  ///< of a replica
  double slowest_stage = 0;  ///< [s] for a micro-batch
  double all_stages = 0;     ///< [s] for a micro-batch
  double transfers = 0;      ///< [s] between all stages, forward alone
  double sums = 0;           ///< [s] of gradients, of the slowest stage
};

/// @return   seconds of a batch
[[nodiscard]] inline double amp_seconds(const amp_terms& terms) noexcept
{
  return (terms.micro_batches - 1) * terms.slowest_stage + terms.all_stages + terms.transfers + terms.sums;
}

/// AMP's view of a cluster: each node has a rate within and a rate to other nodes.
struct amp_rates {
  std::vector<std::uint32_t> node_of{};
  std::vector<double> inner{};
  std::vector<double> outer{};

  explicit amp_rates(const cluster& whole) : node_of{whole.nodes_of_ranks()}
  {
    for (std::uint32_t node = 0; node < whole.nodes.size(); ++node) {
      inner.push_back(whole.link(node, node).bytes_per_second);
      outer.push_back(slowest_outer(whole, node).bytes_per_second);
    }
  }

  [[nodiscard]] double between(std::uint32_t device, std::uint32_t other) const
  {
    const std::uint32_t node = node_of[device], peer = node_of[other];
    return node == peer ? inner[node] : std::min(outer[node], outer[peer]);
  }
};

/// The rate of the slowest pair of ranks between `stage` and the next stage.
[[nodiscard]] inline double amp_transfer_rate(const amp_rates& rates, const parallel_plan& plan, std::uint32_t stage)
{
  double slowest = std::numeric_limits<double>::infinity();
  for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
    for (std::uint32_t member = 0; member < plan.tensor; ++member)
      slowest = std::min(slowest, rates.between(plan.devices[plan.rank(replica, stage, member)],
                                                plan.devices[plan.rank(replica, stage + 1, member)]));
  return slowest;
}

/// The slowest rate in the rings of the replicas of `stage`.
[[nodiscard]] inline double amp_ring_rate(const amp_rates& rates, const parallel_plan& plan, std::uint32_t stage)
{
  double slowest = std::numeric_limits<double>::infinity();
  for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
    for (std::uint32_t member = 0; member < plan.tensor; ++member)
      slowest = std::min(slowest, rates.between(plan.devices[plan.rank(replica, stage, member)],
                                                plan.devices[plan.rank((replica + 1) % plan.replicas, stage, member)]));
  return slowest;
}

/// AMP measures a layer's forward run, and takes its backward run as twice as long.
[[nodiscard]] inline amp_terms amp_terms_of(const cluster& whole, const transformer_shape& shape,
                                            const amp_rates& rates, const parallel_plan& plan)
{
  const double runs = plan.recomputes ? 4 : 3;
  const double boundary = boundary_of(shape, plan);
  const std::vector<stage_profile> stages = profile_of(whole, shape, plan);
  amp_terms terms{.micro_batches = static_cast<double>(plan.micro_batches)};
  for (std::uint32_t stage = 0; stage < plan.stages; ++stage) {
    terms.slowest_stage = std::max(terms.slowest_stage, runs * stages[stage].forward);
    terms.all_stages += runs * stages[stage].forward;
    if (stage + 1 < plan.stages) terms.transfers += boundary / amp_transfer_rate(rates, plan, stage);
    if (plan.replicas == 1) continue;
    const double seconds = stages[stage].gradients / amp_ring_rate(rates, plan, stage);
    terms.sums = std::max(terms.sums, ring_factor(plan.replicas) * seconds);
  }
  return terms;
}

/// All degrees and micro-batches are costed by nominal rates of nodes, and the cheapest that fits is taken. The paper
/// also cuts layers unequally; a plan has equal stages. The paper's schedule is that of GPipe; the plan runs 1F1B,
/// which takes as long and needs less memory.
[[nodiscard]] inline std::optional<parallel_plan> amp_model(const cluster& whole, const transformer_shape& shape,
                                                            std::uint64_t rows, const memory_verdict& fits,
                                                            bool with_tensor)
{
  const amp_rates rates{whole};
  return on_device_first([&](bool on_host) {
    cheapest_plan best;
    for (const std::uint32_t tensor : tensor_degrees(whole, shape, with_tensor))
      for (std::uint32_t stages = 1; stages <= most_stages(whole, shape, tensor); ++stages) {
        const std::uint32_t replicas = most_replicas(whole.ranks() / (tensor * stages), rows);
        for (const std::uint64_t micro_batch : divisors_of(rows / replicas))
          for (const bool recomputes : {false, true}) {
            const parallel_plan plan = in_order({.tensor = tensor,
                                                 .stages = stages,
                                                 .replicas = replicas,
                                                 .micro_batch = micro_batch,
                                                 .recomputes = recomputes,
                                                 .states_on_host = on_host},
                                                rows);
            best.offer(plan, amp_seconds(amp_terms_of(whole, shape, rates, plan)), fits);
          }
      }
    return best.plan;
  });
}

// ---- Varuna (Athlur et al. 2022, arXiv 2111.04007) ----

/// A pipeline of equal runs, its sends, and one ring over replicas. A link is one of two: within a node, or between.
[[nodiscard]] inline double varuna_seconds(const cluster& whole, const transformer_shape& shape,
                                           const parallel_plan& plan)
{
  const std::vector<std::uint32_t> node_of = whole.nodes_of_ranks();
  const pair_link inner = slowest_inner(whole), outer = slowest_outer(whole);
  const auto link = [&](std::uint32_t rank, std::uint32_t other) -> const pair_link& {
    return node_of[plan.devices[rank]] == node_of[plan.devices[other]] ? inner : outer;
  };
  const double boundary = boundary_of(shape, plan);
  double sends = 0;
  for (std::uint32_t stage = 1; stage < plan.stages; ++stage)
    sends += 2 * link(plan.rank(0, stage - 1), plan.rank(0, stage)).seconds(boundary);
  const std::vector<stage_profile> stages = profile_of(whole, shape, plan);
  double sums = 0;
  for (std::uint32_t stage = 0; stage < plan.stages; ++stage)
    for (std::uint32_t replica = 1; replica < plan.replicas; ++replica) {
      const double piece = stages[stage].gradients / plan.replicas;
      const double step = link(plan.rank(replica - 1, stage), plan.rank(replica, stage)).seconds(piece);
      sums = std::max(sums, 2 * (plan.replicas - 1.0) * step);
    }
  return (plan.micro_batches + plan.stages - 1.0) * slowest_stage(stages, plan.recomputes) + sends + sums;
}

/// Stages and replicas alone, and recomputation always. Each stage count that divides the layers gets the largest
/// micro-batch that fits. The stage count with the smallest estimate is taken. There is no tensor parallelism.
[[nodiscard]] inline std::optional<parallel_plan> varuna(const cluster& whole, const transformer_shape& shape,
                                                         std::uint64_t rows, const memory_verdict& fits,
                                                         bool /*with_tensor*/)
{
  return on_device_first([&](bool on_host) {
    cheapest_plan best;
    for (std::uint32_t stages = 1; stages <= most_stages(whole, shape, 1); ++stages) {
      if (shape.layers % stages != 0) continue;
      parallel_plan plan{.stages = stages, .recomputes = true, .states_on_host = on_host};
      plan.replicas = most_replicas(whole.ranks() / stages, rows);
      std::vector<std::uint64_t> micro_batches = divisors_of(rows / plan.replicas);
      for (; !micro_batches.empty(); micro_batches.pop_back()) {
        plan.micro_batch = micro_batches.back();
        const parallel_plan placed = in_order(plan, rows);
        if (!fits(placed)) continue;
        best.offer(placed, varuna_seconds(whole, shape, placed), [](const auto&) { return true; });
        break;
      }
    }
    return best.plan;
  });
}

// ---- PipeDream-2BW (Narayanan et al. 2021, arXiv 2006.09503) ----

/// Seconds between micro-batches that leave the pipeline. There is no term for filling it, and none for latencies.
[[nodiscard]] inline double two_bw_seconds(const cluster& whole, const transformer_shape& shape,
                                           const parallel_plan& plan)
{
  const double fast = slowest_inner(whole).bytes_per_second, slow = slowest_outer(whole).bytes_per_second;
  const auto rate = [&](std::uint32_t ranks) { return ranks <= whole.nodes.front().devices ? fast : slow; };
  const double boundaries = 2 * boundary_of(shape, plan);  // a stage's input and its output
  const double transfer = plan.stages > 1 ? 2 * boundaries / rate(plan.stages) : 0;
  double slowest = 0;
  for (const stage_profile& stage : profile_of(whole, shape, plan)) {
    const double sums = plan.replicas > 1 ? ring_factor(plan.replicas) * stage.gradients / rate(plan.replicas) : 0;
    slowest = std::max({slowest, stage.both(plan.recomputes) + transfer, sums / plan.micro_batches});
  }
  return slowest;
}

/// Equal stages, all with as many replicas, and two versions of the weights. Each shape gets the largest micro-batch
/// that fits, with and without recomputation. The highest throughput is taken. There is no tensor parallelism.
[[nodiscard]] inline std::optional<parallel_plan> two_bw_planner(const cluster& whole, const transformer_shape& shape,
                                                                 std::uint64_t rows, const memory_verdict& fits,
                                                                 bool /*with_tensor*/)
{
  const auto largest_that_fits = [&](parallel_plan plan) -> std::optional<parallel_plan> {
    std::vector<std::uint64_t> micro_batches = divisors_of(rows / plan.replicas);
    for (; !micro_batches.empty(); micro_batches.pop_back()) {
      plan.micro_batch = micro_batches.back();
      const parallel_plan placed = in_order(plan, rows);
      const bool has_two_versions = placed.micro_batches >= placed.stages;
      if (has_two_versions && fits(placed)) return placed;
    }
    return std::nullopt;
  };
  return on_device_first([&](bool on_host) {
    cheapest_plan best;
    for (std::uint32_t stages = 1; stages <= most_stages(whole, shape, 1); ++stages)
      for (std::uint32_t replicas = 1; replicas * stages <= whole.ranks(); ++replicas)
        for (const bool recomputes : {false, true}) {
          if (shape.layers % stages != 0 || rows % replicas != 0) continue;
          const std::optional<parallel_plan> plan = largest_that_fits({.stages = stages,
                                                                       .replicas = replicas,
                                                                       .schedule = schedule_kind::two_versions,
                                                                       .recomputes = recomputes,
                                                                       .states_on_host = on_host});
          if (!plan) continue;
          const double seconds_per_row =
              two_bw_seconds(whole, shape, *plan) / static_cast<double>(plan->micro_batch * replicas);
          best.offer(*plan, seconds_per_row, [](const auto&) { return true; });
        }
    return best.plan;
  });
}

/// A model of equal blocks, for the first released planner of PipeDream-2BW.
struct block_model {
  std::uint32_t blocks = 1;
  double seconds = 0;      ///< of a block
  double parameters = 0;   ///< of a block
  double activations = 0;  ///< of a block, numbers
  double output = 0;       ///< of a block [B]
};

struct block_plan {
  std::uint32_t replicas = 0;
  std::uint32_t stages = 0;
  double memory = 0;  ///< [B] of a device
  double seconds = 0;
};

/// The first planner: it uses all devices, and rounds the blocks of a stage down. Eight devices or fewer share fast
/// links. Sums of gradients are not divided by the micro-batches. @param capacity   [B] of a device
[[nodiscard]] inline std::optional<block_plan> first_two_bw_planner(const block_model& model, std::uint32_t devices,
                                                                    double capacity)
{
  std::optional<block_plan> best;
  for (std::uint32_t stages = 1; stages <= std::min(devices, model.blocks); ++stages) {
    if (devices % stages != 0) continue;
    const std::uint32_t replicas = devices / stages;
    const std::uint32_t blocks = model.blocks / stages;
    const double parameters = blocks * model.parameters;
    const double sums = 2 * (replicas - 1.0) * parameters / (replicas <= 8 ? 1e11 : 1e9);
    const double memory = 4 * (2 * parameters + stages * (blocks * model.activations));
    const double seconds = std::max({blocks * model.seconds, 2 * model.output / 1e9, sums}) / replicas;
    if (memory <= capacity && (!best || seconds < best->seconds)) best = {replicas, stages, memory, seconds};
  }
  return best;
}

}  // namespace planner_rules
