// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/workload/kept_rows.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace workload {

/// The training of a micro-batch, in 16 bits.
///
///     const transformer_costs costs{shape, {.micro_batch = 4, .fuses_attention = true}};
struct training_setup {
  std::uint64_t micro_batch = 1;  ///< rows of a batch that go through the model together
  bool recomputes_layers = true;  ///< a layer keeps its input alone, and runs forward again before its backward pass
  bool fuses_attention = false;   ///< scores are never stored (Dao et al. 2022, arXiv 2205.14135)
  bool has_dropout = true;        ///< where the style has one
  bool has_logits = true;         ///< over the vocabulary; false: a classifier, whose head is not counted
  layer_sampling sampled{};       ///< inputs of which some rows are kept
};

/// The costs of one operator for one micro-batch.
///
///     const bytes kept = costs.layer().kept;
struct operator_cost {
  std::uint64_t forward_flops = 0;     ///< [FLOP], two for each multiplication of a matrix product
  std::uint64_t backward_flops = 0;    ///< of both gradients
  std::uint64_t recomputed_flops = 0;  ///< forward work that is recomputed in the backward pass
  bytes kept;                          ///< bytes of the forward pass that its backward pass needs, without gradients
  bytes working;                       ///< most that one of its passes holds in addition: its output, or gradients

  [[nodiscard]] constexpr bool operator==(const operator_cost&) const noexcept = default;
};

/// The costs of a training step of a transformer, operator by operator, by formula.
///
/// FLOP are those of matrix products (the convention of Kaplan et al. 2020, arXiv 2001.08361); the rest of the work is
/// bound by memory. Scores are counted whole, masked or not. Kept bytes follow Korthikanti et al. 2022 (arXiv
/// 2205.05198), with widths of their own for keys, values and MLP: two bytes for a number, one for a number of a
/// dropout mask, four for a logit; norm statistics, biases' sums and tokens are left out there and here. A fused
/// attention keeps four bytes of softmax statistics for each row of scores. Experts are equally busy; a row is copied
/// for each of its experts, and copies, outputs and probabilities (four bytes) are kept. Weights and their gradients
/// are model data and not counted. Cost: O(1), no allocation.
///
/// Of a sampled input (`training_setup::sampled`, see activation::sampled) the kept rows are counted, with eight bytes
/// for each, in place of all of them; and of the weight's product their share. On its way back the operator has a lease
/// of kept rows x outputs in single precision. Norms and scales are passes over the input and over the gradient of the
/// output: two FLOP for a number, and one for a number that is scaled. They are bound by memory, and take longer than
/// these FLOP suggest. An input that is also kept for another reason, as that of a norm, stays.
///
/// Use:
///
///     const transformer_costs costs{shape_of("PatrickStar", "GPT2_1B"), {.micro_batch = 4}};
///     ... costs.peak()           // most activations at once
///     ... costs.step_flops()     // with recomputed work
class transformer_costs {
 public:
  /// @throws config_error    no such shape, no rows, a ratio of sampled inputs that is not in (0, 1], or sampled inputs
  ///   of experts
  /// @throws size_overflow   a number of FLOP or bytes needs more than 64 bits
  explicit constexpr transformer_costs(const transformer_shape& shape, const training_setup& setup = {})
      : setup_{setup}, layers_{shape.layers}, hidden_{shape.hidden}
  {
    shape.check();
    setup.sampled.check();
    if (setup.micro_batch == 0) throw config_error{"a micro-batch has 0 rows (give at least one)"};
    tokens_ = checked{setup.micro_batch} * shape.sequence;
    has_dropout_ = setup.has_dropout && shape.style != transformer_style::llama;
    fill_ends(shape);
    fill_attention(shape);
    fill_mlp(shape);
    sample_inputs(shape);
    sum_up();
  }

  /// The cost of one occurrence of an operator. For an operator of a layer: in one layer.
  [[nodiscard]] constexpr const operator_cost& of(transformer_operator which) const noexcept
  {
    return costs_[static_cast<std::size_t>(which)];
  }
  /// Rows of an operator's input that the weight's gradient is made of.
  [[nodiscard]] constexpr std::uint64_t rows_of(transformer_operator which) const
  {
    return kept_[static_cast<std::size_t>(which)] != 0 ? kept_[static_cast<std::size_t>(which)] : tokens_.value();
  }
  /// FLOP of norms and scales of a sampled input, for its operator in one layer: a part of that operator's.
  struct pass_flops {
    std::uint64_t forward = 0;
    std::uint64_t backward = 0;
  };
  [[nodiscard]] constexpr const pass_flops& passes_of(transformer_operator which) const noexcept
  {
    return passes_[static_cast<std::size_t>(which)];
  }
  /// The most working bytes of an operator in addition to the gradient of the stream: in its backward pass, and where
  /// its layer runs forward `again`, which makes no output of the layer.
  [[nodiscard]] constexpr bytes beside_stream(transformer_operator which, bool again) const noexcept
  {
    const auto index = static_cast<std::size_t>(which);
    const bool is_back_alone = !again || which == transformer_operator::mlp_down;
    return kept_[index] != 0 && is_back_alone ? back_[index] : costs_[index].working;
  }
  /// A layer's operators together; `working` is the largest of theirs.
  [[nodiscard]] constexpr const operator_cost& layer() const noexcept { return layer_; }
  /// All operators of all layers; `kept` without recomputation, `working` the largest.
  [[nodiscard]] constexpr const operator_cost& model() const noexcept { return model_; }

  /// The input of a layer, with which its second forward pass starts.
  [[nodiscard]] constexpr bytes checkpoint() const noexcept { return checkpoint_; }
  /// A mask of dropout over the stream; 0 where there is none.
  [[nodiscard]] constexpr bytes dropout_mask() const { return bytes{mask().value()}; }
  /// The bytes that a layer holds from its forward to its backward pass.
  [[nodiscard]] constexpr bytes held_by_layer() const noexcept
  {
    return setup_.recomputes_layers ? checkpoint_ : layer_.kept;
  }
  /// The bytes that all operators hold when the forward pass of a micro-batch ends.
  [[nodiscard]] constexpr bytes held() const noexcept { return held_; }
  /// Most activations and their gradients at once, at any moment of forward and backward pass.
  ///
  /// Bytes are held until the backward pass of their operator is over; the gradient of the stream between layers is one
  /// tensor.
  [[nodiscard]] constexpr bytes peak() const noexcept { return peak_; }
  /// FLOP of a step, with recomputed work. @throws size_overflow
  [[nodiscard]] constexpr std::uint64_t step_flops(std::uint64_t micro_batches = 1) const
  {
    return ((checked{model_.forward_flops} + model_.backward_flops + model_.recomputed_flops) * micro_batches).value();
  }
  /// FLOP of a step with unlimited memory, the base of utilisation. @throws size_overflow
  [[nodiscard]] constexpr std::uint64_t model_flops(std::uint64_t micro_batches = 1) const
  {
    return ((checked{model_.forward_flops} + model_.backward_flops) * micro_batches).value();
  }
  /// Tokens of a step. @throws size_overflow
  [[nodiscard]] constexpr std::uint64_t tokens(std::uint64_t micro_batches = 1) const
  {
    return (tokens_ * micro_batches).value();
  }

 private:
  [[nodiscard]] constexpr checked halves(checked numbers) const
  {
    return checked{2} * tokens_ * numbers;  // 16 bits each [B]
  }
  [[nodiscard]] constexpr checked mask() const
  {
    return has_dropout_ ? tokens_ * hidden_ : checked{0};  // one byte each [B]
  }
  [[nodiscard]] constexpr operator_cost& at(transformer_operator which)
  {
    return costs_[static_cast<std::size_t>(which)];
  }

  constexpr void put(transformer_operator which, checked flops, checked kept, checked working)
  {
    operator_cost& it = at(which);
    it.forward_flops = flops.value();
    it.backward_flops = (flops * 2).value();
    it.recomputed_flops = setup_.recomputes_layers && is_in_layer(which) ? it.forward_flops : 0;
    it.kept = bytes{kept.value()};
    it.working = bytes{working.value()};
  }
  [[nodiscard]] constexpr checked product(checked inputs, checked outputs) const
  {
    return checked{2} * tokens_ * inputs * outputs;
  }

  constexpr void fill_ends(const transformer_shape& s)
  {
    using enum transformer_operator;
    const checked projected = s.projects_embedding() ? product(s.embedding, s.hidden) : checked{0};
    const checked narrow = s.projects_embedding() ? halves(s.embedding) : checked{0};
    const checked normed = s.has_token_types() ? halves(s.hidden) : checked{0};
    put(embedding, projected, narrow + normed + mask(), halves(s.hidden) + std::max(narrow, normed));
    const checked stream = halves(s.hidden);
    if (s.has_final_norm()) put(final_norm, 0, stream, stream * 2);
    if (!setup_.has_logits) return;
    // Of a projected model both matrices want their input; the wider gradient is that of the logits.
    put(logits, product(s.embedding, s.vocabulary) + projected, stream + narrow,
        std::max(halves(s.vocabulary) + halves(s.embedding), narrow + stream));
    put(loss, 0, halves(s.vocabulary) * 2, halves(s.vocabulary));
  }

  constexpr void fill_attention(const transformer_shape& s)
  {
    using enum transformer_operator;
    const checked stream = halves(s.hidden);
    const checked heads = halves(s.query_width());  // of queries, or of results
    const checked keys = halves(s.kv_width());
    const checked scores = tokens_ * s.sequence * s.heads;  // numbers
    const checked normed = s.norms_heads ? heads + keys : checked{0};
    put(attention_norm, 0, stream, stream * 2);
    put(qkv, product(s.hidden, checked{s.query_width()} + checked{2} * s.kv_width()), stream + normed,
        heads + keys * 2 + std::max(stream, normed));
    put(projection, product(s.query_width(), s.hidden), heads + mask(),
        std::max(stream, heads + (has_dropout_ ? stream : checked{0})));
    const checked flops = product(s.sequence, s.query_width());
    if (setup_.fuses_attention) {
      const checked working = heads * 2 + keys * 2;  // one kernel: the output's gradient, and all three that it makes
      put(attention_scores, flops, heads + keys + tokens_ * s.heads * 4, working);
      put(attention_values, flops, keys, working);
      at(attention_scores).recomputed_flops = (checked{at(attention_scores).recomputed_flops} + flops).value();
    } else {
      const checked dropped = has_dropout_ ? scores * 2 : checked{0};
      const checked softmax = scores * 4 + keys;              // gradients of its output and input, and of values
      const checked queries = scores * 2 + heads + keys * 2;  // then those of queries and keys
      put(attention_scores, flops, heads + keys + scores * 2 + (has_dropout_ ? scores : checked{0}),
          std::max(softmax, queries));
      put(attention_values, flops, keys + dropped, heads + scores * 2 + keys);
    }
  }

  constexpr void fill_mlp(const transformer_shape& s)
  {
    using enum transformer_operator;
    const checked stream = halves(s.hidden);
    const checked routes = checked{4} * tokens_ * s.experts;  // probabilities, or their gradients, in single precision
    const checked rows = halves(s.hidden) * s.mlps_for_token();
    const checked inner = halves(s.ffn) * s.mlps_for_token();
    const checked before = s.has_gate() ? inner * 2 : inner;  // what goes into the activation function
    const checked matrices = checked{s.has_gate() ? 2U : 1U} * s.mlps_for_token();
    put(mlp_norm, 0, stream, stream * 2);
    if (s.experts == 0) {
      put(mlp_up, product(s.hidden, s.ffn) * matrices, stream + before, std::max(inner + before, before + stream));
      put(mlp_down, product(s.ffn, s.hidden), inner + mask(),
          std::max(inner + (has_dropout_ ? stream : checked{0}), stream));
      return;
    }
    // A row is copied for each of its experts. Their outputs stay too: the gradients of probabilities read them.
    put(mlp_up, product(s.hidden, s.ffn) * matrices + product(s.hidden, s.experts), stream + routes + rows + before,
        routes + std::max({inner + before, before + rows, rows + stream}));
    put(mlp_down, product(s.ffn, s.hidden) * s.mlps_for_token(), inner + rows + mask(),
        routes + rows + std::max(inner, has_dropout_ ? stream : checked{0}));
  }

  constexpr void sample_inputs(const transformer_shape& s)
  {
    using enum transformer_operator;
    const checked stream = halves(s.hidden);
    const checked dropped = has_dropout_ ? stream : checked{0};
    const checked before = s.has_gate() ? halves(s.ffn) * 2 : halves(s.ffn);
    const checked results = halves(s.query_width());
    const checked heads = checked{s.query_width()} + checked{2} * s.kv_width();
    const layer_sampling& ratios = setup_.sampled;
    if (s.experts != 0 && (ratios.mlp_up != 1 || ratios.mlp_down != 1))
      throw config_error{"inputs of experts cannot be sampled (sample those of queries and of the projection)"};
    sample(qkv, ratios.qkv, s.hidden, heads, s.splits_qkv() ? checked{s.query_width()} : heads, stream + halves(heads));
    sample(projection, ratios.projection, s.query_width(), s.hidden, s.hidden, results + dropped);
    sample(mlp_up, ratios.mlp_up, s.hidden, checked{s.ffn} * (s.has_gate() ? 2 : 1), s.ffn, before + stream);
    sample(mlp_down, ratios.mlp_down, s.ffn, s.hidden, s.hidden, halves(s.ffn) + dropped);
  }
  /// @param widest      outputs of one product
  /// @param gradients   bytes of those of the output and of the input, which are there beside the lease
  constexpr void sample(transformer_operator which, double ratio, checked inputs, checked outputs, checked widest,
                        checked gradients)
  {
    const auto index = static_cast<std::size_t>(which);
    if (ratio == 1) return;
    operator_cost& it = at(which);
    kept_[index] = kept_rows(tokens_.value(), ratio);
    const checked rows = kept_[index];
    passes_[index] = {(checked{2} * tokens_ * inputs).value(),
                      (checked{2} * tokens_ * outputs + rows * outputs).value()};
    const checked product = it.forward_flops;  // of the input's gradient too
    it.backward_flops = (product + checked{2} * rows * inputs * outputs + passes_[index].backward).value();
    it.forward_flops = (product + passes_[index].forward).value();
    it.recomputed_flops = setup_.recomputes_layers ? it.forward_flops : 0;
    it.kept = bytes{it.kept.count() - halves(inputs).value()} + bytes{(rows * (inputs * 2 + 8)).value()};
    back_[index] = std::max(it.working, bytes{(gradients + rows * widest * 4).value()});
    // On its way forward, all rows of the input are there beside the output.
    it.working = std::max(back_[index], bytes{(halves(inputs) + halves(outputs)).value()});
  }

  static constexpr void add(operator_cost& sum, const operator_cost& it, std::uint64_t times)
  {
    const auto add_to = [&](std::uint64_t& left, std::uint64_t right) {
      left = (checked{left} + checked{right} * times).value();
    };
    add_to(sum.forward_flops, it.forward_flops);
    add_to(sum.backward_flops, it.backward_flops);
    add_to(sum.recomputed_flops, it.recomputed_flops);
    sum.kept += it.kept * times;
    sum.working = std::max(sum.working, it.working);
  }

  constexpr void sum_up()
  {
    using enum transformer_operator;
    checkpoint_ = of(attention_norm).kept;
    for (std::size_t which = 0; which < transformer_operator_count; ++which)
      if (is_in_layer(static_cast<transformer_operator>(which))) add(layer_, costs_[which], 1);
    for (const transformer_operator which : {embedding, final_norm, logits, loss}) add(model_, of(which), 1);
    add(model_, layer_, layers_);
    bytes sum = of(embedding).kept;
    peak_ = sum + of(embedding).working;
    sum += held_by_layer() * (layers_ - 1);
    // The last layer, whole: its backward pass begins with all that it kept, made again or not.
    for (std::size_t which = 0; which < transformer_operator_count; ++which) {
      const bool is_first_after = static_cast<transformer_operator>(which) == final_norm;
      if (is_first_after) sum = of(embedding).kept + held_by_layer() * layers_;
      if (which == 0) continue;
      sum += costs_[which].kept;
      const bytes stream = is_in_layer(static_cast<transformer_operator>(which)) ? checkpoint_ : bytes{};
      const bytes back = beside_stream(static_cast<transformer_operator>(which), setup_.recomputes_layers);
      peak_ = std::max({peak_, sum + stream + back, sum + costs_[which].working});
    }
    held_ = sum;
  }

  training_setup setup_;
  std::uint64_t layers_ = 0;
  std::uint64_t hidden_ = 0;
  checked tokens_;
  bool has_dropout_ = false;
  operator_cost costs_[transformer_operator_count];
  std::uint64_t kept_[transformer_operator_count] = {};  // rows; 0: all
  pass_flops passes_[transformer_operator_count] = {};
  bytes back_[transformer_operator_count] = {};  // what a sampled one works with on its way back
  operator_cost layer_;
  operator_cost model_;
  bytes checkpoint_;
  bytes held_;
  bytes peak_;
};

}  // namespace workload

}  // namespace chunkmem::inline v0
