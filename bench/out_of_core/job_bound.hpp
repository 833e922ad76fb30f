// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "drawn_job.hpp"

#include <chunkmem/planner/step_bound.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace out_of_core {

/// The time of the tensors of the first layer from their sums to their gathers, where the host updates them one after
/// the other: at least the work of each stage for all of them, plus the work of the other stages for one.
[[nodiscard]] inline double border_seconds(const job& it, double sum_seconds)
{
  const double share = static_cast<double>(elements_of_tensor) / ranks;
  const double copy = 2 * share / it.link_bytes_per_second;
  const double update = share / it.host_updates_per_second;
  const double others = it.layers.front().weights - 1;
  const double one = 2 * sum_seconds + 2 * copy + update;  // sum, copy, update, copy, gather
  const double port = 2 * sum_seconds * it.layers.front().weights;
  return std::max(one + others * std::max({sum_seconds, copy, update}), port);
}

/// The needs of a job's rank with a plan of activations, which names the recomputed blocks.
/// @param swapped   bytes of activations that are on the host between the two passes
[[nodiscard]] inline cm::planner::step_needs needs_of(const job& it, const cm::activation::activation_plan& plan,
                                                      cm::bytes device, double swapped)
{
  const cm::activation::layer_chain chain = it.chain();
  cm::planner::step_needs made;
  made.parameters = it.parameters() / ranks;
  const bool keeps_whole = !it.divided.parameters;
  made.unread = keeps_whole ? made.parameters : 0;
  made.kept_whole = keeps_whole ? it.parameters() : 0;
  made.forward_seconds = chain.forward_seconds();
  made.backward_seconds = chain.backward_seconds() + plan.costs.recomputed_seconds;
  double held = 0;
  for (std::uint32_t index = 0; index < chain.size(); ++index) {
    const auto& block = chain.blocks[index];
    const bool again = runs_again(plan.action_of(index));
    held += static_cast<double>((again ? block.boundary : block.saved).count());
    made.blocks.push_back({.parameters = static_cast<double>(it.layers[index].weights * elements_of_tensor) / ranks,
                           .forward_seconds = block.forward_seconds,
                           .backward_seconds = block.backward_seconds + (again ? block.forward_seconds : 0)});
  }
  made.swapped = swapped;
  made.device_between = static_cast<double>(device.count());
  made.device_at_peak = made.device_at_turn = made.device_between - (held - swapped);
  made.host = 1e18;
  made.gathered_bytes = 2 * made.parameters * (ranks - 1);
  made.gather_seconds = 2 * it.parameters() * (ranks - 1) / ranks / it.network_bytes_per_second;
  made.least_block_seconds = made.gather_seconds / static_cast<double>(it.tensors());
  made.border_seconds = border_seconds(it, made.least_block_seconds);
  made.rates = {.to_device_bytes_per_second = it.link_bytes_per_second,
                .to_host_bytes_per_second = it.link_bytes_per_second,
                .host_memory_bytes_per_second = 1e30,
                .host_updates_per_second = it.host_updates_per_second,
                .device_updates_per_second = 1e-9};
  made.takes_norm = it.clips;
  made.undoes = it.when == moment_of_updates::early;
  made.updates_at_once = it.when != moment_of_updates::late;
  return made;
}

/// The bound of a job: copies of activations to the host are free.
[[nodiscard]] inline cm::planner::step_bound bound_of(const job& it, const cm::activation::activation_plan& plan,
                                                      cm::bytes device)
{
  cm::planner::step_bound least;
  least.seconds = std::numeric_limits<double>::infinity();
  const double all = static_cast<double>(it.chain().saved().count());
  for (double swapped = 0; swapped <= all; swapped += static_cast<double>(frame.count())) {
    const cm::planner::step_needs needs = needs_of(it, plan, device, swapped);
    if (needs.device_at_turn < 0 || needs.device_at_turn > needs.device_between) continue;
    const cm::planner::step_bound found = cm::planner::step_bound_of(needs);
    if (found.fits && found.seconds < least.seconds) least = found;
  }
  return least;
}

}  // namespace out_of_core
