// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "network.hpp"

namespace gpt {

/// The end of the model: final norm, logits against the table of tokens, loss, and the backward pass to the last layer.
///
/// Forward and backward run together, so logits live in a lease and are never saved.
template <class Manager>
class head {
 public:
  using index = kernels::index;

  explicit head(const network<Manager>& net) : n_{net}, m_{net.manager()} {}

  /// The loss of all rows, summed over their positions; starts their backward pass and drops their outputs.
  /// @param targets_of   a row to the byte that follows each of its positions
  /// @param scale        weight of the loss of one position in the sum that is differentiated
  /// @param last         no other micro-batch follows in this step
  /// @param last_of_table  the embedding does not add to the gradient of the table either
  template <class Targets>
  [[nodiscard]] double backward(const Targets& targets_of, float scale, bool last, bool last_of_table = false) const
  {
    const model& net = n_.handles();
    auto d_norm = n_.gradient(net.final_norm);
    auto d_table = n_.gradient(net.head_table);
    double loss = 0.0;
    {
      const auto norm = n_.widened(net.final_norm);
      const auto table = n_.widened(net.head_table);
      for (std::size_t row = 0; row < net.rows.size(); ++row) {
        const row_activations& saved = net.rows[row];
        {
          const auto x = n_.read(saved.output);
          const auto statistics = n_.scratch(n_.context() * 2);
          const auto between = n_.scratch(n_.context() * n_.width());
          normed(x.data(), norm, floats(statistics), floats(between), n_.context());
          loss += logits_backward(floats(between), table, d_table, targets_of(row), scale);
          const auto slope = m_.acquire(saved.slope, chunkmem::access::write);
          if (n_.computes()) kernels::clear(slope.data(), n_.context() * n_.width());
          n_.norm_backward(floats(between), x.data(), norm, floats(statistics), slope.data(), d_norm);
        }
        n_.forget(saved.output);
      }
    }
    d_norm.finish(last);
    d_table.finish(last_of_table);
    return loss;
  }

  /// The logits of the positions of a window, [count, vocabulary], into `out`.
  void logits(std::size_t row, const window& where, float* out) const
  {
    const auto x = n_.read(n_.handles().rows[row].output);
    const auto statistics = n_.scratch(where.count * 2);
    const auto between = n_.scratch(where.count * n_.width());
    normed(x.data() + where.first * n_.width(), n_.widened(n_.handles().final_norm), floats(statistics),
           floats(between), where.count);
    scores(floats(between), n_.widened(n_.handles().head_table), out, where.count);
  }

 private:
  static constexpr index bytes_known = static_cast<index>(vocabulary);

  /// @param normed   in the input of the logits, out its gradient
  [[nodiscard]] double logits_backward(float* normed, const wide_weight<Manager>& table,
                                       wide_gradient<Manager>& d_table, const unsigned char* targets, float scale) const
  {
    const index rows = n_.context();
    const auto logits = n_.scratch(rows * bytes_known);
    scores(normed, table, floats(logits), rows);
    double loss = 0.0;
    if (n_.computes()) loss = kernels::softmax_cross_entropy(floats(logits), targets, scale, rows, bytes_known);
    d_table.add(
        [&](float beta, float* out) {
          kernels::weight_gradient(floats(logits), normed, beta, out, rows, bytes_known, n_.width());
        },
        n_.operations_of(rows, bytes_known, n_.width()));
    const auto values = table.open();
    if (n_.computes(n_.operations_of(rows, bytes_known, n_.width())))
      kernels::multiply(floats(logits), values.data(), normed, rows, bytes_known, n_.width());
    return loss;
  }

  void normed(const float* x, const wide_weight<Manager>& norm, float* statistics, float* y, index rows) const
  {
    const auto values = norm.open();
    if (n_.computes()) kernels::layer_norm_forward(x, values.data(), statistics, y, rows, n_.width());
  }

  void scores(const float* normed, const wide_weight<Manager>& table, float* out, index rows) const
  {
    const auto values = table.open();
    if (n_.computes(n_.operations_of(rows, n_.width(), bytes_known)))
      kernels::multiply_transposed(normed, values.data(), out, rows, bytes_known, n_.width());
  }

  const network<Manager>& n_;
  Manager& m_;
};

}  // namespace gpt
