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
#include <chunkmem/core/policy.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/interruption.hpp>
#include <chunkmem/pipeline/replay_memory.hpp>
#include <chunkmem/placement/placement_policy.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The bytes of one rank of a stage, from a rehearsal.
///
///     for (const stage_memory& it : proof.stages) std::printf("%llu B\n", it.smallest_device.count());
struct stage_memory {
  bytes chunk{};            ///< size of a chunk: all bytes but leases lie in chunks
  bytes weights{};          ///< of one version, in 16 bits, on this rank
  bytes states{};           ///< masters and moments, on this rank
  bytes gathered{};         ///< weights that are gathered from the shards of replicas
  bytes chunks{};           ///< all of weights, versions, gradients and states, in whole chunks
  bytes boundaries{};       ///< between parts, and planned_work::beside
  bytes leases{};           ///< the peak: boundaries, saved activations, and working memory
  bytes smallest_device{};  ///< the least on which the plan runs, with chunks that leave and return
  bytes smallest_host{};    ///< the least in addition to the device that the cluster has
  bytes everything{};       ///< chunks and leases: a device of this size never waits for a copy
};

/// The memory that a plan needs, and whether its ranks have it.
///
///     const memory_proof proof = prove_memory(whole, work);
///     if (!proof.fits) std::cerr << proof.why_not << '\n';
struct memory_proof {
  bool fits = false;
  std::string why_not;    ///< one sentence; empty where the plan fits
  std::string why_class;  ///< the same for all plans that lack the same kind of memory
  std::vector<stage_memory> stages;
};

/// Measured memory of a process besides its chunks and leases: the context of the device, and buffers of communicators
/// and libraries.
///
///     const process_allowance measured{.device = 600_MiB, .host = 1_GiB};
struct process_allowance {
  bytes device{};
  bytes host{};
};

/// The least room among the ranks of a stage. A rank has an equal share of its node's host.
///
///     const bytes device = room_of_stage(whole, plan, 0)[tier::device];
///
/// @pre   the plan has been checked for this cluster   Cost: O(ranks)
[[nodiscard]] inline per_tier<bytes> room_of_stage(const cluster& whole, const parallel_plan& plan, std::uint32_t stage,
                                                   const process_allowance& beside = {})
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

namespace detail {

/// The placement of states in a rehearsal, which is asked before each replay of the step: so it also polls the
/// interruption.
struct watched_share {
  using policy_kind = placement_kind;
  static constexpr std::string_view name = "watched_share";

  placement::update_share share;
  pipeline::interruption stop;

  [[nodiscard]] constexpr tier preferred_tier(role part, bytes size) const noexcept
  {
    return share.preferred_tier(part, size);
  }
  void assign(const placement::outlook& now, std::span<tier> tiers) const
  {
    stop.look();
    share.assign(now, tiers);
  }
};

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
  const watched_share places{update_place(work.plan), work.stop};
  if (work.plan.replicas == 1 || work.plan.zero == 0) {  // each replica has all states
    manager<backend::simulated, gradient::separate, watched_share> model{memory, options, gradient::separate{}, places};
    return need(model);
  }
  collective::simulated_ranks replicas{
      {.of_node = 1, .nodes = work.plan.replicas, .peer_bytes_per_second = 1e9, .network_bytes_per_second = 1e9}};
  sharded_model<backend::simulated, collective::simulated_ranks, gradient::separate, watched_share> model{
      memory, replicas, options, {.divided = divided_by(work.plan)}, gradient::separate{}, places};
  return need(model);
}

inline constexpr const char* too_small_device = "too little memory on the device";

/// Notes the memory that a stage lacks, if any.
inline void compare(memory_proof& proof, std::uint32_t stage, const stage_memory& need, const per_tier<bytes>& room,
                    const std::string& refused)
{
  const auto refuse = [&](bytes needed, bytes there, const std::string& where) {
    proof.fits = false;
    proof.why_class = "too little memory on the " + where;
    proof.why_not = "stage " + std::to_string(stage) + " needs " + std::to_string(needed.count()) + " B on the " +
                    where + ", and its ranks have " + std::to_string(there.count()) + " B";
  };
  if (!proof.fits) return;
  if (need.smallest_device > room[tier::device]) return refuse(need.smallest_device, room[tier::device], "device");
  if (need.smallest_host > room[tier::host]) return refuse(need.smallest_host, room[tier::host], "host");
  if (refused.empty()) return;  // a device above the smallest one can have its free bytes in pieces
  proof.fits = false;
  proof.why_class = too_small_device;
  proof.why_not = "stage " + std::to_string(stage) + ": " + refused;
}

}  // namespace detail

/// Finds the first stage whose leases alone exceed its device, without a rehearsal.
///
///     if (const memory_proof proof = refuse_by_leases(whole, work); !proof.fits) std::cerr << proof.why_not << '\n';
///
/// @return   a proof without stages that fits, or not
/// Cost: O(steps)
[[nodiscard]] inline memory_proof refuse_by_leases(const cluster& whole, const planned_work& work,
                                                   const process_allowance& beside = {})
{
  memory_proof proof{.fits = true, .why_not = {}, .why_class = {}, .stages = {}};
  const std::vector<bytes> leases = pipeline::executor_memory(work.schedule, work.parts);
  for (std::uint32_t stage = 0; stage < work.plan.stages && proof.fits; ++stage) {
    const bytes there = room_of_stage(whole, work.plan, stage, beside)[tier::device];
    if (leases[stage] <= there) continue;
    proof.fits = false;
    proof.why_class = detail::too_small_device;
    proof.why_not = "stage " + std::to_string(stage) + " needs " + std::to_string(leases[stage].count()) +
                    " B on the device for activations alone, and its ranks have " + std::to_string(there.count()) +
                    " B";
  }
  return proof;
}

/// The content of a proof about stages that have too little memory.
enum class refused_stages : std::uint8_t {
  are_measured,  ///< includes their bytes, which takes another rehearsal
  are_left_out,  ///< one sentence about the first such stage, and no later stages
};

/// Rehearses one rank of each stage with the real manager, the real layout and the real order of steps, and compares
/// their memory with that of the plan's devices and nodes.
///
/// The bytes of the device are exact: with `smallest_device` the rank runs, and with a chunk less it does not.
/// `smallest_host` is the need in addition to the device that the cluster has. A smaller device needs more. All
/// replicas, and all ranks that share layers, need the same.
///
///     const memory_proof proof = prove_memory(whole, work);
///     if (!proof.fits) std::cerr << proof.why_not << '\n';
///
/// @param work   of work_of, with three batches or more where the schedule has two versions
/// @param beside   taken from the room of each rank
/// @throws config_error            the plan is invalid
/// @throws pipeline::interrupted   the work's caller stops it
/// Cost: a rehearsal for each stage, two where it does not fit
[[nodiscard]] inline memory_proof prove_memory(const cluster& whole, const planned_work& work,
                                               const process_allowance& beside = {},
                                               refused_stages refused = refused_stages::are_measured)
{
  constexpr bytes boundless{UINT64_MAX};
  memory_proof proof{.fits = true, .why_not = {}, .why_class = {}, .stages = {}};
  for (std::uint32_t stage = 0; stage < work.plan.stages; ++stage) {
    const per_tier<bytes> room = room_of_stage(whole, work.plan, stage, beside);
    const bytes beside_chunks = work.beside.empty() ? bytes{} : work.beside[stage];
    const bytes boundaries = pipeline::boundary_buffers{work.schedule, stage, work.inputs()}.size() + beside_chunks;
    memory_requirement need;
    std::string why_not;
    try {  // the host has to hold what this device does not
      need = detail::rehearse_rank(work, stage, boundaries, room[tier::device]);
    } catch (const config_error& why) {
      why_not = why.what();
      if (refused == refused_stages::are_left_out) {
        proof.fits = false;
        proof.why_class = detail::too_small_device;
        proof.why_not = "stage " + std::to_string(stage) + ": " + why_not;
        return proof;
      }
      need = detail::rehearse_rank(work, stage, boundaries, boundless);
    }
    const stage_memory found{.chunk = need.chunk_bytes,
                             .weights = need.by_role[role::parameter],
                             .states = need.by_role[role::optimizer_state],
                             .gathered = need.by_role[role::gathered],
                             .chunks = need.chunks,
                             .boundaries = boundaries,
                             .leases = need.largest_leases,
                             .smallest_device = need.smallest_device,
                             .smallest_host = need.smallest_host,
                             .everything = need.everything};
    proof.stages.push_back(found);
    detail::compare(proof, stage, found, room, why_not);
  }
  return proof;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
