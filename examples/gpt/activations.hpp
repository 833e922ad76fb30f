// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "activation_mode.hpp"
#include "extents.hpp"

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/chain_timeline.hpp>
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/activation/planners.hpp>

#include <cstdint>
#include <string>

namespace gpt {

/// The seconds of one layer for all rows of a micro-batch, and the rates of links. With the defaults only the order of
/// layers is meaningful.
struct chain_rates {
  double forward_seconds = 1;
  double backward_seconds = 2;
  double to_host_bytes_per_second = 1;
  double to_device_bytes_per_second = 1;
};

/// The layers as a chain: sizes as the model declares them for all rows of a batch.
[[nodiscard]] inline chunkmem::activation::layer_chain chain_of(const extents& size, const chain_rates& rates = {})
{
  using chunkmem::bytes;
  const std::uint64_t stream = size.context * size.width;
  chunkmem::activation::layer_chain chain{.blocks = {}, .input = bytes{4 * size.batch * stream}};
  for (std::size_t layer = 0; layer < size.layers; ++layer) {
    chunkmem::activation::chain_block block;
    block.name = "layer " + std::to_string(layer);
    block.forward_seconds = rates.forward_seconds;
    block.backward_seconds = rates.backward_seconds;
    block.boundary = bytes{4 * size.batch * stream};
    block.saved = bytes{4 * size.batch * (10 * stream + 4 * size.context)};
    block.gradient = block.boundary;
    block.passing_working = block.inner();
    block.reads_input = true;
    chain.blocks.push_back(block);
  }
  return chain;
}

/// @param device   room for activations; only planners use it, and `rates`
[[nodiscard]] inline chunkmem::activation::activation_plan plan_layer_runs(activation_mode choice, const extents& size,
                                                                           chunkmem::bytes device = {},
                                                                           const chain_rates& rates = {})
{
  using namespace chunkmem::activation;
  const activation_budget budget{.device = device,
                                 .to_host_bytes_per_second = rates.to_host_bytes_per_second,
                                 .to_device_bytes_per_second = rates.to_device_bytes_per_second};
  const layer_chain chain = chain_of(size, rates);
  switch (choice) {
    case activation_mode::recompute: return recompute_all{}.plan(chain, budget);
    case activation_mode::karma: return karma{}.plan(chain, budget);
    case activation_mode::planned: return planned{}.plan(chain, budget);
    case activation_mode::swap:
    case activation_mode::sample:
    case activation_mode::keep: break;
  }
  return keep_all{}.plan(chain, budget);
}

}  // namespace gpt
