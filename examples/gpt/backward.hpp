#pragma once

#include "network.hpp"

namespace gpt {

/// The backward pass of one row, layer by layer from the last. Each activation is dropped after its last use.
template <class Manager>
class backward_pass {
 public:
  using index = kernels::index;

  explicit backward_pass(const network<Manager>& net) : n_{net}, m_{net.manager()} {}

  void layer(std::size_t which, std::size_t row) const
  {
    const row_activations& all = n_.handles().rows[row];
    const auto slope = m_.acquire(all.slope, chunkmem::access::read_write);
    mlp(n_.handles().layers[which], all.layers[which], slope.data());
    attention(n_.handles().layers[which], all.layers[which], slope.data());
  }

  void embed(std::size_t row, const unsigned char* tokens) const
  {
    const model& net = n_.handles();
    {
      const auto slope = n_.read(net.rows[row].slope);
      {
        const auto d_tokens = m_.gradient(n_.read(net.token_table));
        if (n_.computes()) {
          kernels::embedding_backward_tokens(tokens, slope.data(), d_tokens.beta(), d_tokens.data(), n_.context(),
                                             static_cast<index>(vocabulary), n_.width());
        }
      }
      const auto d_positions = m_.gradient(n_.read(net.position_table));
      if (n_.computes()) {
        kernels::embedding_backward_positions(slope.data(), d_positions.beta(), d_positions.data(), n_.context(),
                                              n_.context(), n_.width());
      }
    }
    m_.drop(net.rows[row].slope);
  }

 private:
  void mlp(const layer_weights& weights, const layer_activations& saved, float* slope) const
  {
    const index rows = n_.context();
    const index width = n_.width();
    {
      const auto d_hidden = n_.scratch(rows * 4 * width);
      contract(weights, saved, slope, floats(d_hidden));
      m_.drop(saved.hidden);
      const auto middle = n_.read(saved.middle);
      const auto statistics = n_.read(saved.mlp_statistics);
      into_norm(weights.expand, weights.expand_bias, weights.mlp_norm, middle.data(), statistics.data(),
                floats(d_hidden), 4 * width, slope);
    }
    m_.drop(saved.middle);
    m_.drop(saved.mlp_statistics);
  }

  void contract(const layer_weights& weights, const layer_activations& saved, const float* slope, float* d_hidden) const
  {
    const index rows = n_.context();
    const index width = n_.width();
    const auto hidden = n_.read(saved.hidden);
    {
      auto pin =
          n_.linear_backward_input(slope, weights.contract, weights.contract_bias, d_hidden, rows, 4 * width, width);
      const auto activated = n_.scratch(rows * 4 * width);
      if (n_.computes()) kernels::gelu_forward(hidden.data(), floats(activated), rows * 4 * width);
      n_.weight_gradient(std::move(pin), floats(activated), slope, rows, 4 * width, width);
    }
    if (n_.computes()) kernels::gelu_backward(hidden.data(), d_hidden, rows * 4 * width);
  }

  // Back through one product and the norm before it: out of dy, into the residual stream.
  void into_norm(chunkmem::tensor<float> weight, chunkmem::tensor<float> bias, chunkmem::tensor<float> norm,
                 const float* x, const float* statistics, const float* dy, index outputs, float* slope) const
  {
    const index rows = n_.context();
    const index width = n_.width();
    const auto d_normed = n_.scratch(rows * width);
    {
      auto pin = n_.linear_backward_input(dy, weight, bias, floats(d_normed), rows, width, outputs);
      const auto normed = n_.scratch(rows * width);
      n_.norm_again(x, norm, statistics, floats(normed));
      n_.weight_gradient(std::move(pin), floats(normed), dy, rows, width, outputs);
    }
    n_.norm_backward(floats(d_normed), x, norm, statistics, slope);
  }

  void attention(const layer_weights& weights, const layer_activations& saved, float* slope) const
  {
    const index rows = n_.context();
    const index width = n_.width();
    {
      const auto d_qkv = n_.scratch(rows * 3 * width);
      through_softmax(weights, saved, slope, floats(d_qkv));
      m_.drop(saved.qkv);
      const auto input = n_.read(saved.input);
      const auto statistics = n_.read(saved.attention_statistics);
      into_norm(weights.qkv, weights.qkv_bias, weights.attention_norm, input.data(), statistics.data(), floats(d_qkv),
                3 * width, slope);
    }
    m_.drop(saved.input);
    m_.drop(saved.attention_statistics);
  }

  void through_softmax(const layer_weights& weights, const layer_activations& saved, const float* slope,
                       float* d_qkv) const
  {
    const index rows = n_.context();
    const index width = n_.width();
    const auto d_attended = n_.scratch(rows * width);
    {
      const auto attended = n_.read(saved.attended);
      auto pin = n_.linear_backward_input(slope, weights.projection, weights.projection_bias, floats(d_attended), rows,
                                          width, width);
      n_.weight_gradient(std::move(pin), attended.data(), slope, rows, width, width);
    }
    m_.drop(saved.attended);
    const auto scores = n_.scratch(rows * rows);
    const auto d_scores = n_.scratch(rows * rows);
    const auto qkv = n_.read(saved.qkv);
    if (!n_.computes()) return;
    kernels::attention_backward(qkv.data(), floats(d_attended), floats(scores), floats(d_scores), d_qkv,
                                {0, rows, n_.heads(), width});
  }

  const network<Manager>& n_;
  Manager& m_;
};

}  // namespace gpt
