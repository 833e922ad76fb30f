// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// A lower bound of the bytes of one rank of a stage, by formulas. A rehearsal finds as many or more.
///
///     for (const least_memory& stage : least_memory_of(plan, parts)) refused = refused || stage.leases > room;
struct least_memory {
  bytes weights{};    ///< that stay: one version, with ZeRO 3 the rank's shard
  bytes gradients{};  ///< that stay: with ZeRO 2 and 3 the rank's shard
  bytes states{};     ///< the rank's masters and moments
  bytes gathered{};   ///< weights that ZeRO 3 makes whole
  bytes leases{};     ///< activations in flight, with those between stages and the working bytes of one run
  /// the usual leases: the orders of zb-v have no least number in flight, and count as 1F1B
  bytes usual_leases{};

  /// All bytes that runs read and write, except gathered weights.
  [[nodiscard]] bytes in_runs() const { return weights + gradients + leases; }
  /// The chunks on the host, if the device holds only chunks.
  [[nodiscard]] bytes beside(bytes device) const
  {
    const bytes chunks = weights + gradients + states;
    return chunks - std::min(chunks, device);
  }
};

namespace detail {

/// The pairs of a part and a micro-batch whose activations a stage keeps at one time, at least.
[[nodiscard]] inline std::uint64_t least_in_flight(const parallel_plan& plan, std::uint32_t stage)
{
  const std::uint64_t behind = plan.stages - stage;  // stages from this one on
  const std::uint64_t all = std::uint64_t{plan.micro_batches} * plan.parts;
  switch (plan.schedule) {
    case schedule_kind::gpipe: return all;
    case schedule_kind::eager:
    case schedule_kind::zb_h2: return std::min(2 * behind - 1, all);
    case schedule_kind::interleaved:
      return std::min(2 * (behind - 1) + std::uint64_t{plan.parts - 1} * plan.stages + 1, all);
    case schedule_kind::zb_v: return plan.parts;
    default: return std::min(behind, all);
  }
}

}  // namespace detail

/// The least bytes that each stage of a plan needs, for each of its ranks.
///
///     const std::vector<least_memory> least = least_memory_of(plan, parts_of(model, plan));
///     const bytes activations = least[0].leases;
///
/// @param parts   of the plan   @param trainer   its optimizer has the states
/// Cost: O(parts)
[[nodiscard]] inline std::vector<least_memory> least_memory_of(const parallel_plan& plan,
                                                               const std::vector<model_part>& parts,
                                                               const trainer_traits& trainer = {})
{
  const std::vector<std::uint32_t> owners = owners_of(plan);
  std::vector<least_memory> stages(plan.stages);
  std::vector<bytes> saved(plan.stages, bytes{UINT64_MAX}), working(plan.stages, bytes{});
  std::vector<std::uint64_t> parameters(plan.stages, 0);
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const std::uint32_t stage = owners[part];
    parameters[stage] += parts[part].parameters;
    saved[stage] = std::min(saved[stage], parts[part].kept);
    working[stage] = std::max(working[stage], parts[part].working);
  }
  const std::uint64_t replicas = plan.replicas;
  const bytes boundary = std::ranges::min(parts, {}, &model_part::boundary).boundary;
  for (std::uint32_t stage = 0; stage < plan.stages; ++stage) {
    least_memory& it = stages[stage];
    const bytes whole = bytes{parameters[stage]} * sizeof(std::uint16_t);
    it.weights = plan.zero == 3 ? bytes{whole.count() / replicas} : whole;
    it.gradients = plan.zero <= 1 ? whole : bytes{whole.count() / replicas};
    it.states = bytes{parameters[stage] / (plan.zero == 0 ? 1 : replicas)} * trainer.states.bytes();
    if (plan.zero == 3 && replicas > 1) it.gathered = whole;
    const std::uint64_t kept = detail::least_in_flight(plan, stage);
    const std::uint64_t usual = plan.schedule == schedule_kind::zb_v
                                    ? std::min(std::uint64_t{2} * plan.stages, std::uint64_t{2} * plan.micro_batches)
                                    : kept;
    const bytes each = saved[stage] + (stage > 0 ? boundary : bytes{});
    it.leases = each * kept + working[stage];
    it.usual_leases = each * usual + working[stage];
  }
  return stages;
}

/// A lower bound of the bytes that a stage copies, on a device with this room: moved_by finds as many or more.
///
///     const bytes of_step = least_moved(plan, least[0], 24_GiB).each_step;
///
/// @param of   the least bytes of the stage
/// Cost: O(1)
[[nodiscard]] inline moved_bytes least_moved(const parallel_plan& plan, const least_memory& of, bytes room)
{
  const auto above = [](bytes all, bytes limit) { return all - std::min(all, limit); };
  moved_bytes moved{.each_run = above(of.in_runs(), room)};
  if (const bytes again = above(of.gathered, above(room, of.leases)); again > bytes{})
    moved.gathered_share = static_cast<double>(again.count()) / static_cast<double>(of.gathered.count());
  if (!plan.states_on_host) moved.each_step = std::min(of.states, above(of.in_runs() + of.gathered + of.states, room));
  return moved;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
