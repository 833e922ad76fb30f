#pragma once

#include "extents.hpp"
#include "precision.hpp"
#include "random.hpp"

#include <chunkmem/chunkmem.hpp>
#include <chunkmem/tensor/half.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

/// How a parameter starts.
enum class start : std::uint8_t {
  random,  ///< uniform around zero with the deviation given
  zero,    ///< biases
  norm,    ///< {gain, bias} of a layer norm: ones, then zeros
};

/// A trained tensor, whose element type is known when the program runs.
struct weight : chunkmem::tensor_handle {
  chunkmem::dtype type = chunkmem::dtype::float32;
  std::uint64_t elements = 0;

  /// @pre   `Element` is what it was declared with
  template <class Element>
  [[nodiscard]] constexpr chunkmem::tensor<Element> as() const noexcept
  {
    return {static_cast<const chunkmem::tensor_handle&>(*this)};
  }
};

/// A trained tensor and its first values.
struct parameter {
  weight tensor;
  start from = start::zero;
  float deviation = 0.0f;
};

/// The weights of one layer. Products are row vectors times [inputs, outputs]; a norm is {gain, bias}.
struct layer_weights {
  weight attention_norm, qkv, qkv_bias, projection, projection_bias;
  weight mlp_norm, expand, expand_bias, contract, contract_bias;
};

/// What the forward pass of one layer leaves for its backward pass, for one row of the batch. Always fp32.
struct layer_activations {
  chunkmem::tensor<float> input;                 ///< [context, width]
  chunkmem::tensor<float> attention_statistics;  ///< [context, 2]
  chunkmem::tensor<float> qkv;                   ///< [context, 3 width]
  chunkmem::tensor<float> attended;              ///< [context, width]
  chunkmem::tensor<float> middle;                ///< [context, width], between attention and MLP
  chunkmem::tensor<float> mlp_statistics;        ///< [context, 2]
  chunkmem::tensor<float> hidden;                ///< [context, 4 width], before GELU
};

/// One row of the batch: a window of text on its way through the layers.
struct row_activations {
  std::vector<layer_activations> layers;
  chunkmem::tensor<float> output;  ///< of the last layer
  chunkmem::tensor<float> slope;   ///< the gradient of the residual stream, on its way back
};

/// Handles of every tensor of the model: no data.
struct model {
  extents size;
  weight token_table, position_table, final_norm;
  std::vector<layer_weights> layers;
  std::vector<row_activations> rows;
  std::vector<parameter> parameters;  ///< all of them, in the order they were declared
};

namespace detail {

/// Adds tensors to a manager and notes which of them are trained.
template <class Manager>
struct declaration {
  Manager& manager;
  model& net;
  chunkmem::dtype precision;

  gpt::weight weight(std::uint64_t inputs, std::uint64_t outputs, float deviation)
  {
    return trained({inputs, outputs}, start::random, deviation);
  }
  gpt::weight bias(std::uint64_t outputs) { return trained({outputs}, start::zero, 0.0f); }
  gpt::weight norm(std::uint64_t width) { return trained({2, width}, start::norm, 0.0f); }
  chunkmem::tensor<float> activation(std::uint64_t rows, std::uint64_t columns)
  {
    return manager.template add<float>({rows, columns}, chunkmem::role::activation);
  }

 private:
  gpt::weight trained(const chunkmem::shape& size, start from, float deviation)
  {
    const chunkmem::tensor_handle handle = with_element(precision, [&](auto element) -> chunkmem::tensor_handle {
      return manager.template add<decltype(element)>(size, chunkmem::role::parameter);
    });
    net.parameters.push_back({{handle, precision, size.elements()}, from, deviation});
    return net.parameters.back().tensor;
  }
};

template <class Manager>
layer_weights declare_weights(declaration<Manager> make, const extents& size)
{
  const std::uint64_t width = size.width;
  const float deviation = 0.02f;
  const float residual = deviation / std::sqrt(2.0f * static_cast<float>(size.layers));
  layer_weights layer;
  layer.attention_norm = make.norm(width);
  layer.qkv = make.weight(width, 3 * width, deviation);
  layer.qkv_bias = make.bias(3 * width);
  layer.projection = make.weight(width, width, residual);
  layer.projection_bias = make.bias(width);
  layer.mlp_norm = make.norm(width);
  layer.expand = make.weight(width, 4 * width, deviation);
  layer.expand_bias = make.bias(4 * width);
  layer.contract = make.weight(4 * width, width, residual);
  layer.contract_bias = make.bias(width);
  return layer;
}

template <class Manager>
layer_activations declare_activations(declaration<Manager> make, const extents& size)
{
  layer_activations layer;
  layer.input = make.activation(size.context, size.width);
  layer.attention_statistics = make.activation(size.context, 2);
  layer.qkv = make.activation(size.context, 3 * size.width);
  layer.attended = make.activation(size.context, size.width);
  layer.middle = make.activation(size.context, size.width);
  layer.mlp_statistics = make.activation(size.context, 2);
  layer.hidden = make.activation(size.context, 4 * size.width);
  return layer;
}

/// Names for files: what a weight is, with the number of its layer.
template <class Manager>
void name_weights(Manager& manager, const model& net)
{
  manager.name(net.token_table, "token_table");
  manager.name(net.position_table, "position_table");
  manager.name(net.final_norm, "final_norm");
  for (std::size_t at = 0; at < net.layers.size(); ++at) {
    const layer_weights& it = net.layers[at];
    const auto name = [&](const weight& which, const char* what) { manager.name(which, "layers." + std::to_string(at) + '.' + what); };
    name(it.attention_norm, "attention_norm");
    name(it.qkv, "qkv"), name(it.qkv_bias, "qkv_bias");
    name(it.projection, "projection"), name(it.projection_bias, "projection_bias");
    name(it.mlp_norm, "mlp_norm");
    name(it.expand, "expand"), name(it.expand_bias, "expand_bias");
    name(it.contract, "contract"), name(it.contract_bias, "contract_bias");
  }
}

}  // namespace detail

/// Declares the whole model in the order of its use, so that neighbours in time share chunks.
/// @param precision   what weights are stored in: float32, bfloat16 or float16
template <class Manager>
[[nodiscard]] model declare(Manager& manager, const extents& size, chunkmem::dtype precision)
{
  model net;
  net.size = size;
  detail::declaration<Manager> make{manager, net, precision};
  net.token_table = make.weight(vocabulary, size.width, 0.04f);
  net.position_table = make.weight(size.context, size.width, 0.02f);
  for (std::size_t layer = 0; layer < size.layers; ++layer) net.layers.push_back(detail::declare_weights(make, size));
  net.final_norm = make.norm(size.width);
  detail::name_weights(manager, net);
  net.rows.resize(size.batch);
  for (std::size_t layer = 0; layer < size.layers; ++layer) {
    for (row_activations& row : net.rows) row.layers.push_back(detail::declare_activations(make, size));
  }
  for (row_activations& row : net.rows) {
    row.output = make.activation(size.context, size.width);
    row.slope = make.activation(size.context, size.width);
  }
  return net;
}

/// The first value of one number of a parameter.
[[nodiscard]] inline float first_value(const parameter& each, const counter_random& random, std::uint64_t i)
{
  const float uniform_deviation = std::sqrt(1.0f / 12.0f);
  switch (each.from) {
    case start::random: return (random.uniform(i) - 0.5f) * (each.deviation / uniform_deviation);
    case start::norm: return i < each.tensor.elements / 2 ? 1.0f : 0.0f;
    default: return 0.0f;
  }
}

/// Gives every parameter its first values, which depend on the seed and on the place of each number only, rounded to
/// nearest where they are stored in 16 bits.
template <class Manager>
void fill(Manager& manager, const model& net, std::uint64_t seed)
{
  for (std::size_t which = 0; which < net.parameters.size(); ++which) {
    const parameter& each = net.parameters[which];
    const counter_random random{seed, stream::weights + which};
    with_element(each.tensor.type, [&](auto element) {
      using stored = decltype(element);
      const auto pin = manager.acquire(each.tensor.template as<stored>(), chunkmem::access::write);
      const auto values = pin.span();
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = chunkmem::round_to<stored>(first_value(each, random, i));
      }
    });
  }
}

}  // namespace gpt
