// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace workload {

/// The structure of a layer.
enum class transformer_style : std::uint8_t {
  gpt,    ///< one matrix for queries, keys and values; biases; norms with gain and bias; MLP of two matrices
  bert,   ///< as gpt, with types of tokens and a norm after the embedding, and none after the last layer
  opt,    ///< as gpt, with a matrix each for queries, keys and values
  llama,  ///< as opt, without biases; norms with a gain alone; gated MLP of three matrices; no dropout
};

inline constexpr std::size_t transformer_style_count = 4;

[[nodiscard]] constexpr std::string_view name_of(transformer_style style) noexcept
{
  constexpr std::string_view names[transformer_style_count] = {"gpt", "bert", "opt", "llama"};
  return names[static_cast<std::size_t>(style)];
}

/// The invalid member of a shape, if there is one.
///
///     const shape_problem wrong = shape.problem();
///     if (!wrong.member.empty()) std::cerr << wrong.member << ' ' << wrong.why;
struct shape_problem {
  std::string_view member;  ///< empty: nothing
  std::string_view why;
};

/// A decoder or encoder of equal layers. Its parameters and costs follow from these numbers. Elements, not bytes.
///
///     const transformer_shape shape = shape_of("PatrickStar", "GPT2small");
struct transformer_shape {
  transformer_style style = transformer_style::gpt;
  std::uint64_t layers = 0;
  std::uint64_t hidden = 0;  ///< width of the stream between layers
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;  ///< heads of keys and values: fewer than heads where queries share them
  std::uint64_t ffn = 0;       ///< width inside the MLP
  std::uint64_t vocabulary = 0;
  std::uint64_t embedding = 0;   ///< width of the tables of tokens; where it is not `hidden`, two matrices project
  std::uint64_t positions = 0;   ///< rows of the table of positions; 0: they are not learned
  std::uint64_t sequence = 0;    ///< tokens of a row of a batch
  bool ties_embedding = true;    ///< logits use the table of tokens
  std::uint64_t head_width = 0;  ///< of one head; 0: hidden / heads
  bool has_qkv_biases = false;   ///< where the style has none: of queries, keys and values alone (Qwen2)
  bool norms_heads = false;      ///< queries and keys have a norm with a gain for each number of a head (Qwen3)
  std::uint64_t experts = 0;     ///< MLPs of a layer, of width `ffn` each, after a router; 0: one without a router
  std::uint64_t experts_for_token = 0;  ///< experts of one token

  static constexpr std::uint64_t most_layers = 65'536;
  static constexpr std::uint64_t most_experts = 65'536;
  static constexpr std::uint64_t most_width = std::uint64_t{1} << 40;

  [[nodiscard]] constexpr bool operator==(const transformer_shape&) const noexcept = default;

  /// The width of queries, keys or values in one head.
  [[nodiscard]] constexpr std::uint64_t width_of_head() const noexcept
  {
    return head_width == 0 ? hidden / heads : head_width;
  }
  /// The width of queries, and of the results of all heads.
  [[nodiscard]] constexpr std::uint64_t query_width() const noexcept { return width_of_head() * heads; }
  /// The width of keys, or of values.
  [[nodiscard]] constexpr std::uint64_t kv_width() const noexcept { return width_of_head() * kv_heads; }
  /// MLPs of one token.
  [[nodiscard]] constexpr std::uint64_t mlps_for_token() const noexcept { return experts == 0 ? 1 : experts_for_token; }
  [[nodiscard]] constexpr bool has_biases() const noexcept { return style != transformer_style::llama; }
  [[nodiscard]] constexpr bool has_gate() const noexcept { return style == transformer_style::llama; }
  [[nodiscard]] constexpr bool has_token_types() const noexcept { return style == transformer_style::bert; }
  [[nodiscard]] constexpr bool splits_qkv() const noexcept
  {
    return style == transformer_style::opt || style == transformer_style::llama;
  }
  [[nodiscard]] constexpr bool projects_embedding() const noexcept { return embedding != hidden; }
  /// Some models have no norm after the last layer, since each norm follows its part: BERT, and OPT where it projects.
  [[nodiscard]] constexpr bool has_final_norm() const noexcept
  {
    return style != transformer_style::bert && !(style == transformer_style::opt && projects_embedding());
  }

  /// The first invalid member.
  [[nodiscard]] constexpr shape_problem problem() const noexcept
  {
    if (layers == 0) return {"layers", "is 0"};
    if (layers > most_layers) return {"layers", "is above 65536"};
    if (hidden == 0) return {"hidden", "is 0"};
    if (heads == 0) return {"heads", "is 0"};
    if (head_width == 0 && hidden % heads != 0) return {"heads", "does not divide hidden"};
    if (head_width > most_width / heads) return {"head_width", "makes queries wider than 2^40"};
    if (kv_heads == 0) return {"kv_heads", "is 0"};
    if (heads % kv_heads != 0) return {"kv_heads", "does not divide heads"};
    if (ffn == 0) return {"ffn", "is 0"};
    if (vocabulary == 0) return {"vocabulary", "is 0"};
    if (embedding == 0) return {"embedding", "is 0"};
    if (sequence == 0) return {"sequence", "is 0"};
    if (positions != 0 && positions < sequence) return {"positions", "is below sequence, and not 0"};
    if (has_qkv_biases && style != transformer_style::llama) return {"has_qkv_biases", "is for the style llama"};
    if (norms_heads && style != transformer_style::llama) return {"norms_heads", "is for the style llama"};
    if (experts == 1 || experts > most_experts) return {"experts", "is neither 0 nor from 2 to 65536"};
    if ((experts == 0) != (experts_for_token == 0)) return {"experts_for_token", "does not go with experts"};
    if (experts_for_token > experts) return {"experts_for_token", "is above experts"};
    return {};
  }
  /// @throws config_error   there is a problem
  constexpr void check() const
  {
    const shape_problem found = problem();
    if (found.member.empty()) return;
    throw config_error{error_text{} << "chunkmem: no transformer has this shape: " << found.member << " " << found.why
                                    << ": layers " << layers << ", hidden " << hidden << ", heads " << heads
                                    << ", kv_heads " << kv_heads << ", ffn " << ffn << ", vocabulary " << vocabulary
                                    << ", sequence " << sequence << " (change it)"};
  }
};

/// Calls `visit` with each number of a shape, for fingerprints. Members after `ties_embedding` are left out where none
/// of them is set, so that fingerprints of older files stay valid.
template <class Visit>
constexpr void for_numbers(const transformer_shape& s, Visit&& visit)
{
  for (const std::uint64_t number :
       {static_cast<std::uint64_t>(s.style), s.layers, s.hidden, s.heads, s.kv_heads, s.ffn, s.vocabulary, s.embedding,
        s.positions, s.sequence, std::uint64_t{s.ties_embedding}})
    visit(number);
  if (s.head_width == 0 && !s.has_qkv_biases && !s.norms_heads && s.experts == 0) return;
  for (const std::uint64_t number :
       {s.head_width, std::uint64_t{s.has_qkv_biases}, std::uint64_t{s.norms_heads}, s.experts, s.experts_for_token})
    visit(number);
}

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

/// The operator exists once in each layer.
[[nodiscard]] constexpr bool is_in_layer(transformer_operator which) noexcept
{
  return which >= transformer_operator::attention_norm && which <= transformer_operator::mlp_down;
}

/// A trained tensor of a transformer.
///
///     std::uint64_t elements = 0;
///     for (const transformer_tensor& it : tensors_of(shape)) elements += it.elements();
struct transformer_tensor {
  transformer_operator part = transformer_operator::embedding;  ///< its operator; a shared table is the embedding's
  std::uint64_t layer = 0;                                      ///< of a part that is in a layer; else 0
  std::uint64_t rows = 0;
  std::uint64_t columns = 1;  ///< 1: a vector
  std::uint32_t module = 0;   ///< tensors that trainers declare together share it

  /// @throws size_overflow
  [[nodiscard]] constexpr std::uint64_t elements() const { return (checked{rows} * columns).value(); }
};

namespace detail {

/// Visits the tensors in the order in which the published models construct them.
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
  constexpr void linear(transformer_operator part, std::uint64_t inputs, std::uint64_t outputs, bool has_bias = false)
  {
    s_.has_biases() || has_bias ? module(part, {{inputs, outputs}, {outputs, 1}}) : module(part, {{inputs, outputs}});
  }
  constexpr void split_qkv()
  {
    linear(transformer_operator::qkv, s_.hidden, s_.query_width(), s_.has_qkv_biases);
    linear(transformer_operator::qkv, s_.hidden, s_.kv_width(), s_.has_qkv_biases);
    linear(transformer_operator::qkv, s_.hidden, s_.kv_width(), s_.has_qkv_biases);
  }
  constexpr void mlps()
  {
    using enum transformer_operator;
    if (s_.experts != 0) module(mlp_up, {{s_.hidden, s_.experts}});  // the router
    for (std::uint64_t mlp = 0; mlp < std::max(s_.experts, std::uint64_t{1}); ++mlp) {
      linear(mlp_up, s_.hidden, s_.ffn);
      if (s_.has_gate()) linear(mlp_up, s_.hidden, s_.ffn);
      linear(mlp_down, s_.ffn, s_.hidden);
    }
  }
  constexpr void gpt_layer()
  {
    using enum transformer_operator;
    norm(attention_norm);
    linear(qkv, s_.hidden, (checked{s_.query_width()} + checked{2} * s_.kv_width()).value());
    linear(projection, s_.query_width(), s_.hidden);
    norm(mlp_norm);
    mlps();
  }
  constexpr void opt_layer()
  {
    using enum transformer_operator;
    split_qkv();
    linear(projection, s_.query_width(), s_.hidden);
    norm(attention_norm);
    mlps();
    norm(mlp_norm);
  }
  constexpr void llama_layer()
  {
    using enum transformer_operator;
    split_qkv();
    linear(projection, s_.query_width(), s_.hidden);
    if (s_.norms_heads) module(qkv, {{s_.width_of_head(), 1}}), module(qkv, {{s_.width_of_head(), 1}});
    mlps();
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
