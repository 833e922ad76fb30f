// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bytes that a plan of one rank names, against trainings on as much memory, and on one frame less.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/planned_optimizer.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/placement/memory_plan.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/planner/training_forecast.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include "../planner/random_workload.hpp"
#include "../planner/tiny_plan.hpp"
#include "script_trainer.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace lone_plans {

using namespace chunkmem;
using namespace chunkmem::planner;

using layout_type = any_layout<size_class_layout, append_layout, best_fit_layout>;

inline constexpr bytes plenty{std::uint64_t{1} << 30};

struct job {
  workload::transformer_shape shape;
  workload::training_setup setup;
  rank_settings settings;
  layout_type layout;

  [[nodiscard]] training_forecast forecast(per_tier<bytes> room) const
  {
    return forecast_training<eviction::belady, transfer::planned, layout_type>(
        shape, setup, tiny_plan::share_of(room[tier::device], room[tier::host]), settings, {}, {}, layout);
  }
};

inline job roll(support::dice& dice)
{
  job it;
  it.shape = planner_test::random_shape(dice);
  it.setup = planner_test::random_setup(dice);
  it.settings = tiny_plan::settings();
  it.settings.chunk_elements = dice.between(100, 6'000);
  it.settings.device_update_share = 0.5 * dice.below(3);
  it.settings.takes_norm = dice.one_in(2);
  it.settings.updates_late = it.settings.takes_norm && dice.one_in(2);  // first updates hang on rates
  if (dice.one_in(2)) it.settings.gradient = planned_gradient{gradient::separate{.wide = dice.one_in(4)}};
  it.layout = layout_type{layout_type::names[dice.below(layout_type::names.size())]};
  return it;
}

/// Every second job has Adam; the others have 16-bit moments, SGD, or SGD with momentum.
[[nodiscard]] inline optimizer::listed_states states_of(std::uint64_t seed)
{
  constexpr optimizer::listed_states others[] = {{.bytes_each = 2}, {.lists = 0}, {.lists = 1}};
  return seed % 2 == 0 ? optimizer::listed_states{} : others[seed / 2 % 3];
}
/// Calls `work` with the optimizer of these states.
template <class Work>
[[nodiscard]] auto with_optimizer(const optimizer::listed_states& states, Work work)
{
  const dtype type = states.bytes_each == 4 ? dtype::float32 : dtype::bfloat16;
  if (states.lists == 2) return work(optimizer::adam{{}, {.moments = type}});
  return work(optimizer::sgd{{.momentum = states.lists == 0 ? 0.0F : 0.9F}, {.momentum = type}});
}

/// Trains on real memory. @return   the requirement of its rehearsal; nothing if it does not run
inline std::optional<memory_requirement> train(const job& what, per_tier<bytes> room)
{
  try {
    backend::host_arena memory{{.device_capacity = room[tier::device], .host_capacity = room[tier::host]}};
    manager<backend::host_arena, layout_type, transfer::planned, placement::update_share, planned_gradient> m{
        memory,
        {.chunk_bytes = bytes{2} * chunk_elements_of(what.settings, 1)},
        what.layout,
        placement::update_share{what.settings.device_update_share},
        what.settings.gradient};
    const parameter_groups groups{what.shape, what.setup};
    const training_script script{groups, what.setup.recomputes_layers, 1e9};
    return with_optimizer(what.settings.states, [&](const auto& kernel) {
      exact_bytes::script_trainer trainer{m, groups, script, what.settings, kernel};
      const memory_requirement need = m.rehearse([&] { trainer.step(); });
      trainer.fill();
      for (int step = 0; step < 4; ++step) trainer.step();
      REQUIRE(trainer.sum() != 0);
      return std::optional{need};
    });
  } catch (const config_error&) {
    return std::nullopt;
  } catch (const out_of_memory&) {
    return std::nullopt;
  }
}

[[nodiscard]] inline std::uint64_t difference(bytes one, bytes other)
{
  return (std::max(one, other) - std::min(one, other)).count();
}

/// Trains on the bytes that the plan of a job names, and on one frame less.
/// @param of_tiers   the requirement names each tier's least bytes, too   @return   the difference in bytes
template <class Job>
[[nodiscard]] std::uint64_t bytes_apart(const Job& what, const job& each, support::dice& dice, bool of_tiers)
{
  const memory_requirement roomy = what.forecast({{plenty, plenty}}).need;
  REQUIRE(roomy.rehearsed);
  const bytes frame = roomy.chunk_bytes;
  const std::uint64_t most = (roomy.everything - roomy.smallest_device).count() / frame.count();
  const bytes device =
      roomy.smallest_device + frame * (dice.one_in(2) ? 0 : dice.below(static_cast<std::uint32_t>(most) + 1));
  const training_forecast found = what.forecast({{device, plenty}});
  const rank_settings& settings = each.settings;
  CAPTURE(name_of(each.shape.style), settings.divided.gradients, settings.divided.parameters, frame.count(),
          device.count(), settings.gradient.chosen(), each.layout.chosen(), settings.device_update_share,
          settings.takes_norm, settings.updates_late, settings.states.lists, settings.states.bytes_each, found.why_not);
  REQUIRE(found.fits);
  const bytes host = found.need.smallest_host;
  const training_forecast tight = what.forecast({{device, host}});
  CAPTURE(host.count(), tight.why_not);
  CHECK(tight.fits);
  const std::optional<memory_requirement> real = train(what, {{device, host}});
  CHECK(real);
  std::uint64_t apart = real ? difference(real->chunks, found.need.chunks) : frame.count();
  if (real && of_tiers)
    apart += difference(real->smallest_host, host) + difference(real->smallest_device, tight.need.smallest_device);
  if (host != bytes{} && train(what, {{device, host - frame}})) apart += frame.count();
  if (train(what, {{roomy.smallest_device - frame, plenty}})) apart += frame.count();
  CHECK(apart == 0);
  return apart;
}

/// @return   the difference of the plan and the training in bytes
[[nodiscard]] inline std::uint64_t try_job(std::uint64_t seed)
{
  support::dice dice{seed};
  job it = roll(dice);
  it.settings.states = states_of(seed);
  CAPTURE(seed);
  return bytes_apart(it, it, dice, true);
}

}  // namespace lone_plans
