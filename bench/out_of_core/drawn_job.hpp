// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/sharding/zero.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace out_of_core {

namespace cm = chunkmem;

inline constexpr std::uint32_t ranks = 4;
inline constexpr cm::bytes least_share{4096 * 4};        // of a unit
inline constexpr cm::bytes frame = least_share * ranks;  // a unit of weights or gradients, and a tensor of activations
inline constexpr std::uint64_t elements_of_tensor = frame.count() / 2;

enum class moment_of_updates : std::uint8_t { at_once, late, early };
inline constexpr const char* moment_names[] = {"at once", "late", "early"};

struct layer {
  std::uint32_t weights = 1;  ///< tensors of one frame of 16-bit elements
  std::uint32_t saved = 1;    ///< frames apart from the output, which is one frame
  double forward_seconds = 0;
};

/// A random training of four ranks: a model, the rates of its machine, and the settings of the training.
struct job {
  std::uint64_t seed = 0;
  std::vector<layer> layers;
  cm::sharding::zero divided = cm::sharding::zero_3;
  moment_of_updates when = moment_of_updates::at_once;
  bool clips = false;
  double link_bytes_per_second = 0;     ///< each way
  double network_bytes_per_second = 0;  ///< of the port of a rank
  double host_updates_per_second = 0;   ///< parameters
  cm::bytes activations{};              ///< the room of the plan
  /// frames of the device for weights and gradients
  std::uint32_t others = 0;

  [[nodiscard]] std::uint64_t tensors() const
  {
    std::uint64_t all = 0;
    for (const layer& it : layers) all += it.weights;
    return all;
  }
  /// A shard has a chunk of its own, so that it waits for no other one. A unit takes as many chunks as there are ranks.
  [[nodiscard]] static cm::bytes chunk() { return least_share; }
  [[nodiscard]] double parameters() const { return static_cast<double>(tensors() * elements_of_tensor); }
  [[nodiscard]] cm::activation::layer_chain chain() const
  {
    cm::activation::layer_chain made;
    for (std::uint32_t index = 0; index < layers.size(); ++index) {
      const layer& it = layers[index];
      made.blocks.push_back({.name = "layer " + std::to_string(index),
                             .forward_seconds = it.forward_seconds,
                             .backward_seconds = 2 * it.forward_seconds,
                             .saved = frame * (it.saved + 1),
                             .boundary = frame,
                             .gradient = frame,
                             .passing_working = frame * it.saved,
                             .reads_input = index > 0});
    }
    return made;
  }
  [[nodiscard]] cm::activation::activation_budget budget() const
  {
    return {.device = activations,
            .to_host_bytes_per_second = link_bytes_per_second,
            .to_device_bytes_per_second = link_bytes_per_second,
            .frame = chunk(),
            .copy = frame};
  }
};

/// Consecutive seeds draw jobs of every ZeRO stage, time of updates and clipping in turn.
/// @param unit   seconds of the shortest forward run
[[nodiscard]] inline job draw_job(std::uint64_t seed, double unit)
{
  support::dice dice{seed};
  job it;
  it.seed = seed;
  constexpr cm::sharding::zero stages[] = {cm::sharding::zero_3, cm::sharding::zero_2, cm::sharding::zero_1};
  it.divided = stages[seed % 3];
  it.when = static_cast<moment_of_updates>(seed / 3 % 3);
  it.clips = seed % 2 == 0;
  const auto part = [&](std::uint32_t least, std::uint32_t most) { return dice.between(least, most) / 100.0; };
  it.layers.resize(dice.between(6, 12));
  double compute = 0;
  std::uint64_t saved = 0;
  std::uint64_t largest = 0;
  for (layer& each : it.layers) {
    each.weights = dice.between(1, 3);
    each.saved = dice.between(1, 4);
    each.forward_seconds = unit * each.weights * part(100, 200);
    compute += 3 * each.forward_seconds;
    saved += each.saved + 1;
    largest = std::max<std::uint64_t>(largest, each.saved + 1);
  }
  const double bytes_of_weights = 2 * it.parameters();
  const double moved = bytes_of_weights / ranks + static_cast<double>(saved * frame.count()) / 2;
  it.link_bytes_per_second = moved / (part(40, 110) * compute);
  it.network_bytes_per_second = 3 * bytes_of_weights * (ranks - 1) / ranks / (part(40, 110) * compute);
  it.host_updates_per_second = it.parameters() / ranks / (part(20, 80) * compute);
  it.activations = frame * std::max<std::uint64_t>(largest + 6, saved * dice.between(40, 90) / 100);
  // two layers of weights and gradients; where weights are whole on each rank, also room for a part of them
  const std::uint64_t whole = it.divided.parameters ? 0 : it.tensors() * dice.between(25, 100) / 100;
  it.others = static_cast<std::uint32_t>(12 + dice.between(2, 8) + whole);
  return it;
}

}  // namespace out_of_core
