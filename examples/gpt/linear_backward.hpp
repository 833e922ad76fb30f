// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "network.hpp"

#include <chunkmem/activation/sampled.hpp>
#include <chunkmem/core/executor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace gpt {

/// The backward pass of a linear layer, for all rows of a micro-batch: its weights are loaded and widened once, and
/// their gradients are rounded once, by `finish`. A frozen weight has no gradient; its adapter has one.
///
///     linear_backward product{n, it.projection, it.projection_bias, it.beside_projection, width, width};
///     for (...) product.gradients(x, dy), product.input(dy, dx);   // or product.sampled(...)
///     product.finish(last);
template <class Manager>
class linear_backward {
 public:
  using index = kernels::index;

  /// @param net, matrix, bias, beside   outlive this
  linear_backward(const network<Manager>& net, const weight& matrix, const weight& bias, const adapter& beside,
                  index inputs, index outputs)
      : n_{net}, inputs_{inputs}, outputs_{outputs}, d_matrix_{net.gradient(matrix)}, d_bias_{net.gradient(bias)}
  {
    matrix_.emplace(net.manager(), matrix, net.list());
    if (beside.rank > 0) beside_.emplace(net, beside);
  }
  linear_backward(const linear_backward&) = delete;

  /// Adds the gradients of the weights. @param x, dy   input, and gradient of the output
  void gradients(const float* x, const float* dy)
  {
    n_.product_gradients(x, dy, d_matrix_, d_bias_, inputs_, outputs_);
    if (!beside_) return;
    const index rank = beside_->rank;
    const auto u = n_.scratch(n_.context() * rank);
    const auto v = n_.scratch(n_.context() * rank);
    through_down(x, floats(u), n_.context());
    back_through_up(dy, floats(v));
    beside_->d_up.add(
        [&](float beta, float* out) {
          kernels::weight_gradient(floats(u), dy, beta, out, n_.context(), rank, outputs_);
        },
        n_.operations_of(n_.context(), rank, outputs_));
    beside_->d_down.add(
        [&](float beta, float* out) { kernels::weight_gradient(x, floats(v), beta, out, n_.context(), inputs_, rank); },
        n_.operations_of(n_.context(), inputs_, rank));
  }
  /// dx = the gradient of the input
  void input(const float* dy, float* dx) const
  {
    n_.product_input(dy, *matrix_, dx, inputs_, outputs_);
    if (!beside_) return;
    const auto v = n_.scratch(n_.context() * beside_->rank);
    back_through_up(dy, floats(v));
    const auto down = beside_->down->open();
    if (n_.computes(n_.operations_of(n_.context(), beside_->rank, inputs_)))
      kernels::add_product_transposed(floats(v), down.data(), dx, n_.context(), inputs_, beside_->rank);
  }
  /// Both, from the kept rows of the input: dx and the gradient of the bias are exact. The adapter's inner activation
  /// is recomputed from the kept rows.
  template <class Input>
  void sampled(Input& kept, const chunkmem::activation::sampled_batch& batch, std::span<const float> dy, float* dx)
  {
    using chunkmem::activation::linear_slope;
    const auto& workers = chunkmem::on_this_thread;
    d_bias_.add([&](float beta, float* out) { kernels::bias_gradient(dy.data(), beta, out, n_.context(), outputs_); });
    const auto of_input = [&] { input(dy.data(), dx); };
    const auto outputs = static_cast<std::uint64_t>(outputs_);
    if (!beside_) {
      const auto of_matrix = [&](const auto& it) {
        d_matrix_.add([&](float beta, float* out) {
          const auto count = static_cast<index>(it.count);
          kernels::weight_gradient(it.rows, it.slopes, beta, out, count, inputs_, outputs_);
        });
      };
      chunkmem::activation::sampled(kept, batch, workers, linear_slope{dy, outputs, of_input, of_matrix});
      return;
    }
    const index rank = beside_->rank;
    const auto v = n_.scratch(n_.context() * rank);
    back_through_up(dy.data(), floats(v));
    const std::span<const float> of_down{floats(v), n_.computes() ? static_cast<std::size_t>(n_.context() * rank) : 0};
    const auto of_narrow = [&](const auto& it) {
      beside_->d_down.add([&](float beta, float* out) {
        kernels::weight_gradient(it.rows, it.slopes, beta, out, static_cast<index>(it.count), inputs_, rank);
      });
    };
    const auto of_up = [&](const auto& it) {
      const auto count = static_cast<index>(it.count);
      const auto u = n_.scratch(count * rank);
      through_down(it.rows, floats(u), count);
      beside_->d_up.add([&](float beta, float* out) {
        kernels::weight_gradient(floats(u), it.slopes, beta, out, count, rank, outputs_);
      });
    };
    chunkmem::activation::sampled(kept, batch, workers,
                                  linear_slope{of_down, static_cast<std::uint64_t>(rank), of_input, of_narrow},
                                  linear_slope{dy, outputs, [] {}, of_up});
  }

  /// No more rows follow, and no product reads the weights. @param last   no other micro-batch follows either
  void finish(bool last)
  {
    matrix_.reset();
    d_matrix_.finish(last);
    d_bias_.finish(last);
    if (!beside_) return;
    beside_->down.reset();
    beside_->up.reset();
    beside_->d_down.finish(last);
    beside_->d_up.finish(last);
  }

 private:
  struct narrow_products {
    narrow_products(const network<Manager>& net, const adapter& of)
        : d_down{net.gradient(of.down)}, d_up{net.gradient(of.up)}, rank{static_cast<index>(of.rank)}
    {
      down.emplace(net.manager(), of.down, net.list());
      up.emplace(net.manager(), of.up, net.list());
    }
    typename network<Manager>::gradient_type d_down, d_up;
    std::optional<wide_weight<Manager>> down, up;
    index rank;
  };

  void through_down(const float* x, float* u, index rows) const
  {
    const auto down = beside_->down->open();
    if (n_.computes(n_.operations_of(rows, inputs_, beside_->rank)))
      kernels::multiply(x, down.data(), u, rows, inputs_, beside_->rank);
  }
  void back_through_up(const float* dy, float* v) const
  {
    const auto up = beside_->up->open();
    if (n_.computes(n_.operations_of(n_.context(), outputs_, beside_->rank)))
      kernels::multiply_transposed(dy, up.data(), v, n_.context(), beside_->rank, outputs_);
  }

  const network<Manager>& n_;
  index inputs_;
  index outputs_;
  typename network<Manager>::gradient_type d_matrix_, d_bias_;
  std::optional<wide_weight<Manager>> matrix_;
  std::optional<narrow_products> beside_;
};

}  // namespace gpt
