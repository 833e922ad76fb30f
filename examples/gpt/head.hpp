#pragma once

#include "network.hpp"

namespace gpt {

/// The end of the model: final norm, logits against the table of tokens, loss, and the way back to the last layer.
///
/// Forward and backward are one piece, because logits are the one thing not worth saving: they live in a lease.
template <class Manager>
class head {
 public:
  using index = kernels::index;

  explicit head(const network<Manager>& net) : n_{net}, m_{net.manager()} {}

  /// The loss of one row, summed over its positions; starts the backward pass of the row and ends its output.
  /// @param targets   the byte that follows each position
  /// @param scale     what the loss of one position weighs in the mean
  [[nodiscard]] double backward(std::size_t row, const unsigned char* targets, float scale) const
  {
    const row_activations& all = n_.handles().rows[row];
    const index size = n_.context() * n_.width();
    double loss = 0.0;
    {
      const auto x = n_.read(all.output);
      const auto statistics = n_.scratch(n_.context() * 2);
      const auto d_normed = n_.scratch(size);
      loss = logits_backward(x.data(), floats(statistics), floats(d_normed), targets, scale);
      const auto slope = m_.acquire(all.slope, chunkmem::access::write);
      if (n_.computes()) kernels::clear(slope.data(), size);
      n_.norm_backward(floats(d_normed), x.data(), n_.handles().final_norm, floats(statistics), slope.data());
    }
    m_.drop(all.output);
    return loss;
  }

  /// The logits of the positions of a window, [count, vocabulary], into `out`.
  void logits(std::size_t row, const window& where, float* out) const
  {
    const auto x = n_.read(n_.handles().rows[row].output);
    const auto statistics = n_.scratch(where.count * 2);
    const auto normed = n_.scratch(where.count * n_.width());
    norm(x.data() + where.first * n_.width(), floats(statistics), floats(normed), where.count);
    const auto table = n_.read(n_.handles().token_table);
    if (n_.computes()) scores(floats(normed), table.data(), out, where.count);
  }

 private:
  static constexpr index bytes_known = static_cast<index>(vocabulary);

  [[nodiscard]] double logits_backward(const float* x, float* statistics, float* d_normed, const unsigned char* targets,
                                       float scale) const
  {
    const index rows = n_.context();
    const auto normed = n_.scratch(rows * n_.width());
    norm(x, statistics, floats(normed), rows);
    const auto logits = n_.scratch(rows * bytes_known);
    auto table = n_.read(n_.handles().token_table);
    double loss = 0.0;
    if (n_.computes()) {
      scores(floats(normed), table.data(), floats(logits), rows);
      loss = kernels::softmax_cross_entropy(floats(logits), targets, scale, rows, bytes_known);
      kernels::multiply(floats(logits), table.data(), d_normed, rows, bytes_known, n_.width());
    }
    n_.weight_gradient(std::move(table), floats(logits), floats(normed), rows, bytes_known, n_.width());
    return loss;
  }

  void norm(const float* x, float* statistics, float* y, index rows) const
  {
    const auto weights = n_.read(n_.handles().final_norm);
    if (n_.computes()) kernels::layer_norm_forward(x, weights.data(), statistics, y, rows, n_.width());
  }

  void scores(const float* normed, const float* table, float* out, index rows) const
  {
    kernels::multiply_transposed(normed, table, out, rows, bytes_known, n_.width());
  }

  const network<Manager>& n_;
  Manager& m_;
};

}  // namespace gpt
