// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bytes that the proof of a pipeline names, with replicas and without, against stages that train on as much memory,
// and on one chunk less.
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include "../configurator/executed_plan.hpp"

#include <cstdint>
#include <vector>

namespace pipeline_plans {

using namespace chunkmem;
using namespace chunkmem::configurator;

inline constexpr bytes plenty{std::uint64_t{1} << 30};

inline workload::transformer_shape roll_shape(support::dice& dice)
{
  workload::transformer_shape it = executed_plan::small_shape();
  it.hidden = it.embedding = 16 * dice.between(1, 5);
  it.ffn = it.hidden * dice.between(1, 4);
  it.vocabulary = dice.between(50, 600);
  return it;
}

/// A cluster whose devices have so many bytes, by stage.
inline cluster with_devices(const parallel_plan& plan, const std::vector<bytes>& devices)
{
  cluster whole = executed_plan::cluster_for(plan, plenty, plenty);
  for (std::uint32_t stage = 0; stage < plan.stages; ++stage)
    for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
      whole.nodes[plan.devices[plan.rank(replica, stage, 0)]].device_bytes = devices[stage];
  return whole;
}

/// @return   bytes that the plan is too low or too high
[[nodiscard]] inline std::uint64_t try_plan(std::uint64_t seed)
{
  support::dice dice{seed};
  const parallel_plan plan = executed_plan::roll_plan(dice);
  constexpr pipeline::pass_seconds seconds{.forward = 1, .backward_input = 1, .backward_weight = 1};
  const planned_work work = work_of(roll_shape(dice), plan, seconds, 3);
  const memory_proof roomy = prove_memory(executed_plan::cluster_for(plan, plenty, plenty), work);
  REQUIRE(roomy.fits);
  std::vector<bytes> devices;
  for (const stage_memory& it : roomy.stages) devices.push_back(it.smallest_device);
  const memory_proof tight = prove_memory(with_devices(plan, devices), work);
  CAPTURE(seed, plan.stages, plan.replicas, plan.zero, name_of(plan.schedule), plan.states_on_host, tight.why_not);
  REQUIRE(tight.fits);
  std::vector<per_tier<bytes>> room;
  for (std::uint32_t stage = 0; stage < plan.stages; ++stage)
    room.push_back({{devices[stage], tight.stages[stage].smallest_host}});
  const std::uint32_t stage = dice.below(plan.stages);
  const bytes chunk = tight.stages[stage].chunk;
  std::uint64_t apart = executed_plan::run(work, room).ran ? 0 : chunk.count();
  for (const tier where : {tier::device, tier::host}) {
    auto less = room;
    if (less[stage][where] < chunk) continue;
    less[stage][where] -= chunk;
    const executed_plan::outcome found = executed_plan::run(work, less);
    if (found.ran || found.out_of_memory != stage) apart += chunk.count();
  }
  CHECK(apart == 0);
  return apart;
}

}  // namespace pipeline_plans
