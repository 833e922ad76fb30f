// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels.hpp"

#include <cstdint>

namespace plain_loops {

/// The model: known when the program starts. The width is a multiple of 8 and of the heads.
struct model_shape {
  int layers = 4;
  int width = 128;
  int heads = 4;
  int positions = 64;  ///< the longest sequence
};

/// Sequences of one step: known when the first batch was read.
struct batch_shape {
  int batch = 0;
  int context = 0;  ///< positions of each sequence, at most those of the model

  [[nodiscard]] constexpr int rows() const noexcept { return batch * context; }
};

/// The trained tensors, each with all its layers. Matrices are [inputs, outputs], tables [entries, width].
enum weight_kind : std::uint8_t {
  token_table,  // also the weight of the head
  position_table,
  norm1_gain,
  norm1_bias,
  qkv_weight,
  qkv_bias,
  projection_weight,
  projection_bias,
  norm2_gain,
  norm2_bias,
  expand_weight,
  expand_bias,
  contract_weight,
  contract_bias,
  final_gain,
  final_bias,
  weight_kinds,
};

/// The activations that a forward pass keeps for the backward pass, each with all its layers.
enum activation_kind : std::uint8_t {
  embedded,  // the input of the first layer
  norm1,
  norm1_mean,
  norm1_scale,
  qkv,
  attention,  // probabilities, [batch, heads, context, context]
  attended,
  middle,  // the residual stream between attention and MLP
  norm2,
  norm2_mean,
  norm2_scale,
  hidden,     // before GELU
  activated,  // after GELU
  output,     // the residual stream after the MLP
  final_norm,
  final_mean,
  final_scale,
  logits,
  activation_kinds,
};

/// The number of tensors of a kind, and the shape of each.
struct tensor_shape {
  int layers = 1;
  int rows = 1;
  int columns = 1;

  [[nodiscard]] constexpr int size() const noexcept { return rows * columns; }
};

[[nodiscard]] constexpr tensor_shape shape_of(weight_kind kind, const model_shape& model) noexcept
{
  const int layers = model.layers;
  const int width = model.width;
  switch (kind) {
    case token_table: return {1, vocabulary, width};
    case position_table: return {1, model.positions, width};
    case qkv_weight: return {layers, width, 3 * width};
    case qkv_bias: return {layers, 1, 3 * width};
    case projection_weight: return {layers, width, width};
    case expand_weight: return {layers, width, 4 * width};
    case expand_bias: return {layers, 1, 4 * width};
    case contract_weight: return {layers, 4 * width, width};
    case final_gain:
    case final_bias: return {1, 1, width};
    default: return {layers, 1, width};
  }
}

[[nodiscard]] constexpr tensor_shape shape_of(activation_kind kind, const model_shape& model,
                                              const batch_shape& batch) noexcept
{
  const int layers = model.layers;
  const int rows = batch.rows();
  switch (kind) {
    case embedded:
    case final_norm: return {1, rows, model.width};
    case norm1_mean:
    case norm1_scale:
    case norm2_mean:
    case norm2_scale: return {layers, rows, 1};
    case qkv: return {layers, rows, 3 * model.width};
    case attention: return {layers, batch.batch * model.heads * batch.context, batch.context};
    case hidden:
    case activated: return {layers, rows, 4 * model.width};
    case final_mean:
    case final_scale: return {1, rows, 1};
    case logits: return {1, rows, vocabulary};
    default: return {layers, rows, model.width};
  }
}

/// Matrices and tables decay; gains and biases do not.
[[nodiscard]] constexpr bool decays(weight_kind kind, const model_shape& model) noexcept
{
  return shape_of(kind, model).rows > 1;
}

/// The first value of number `index` of a weight, counted over all layers of its kind.
[[nodiscard]] inline float first_value(weight_kind kind, const model_shape& model, std::uint64_t seed, int index)
{
  if (kind == norm1_gain || kind == norm2_gain || kind == final_gain) return 1.0F;
  if (!decays(kind, model)) return 0.0F;
  constexpr float spread = 0.02F * 3.4641016F;  // a uniform number of deviation 0.02
  return (random_uniform(seed, kind, static_cast<std::uint64_t>(index)) - 0.5F) * spread;
}

/// The settings of every trainer of this example.
struct training {
  std::uint64_t seed = 1;
  float learning_rate = 1e-3F;
  float weight_decay = 0.1F;
  float temperature = 0.8F;
};

}  // namespace plain_loops
