// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bytes that a plan over ranks names, against ranks that train together on as much memory, and on one frame less.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/placement/memory_plan.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/planner/training_forecast.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include "../planner/tiny_plan.hpp"
#include "lone_plans.hpp"
#include "script_trainer.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace rank_plans {

using namespace chunkmem;
using namespace chunkmem::planner;
using lone_plans::layout_type;
using lone_plans::plenty;

struct job {
  lone_plans::job each;
  std::uint32_t ranks = 2;

  [[nodiscard]] training_forecast forecast(per_tier<bytes> room) const
  {
    return forecast_training<eviction::belady, transfer::planned, layout_type>(
        each.shape, each.setup, tiny_plan::share_of(room[tier::device], room[tier::host], ranks), each.settings, {}, {},
        each.layout);
  }
};

inline job roll(support::dice& dice)
{
  constexpr std::array stages{sharding::zero_1, sharding::zero_2, sharding::zero_3, sharding::zero_3_reduce_last};
  job it{lone_plans::roll(dice)};
  it.ranks = dice.between(2, 4);
  it.each.settings.chunk_elements = 8'192 * dice.between(1, 2);
  it.each.settings.divided = stages[dice.below(stages.size())];
  return it;
}

/// @return   the requirement that the rehearsals of all ranks tell; nothing where one of them does not run
inline std::optional<memory_requirement> train(const job& what, per_tier<bytes> room)
{
  using model_type = sharded_model<backend::host_arena, collective::local_threads, layout_type, transfer::planned,
                                   placement::update_share, planned_gradient>;
  collective::thread_group group{what.ranks};
  std::vector<std::optional<memory_requirement>> found(what.ranks);
  const rank_settings& settings = what.each.settings;
  collective::run_threads(what.ranks, [&](std::uint32_t number) {
    collective::local_threads here{group, rank_id{number}};
    try {
      backend::host_arena memory{{.device_capacity = room[tier::device], .host_capacity = room[tier::host]}};
      model_type model{memory,
                       here,
                       {.chunk_bytes = bytes{2} * chunk_elements_of(settings, what.ranks)},
                       division_of(settings, what.ranks),
                       what.each.layout,
                       placement::update_share{settings.device_update_share},
                       settings.gradient};
      const parameter_groups tensors{what.each.shape, what.each.setup};
      const training_script script{tensors, what.each.setup.recomputes_layers, 1e9};
      found[number] = lone_plans::with_optimizer(settings.states, [&](const auto& kernel) {
        exact_bytes::script_trainer trainer{model, tensors, script, settings, kernel};
        const memory_requirement need = model.rehearse([&] { trainer.step(); });
        trainer.fill();
        for (int step = 0; step < 4; ++step) trainer.step();
        return trainer.sum() != 0 ? std::optional{need} : std::nullopt;
      });
      return;
    } catch (const comm_error&) {  // another rank failed
    } catch (const config_error&) {
    } catch (const out_of_memory&) {
    }
    here.revoke();
  });
  for (const auto& it : found)
    if (!it || it->smallest_device != found[0]->smallest_device || it->smallest_host != found[0]->smallest_host)
      return std::nullopt;
  return found[0];
}

/// Checks that ranks which gather units ahead run in the bytes that their rehearsal names, and not in one frame less.
inline void check_ahead(std::uint64_t seed, std::uint32_t ahead)
{
  support::dice dice{seed};
  job it = roll(dice);
  it.each.settings.gathers_ahead = ahead;
  CAPTURE(seed, ahead);
  const auto need = [&](bytes device) {
    const workload::rank_share share = tiny_plan::share_of(plenty, plenty, it.ranks);
    return rehearse_over_ranks<eviction::belady, transfer::planned, layout_type>(
        it.each.shape, it.each.setup, share, it.each.settings,
        layer_activations::all(it.each.shape.layers, it.each.setup.recomputes_layers), {{device, plenty}}, {}, {},
        it.each.layout);
  };
  const bytes device = need(plenty).smallest_device;
  const memory_requirement tight = need(device);
  CHECK(train(it, {{device, tight.smallest_host}}));
  CHECK(!train(it, {{device, tight.smallest_host - tight.chunk_bytes}}));
  CHECK(!train(it, {{device - tight.chunk_bytes, plenty}}));
}

/// @return   the difference of the plan and the training in bytes
[[nodiscard]] inline std::uint64_t try_job(std::uint64_t seed)
{
  support::dice dice{seed};
  job it = roll(dice);
  it.each.settings.states = lone_plans::states_of(seed);
  CAPTURE(seed, it.ranks);
  return lone_plans::bytes_apart(it, it.each, dice, false);
}

}  // namespace rank_plans
