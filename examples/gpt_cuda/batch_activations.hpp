// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "activation_mode.hpp"
#include "extents.hpp"
#include "options.hpp"

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/activation/planners.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpt::cuda {

/// The layers as a chain, for all rows of a micro-batch: sizes of tensors and leases, times by counted operations.
///
/// Clocks of the host would only see launches, so products and attention are counted, each multiplication and each
/// addition.
/// @param rate   operations a second; at 1 the times are counts
[[nodiscard]] inline chunkmem::activation::layer_chain batch_chain(const extents& size, double rate = 1.0)
{
  using chunkmem::bytes;
  const auto width = static_cast<double>(size.width);
  const auto context = static_cast<double>(size.context);
  const double rows = static_cast<double>(size.batch) * context;
  const bytes stream{2 * std::uint64_t{size.batch} * size.context * size.width};
  chunkmem::activation::chain_block block;
  block.forward_seconds = rows * width * (24 * width + 4 * context) / rate;
  block.backward_seconds = rows * width * (48 * width + 10 * context) / rate;
  block.boundary = stream;
  block.saved = 10 * stream;
  block.gradient = stream;
  block.forward_working = 5 * stream;
  block.passing_working = 9 * stream;
  block.backward_working = 11 * stream;
  block.reads_input = true;
  chunkmem::activation::layer_chain chain{.blocks = {}, .input = stream};
  for (std::size_t layer = 0; layer < size.layers; ++layer) {
    block.name = "layer " + std::to_string(layer);
    chain.blocks.push_back(block);
  }
  return chain;
}

/// @param choice   of `chosen`, or another one
/// @param device   room for activations, which only planners use
[[nodiscard]] inline chunkmem::activation::activation_plan plan_batch(activation_mode choice, const options& chosen,
                                                                      chunkmem::bytes device)
{
  using namespace chunkmem::activation;
  const layer_chain chain = batch_chain(chosen.size, chosen.device_rate);
  const activation_budget budget{
      .device = device, .to_host_bytes_per_second = chosen.link_rate, .to_device_bytes_per_second = chosen.link_rate};
  switch (choice) {
    case activation_mode::recompute:  // the last layer too: its backward run needs the same room in any case
      return plan_of("recompute", chain, budget, std::vector<block_action>(chain.size(), block_action::recompute));
    case activation_mode::karma: return karma{}.plan(chain, budget);
    case activation_mode::planned: return planned{}.plan(chain, budget);
    case activation_mode::swap:
    case activation_mode::keep:
    case activation_mode::sample: break;  // as swap, but one tensor keeps only some rows
  }
  return keep_all{}.plan(chain, budget);
}

}  // namespace gpt::cuda
