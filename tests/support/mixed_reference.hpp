// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/mixed_model.hpp>
#include <support/plain_parameters.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace support::mixed {

/// The reference: vectors, loops, and numbers that are rounded where 16 bits would be stored.
class reference {
 public:
  explicit reference(const recipe& how) : how_{how}, weights_{how, parameters()}
  {
    gate_.resize(width);
    for (std::size_t index = 0; index < width; ++index) gate_[index] = rounded_to(how_.kind, initial_gate(index));
    running_.assign((how.micro_batches + std::size_t{1}) * width, 0.0F);
    x_.assign(layers + 1, std::vector<float>(batch * width));
    z_.assign(layers, std::vector<float>(batch * width));
    h_.assign(layers, std::vector<float>(batch * hidden));
  }

  outcome train()
  {
    for (std::uint32_t now = 0; now < how_.steps; ++now) whole_step(now);
    return collect();
  }
  void whole_step(std::uint32_t now)
  {
    step(now);
    if (how_.evaluates_after(now)) evaluate(now);
  }
  /// @return   whether an update was made
  bool step(std::uint32_t now)
  {
    for (std::uint32_t turn = 0; turn < how_.micro_batches; ++turn) forward_and_backward(now, turn);
    return weights_.update();
  }

  void forward_and_backward(std::uint32_t now, std::uint32_t turn)
  {
    forward(key_of(now, turn), weights_.loss_factor(), how_.is_spoilt(now, turn));
    update_running(running_.data(), floats{x_[layers].data()}, std::uint64_t{now} * how_.micro_batches + turn,
                   how_.micro_batches + 1);
    const std::size_t up = index_of(0, part::up);
    losses_.push_back(loss_ +
                      (sum_of(weights_.value(up), weights_.size_of(up)) + sum_of(value(1, part::down_bias), width)));
    backward(key_of(now, turn));
  }

  void evaluate(std::uint32_t now)
  {
    forward(key_of(now + 1000, 0), 1.0F, false);
    losses_.push_back(loss_);
  }

  [[nodiscard]] outcome collect() const
  {
    outcome result;
    result.add("losses", losses_);
    weights_.add_numbers_to(result);
    result.add("running means", running_);
    weights_.add_weights_to(result);
    plain_parameters::add_stored(result, "gate", gate_, how_.kind);
    return result;
  }
  [[nodiscard]] plain_parameters& weights() noexcept { return weights_; }
  [[nodiscard]] const std::vector<float>& losses() const noexcept { return losses_; }

 private:
  [[nodiscard]] floats value(std::size_t index) noexcept { return weights_.value(index); }
  [[nodiscard]] floats value(std::uint32_t layer, part which) noexcept { return value(index_of(layer, which)); }
  [[nodiscard]] rounded gradient(std::size_t index) noexcept { return weights_.gradient(index); }
  [[nodiscard]] float beta(std::size_t index) noexcept { return weights_.beta(index); }
  [[nodiscard]] rounded act(std::vector<float>& values) const noexcept { return {values.data(), how_.kind}; }

  void forward(std::uint64_t key, float factor, bool spoilt)
  {
    embed(act(x_[0]), value(0), key);
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      multiply(narrow_.data(), act(x_[layer]), value(mix_of(layer)), width, width);
      store(act(z_[layer]), narrow_.data(), batch * width);
      multiply(slope_.data(), act(z_[layer]), value(layer, part::up), width, hidden);
      add_bias(slope_.data(), value(layer, part::up_bias), hidden);
      store_softsign(act(h_[layer]), slope_.data(), batch * hidden);
      multiply(narrow_.data(), act(h_[layer]), value(layer, part::down), hidden, width);
      add_bias(narrow_.data(), value(layer, part::down_bias), width);
      gate_forward(act(x_[layer + 1]), act(x_[layer]), floats{gate_.data()}, narrow_.data());
    }
    multiply_transposed(logits_.data(), act(x_[layers]), value(0), words, width, false);
    square_loss(&loss_, logits_.data(), key, factor, spoilt);
  }

  void backward(std::uint64_t key)
  {
    multiply(flow_.data(), floats{logits_.data()}, value(0), words, width);
    outer(gradient(0), floats{logits_.data()}, floats{x_[layers].data()}, words, width, beta(0));
    for (std::uint32_t layer = layers; layer-- > 0;) block_backward(layer);
    (void)beta(0);
    embed_backward(gradient(0), flow_.data(), key);
  }

  void block_backward(std::uint32_t layer)
  {
    const auto at = [layer](part which) { return index_of(layer, which); };
    const std::size_t mix = mix_of(layer);
    gate_backward(narrow_.data(), flow_.data(), floats{gate_.data()});
    sum_rows(gradient(at(part::down_bias)), narrow_.data(), width, beta(at(part::down_bias)));
    multiply_transposed(slope_.data(), floats{narrow_.data()}, value(layer, part::down), hidden, width, false);
    outer(gradient(at(part::down)), act(h_[layer]), floats{narrow_.data()}, hidden, width, beta(at(part::down)));
    softsign_backward(slope_.data(), act(h_[layer]), batch * hidden);
    sum_rows(gradient(at(part::up_bias)), slope_.data(), hidden, beta(at(part::up_bias)));
    multiply_transposed(narrow_.data(), floats{slope_.data()}, value(layer, part::up), width, hidden, false);
    outer(gradient(at(part::up)), act(z_[layer]), floats{slope_.data()}, width, hidden, beta(at(part::up)));
    multiply_transposed(flow_.data(), floats{narrow_.data()}, value(mix), width, width, true);
    outer(gradient(mix), act(x_[layer]), floats{narrow_.data()}, width, width, beta(mix));
  }

  recipe how_;
  plain_parameters weights_;
  std::vector<float> losses_;
  std::vector<float> gate_, running_;
  std::vector<std::vector<float>> x_, z_, h_;
  float loss_ = 0;
  std::vector<float> logits_ = std::vector<float>(batch * words);
  std::vector<float> flow_ = std::vector<float>(batch * width);
  std::vector<float> narrow_ = std::vector<float>(batch * width);
  std::vector<float> slope_ = std::vector<float>(batch * hidden);
};

}  // namespace support::mixed
