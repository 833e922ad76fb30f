// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/planned_rank.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/memory_requirement.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/tensor/separate_gradient.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The bytes of one rank of a stage, from a rehearsal.
///
///     for (const stage_memory& it : proof.stages) std::printf("%llu B\n", it.smallest_device.count());
struct stage_memory {
  bytes chunk{};            ///< of model data: all but leases comes in these
  bytes weights{};          ///< of one version, in 16 bits, on this rank
  bytes chunks{};           ///< all of weights, versions, gradients and states, in whole chunks
  bytes boundaries{};       ///< between parts
  bytes leases{};           ///< the most at once: boundaries, what runs save, and what they work with
  bytes smallest_device{};  ///< the least on which the plan runs: chunks come and go
  bytes smallest_host{};    ///< the least beside the device that the plan has
  bytes everything{};       ///< chunks and leases: a device of so many bytes never waits for a copy
};

/// What a plan needs, and whether its ranks have it.
///
///     const memory_proof proof = prove_memory(whole, shape, work);
///     if (!proof.fits) std::cerr << proof.why_not << '\n';
struct memory_proof {
  bool fits = false;
  std::string why_not;  ///< one sentence; empty where it fits
  std::vector<stage_memory> stages;
};

/// What a process takes beside its chunks and leases, as measured: the context of the device, and buffers of
/// communicators and libraries.
///
///     const process_allowance measured{.device = 600_MiB, .host = 1_GiB};
struct process_allowance {
  bytes device{};
  bytes host{};
};

namespace detail {

/// The room of the rank of a stage that has the least.
[[nodiscard]] inline per_tier<bytes> room_of_stage(const cluster& whole, const parallel_plan& plan, std::uint32_t stage,
                                                   const process_allowance& beside)
{
  const std::vector<std::uint32_t> node_of = whole.nodes_of_ranks();
  std::vector<std::uint64_t> ranks(whole.nodes.size(), 0);
  for (const std::uint32_t device : plan.devices) ++ranks[node_of[device]];
  per_tier<bytes> least{{bytes{UINT64_MAX}, bytes{UINT64_MAX}}};
  for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
    for (std::uint32_t member = 0; member < plan.tensor; ++member) {
      const std::uint32_t node = node_of[plan.devices[plan.rank(replica, stage, member)]];
      const cluster_node& it = whole.nodes[node];
      least[tier::device] = std::min(least[tier::device], it.device_bytes);
      least[tier::host] = std::min(least[tier::host], bytes{it.host_bytes.count() / ranks[node]});
    }
  least[tier::device] -= std::min(least[tier::device], beside.device);
  least[tier::host] -= std::min(least[tier::host], beside.host);
  return least;
}

/// Rehearses a rank on a machine without bytes. @throws config_error   the device is too small
[[nodiscard]] inline memory_requirement rehearse_rank(const planned_work& work, std::uint32_t stage, bytes boundaries,
                                                      bytes device)
{
  constexpr bytes enough{std::uint64_t{1} << 55};
  backend::simulated memory{{.device_capacity = std::min(device, enough), .host_capacity = enough}};
  const auto need = [&](auto& model) {
    planned_rank rank{model, work, stage};
    return model.rehearse([&] { rank.take_all(boundaries); });
  };
  const manager_options options{.chunk_bytes = work.chunk};
  if (work.plan.replicas == 1) {
    lone_model<backend::simulated> model{memory, options, gradient::separate{}, update_place(work.plan)};
    return need(model);
  }
  collective::simulated_ranks replicas{
      {.of_node = 1, .nodes = work.plan.replicas, .peer_bytes_per_second = 1e9, .network_bytes_per_second = 1e9}};
  replicated_model<backend::simulated, collective::simulated_ranks> model{
      memory, replicas, options, {.divided = divided_by(work.plan)}, gradient::separate{}, update_place(work.plan)};
  return need(model);
}

/// @return   one sentence about what is missing; empty where nothing is
[[nodiscard]] inline std::string missing(std::uint32_t stage, const stage_memory& need, const per_tier<bytes>& room)
{
  const auto text = [&](bytes needed, bytes there, const char* where) {
    return "stage " + std::to_string(stage) + " needs " + std::to_string(needed.count()) + " B on the " + where +
           ", and its ranks have " + std::to_string(there.count()) + " B";
  };
  if (need.smallest_device > room[tier::device]) return text(need.smallest_device, room[tier::device], "device");
  if (need.smallest_host > room[tier::host]) return text(need.smallest_host, room[tier::host], "host");
  return {};
}

}  // namespace detail

/// Rehearses one rank of each stage with the real manager, the real layout and the real order of steps, and compares
/// what they need with what the plan's devices and nodes have.
///
/// The bytes are exact: with `smallest_device` and `smallest_host` the rank runs, and with a chunk less it does not.
/// Replicas need the same. Ranks that share layers do too.
/// @param work   of work_of, with three batches or more where the schedule has two versions
/// @param beside   taken from the room of each rank
/// @throws config_error   the plan cannot be   Cost: a rehearsal or two for each stage
[[nodiscard]] inline memory_proof prove_memory(const cluster& whole, const planned_work& work,
                                               const process_allowance& beside = {})
{
  constexpr bytes boundless{UINT64_MAX};
  memory_proof proof{.fits = true, .why_not = {}, .stages = {}};
  for (std::uint32_t stage = 0; stage < work.plan.stages; ++stage) {
    const per_tier<bytes> room = detail::room_of_stage(whole, work.plan, stage, beside);
    const bytes boundaries = pipeline::boundary_buffers{work.schedule, stage, work.inputs()}.size();
    memory_requirement need = detail::rehearse_rank(work, stage, boundaries, boundless);
    if (need.smallest_device <= room[tier::device])  // the host has to hold what this device does not
      need = detail::rehearse_rank(work, stage, boundaries, room[tier::device]);
    const stage_memory found{.chunk = need.chunk_bytes,
                             .weights = need.by_role[role::parameter],
                             .chunks = need.chunks,
                             .boundaries = boundaries,
                             .leases = need.largest_leases,
                             .smallest_device = need.smallest_device,
                             .smallest_host = need.smallest_host,
                             .everything = need.everything};
    proof.stages.push_back(found);
    if (proof.why_not.empty()) proof.why_not = detail::missing(stage, found, room);
  }
  proof.fits = proof.why_not.empty();
  return proof;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
