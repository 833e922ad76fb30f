// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace workload {

/// The operators of a transformer, in the order of its forward pass.
enum class transformer_operator : std::uint8_t {
  embedding,  ///< tokens and positions, their norm and projection where a model has them
  attention_norm,
  qkv,
  attention_scores,  ///< queries times keys, and the softmax
  attention_values,  ///< scores times values
  projection,        ///< of the results of the heads
  mlp_norm,
  mlp_up,  ///< with the activation function
  mlp_down,
  final_norm,
  logits,
  loss,
};

inline constexpr std::size_t transformer_operator_count = 12;

[[nodiscard]] constexpr std::string_view name_of(transformer_operator which) noexcept
{
  constexpr std::string_view names[transformer_operator_count] = {
      "embedding", "attention_norm", "qkv",      "attention_scores", "attention_values", "projection",
      "mlp_norm",  "mlp_up",         "mlp_down", "final_norm",       "logits",           "loss"};
  return names[static_cast<std::size_t>(which)];
}

/// Whether it is there once for each layer.
[[nodiscard]] constexpr bool is_in_layer(transformer_operator which) noexcept
{
  return which >= transformer_operator::attention_norm && which <= transformer_operator::mlp_down;
}

}  // namespace workload

}  // namespace chunkmem::inline v0
