// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "walk.hpp"

#include <support/plain_parameters.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace divergence {

/// The reference: vectors, loops, and numbers that are rounded where 16 bits would be stored.
template <class Net = uneven_blocks>
class plain_walk {
 public:
  explicit plain_walk(const mixed::recipe& how) : how_{how}, weights_{how, Net::parameters()} {}

  mixed::outcome train(const std::vector<turn>& turns)
  {
    for (std::size_t index = 0; index < turns.size(); ++index) take(turns[index], index);
    return collect();
  }
  /// One iteration, the `number`th.
  void take(const turn& it, std::uint64_t number)
  {
    for (const std::uint32_t index : it.rewritten)
      weights_.rewrite(index, [index, number](std::uint64_t i) { return rewritten(index, number, i); });
    if (it.evaluates) return go(it, number, 0, false);
    if (it.false_start) {
      go(it, number, 0, true);
      forget();
    }
    for (std::size_t pass = 0; pass < it.passes.size(); ++pass) go(it, number, pass, true);
    for (const std::uint32_t index : it.dropped) weights_.forget_gradient(index);
    if (it.abandoned)
      forget();
    else
      weights_.update();
  }
  [[nodiscard]] mixed::outcome collect() const
  {
    mixed::outcome result;
    result.add("losses", losses_);
    weights_.add_numbers_to(result);
    weights_.add_weights_to(result);
    return result;
  }

  /// Of all steps that were not skipped, before they were clipped.
  [[nodiscard]] const std::vector<double>& norms() const noexcept { return weights_.norms(); }
  [[nodiscard]] std::size_t skipped() const noexcept { return weights_.scales().size() - weights_.norms().size(); }

 private:
  using row = std::vector<float>;

  void forget()
  {
    for (std::size_t index = 0; index < parameters_in<Net>; ++index) weights_.forget_gradient(index);
  }

  void go(const turn& it, std::uint64_t number, std::size_t pass, bool trains)
  {
    const std::vector<std::uint32_t>& visits = it.passes[pass];
    std::vector<row> x(visits.size() + 1, row(batch * width));
    std::vector<row> h(visits.size());
    row wide(batch * Net::widest), y(batch * width), flow(batch * width);
    float seen = 0;
    mixed::draw_input(act(x[0]), key_of(number, pass));
    for (std::size_t index = 0; index < visits.size(); ++index) {
      if (pass == 0) seen += sum_before(it, index);
      const std::uint32_t block = visits[index];
      h[index].resize(batch * Net::inner_of(block));
      mixed::multiply(wide.data(), act(x[index]), weights_.value(Net::up_of(block)), width, Net::inner_of(block));
      mixed::add_bias(wide.data(), weights_.value(Net::bias_of(block)), Net::inner_of(block));
      mixed::store_softsign(act(h[index]), wide.data(), batch * Net::inner_of(block));
      mixed::multiply(y.data(), act(h[index]), weights_.value(Net::down_of(block)), Net::inner_of(block), width);
      mixed::residual(act(x[index + 1]), act(x[index]), y.data());
    }
    float loss = 0;
    mixed::multiply(y.data(), act(x.back()), weights_.value(0), width, width);
    mixed::regression_loss(&loss, y.data(), key_of(number, pass), trains ? weights_.loss_factor() : 1.0F, it.spoilt);
    losses_.push_back(loss + seen);
    if (!trains) return;
    const mixed::floats slope{y.data()};
    mixed::multiply_transposed(flow.data(), slope, weights_.value(0), width, width, false);
    mixed::outer(weights_.gradient(0), act(x.back()), slope, width, width, weights_.beta(0));
    for (std::size_t index = visits.size(); index-- > 0;)
      backward(visits[index], act(x[index]), act(h[index]), flow, wide);
  }

  void backward(std::uint32_t block, mixed::rounded x, mixed::rounded h, row& flow, row& wide)
  {
    const std::uint64_t inner = Net::inner_of(block);
    const mixed::floats in{flow.data()};
    mixed::multiply_transposed(wide.data(), in, weights_.value(Net::down_of(block)), inner, width, false);
    mixed::outer(weights_.gradient(Net::down_of(block)), h, in, inner, width, weights_.beta(Net::down_of(block)));
    mixed::softsign_backward(wide.data(), h, batch * inner);
    mixed::sum_rows(weights_.gradient(Net::bias_of(block)), wide.data(), inner, weights_.beta(Net::bias_of(block)));
    mixed::multiply_transposed(flow.data(), mixed::floats{wide.data()}, weights_.value(Net::up_of(block)), width, inner,
                               true);
    mixed::outer(weights_.gradient(Net::up_of(block)), x, mixed::floats{wide.data()}, width, inner,
                 weights_.beta(Net::up_of(block)));
  }

  [[nodiscard]] float sum_before(const turn& it, std::size_t visit)
  {
    float sum = 0;
    for (const look& each : it.looks)
      if (each.visit == visit) sum += mixed::sum_of(weights_.value(each.parameter), weights_.size_of(each.parameter));
    return sum;
  }
  [[nodiscard]] mixed::rounded act(row& values) const noexcept { return {values.data(), how_.kind}; }

  mixed::recipe how_;
  mixed::plain_parameters weights_;
  row losses_;
};

}  // namespace divergence
