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

/// The layers as a chain: sizes as the model declares them for all rows of a batch, times by their products.
[[nodiscard]] inline chunkmem::activation::layer_chain chain_of(const extents& size)
{
  using chunkmem::bytes;
  constexpr double flops_per_second = 20e9;  // of one thread; a plan depends on its ratio to the copies alone
  const std::uint64_t stream = size.context * size.width;
  const double flops = 24.0 * static_cast<double>(stream) * static_cast<double>(size.width) +
                       4.0 * static_cast<double>(size.context) * static_cast<double>(stream);
  const double forward = static_cast<double>(size.batch) * flops / flops_per_second;
  chunkmem::activation::layer_chain chain{.blocks = {}, .input = bytes{4 * size.batch * stream}};
  for (std::size_t layer = 0; layer < size.layers; ++layer) {
    chunkmem::activation::chain_block block;
    block.name = "layer " + std::to_string(layer);
    block.forward_seconds = forward;
    block.backward_seconds = 2 * forward;
    block.boundary = bytes{4 * size.batch * stream};
    block.saved = bytes{4 * size.batch * (10 * stream + 4 * size.context)};
    block.gradient = block.boundary;
    block.passing_working = block.inner();
    block.reads_input = true;
    chain.blocks.push_back(block);
  }
  return chain;
}

/// @param device   room for activations, used by those that plan
[[nodiscard]] inline chunkmem::activation::activation_plan plan_layer_runs(activation_mode choice, const extents& size,
                                                                           chunkmem::bytes device)
{
  using namespace chunkmem::activation;
  constexpr double copies = 4e9;  // bytes a second, between two places of one memory
  const activation_budget budget{
      .device = device, .to_host_bytes_per_second = copies, .to_device_bytes_per_second = copies};
  const layer_chain chain = chain_of(size);
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
