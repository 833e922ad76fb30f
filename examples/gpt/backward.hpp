// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "network.hpp"

#include <cstddef>
#include <cstdint>

namespace gpt {

/// The backward pass of a micro-batch, layer by layer from the last.
///
/// Within a layer each product goes back for all rows before the next one does: its weight is brought and widened once,
/// its gradient is rounded once, and no weight is read after its gradient came, which gradients in place want. What is
/// no longer needed of an activation makes room for its gradient. Each activation is dropped after its last use.
template <class Manager>
class backward_pass {
 public:
  using index = kernels::index;

  explicit backward_pass(const network<Manager>& net) : n_{net}, m_{net.manager()} {}

  /// @param last   no other micro-batch follows in this step
  void layer(std::size_t which, bool last) const
  {
    using saved = saved_layer;
    const layer_weights& weights = n_.handles().layers[which];
    contract(which, last);
    into_norm(which, {weights.expand, weights.expand_bias, weights.mlp_norm, 4 * n_.width()},
              {&saved::hidden, &saved::middle, &saved::mlp_statistics}, last);
    attention(which, last);
    into_norm(which, {weights.qkv, weights.qkv_bias, weights.attention_norm, 3 * n_.width()},
              {&saved::qkv, &saved::input, &saved::attention_statistics}, last);
  }

  /// @param tokens_of      a row to its tokens
  /// @param last_of_table  nor does anything else add to the table's gradient
  template <class Tokens>
  void embed(const Tokens& tokens_of, bool last, bool last_of_table) const
  {
    const model& net = n_.handles();
    const index rows = n_.context();
    const index width = n_.width();
    auto d_tokens = n_.gradient(net.token_table);
    auto d_positions = n_.gradient(net.position_table);
    for (std::size_t row = 0; row < net.rows.size(); ++row) {
      {
        const auto slope = n_.read(net.rows[row].slope);
        d_tokens.add([&](float beta, float* out) {
          const auto known = static_cast<index>(vocabulary);
          kernels::embedding_backward_tokens(tokens_of(row), slope.data(), beta, out, rows, known, width);
        });
        d_positions.add([&](float beta, float* out) {
          kernels::embedding_backward_positions(slope.data(), beta, out, rows, rows, width);
        });
      }
      m_.drop(net.rows[row].slope);
    }
    d_tokens.finish(last_of_table);
    d_positions.finish(last);
  }

 private:
  /// A product, and the norm that made its input.
  struct normed_product {
    const weight& matrix;
    const weight& bias;
    const weight& norm;
    index outputs;
  };

  /// Activations around it: the gradient of its output, the norm's input, and the norm's statistics.
  struct around_norm {
    chunkmem::tensor<float> saved_layer::*slope;
    chunkmem::tensor<float> saved_layer::*input;
    chunkmem::tensor<float> saved_layer::*statistics;
  };

  /// Back through the last product of the MLP and GELU: `hidden` becomes its gradient.
  void contract(std::size_t which, bool last) const
  {
    const layer_weights& weights = n_.handles().layers[which];
    auto d_weight = n_.gradient(weights.contract);
    auto d_bias = n_.gradient(weights.contract_bias);
    {
      const auto weight = n_.widened(weights.contract);
      const index size = n_.context() * 4 * n_.width();
      for (const row_activations& row : n_.handles().rows) {
        const auto slope = n_.read(row.slope);
        const auto hidden = n_.overwritten(row.layers[which].hidden, size);
        const auto between = n_.scratch(size);
        if (n_.computes()) kernels::gelu_forward(hidden.data(), floats(between), size);
        n_.product_gradients(floats(between), slope.data(), d_weight, d_bias, 4 * n_.width(), n_.width());
        n_.product_input(slope.data(), weight, floats(between), 4 * n_.width(), n_.width());
        if (n_.computes()) kernels::gelu_backward(floats(between), hidden.data(), size);
      }
    }
    d_weight.finish(last);
    d_bias.finish(last);
  }

  /// Back through a product and the norm before it, into the residual stream.
  void into_norm(std::size_t which, const normed_product& product, const around_norm& names, bool last) const
  {
    auto d_matrix = n_.gradient(product.matrix);
    auto d_bias = n_.gradient(product.bias);
    auto d_norm = n_.gradient(product.norm);
    {
      const auto matrix = n_.widened(product.matrix);
      const auto norm = n_.widened(product.norm);
      for (const row_activations& row : n_.handles().rows) {
        const saved_layer& saved = row.layers[which];
        {
          const auto x = n_.read(saved.*names.input);
          const auto statistics = n_.read(saved.*names.statistics);
          const auto between = n_.scratch(n_.context() * n_.width());
          n_.norm_again(x.data(), norm, statistics.data(), floats(between));
          {
            const auto dy = n_.became(saved.*names.slope);
            n_.product_gradients(floats(between), dy.data(), d_matrix, d_bias, n_.width(), product.outputs);
            n_.product_input(dy.data(), matrix, floats(between), n_.width(), product.outputs);
          }
          const auto slope = m_.acquire(row.slope, chunkmem::access::read_write);
          n_.norm_backward(floats(between), x.data(), norm, statistics.data(), slope.data(), d_norm);
        }
        for (const auto name : {names.slope, names.input, names.statistics}) n_.forget(saved.*name);
      }
    }
    d_matrix.finish(last);
    d_bias.finish(last);
    d_norm.finish(last);
  }

  /// Back through the projection and the softmax: `qkv` becomes its gradient.
  void attention(std::size_t which, bool last) const
  {
    const layer_weights& weights = n_.handles().layers[which];
    auto d_weight = n_.gradient(weights.projection);
    auto d_bias = n_.gradient(weights.projection_bias);
    {
      const auto weight = n_.widened(weights.projection);
      for (std::size_t number = 0; number < n_.handles().rows.size(); ++number) {
        const row_activations& row = n_.handles().rows[number];
        const saved_layer& saved = row.layers[which];
        if constexpr (network<Manager>::can_sample)
          if (auto* const samples = n_.samples()) {
            sampled_projection(*samples, which, number, weight, d_weight, d_bias);
            continue;
          }
        {
          const auto attended = n_.overwritten(saved.attended, n_.context() * n_.width());
          {
            const auto slope = n_.read(row.slope);
            n_.product_gradients(attended.data(), slope.data(), d_weight, d_bias, n_.width(), n_.width());
            n_.product_input(slope.data(), weight, attended.data(), n_.width(), n_.width());
          }
          through_softmax(saved, attended.data());
        }
        n_.forget(saved.attended);
      }
    }
    d_weight.finish(last);
    d_bias.finish(last);
  }

  /// The same for one row, from the rows that were kept of its input.
  template <class Gradient>
  void sampled_projection(projection_samples<Manager>& samples, std::size_t which, std::size_t number,
                          const wide_weight<Manager>& weight, Gradient& d_weight, Gradient& d_bias) const
  {
    const row_activations& row = n_.handles().rows[number];
    const auto d_attended = n_.scratch(n_.context() * n_.width());
    {
      const auto slope = n_.read(row.slope);
      d_bias.add(
          [&](float beta, float* out) { kernels::bias_gradient(slope.data(), beta, out, n_.context(), n_.width()); });
      chunkmem::activation::sampled(
          samples.of(which, number), samples.batch(number), chunkmem::on_this_thread,
          chunkmem::activation::linear_slope{
              slope.span(), static_cast<std::uint64_t>(n_.width()),
              [&] { n_.product_input(slope.data(), weight, floats(d_attended), n_.width(), n_.width()); },
              [&](const auto& it) {
                d_weight.add([&](float beta, float* out) {
                  kernels::weight_gradient(it.rows, it.slopes, beta, out, static_cast<kernels::index>(it.count),
                                           n_.width(), n_.width());
                });
              }});
    }
    through_softmax(row.layers[which], floats(d_attended));
  }

  void through_softmax(const saved_layer& saved, const float* d_attended) const
  {
    const index rows = n_.context();
    const index width = n_.width();
    const auto qkv = n_.overwritten(saved.qkv, rows * 3 * width);
    const auto scores = n_.scratch(rows * rows);
    const auto d_scores = n_.scratch(rows * rows);
    const auto d_qkv = n_.scratch(rows * 3 * width);
    if (!n_.computes()) return;
    kernels::attention_backward(qkv.data(), d_attended, floats(scores), floats(d_scores), floats(d_qkv),
                                {0, rows, n_.heads(), width});
    kernels::copy(floats(d_qkv), qkv.data(), rows * 3 * width);
  }

  const network<Manager>& n_;
  Manager& m_;
};

}  // namespace gpt
