// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/checked.hpp>
#include <chunkmem/workload/transformer_operator.hpp>
#include <chunkmem/workload/transformer_shape.hpp>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace chunkmem::inline v0 {

namespace workload {

/// A trained tensor of a transformer.
///
///     std::uint64_t elements = 0;
///     for (const transformer_tensor& it : tensors_of(shape)) elements += it.elements();
struct transformer_tensor {
  transformer_operator part = transformer_operator::embedding;  ///< its operator; a shared table is the embedding's
  std::uint64_t layer = 0;                                      ///< of a part that is in a layer
  std::uint64_t rows = 0;
  std::uint64_t columns = 1;  ///< 1: a vector
  std::uint32_t module = 0;   ///< tensors that trainers declare together share it

  /// @throws size_overflow
  [[nodiscard]] constexpr std::uint64_t elements() const { return (checked{rows} * columns).value(); }
};

namespace detail {

/// Says one tensor after the other, in the order in which the published models construct them.
template <class Visit>
class transformer_walk {
 public:
  constexpr transformer_walk(const transformer_shape& shape, Visit& visit) : s_{shape}, visit_{visit} {}

  constexpr void before_layers()
  {
    using enum transformer_operator;
    const std::uint64_t h = s_.hidden;
    module(embedding, {{s_.vocabulary, s_.embedding}});
    if (s_.positions != 0) module(embedding, {{s_.positions, h}});
    if (s_.has_token_types()) module(embedding, {{2, h}}), module(embedding, {{h, 1}, {h, 1}});
    if (s_.projects_embedding()) module(embedding, {{s_.embedding, h}}), module(logits, {{h, s_.embedding}});
  }
  constexpr void layer(std::uint64_t number)
  {
    layer_ = number;
    switch (s_.style) {
      case transformer_style::llama: return llama_layer();
      case transformer_style::opt: return opt_layer();
      default: return gpt_layer();
    }
  }
  constexpr void after_layers()
  {
    layer_ = 0;
    if (s_.has_final_norm()) norm(transformer_operator::final_norm);
    if (!s_.ties_embedding) module(transformer_operator::logits, {{s_.embedding, s_.vocabulary}});
  }

 private:
  struct extents {
    std::uint64_t rows;
    std::uint64_t columns;
  };

  constexpr void module(transformer_operator part, std::initializer_list<extents> tensors)
  {
    for (const extents& it : tensors) visit_(transformer_tensor{part, layer_, it.rows, it.columns, modules_});
    ++modules_;
  }
  constexpr void norm(transformer_operator part)
  {
    s_.has_biases() ? module(part, {{s_.hidden, 1}, {s_.hidden, 1}}) : module(part, {{s_.hidden, 1}});
  }
  constexpr void linear(transformer_operator part, std::uint64_t inputs, std::uint64_t outputs)
  {
    s_.has_biases() ? module(part, {{inputs, outputs}, {outputs, 1}}) : module(part, {{inputs, outputs}});
  }
  constexpr void split_qkv()
  {
    linear(transformer_operator::qkv, s_.hidden, s_.hidden);
    linear(transformer_operator::qkv, s_.hidden, s_.kv_width());
    linear(transformer_operator::qkv, s_.hidden, s_.kv_width());
  }
  constexpr void gpt_layer()
  {
    using enum transformer_operator;
    norm(attention_norm);
    linear(qkv, s_.hidden, (checked{s_.hidden} + checked{2} * s_.kv_width()).value());
    linear(projection, s_.hidden, s_.hidden);
    norm(mlp_norm);
    linear(mlp_up, s_.hidden, s_.ffn);
    linear(mlp_down, s_.ffn, s_.hidden);
  }
  constexpr void opt_layer()
  {
    using enum transformer_operator;
    split_qkv();
    linear(projection, s_.hidden, s_.hidden);
    norm(attention_norm);
    linear(mlp_up, s_.hidden, s_.ffn);
    linear(mlp_down, s_.ffn, s_.hidden);
    norm(mlp_norm);
  }
  constexpr void llama_layer()
  {
    using enum transformer_operator;
    split_qkv();
    linear(projection, s_.hidden, s_.hidden);
    linear(mlp_up, s_.hidden, s_.ffn);
    linear(mlp_up, s_.hidden, s_.ffn);
    linear(mlp_down, s_.ffn, s_.hidden);
    norm(attention_norm);
    norm(mlp_norm);
  }

  const transformer_shape& s_;
  Visit& visit_;
  std::uint64_t layer_ = 0;
  std::uint32_t modules_ = 0;
};

}  // namespace detail

/// Every trained tensor, in the order of construction.
/// @throws config_error, size_overflow   no such shape
/// Cost: O(layers), 40 B for each tensor.
[[nodiscard]] constexpr std::vector<transformer_tensor> tensors_of(const transformer_shape& shape)
{
  shape.check();
  std::vector<transformer_tensor> all;
  const auto take = [&](const transformer_tensor& declared) { all.push_back(declared); };
  detail::transformer_walk walk{shape, take};
  walk.before_layers();
  for (std::uint64_t layer = 0; layer < shape.layers; ++layer) walk.layer(layer);
  walk.after_layers();
  return all;
}

/// Elements of all trained tensors together; a tied table counts once. O(1).
/// @throws config_error, size_overflow   no such shape
[[nodiscard]] constexpr std::uint64_t parameters_of(const transformer_shape& shape)
{
  shape.check();
  checked sum;
  const auto add = [&](const transformer_tensor& declared) { sum += declared.elements(); };
  detail::transformer_walk walk{shape, add};
  walk.layer(0);
  sum *= shape.layers;
  walk.before_layers();
  walk.after_layers();
  return sum.value();
}

}  // namespace workload

}  // namespace chunkmem::inline v0
