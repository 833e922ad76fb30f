// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "network.hpp"

namespace gpt {

/// The forward pass of one row, layer by layer. Tensors that the backward pass needs stay in activations.
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
    if (n_.runs_qkv_again()) m_.drop(saved.qkv);
    project(n_.handles().layers[which], saved, where);
    if constexpr (network<Manager>::can_sample)
      if (auto* const samples = n_.samples()) {
        samples->of(which, row).keep(samples->batch(row), saved.attended);
        samples->look(samples->of(which, row));
      }
    mlp(n_.handles().layers[which], saved, last ? all.output : all.layers[which + 1].input, where);
    if constexpr (network<Manager>::can_sample)
      if (n_.samples_hidden()) keep_hidden(*n_.samples(), which, row, saved);
  }

 private:
  // One norm: statistics saved, the result in scratch of the caller.
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
    n_.linear(floats(normed), weights.qkv, weights.qkv_bias, weights.beside_qkv, qkv.data() + where.first * 3 * width,
              where.count, width, 3 * width);
  }

  void attend(const saved_layer& saved, const window& where) const
  {
    const kernels::attention_extents size{where.first, where.count, n_.heads(), n_.width()};
    const auto qkv = n_.read(saved.qkv);
    const auto scores = n_.scratch(size.count * size.keys());
    const auto attended = m_.acquire(saved.attended, where.how());
    if (!n_.computes(2 * n_.operations_of(size.count, n_.width(), size.keys()))) return;
    kernels::attention_forward(qkv.data(), floats(scores), attended.data() + where.first * n_.width(), size);
  }

  void project(const layer_weights& weights, const saved_layer& saved, const window& where) const
  {
    const index width = n_.width();
    const index begin = where.first * width;
    const auto attended = n_.read(saved.attended);
    const auto middle = m_.acquire(saved.middle, where.how());
    n_.linear(attended.data() + begin, weights.projection, weights.projection_bias, weights.beside_projection,
              middle.data() + begin, where.count, width, width);
    const auto input = n_.read(saved.input);
    if (n_.computes()) kernels::add(input.data() + begin, middle.data() + begin, where.count * width);
  }

  void mlp(const layer_weights& weights, const saved_layer& saved, chunkmem::tensor<float> next,
           const window& where) const
  {
    const index width = n_.width();
    const index begin = where.first * width;
    expand(weights, saved, where);
    if (n_.handles().size.mlp == nonlinearity::relu) {
      {
        const auto hidden = m_.acquire(saved.hidden, chunkmem::access::read_write);
        if (n_.computes()) kernels::relu(hidden.data() + 4 * begin, where.count * 4 * width);
      }
      const auto hidden = n_.read(saved.hidden);
      return contract(weights, hidden.data() + 4 * begin, saved, next, where);
    }
    const auto activated = n_.scratch(where.count * 4 * width);
    {
      const auto hidden = n_.read(saved.hidden);
      if (n_.computes()) kernels::gelu_forward(hidden.data() + 4 * begin, floats(activated), where.count * 4 * width);
    }
    contract(weights, floats(activated), saved, next, where);
  }

  void contract(const layer_weights& weights, const float* activated, const saved_layer& saved,
                chunkmem::tensor<float> next, const window& where) const
  {
    const index width = n_.width();
    const index begin = where.first * width;
    const auto out = m_.acquire(next, where.how());
    n_.linear(activated, weights.contract, weights.contract_bias, weights.beside_contract, out.data() + begin,
              where.count, 4 * width, width);
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
    n_.linear(floats(normed), weights.expand, weights.expand_bias, weights.beside_expand,
              hidden.data() + where.first * 4 * width, where.count, width, 4 * width);
  }

  /// Keeps some rows of the output of ReLU, and a bit for each number.
  void keep_hidden(projection_samples<Manager>& samples, std::size_t which, std::size_t row,
                   const saved_layer& saved) const
  {
    {
      const auto hidden = n_.read(saved.hidden);
      const auto bits = m_.acquire(samples.positive(which, row), chunkmem::access::write);
      if (n_.computes()) kernels::positive_bits(hidden.data(), bits.data(), n_.context() * 4 * n_.width());
    }
    samples.hidden(which, row).keep(samples.batch(row), saved.hidden);
    samples.look(samples.hidden(which, row));
  }

  const network<Manager>& n_;
  Manager& m_;
};

}  // namespace gpt
