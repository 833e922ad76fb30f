// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "network.hpp"

namespace gpt {

/// The forward pass of one row, layer by layer. What the backward pass needs stays behind in activation tensors.
template <class Manager>
class forward_pass {
 public:
  using index = kernels::index;

  explicit forward_pass(const network<Manager>& net) : n_{net}, m_{net.manager()} {}

  void embed(std::size_t row, const window& where) const
  {
    const auto wide_tokens = n_.widened(n_.handles().token_table);
    const auto wide_positions = n_.widened(n_.handles().position_table);
    const auto tokens = wide_tokens.open();
    const auto positions = wide_positions.open();
    const auto out = m_.acquire(n_.handles().rows[row].layers.front().input, where.how());
    if (!n_.computes()) return;
    kernels::embedding_forward(where.tokens, tokens.data(), positions.data(), out.data() + where.first * n_.width(),
                               where.first, where.count, n_.width());
  }

  void layer(std::size_t which, std::size_t row, const window& where) const
  {
    const row_activations& all = n_.handles().rows[row];
    const saved_layer& saved = all.layers[which];
    const bool last = which + 1 == all.layers.size();
    normed_qkv(n_.handles().layers[which], saved, where);
    attend(saved, where);
    project(n_.handles().layers[which], saved, where);
    if constexpr (network<Manager>::can_sample)
      if (auto* const samples = n_.samples()) {
        samples->of(which, row).keep(samples->batch(row), saved.attended);
        samples->look(samples->of(which, row));
      }
    mlp(n_.handles().layers[which], saved, last ? all.output : all.layers[which + 1].input, where);
  }

 private:
  // What one norm does: statistics saved, the result in scratch of the caller.
  template <class Pin>
  void norm(const Pin& x, const weight& norm, chunkmem::tensor<float> statistics, float* y, const window& where) const
  {
    const auto wide = n_.widened(norm);
    const auto weights = wide.open();
    const auto saved = m_.acquire(statistics, where.how());
    if (!n_.computes()) return;
    kernels::layer_norm_forward(x.data() + where.first * n_.width(), weights.data(), saved.data() + where.first * 2, y,
                                where.count, n_.width());
  }

  void normed_qkv(const layer_weights& weights, const saved_layer& saved, const window& where) const
  {
    const index width = n_.width();
    const auto normed = n_.scratch(where.count * width);
    {
      const auto input = n_.read(saved.input);
      norm(input, weights.attention_norm, saved.attention_statistics, floats(normed), where);
    }
    const auto qkv = m_.acquire(saved.qkv, where.how());
    n_.linear(floats(normed), weights.qkv, weights.qkv_bias, qkv.data() + where.first * 3 * width, where.count, width,
              3 * width);
  }

  void attend(const saved_layer& saved, const window& where) const
  {
    const kernels::attention_extents size{where.first, where.count, n_.heads(), n_.width()};
    const auto qkv = n_.read(saved.qkv);
    const auto scores = n_.scratch(size.count * size.keys());
    const auto attended = m_.acquire(saved.attended, where.how());
    if (!n_.computes()) return;
    kernels::attention_forward(qkv.data(), floats(scores), attended.data() + where.first * n_.width(), size);
  }

  void project(const layer_weights& weights, const saved_layer& saved, const window& where) const
  {
    const index width = n_.width();
    const index begin = where.first * width;
    const auto attended = n_.read(saved.attended);
    const auto middle = m_.acquire(saved.middle, where.how());
    n_.linear(attended.data() + begin, weights.projection, weights.projection_bias, middle.data() + begin, where.count,
              width, width);
    const auto input = n_.read(saved.input);
    if (n_.computes()) kernels::add(input.data() + begin, middle.data() + begin, where.count * width);
  }

  void mlp(const layer_weights& weights, const saved_layer& saved, chunkmem::tensor<float> next,
           const window& where) const
  {
    const index width = n_.width();
    const index begin = where.first * width;
    expand(weights, saved, where);
    const auto activated = n_.scratch(where.count * 4 * width);
    {
      const auto hidden = n_.read(saved.hidden);
      if (n_.computes()) kernels::gelu_forward(hidden.data() + 4 * begin, floats(activated), where.count * 4 * width);
    }
    const auto out = m_.acquire(next, where.how());
    n_.linear(floats(activated), weights.contract, weights.contract_bias, out.data() + begin, where.count, 4 * width,
              width);
    const auto middle = n_.read(saved.middle);
    if (n_.computes()) kernels::add(middle.data() + begin, out.data() + begin, where.count * width);
  }

  void expand(const layer_weights& weights, const saved_layer& saved, const window& where) const
  {
    const index width = n_.width();
    const auto normed = n_.scratch(where.count * width);
    {
      const auto middle = n_.read(saved.middle);
      norm(middle, weights.mlp_norm, saved.mlp_statistics, floats(normed), where);
    }
    const auto hidden = m_.acquire(saved.hidden, where.how());
    n_.linear(floats(normed), weights.expand, weights.expand_bias, hidden.data() + where.first * 4 * width, where.count,
              width, 4 * width);
  }

  const network<Manager>& n_;
  Manager& m_;
};

}  // namespace gpt
