// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/workload/picture_costs.hpp>
#include <chunkmem/workload/picture_network.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace chunkmem::inline v0 {

namespace activation {

namespace detail {

/// Operators from one cut of a network to the next.
class picture_block {
 public:
  picture_block(const workload::picture_device& device, std::uint64_t pictures)
      : device_{device}, pictures_{pictures}, element_{workload::picture_element_bytes * pictures}
  {
  }

  void add(const workload::picture_operator& layer)
  {
    const double pictures = static_cast<double>(pictures_);
    block_.forward_seconds += pictures * workload::forward_seconds(layer, device_);
    block_.backward_seconds += pictures * workload::backward_seconds(layer, device_);
    block_.saved += layer.saved_elements * element_;
    if (layer.is_carried) block_.saved -= layer.output_elements * element_;
    block_.boundary = layer.output_elements * element_;
    block_.carried = std::max(block_.carried, layer.carried_elements * element_);
  }

  [[nodiscard]] chain_block finish(std::size_t last)
  {
    block_.name = "operators up to " + std::to_string(last);
    block_.passing_working = block_.inner();
    return std::exchange(block_, {});
  }

 private:
  const workload::picture_device& device_;
  std::uint64_t pictures_;
  bytes element_;
  chain_block block_;
};

}  // namespace detail

/// A convolutional network as a chain: a block between each two places where it can be cut.
///
/// A network is not cut before a ReLU, which works in place, nor after a concatenation, whose parts are kept. A carried
/// tensor stays on the device until the backward run of the block that made it. A run that saves nothing holds the
/// whole block until it ends. Gradients and workspace are not counted: subtract them from the budget.
///
///     const layer_chain chain = chain_of(workload::resnet(50), {9.42e12, 700e9}, 256);
///
/// @param  pictures   of a batch
/// @throws config_error   a rate of the device is no finite number above 0; size_overflow
[[nodiscard]] inline layer_chain chain_of(const workload::picture_network& network,
                                          const workload::picture_device& device, std::uint64_t pictures)
{
  using kind = workload::picture_operator_kind;
  layer_chain chain;
  if (network.operators.empty()) return chain;
  chain.input = network.operators.front().input_elements * bytes{workload::picture_element_bytes * pictures};
  detail::picture_block block{device, pictures};
  for (std::size_t index = 0; index < network.operators.size(); ++index) {
    const workload::picture_operator& layer = network.operators[index];
    block.add(layer);
    const bool is_last = index + 1 == network.operators.size();
    const bool may_cut = layer.ends_block && layer.kind != kind::concatenation;
    if (is_last || (may_cut && network.operators[index + 1].kind != kind::relu))
      chain.blocks.push_back(block.finish(index));
  }
  return chain;
}

}  // namespace activation

}  // namespace chunkmem::inline v0
