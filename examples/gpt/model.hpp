// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parameters.hpp"

#include <chunkmem/chunkmem.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpt {

/// The tensors of one layer that its backward pass needs, for one row of the batch. Always fp32.
struct saved_layer {
  chunkmem::tensor<float> input;                 ///< [context, width]
  chunkmem::tensor<float> attention_statistics;  ///< [context, 2]
  chunkmem::tensor<float> qkv;                   ///< [context, 3 width]
  chunkmem::tensor<float> attended;              ///< [context, width]
  chunkmem::tensor<float> middle;                ///< [context, width], between attention and MLP
  chunkmem::tensor<float> mlp_statistics;        ///< [context, 2]
  chunkmem::tensor<float> hidden;                ///< [context, 4 width], before GELU or after ReLU
};

/// All tensors of a layer's activations, in the order of their first uses.
[[nodiscard]] inline std::array<chunkmem::tensor<float>, 7> of_layer(const saved_layer& saved) noexcept
{
  return {saved.input,  saved.attention_statistics, saved.qkv,   saved.attended,
          saved.middle, saved.mlp_statistics,       saved.hidden};
}

/// One row of the batch: the activations of a window of text.
struct row_activations {
  std::vector<saved_layer> layers;
  chunkmem::tensor<float> output;  ///< of the last layer
  chunkmem::tensor<float> slope;   ///< the gradient of the residual stream
  chunkmem::tensor<float> start;   ///< its first value, for a part whose backward run is divided in two
};

/// Handles of every tensor of the model, without data.
struct model : parameter_set {
  std::vector<row_activations> rows;
};

namespace detail {

template <class Manager>
saved_layer declare_activations(Manager& manager, const extents& size)
{
  const auto activation = [&](std::uint64_t rows, std::uint64_t columns) {
    return manager.template add<float>({rows, columns}, chunkmem::role::activation);
  };
  saved_layer layer;
  layer.input = activation(size.context, size.width);
  layer.attention_statistics = activation(size.context, 2);
  layer.qkv = activation(size.context, 3 * size.width);
  layer.attended = activation(size.context, size.width);
  layer.middle = activation(size.context, size.width);
  layer.mlp_statistics = activation(size.context, 2);
  layer.hidden = activation(size.context, 4 * size.width);
  return layer;
}

}  // namespace detail

/// Declares the activations of a batch, for the layers that the model has. @pre its parameters are declared
template <class Manager>
void declare_rows(Manager& manager, model& net)
{
  net.rows.resize(net.size.batch);
  for (std::size_t layer = 0; layer < net.layers.size(); ++layer) {
    for (row_activations& row : net.rows) row.layers.push_back(detail::declare_activations(manager, net.size));
  }
  for (row_activations& row : net.rows) {
    row.output = manager.template add<float>({net.size.context, net.size.width}, chunkmem::role::activation);
    row.slope = manager.template add<float>({net.size.context, net.size.width}, chunkmem::role::activation);
  }
}

/// Declares the whole model in the order of its use, so that tensors used together share chunks.
/// @param precision   what weights are stored in: float32, bfloat16 or float16
template <class Manager>
[[nodiscard]] model declare(Manager& manager, const extents& size, chunkmem::dtype precision)
{
  model net;
  declare_parameters(manager, net, size, precision);
  declare_rows(manager, net);
  return net;
}

}  // namespace gpt
