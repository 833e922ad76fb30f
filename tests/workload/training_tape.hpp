// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/workload/transformer.hpp>
#include <chunkmem/workload/transformer_costs.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

/// A training step, tensor by tensor and product by product: the reference for the formulas. It shares none with them.
namespace training_tape {

namespace wl = chunkmem::workload;

class step {
 public:
  step(const wl::transformer_shape& shape, const wl::training_setup& setup)
      : s{shape},
        t{setup},
        n{setup.micro_batch * shape.sequence},
        has_dropout{setup.has_dropout && shape.style != wl::transformer_style::llama}
  {
    forward();
    held = live;
    backward();
    if (live != 0) throw std::logic_error{"a tensor of the tape is left over: " + tensors.begin()->first};
  }

  std::uint64_t held = 0;  ///< at the end of the forward pass [B]
  std::uint64_t peak = 0;
  std::uint64_t forward_flops = 0;
  std::uint64_t backward_flops = 0;
  std::uint64_t recomputed_flops = 0;
  std::map<wl::transformer_operator, std::uint64_t>
      working;  ///< most that lives in an operator's passes and is not kept

 private:
  using op = wl::transformer_operator;

  // Tensors.
  void make(const std::string& name, std::uint64_t size)
  {
    if (!tensors.emplace(name, size).second) throw std::logic_error{"made twice: " + name};
    live += size;
    if (is_passing(name)) passing += size;
    note();
  }
  void drop(const std::string& name)
  {
    const auto it = tensors.find(name);
    if (it == tensors.end()) throw std::logic_error{"dropped, but not there: " + name};
    live -= it->second;
    if (is_passing(name)) passing -= it->second;
    tensors.erase(it);
  }
  /// Gradients, and outputs that no backward pass wants. The stream's gradient is an operator's own where one ends or
  /// starts it.
  bool is_passing(const std::string& name) const
  {
    if (name.ends_with("rows")) return false;
    for (const auto& [input, ratio] : {std::pair{"y1.", t.sampled.qkv},
                                       {"context", t.sampled.projection},
                                       {"y2.", t.sampled.mlp_up},
                                       {"active", t.sampled.mlp_down}})
      if (ratio != 1 && name.starts_with(input)) return true;
    for (const char* start : {"d_", "scores", "projected", "down", "logits16"})
      if (name.starts_with(start) && name.find("mask") == name.npos) return true;
    return false;
  }
  void note()
  {
    const bool has_stream = (now == op::final_norm || now == op::embedding) && tensors.contains("stream");
    working[now] = std::max(working[now], passing + (has_stream ? half(s.hidden) : 0));
    peak = std::max(peak, live);
  }
  void enter(op which)
  {
    now = which;
    note();
  }
  void drop_if_there(const std::string& name)
  {
    if (tensors.contains(name)) drop(name);
  }
  [[nodiscard]] std::uint64_t kept_of(double ratio) const
  {
    const auto nearest = static_cast<std::uint64_t>(static_cast<double>(n) * ratio + 0.5);
    return ratio == 1 ? n : std::max<std::uint64_t>(1, std::min(nearest, n));
  }
  /// Of a product's input some rows stay, with an index and a scale each, and the input goes.
  void keep_rows(const char* input, double ratio, std::uint64_t width)
  {
    if (ratio == 1) return;
    make(of(input) + "rows", kept_of(ratio) * (2 * width + 8));
    drop_here(input);
  }
  /// Gradients of the output for the kept rows, times their scales.
  void scale_rows(double ratio, std::uint64_t outputs)
  {
    if (ratio == 1) return;
    make_here("d_scaled", 4 * kept_of(ratio) * outputs);
    drop_here("d_scaled");
  }
  void drop_input(const char* input)
  {
    tensors.contains(of(input) + "rows") ? drop(of(input) + "rows") : drop(of(input));
  }
  [[nodiscard]] std::uint64_t head() const { return s.head_width == 0 ? s.hidden / s.heads : s.head_width; }
  [[nodiscard]] std::uint64_t queries() const { return head() * s.heads; }
  [[nodiscard]] std::uint64_t copies() const { return s.experts == 0 ? 1 : s.experts_for_token; }
  [[nodiscard]] std::uint64_t half(std::uint64_t width) const { return 2 * n * width; }
  [[nodiscard]] std::uint64_t pairs() const { return t.micro_batch * s.heads * s.sequence * s.sequence; }

  // Products of an [m, k] with a [k, c]; a backward pass has one for each factor.
  enum class when { forward, again, backward };
  void multiply(when phase, std::uint64_t m, std::uint64_t k, std::uint64_t c, double ratio = 1)
  {
    const std::uint64_t rows = ratio == 1 ? m : kept_of(ratio);
    if (phase == when::forward) forward_flops += 2 * m * k * c;
    if (phase == when::again) recomputed_flops += 2 * m * k * c;
    if (phase == when::backward) backward_flops += 2 * m * c * k + 2 * k * rows * c;
  }
  // Norms of the rows of an input, or of a gradient and the scales of its kept rows.
  void pass_over(when phase, double ratio, std::uint64_t inputs, std::uint64_t outputs)
  {
    if (ratio == 1) return;
    if (phase == when::forward) forward_flops += 2 * n * inputs;
    if (phase == when::again) recomputed_flops += 2 * n * inputs;
    if (phase == when::backward) backward_flops += 2 * n * outputs + kept_of(ratio) * outputs;
  }
  void multiply_heads(when phase, bool with_values)
  {
    const std::uint64_t width = head();
    for (std::uint64_t row = 0; row < t.micro_batch; ++row)
      for (std::uint64_t head = 0; head < s.heads; ++head)
        with_values ? multiply(phase, s.sequence, s.sequence, width) : multiply(phase, s.sequence, width, s.sequence);
  }
  void multiply_layer(when phase)
  {
    const std::uint64_t kv = head() * s.kv_heads;
    multiply(phase, n, s.hidden, queries(), t.sampled.qkv);
    multiply(phase, n, s.hidden, kv, t.sampled.qkv);
    multiply(phase, n, s.hidden, kv, t.sampled.qkv);
    pass_over(phase, t.sampled.qkv, s.hidden, queries() + 2 * kv);
    multiply_heads(phase, false);
    multiply_heads(phase, true);
    multiply(phase, n, queries(), s.hidden, t.sampled.projection);
    pass_over(phase, t.sampled.projection, queries(), s.hidden);
    if (s.experts != 0) {
      multiply(phase, n, s.hidden, s.experts);
      for (std::uint64_t copy = 0; copy < s.experts_for_token; ++copy) {
        multiply(phase, n, s.hidden, s.ffn);
        if (s.has_gate()) multiply(phase, n, s.hidden, s.ffn);
        multiply(phase, n, s.ffn, s.hidden);
      }
      return;
    }
    multiply(phase, n, s.hidden, s.ffn, t.sampled.mlp_up);
    if (s.has_gate()) multiply(phase, n, s.hidden, s.ffn, t.sampled.mlp_up);
    pass_over(phase, t.sampled.mlp_up, s.hidden, s.has_gate() ? 2 * s.ffn : s.ffn);
    multiply(phase, n, s.ffn, s.hidden, t.sampled.mlp_down);
    pass_over(phase, t.sampled.mlp_down, s.ffn, s.hidden);
  }
  void multiply_ends(when phase)
  {
    if (s.projects_embedding()) multiply(phase, n, s.embedding, s.hidden);
    if (!t.has_logits) return;
    if (s.projects_embedding()) multiply(phase, n, s.hidden, s.embedding);
    multiply(phase, n, s.embedding, s.vocabulary);
  }

  // Passes.
  static std::string x(std::uint64_t layer) { return "x" + std::to_string(layer); }
  [[nodiscard]] std::string of(const char* name) const { return name + std::to_string(layer); }
  void make_here(const char* name, std::uint64_t size) { make(of(name), size); }
  void drop_here(const char* name) { drop(of(name)); }

  void forward()
  {
    enter(op::embedding);
    if (s.projects_embedding()) make("narrow_in", half(s.embedding));
    if (s.has_token_types()) make("embedded", half(s.hidden));
    make(x(0), half(s.hidden));
    if (has_dropout) make("embedding_mask", n * s.hidden);
    for (layer = 0; layer < s.layers; ++layer) {
      attend();
      feed_forward();
      enter(op::mlp_down);
      make_here("down", half(s.hidden));
      keep_rows("active", t.sampled.mlp_down, s.ffn);
      make(x(layer + 1), half(s.hidden));
      drop_here("down");
      multiply_layer(when::forward);
      if (t.recomputes_layers) forget();
    }
    multiply_ends(when::forward);
    if (!t.has_logits) {  // the classifier's own tensors are not counted
      if (!s.has_final_norm()) drop(x(s.layers));
      return;
    }
    if (s.has_final_norm()) make("y", half(s.hidden));
    if (s.projects_embedding()) make("narrow_out", half(s.embedding));
    enter(op::loss);
    make("logits16", half(s.vocabulary));
    make("logits32", 4 * n * s.vocabulary);
    drop("logits16");
  }
  void attend()
  {
    const std::uint64_t kv = head() * s.kv_heads;
    enter(op::attention_norm);
    make_here("y1.", half(s.hidden));
    enter(op::qkv);
    if (s.norms_heads) make_here("raw_q", half(queries())), make_here("raw_k", half(kv));
    make_here("q", half(queries()));
    make_here("k", half(kv));
    make_here("v", half(kv));
    keep_rows("y1.", t.sampled.qkv, s.hidden);
    enter(op::attention_scores);
    if (t.fuses_attention) {
      make_here("statistics", 4 * t.micro_batch * s.heads * s.sequence);
    } else {
      make_here("scores", 2 * pairs());
      make_here("softmax", 2 * pairs());
      drop_here("scores");
      if (has_dropout) make_here("softmax_mask", pairs()), make_here("dropped", 2 * pairs());
    }
    enter(op::attention_values);
    make_here("context", half(queries()));
    enter(op::projection);
    make_here("projected", half(s.hidden));
    keep_rows("context", t.sampled.projection, queries());
    if (has_dropout) make_here("projected_mask", n * s.hidden);
    make_here("middle", half(s.hidden));
    drop_here("projected");
  }
  void feed_forward()
  {
    enter(op::mlp_norm);
    make_here("y2.", half(s.hidden));
    enter(op::mlp_up);
    if (s.experts != 0) make_here("routes", 4 * n * s.experts), make_here("inputs", copies() * half(s.hidden));
    make_here("up", copies() * half(s.ffn));
    if (s.has_gate()) make_here("gate", copies() * half(s.ffn));
    keep_rows("y2.", t.sampled.mlp_up, s.hidden);
    make_here("active", copies() * half(s.ffn));
    if (s.experts != 0) make_here("outputs", copies() * half(s.hidden));
    if (has_dropout) make_here("down_mask", n * s.hidden);
  }
  void forget()
  {
    for (const char* name : {"y1.",
                             "q",
                             "k",
                             "v",
                             "statistics",
                             "softmax",
                             "softmax_mask",
                             "dropped",
                             "context",
                             "projected_mask",
                             "middle",
                             "y2.",
                             "up",
                             "gate",
                             "active",
                             "down_mask",
                             "raw_q",
                             "raw_k",
                             "routes",
                             "inputs",
                             "outputs"})
      drop_if_there(of(name)), drop_if_there(of(name) + "rows");
  }

  void backward()
  {
    multiply_ends(when::backward);
    if (!t.has_logits) return go_back_through_layers();
    enter(op::loss);
    make("d_logits", half(s.vocabulary));
    drop("logits32");
    enter(op::logits);
    if (s.projects_embedding()) {
      make("d_narrow", half(s.embedding));
      drop("d_logits");
      make("d_y", half(s.hidden));
      drop("d_narrow"), drop("narrow_out");
    } else {
      make("d_y", half(s.hidden));
      drop("d_logits");
    }
    go_back_through_layers();
  }
  void go_back_through_layers()
  {
    if (!t.has_logits && !s.has_final_norm()) {
      make("stream", half(s.hidden));
    } else if (s.has_final_norm()) {
      t.has_logits ? drop("y") : make("d_y", half(s.hidden));
      enter(op::final_norm);
      make("stream", half(s.hidden));
      drop("d_y"), drop(x(s.layers));
    } else {
      drop(x(s.layers)), drop("d_y"), make("stream", half(s.hidden));  // d_y under another name
    }
    for (layer = s.layers; layer-- > 0;) {
      if (t.recomputes_layers) {
        attend(), feed_forward(), multiply_layer(when::again);
        enter(op::mlp_down);
        keep_rows("active", t.sampled.mlp_down, s.ffn);
      }
      multiply_layer(when::backward);
      go_back_through_mlp();
      t.fuses_attention ? go_back_through_fused_attention() : go_back_through_attention();
      enter(op::qkv);
      if (s.norms_heads) go_back_through_head_norms();
      make_here("d_y1.", half(s.hidden));
      const std::uint64_t kv = head() * s.kv_heads;
      scale_rows(t.sampled.qkv, s.splits_qkv() ? queries() : queries() + 2 * kv);
      for (const char* name : {"d_q", "d_k", "d_v"}) drop_here(name);
      drop_if_there(of("raw_q")), drop_if_there(of("raw_k"));
      drop_input("y1.");
      enter(op::attention_norm);
      make_here("d_x", half(s.hidden));
      drop_here("d_x"), drop_here("d_y1."), drop(x(layer));
    }
    enter(op::embedding);
    if (s.projects_embedding()) make("d_in", half(s.embedding)), drop("d_in"), drop("narrow_in");
    if (s.has_token_types()) make("d_in", half(s.hidden)), drop("d_in"), drop("embedded");
    if (has_dropout) drop("embedding_mask");
    drop("stream");
  }
  void go_back_through_head_norms()
  {
    make_here("d_raw_q", half(queries()));
    make_here("d_raw_k", half(head() * s.kv_heads));
    for (const char* name : {"d_q", "d_k"}) drop_here(name);
    drop_here("d_raw_q"), make_here("d_q", half(queries()));  // the same bytes under another name
    drop_here("d_raw_k"), make_here("d_k", half(head() * s.kv_heads));
  }
  void go_back_through_experts()
  {
    enter(op::mlp_down);
    if (has_dropout) make_here("d_down", half(s.hidden));
    make_here("d_outputs", copies() * half(s.hidden));
    make_here("d_routes", 4 * n * s.experts);
    if (has_dropout) drop_here("d_down");
    make_here("d_active", copies() * half(s.ffn));
    for (const char* name : {"d_outputs", "outputs", "active", "down_mask"}) drop_if_there(of(name));
    enter(op::mlp_up);
    make_here("d_up", copies() * half(s.ffn));
    if (s.has_gate()) make_here("d_gate", copies() * half(s.ffn));
    drop_here("d_active");
    make_here("d_inputs", copies() * half(s.hidden));
    drop_here("d_up"), drop_if_there(of("d_gate"));
    make_here("d_y2.", half(s.hidden));
    for (const char* name : {"d_inputs", "d_routes", "routes", "y2.", "inputs", "up", "gate"}) drop_if_there(of(name));
  }
  void go_back_through_mlp()
  {
    s.experts == 0 ? go_back_through_one_mlp() : go_back_through_experts();
    enter(op::mlp_norm);
    make_here("d_middle", half(s.hidden));
    drop_here("d_middle"), drop_here("d_y2."), drop_here("middle");
    enter(op::projection);
    if (has_dropout) make_here("d_projected", half(s.hidden));
    make_here("d_context", half(queries()));
    scale_rows(t.sampled.projection, s.hidden);
    if (has_dropout) drop_here("d_projected"), drop_here("projected_mask");
    drop_input("context");
  }
  void go_back_through_one_mlp()
  {
    enter(op::mlp_down);
    if (has_dropout) make_here("d_down", half(s.hidden));
    make_here("d_active", half(s.ffn));
    scale_rows(t.sampled.mlp_down, s.hidden);
    if (has_dropout) drop_here("d_down"), drop_here("down_mask");
    drop_input("active");
    enter(op::mlp_up);
    make_here("d_up", half(s.ffn));
    if (s.has_gate()) make_here("d_gate", half(s.ffn));
    drop_here("d_active");
    make_here("d_y2.", half(s.hidden));
    scale_rows(t.sampled.mlp_up, s.ffn);
    for (const char* name : {"d_up", "d_gate", "up", "gate"}) drop_if_there(of(name));
    drop_input("y2.");
  }
  void go_back_through_attention()
  {
    const std::uint64_t kv = head() * s.kv_heads;
    enter(op::attention_values);
    make_here("d_softmax", 2 * pairs());
    make_here("d_v", half(kv));
    drop_here("d_context"), drop_here("v"), drop_if_there(of("dropped"));
    enter(op::attention_scores);
    make_here("d_scores", 2 * pairs());
    drop_here("d_softmax");
    make_here("d_q", half(queries()));
    make_here("d_k", half(kv));
    for (const char* name : {"d_scores", "q", "k", "softmax", "softmax_mask"}) drop_if_there(of(name));
  }
  void go_back_through_fused_attention()
  {
    const std::uint64_t kv = head() * s.kv_heads;
    multiply_heads(when::again, false);
    enter(op::attention_values);
    make_here("d_q", half(queries()));
    make_here("d_k", half(kv));
    make_here("d_v", half(kv));
    enter(op::attention_scores);  // the same kernel
    for (const char* name : {"d_context", "q", "k", "v", "statistics"}) drop_here(name);
  }

  const wl::transformer_shape s;
  const wl::training_setup t;
  const std::uint64_t n;
  const bool has_dropout;
  std::uint64_t layer = 0;
  std::map<std::string, std::uint64_t> tensors;
  std::uint64_t live = 0;
  std::uint64_t passing = 0;
  op now = op::embedding;
};

}  // namespace training_tape
