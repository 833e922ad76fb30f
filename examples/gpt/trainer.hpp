#pragma once

#include "backward.hpp"
#include "fnv.hpp"
#include "forward.hpp"
#include "head.hpp"
#include "schedule.hpp"
#include "text.hpp"

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>

#include <cstdint>
#include <span>

namespace gpt {

/// Trains the model: batches, forward, backward, update, and the loss on text it never saw.
///
/// A step makes no memory of its own: tokens are read where the text lies, everything else is pins and leases.
template <class Manager>
class trainer {
 public:
  /// @param net, text   outlive the trainer
  trainer(Manager& manager, const model& net, const training_text& text, const cosine_schedule& schedule,
          std::uint64_t seed)
      : m_{manager}, net_{manager, net}, text_{text}, schedule_{schedule}, seed_{seed}
  {
    manager.use(adam_.lists());
  }
  trainer(const trainer&) = delete;
  trainer& operator=(const trainer&) = delete;

  /// One step; `number` counts from 0. @return the mean loss per token before the update [nats], 0 in a rehearsal
  float step(std::size_t number)
  {
    auto iteration = m_.iteration();
    const float loss = gradient(number, iteration);
    chunkmem::optimizer::step(m_, adam_, {.learning_rate = schedule_.at(number)});
    return loss;
  }

  /// The first part of a step, inside an iteration of the caller: the gradients are there, nothing is updated.
  template <class Iteration>
  float gradient(std::size_t number, Iteration& iteration)
  {
    iteration.pass(chunkmem::pass::forward, 0);
    for (std::size_t row = 0; row < size().batch; ++row) forward_.embed(row, training_window(number, row));
    for (std::size_t layer = 0; layer < size().layers; ++layer) {
      for (std::size_t row = 0; row < size().batch; ++row) forward_.layer(layer, row, training_window(number, row));
    }
    iteration.pass(chunkmem::pass::backward, 0);
    return backward(number);
  }

  /// The mean loss per token on windows of the held-out text, always the same ones [nats].
  [[nodiscard]] float evaluate()
  {
    auto iteration = m_.iteration("held out");
    double sum = 0.0;
    for (std::size_t which = 0; which < held_out_windows; ++which) sum += held_out_loss(which);
    return static_cast<float>(sum / static_cast<double>(held_out_windows * size().context));
  }

  /// A hash of all parameters, byte by byte in the order they were declared.
  [[nodiscard]] std::uint64_t parameter_hash() const
  {
    fnv1a hash;
    for (const parameter& each : net_.handles().parameters) {
      const auto pin = net_.read(each.tensor);
      hash.add(std::as_bytes(std::span{pin.data(), pin.span().size()}));
    }
    return hash.value();
  }

  [[nodiscard]] float learning_rate(std::size_t number) const noexcept { return schedule_.at(number); }
  [[nodiscard]] const network<Manager>& net() const noexcept { return net_; }
  [[nodiscard]] const forward_pass<Manager>& forward() const noexcept { return forward_; }
  [[nodiscard]] const head<Manager>& end() const noexcept { return head_; }

  /// Forgets what a forward pass saved for one row.
  void drop(std::size_t row)
  {
    for (const layer_activations& saved : net_.handles().rows[row].layers) {
      for (const auto& tensor : {saved.input, saved.attention_statistics, saved.qkv, saved.attended, saved.middle,
                                 saved.mlp_statistics, saved.hidden}) {
        m_.drop(tensor);
      }
    }
    m_.drop(net_.handles().rows[row].output);
  }

 private:
  static constexpr std::size_t held_out_windows = 8;

  [[nodiscard]] const extents& size() const noexcept { return net_.handles().size; }

  [[nodiscard]] window training_window(std::size_t number, std::size_t row) const
  {
    const std::span<const unsigned char> text = text_.training();
    const counter_random random{seed_, stream::batches + number};
    return {text.data() + random.below(text.size() - size().context, row), 0, net_.context()};
  }

  [[nodiscard]] float backward(std::size_t number)
  {
    const std::size_t batch = size().batch;
    const float scale = 1.0f / static_cast<float>(size().tokens_per_step());
    double loss = 0.0;
    for (std::size_t row = 0; row < batch; ++row) {
      loss += head_.backward(row, training_window(number, row).tokens + 1, scale);
    }
    for (std::size_t layer = size().layers; layer-- > 0;) {
      for (std::size_t row = 0; row < batch; ++row) backward_.layer(layer, row);
    }
    for (std::size_t row = 0; row < batch; ++row) backward_.embed(row, training_window(number, row).tokens);
    return static_cast<float>(loss / static_cast<double>(size().tokens_per_step()));
  }

  [[nodiscard]] double held_out_loss(std::size_t which)
  {
    const std::span<const unsigned char> text = text_.held_out();
    const std::size_t last = text.size() - size().context - 1;
    const window where{text.data() + last * which / (held_out_windows - 1), 0, net_.context()};
    forward_.embed(0, where);
    for (std::size_t layer = 0; layer < size().layers; ++layer) forward_.layer(layer, 0, where);
    double loss = 0.0;
    {
      const auto known = static_cast<kernels::index>(vocabulary);
      const auto logits = net_.scratch(net_.context() * known);
      head_.logits(0, where, floats(logits));
      if (net_.computes()) {
        loss = kernels::softmax_cross_entropy(floats(logits), where.tokens + 1, 1.0f, net_.context(), known);
      }
    }
    drop(0);
    return loss;
  }

  Manager& m_;
  network<Manager> net_;
  forward_pass<Manager> forward_{net_};
  backward_pass<Manager> backward_{net_};
  head<Manager> head_{net_};
  const training_text& text_;
  cosine_schedule schedule_;
  std::uint64_t seed_;
  chunkmem::optimizer::adam adam_{{.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f}};
};

}  // namespace gpt
