// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "linear_backward.hpp"
#include "network.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpt {

/// The backward pass of a micro-batch, layer by layer from the last.
///
/// Within a layer each product runs backward for all rows before the next product does. Its weight is loaded and
/// widened once, its gradient is rounded once, and no weight is read after its gradient was added, as gradients in
/// place require. The gradient of an activation overwrites the activation where that is not needed any more. Each
/// activation is dropped after its last use.
///
/// Two products take turns row by row where the tensor between them does not exist for all rows: where it is
/// recomputed, or some rows of it were kept. One row of it then needs room.
template <class Manager>
class backward_pass {
 public:
  using index = kernels::index;

  explicit backward_pass(const network<Manager>& net) : n_{net}, m_{net.manager()} {}

  /// @param last   no other micro-batch follows in this step
  void layer(std::size_t which, bool last) const
  {
    mlp(which, last);
    attention(which, last);
  }

  /// @param tokens_of      a row to its tokens
  /// @param last_of_table  nothing else adds to the table's gradient either
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
  /// Activations around a norm and the product after it: the gradient of its output, the norm's input and statistics.
  struct around_norm {
    chunkmem::tensor<float> saved_layer::*slope;
    chunkmem::tensor<float> saved_layer::*input;
    chunkmem::tensor<float> saved_layer::*statistics;
  };

  /// The backward pass of a product and of the norm before it, into the residual stream.
  class normed_product {
   public:
    normed_product(const network<Manager>& net, const weight& matrix, const weight& bias, const adapter& beside,
                   const weight& norm, index outputs, const around_norm& names)
        : n_{net}, names_{names}, product_{net, matrix, bias, beside, net.width(), outputs}, d_norm_{net.gradient(norm)}
    {
      norm_.emplace(net.manager(), norm, net.list());
    }

    void go_back(const row_activations& row, const saved_layer& saved)
    {
      {
        const auto x = n_.read(saved.*names_.input);
        const auto statistics = n_.read(saved.*names_.statistics);
        const auto between = n_.scratch(n_.context() * n_.width());
        n_.norm_again(x.data(), *norm_, statistics.data(), floats(between));
        {
          const auto dy = n_.became(saved.*names_.slope);
          product_.gradients(floats(between), dy.data());
          product_.input(dy.data(), floats(between));
        }
        const auto slope = n_.manager().acquire(row.slope, chunkmem::access::read_write);
        n_.norm_backward(floats(between), x.data(), *norm_, statistics.data(), slope.data(), d_norm_);
      }
      for (const auto name : {names_.slope, names_.input, names_.statistics}) n_.forget(saved.*name);
    }
    void finish(bool last)
    {
      norm_.reset();
      product_.finish(last);
      d_norm_.finish(last);
    }

   private:
    const network<Manager>& n_;
    around_norm names_;
    linear_backward<Manager> product_;
    typename network<Manager>::gradient_type d_norm_;
    std::optional<wide_weight<Manager>> norm_;
  };

  void mlp(std::size_t which, bool last) const
  {
    const layer_weights& weights = n_.handles().layers[which];
    const auto of_expand = [&] {
      return normed_product{n_,
                            weights.expand,
                            weights.expand_bias,
                            weights.beside_expand,
                            weights.mlp_norm,
                            4 * n_.width(),
                            {&saved_layer::hidden, &saved_layer::middle, &saved_layer::mlp_statistics}};
    };
    linear_backward<Manager> contract{
        n_, weights.contract, weights.contract_bias, weights.beside_contract, 4 * n_.width(), n_.width()};
    if (n_.samples_hidden()) {
      normed_product expand = of_expand();
      over_rows(which, [&](std::size_t number, const row_activations& row, const saved_layer& saved) {
        sampled_contract(contract, which, number);
        expand.go_back(row, saved);
      });
      contract.finish(last);
      return expand.finish(last);
    }
    over_rows(which, [&](std::size_t, const row_activations& row, const saved_layer& saved) {
      through_nonlinearity(contract, row, saved);
    });
    contract.finish(last);
    normed_product expand = of_expand();
    over_rows(which,
              [&](std::size_t, const row_activations& row, const saved_layer& saved) { expand.go_back(row, saved); });
    expand.finish(last);
  }

  void attention(std::size_t which, bool last) const
  {
    const layer_weights& weights = n_.handles().layers[which];
    const auto of_qkv = [&] {
      return normed_product{n_,
                            weights.qkv,
                            weights.qkv_bias,
                            weights.beside_qkv,
                            weights.attention_norm,
                            3 * n_.width(),
                            {&saved_layer::qkv, &saved_layer::input, &saved_layer::attention_statistics}};
    };
    linear_backward<Manager> projection{
        n_, weights.projection, weights.projection_bias, weights.beside_projection, n_.width(), n_.width()};
    if (n_.runs_qkv_again()) {
      normed_product qkv = of_qkv();
      over_rows(which, [&](std::size_t number, const row_activations& row, const saved_layer& saved) {
        through_projection(projection, which, number);
        qkv.go_back(row, saved);
      });
      projection.finish(last);
      return qkv.finish(last);
    }
    over_rows(which, [&](std::size_t number, const row_activations&, const saved_layer&) {
      through_projection(projection, which, number);
    });
    projection.finish(last);
    normed_product qkv = of_qkv();
    over_rows(which,
              [&](std::size_t, const row_activations& row, const saved_layer& saved) { qkv.go_back(row, saved); });
    qkv.finish(last);
  }

  template <class Visit>
  void over_rows(std::size_t which, Visit visit) const
  {
    const auto& rows = n_.handles().rows;
    for (std::size_t number = 0; number < rows.size(); ++number)
      visit(number, rows[number], rows[number].layers[which]);
  }

  /// The backward pass of the last product of the MLP and of the nonlinearity: `hidden` becomes its gradient.
  void through_nonlinearity(linear_backward<Manager>& contract, const row_activations& row,
                            const saved_layer& saved) const
  {
    const index size = n_.context() * 4 * n_.width();
    const auto slope = n_.read(row.slope);
    const auto hidden = n_.overwritten(saved.hidden, size);
    const auto between = n_.scratch(size);
    if (n_.handles().size.mlp == nonlinearity::relu) {
      contract.gradients(hidden.data(), slope.data());
      contract.input(slope.data(), floats(between));
      if (n_.computes()) kernels::relu_backward(floats(between), hidden.data(), size);
      return;
    }
    if (n_.computes()) kernels::gelu_forward(hidden.data(), floats(between), size);
    contract.gradients(floats(between), slope.data());
    contract.input(slope.data(), floats(between));
    if (n_.computes()) kernels::gelu_backward(floats(between), hidden.data(), size);
  }
  /// The same from the rows that were kept after ReLU, and from its bits.
  void sampled_contract(linear_backward<Manager>& contract, std::size_t which, std::size_t number) const
  {
    const row_activations& row = n_.handles().rows[number];
    const saved_layer& saved = row.layers[which];
    if constexpr (network<Manager>::can_sample) {
      auto& samples = *n_.samples();
      const auto d_hidden = m_.acquire(saved.hidden, chunkmem::access::write);
      {
        const auto slope = n_.read(row.slope);
        contract.sampled(samples.hidden(which, number), samples.batch(number), slope.span(), d_hidden.data());
      }
      {
        const auto bits = m_.acquire(samples.positive(which, number), chunkmem::access::read);
        if (n_.computes()) kernels::clear_others(bits.data(), d_hidden.data(), n_.context() * 4 * n_.width());
      }
      m_.drop(samples.positive(which, number));
    }
  }

  /// The backward pass of the projection and of the softmax: `qkv` becomes its gradient.
  void through_projection(linear_backward<Manager>& projection, std::size_t which, std::size_t number) const
  {
    const row_activations& row = n_.handles().rows[number];
    const saved_layer& saved = row.layers[which];
    const index size = n_.context() * n_.width();
    if constexpr (network<Manager>::can_sample)
      if (auto* const samples = n_.samples()) {
        const auto d_attended = n_.scratch(size);
        {
          const auto slope = n_.read(row.slope);
          projection.sampled(samples->of(which, number), samples->batch(number), slope.span(), floats(d_attended));
        }
        return through_softmax(which, saved, floats(d_attended));
      }
    {
      const auto attended = n_.overwritten(saved.attended, size);
      {
        const auto slope = n_.read(row.slope);
        projection.gradients(attended.data(), slope.data());
        projection.input(slope.data(), attended.data());
      }
      through_softmax(which, saved, attended.data());
    }
    n_.forget(saved.attended);
  }

  void through_softmax(std::size_t which, const saved_layer& saved, const float* d_attended) const
  {
    const index rows = n_.context();
    const index width = n_.width();
    if (n_.runs_qkv_again()) run_qkv_again(n_.handles().layers[which], saved);
    const auto qkv = n_.overwritten(saved.qkv, rows * 3 * width);
    const auto scores = n_.scratch(rows * rows);
    const auto d_scores = n_.scratch(rows * rows);
    const auto d_qkv = n_.scratch(rows * 3 * width);
    if (!n_.computes(5 * n_.operations_of(rows, width, rows)))
      return;  // the scores again, and two products for each of the two
    kernels::attention_backward(qkv.data(), d_attended, floats(scores), floats(d_scores), floats(d_qkv),
                                {0, rows, n_.heads(), width});
    kernels::copy(floats(d_qkv), qkv.data(), rows * 3 * width);
  }
  void run_qkv_again(const layer_weights& weights, const saved_layer& saved) const
  {
    const auto normed = n_.scratch(n_.context() * n_.width());
    {
      const auto x = n_.read(saved.input);
      const auto statistics = n_.read(saved.attention_statistics);
      n_.norm_again(x.data(), n_.widened(weights.attention_norm), statistics.data(), floats(normed));
    }
    const auto qkv = m_.acquire(saved.qkv, chunkmem::access::write);
    n_.linear(floats(normed), weights.qkv, weights.qkv_bias, weights.beside_qkv, qkv.data(), n_.context(), n_.width(),
              3 * n_.width());
  }

  const network<Manager>& n_;
  Manager& m_;
};

}  // namespace gpt
