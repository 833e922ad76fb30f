// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/planner/layer_activations.hpp>
#include <chunkmem/planner/step_bound.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace chunkmem::inline v0 {

namespace planner {

/// The activations of equal layers, before any decision about them.
///
///     const activation_needs needs = activation_needs_of(shape, setup, share, settings);
struct activation_needs {
  std::uint64_t layers = 0;
  double kept = 0;           ///< bytes that a layer keeps for its backward pass
  double input = 0;          ///< bytes that it keeps if it runs forward again
  double again_seconds = 0;  ///< of one layer's second forward run
};

/// A lower bound of the time of a step, for all decisions about weights, states and activations.
///
///     const joint_step_bound bound = joint_step_bound_of(shape, setup, share, settings);
///     std::cout << bound.step.seconds << " s, with " << bound.recomputed << " layers computed again\n";
struct joint_step_bound {
  step_bound step;
  std::uint64_t recomputed = 0;  ///< layers, for which the bound is this low
  double swapped = 0;            ///< bytes of activations each way, for which the bound is this low
};

namespace detail {

/// The least of a convex function of whole numbers.
template <class Function>
[[nodiscard]] std::uint64_t least_whole(std::uint64_t low, std::uint64_t high, Function of)
{
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    of(middle) <= of(middle + 1) ? high = middle : low = middle + 1;
  }
  return low;
}

/// The bound where so many layers run forward again and `held` bytes stay on the device at the turn.
[[nodiscard]] inline joint_step_bound bound_with(const step_needs& needs, const activation_needs& activations,
                                                 std::uint64_t recomputed, double held)
{
  step_needs with = needs;
  const auto again = static_cast<double>(recomputed);
  const double all =
      again * activations.input + static_cast<double>(activations.layers - recomputed) * activations.kept;
  with.backward_seconds += again * activations.again_seconds;
  with.device_at_turn -= std::min(held, all);
  with.swapped = all - std::min(held, all);
  return {step_bound_of(with), recomputed, with.swapped};
}

}  // namespace detail

/// The bound of a rank whose activations are free too: each layer keeps its bytes or runs forward again; kept bytes
/// stay on the device or go to the host and come back.
///
/// At the turn, the kept bytes of all layers are on the device or on the host. Bytes on the device leave less room for
/// weights and states. The others were copied down before the turn, and come back before the last gradient. A layer
/// that runs again keeps its input, and computes longer. These are lines in the number of such layers and in the bytes
/// that stay, so the bound of step_bound_of is convex in both, and its least value is found by halving. Of all layers
/// the same number runs again in every step; the mean of steps that differ has no less work.
/// @param needs   without activations that move: step_needs_of with layer_activations::all(layers, false, true)
/// Cost: some 180 log(layers) bounds; a second for a hundred layers.
[[nodiscard]] inline joint_step_bound joint_step_bound_of(const step_needs& needs, const activation_needs& activations)
{
  const auto seconds = [&](std::uint64_t recomputed, double held) {
    const step_bound found = detail::bound_with(needs, activations, recomputed, held).step;
    return found.fits ? found.seconds : std::numeric_limits<double>::infinity();
  };
  const auto held_at = [&](std::uint64_t recomputed) {
    const double most = std::clamp(needs.device_at_turn, 0.0, 1e18);
    return detail::least_between(0, most, [&](double held) { return seconds(recomputed, held); });
  };
  const std::uint64_t recomputed =
      detail::least_whole(0, activations.layers, [&](std::uint64_t count) { return seconds(count, held_at(count)); });
  return detail::bound_with(needs, activations, recomputed, held_at(recomputed));
}

/// The activations of a workload on one rank of a machine. @throws   as forecast_training
[[nodiscard]] inline activation_needs activation_needs_of(const workload::transformer_shape& shape,
                                                          const workload::training_setup& setup,
                                                          const workload::rank_share& share,
                                                          const rank_settings& settings = {})
{
  settings.check(), share.check();
  const workload::transformer_costs costs{shape, setup};
  return {shape.layers, static_cast<double>(costs.layer().kept.count()),
          static_cast<double>(costs.checkpoint().count()),
          static_cast<double>(costs.layer().forward_flops) /
              (share.rates.device_flops_per_second * settings.reached_share)};
}

/// The bound of a workload on one rank of a machine. `setup.recomputes_layers` is ignored.
///
/// Use:
///
///     const planner::joint_step_bound bound = planner::joint_step_bound_of(shape, {.micro_batch = 4}, share);
///     if (bound.step.fits) std::cout << "at least " << bound.step.seconds << " s\n";
///
/// @throws   as forecast_training
[[nodiscard]] inline joint_step_bound joint_step_bound_of(const workload::transformer_shape& shape,
                                                          const workload::training_setup& setup,
                                                          const workload::rank_share& share,
                                                          const rank_settings& settings = {})
{
  return joint_step_bound_of(
      step_needs_of(shape, setup, share, settings, layer_activations::all(shape.layers, false, true)),
      activation_needs_of(shape, setup, share, settings));
}

}  // namespace planner

}  // namespace chunkmem::inline v0
