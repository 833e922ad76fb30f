// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <support/plain_model.hpp>
#include <support/trainer_calls.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace support::toy {

using support::crew;

/// The network of plain_model, trained out of a manager: every kind of access that a trainer makes, in one step.
///
/// Kernels are launched on the crew; on agent::host they run at once. Windows of several frames, tiny tensors that
/// share a chunk, a tied weight, a parameter that no step uses, activations that are dropped, leases across nested
/// pins, a buffer, reads on the host in mid step, an evaluation of its own name.
///
/// `forward_and_backward`, `update` and `evaluate` are separate, so that a test can fail and repeat each.
template <class Manager, class Backend>
class toy_trainer : trainer_calls<Manager, Backend> {
  using calls = trainer_calls<Manager, Backend>;

 public:
  toy_trainer(Manager& manager, Backend& backend, const crew& workers = {}) : calls{manager, backend, workers}
  {
    using chunkmem::role;
    m_.use(kernel_);
    for (const auto& extents : parameter_extents())
      parameters_.push_back(m_.template add<float>({extents[0], extents[1]}, role::parameter));
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      x_.push_back(m_.template add<float>({batch, width}, role::activation));
      h_.push_back(m_.template add<float>({batch, hidden}, role::activation));
    }
    x_.push_back(m_.template add<float>({batch, width}, role::activation));
    flow_ = m_.template add<float>({batch, width}, role::activation);
    running_ = m_.template add<float>({2, width}, role::buffer);
    loss_ = m_.template add<float>({1}, role::buffer);
  }

  /// The need of a step. Allocates nothing.
  chunkmem::memory_requirement rehearse()
  {
    return m_.rehearse([this] { step(0); });
  }
  /// The same for an evaluation.
  chunkmem::memory_requirement rehearse_evaluation()
  {
    return m_.rehearse([this] { evaluate(0); });
  }

  void initialise()
  {
    for (std::size_t index = 0; index < parameters_.size(); ++index) {
      const auto pin = m_.acquire(parameters_[index], chunkmem::access::write, place_to_fill<Backend>);
      fill(pin.span(), index + 1);
    }
    const auto pin = m_.acquire(running_, chunkmem::access::write, place_to_fill<Backend>);
    for (float& value : pin.span()) value = 0;
  }

  /// Room for the losses of this many steps, so that recording them allocates nothing.
  void reserve(std::size_t steps) { losses_.reserve(2 * steps); }

  outcome train(std::uint32_t steps)
  {
    initialise();
    for (std::uint32_t now = 0; now < steps; ++now) whole_step(now);
    return collect();
  }

  /// A step and the evaluation that may follow it.
  void whole_step(std::uint32_t now)
  {
    step(now);
    if (evaluates_after(now)) evaluate(now + 1000);
  }

  void step(std::uint32_t now)
  {
    auto scope = m_.iteration();
    forward_and_backward(scope, now);
    update();
  }

  template <class Scope>
  void forward_and_backward(Scope& scope, std::uint32_t now)
  {
    scope.pass(chunkmem::pass::forward);
    forward(now, false);
    const float extra = look_from_the_host();
    scope.pass(chunkmem::pass::backward);
    backward(now);
    const auto loss = m_.acquire(loss_, chunkmem::access::read, chunkmem::memory_location::host);
    if (!m_.rehearsing()) losses_.push_back(loss.span()[0] + extra);
  }

  void update() { chunkmem::optimizer::step(m_, kernel_, {.learning_rate = learning_rate}); }

  void evaluate(std::uint32_t now)
  {
    auto scope = m_.iteration("eval");
    forward(now, true);
    const auto loss = m_.acquire(loss_, chunkmem::access::read, chunkmem::memory_location::host);
    if (!m_.rehearsing()) losses_.push_back(loss.span()[0]);
  }

  /// Called before a step is repeated: drops everything of the failed one.
  void forget_step()
  {
    m_.drop_gradients();
    for (const auto* list : {&x_, &h_})
      for (const auto& it : *list) forget(it);
    forget(flow_);
  }

  /// All results of the training, read on the host.
  outcome collect()
  {
    outcome result;
    result.losses = losses_;
    for (const auto& it : parameters_) {
      result.values.push_back(copy_of(it, chunkmem::value_list));
      result.momenta.push_back(copy_of(it, m_.list("adam/momentum")));
      result.variances.push_back(copy_of(it, m_.list("adam/variance")));
    }
    result.running = copy_of(running_);
    return result;
  }

  [[nodiscard]] const std::vector<float>& losses() const noexcept { return losses_; }
  [[nodiscard]] const auto& parameters() const noexcept { return parameters_; }
  [[nodiscard]] const auto& activations() const noexcept { return x_; }

 private:
  using tensor = chunkmem::tensor<float>;
  using calls::m_, calls::crew_, calls::use, calls::make, calls::workspace, calls::numbers, calls::launch,
      calls::forget, calls::copy_of;

  [[nodiscard]] auto use(std::uint32_t layer, part which) { return use(parameters_[index_of(layer, which)]); }

  void forward(std::uint32_t now, bool evaluating)
  {
    {
      const auto table = use(parameters_[0]);
      const auto x = make(x_[0]);
      launch([out = x.data(), in = table.data(), now] { embed(out, in, now); });
    }
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      block(layer);
      if (!evaluating) continue;
      m_.drop(x_[layer]);
      m_.drop(h_[layer]);
    }
    head(now, evaluating);
    if (evaluating) m_.drop(x_[layers]);
  }

  void block(std::uint32_t layer)
  {
    const auto work = workspace(batch * hidden);
    const auto x = use(x_[layer]);
    const auto h = make(h_[layer]);
    {
      const auto up = use(layer, part::up);
      const auto bias = use(layer, part::up_bias);
      launch([out = numbers(work), in = x.data(), up = up.data(), bias = bias.data(), h = h.data()] {
        multiply(out, in, up, width, hidden, false);
        add_bias(out, bias, hidden);
        std::memcpy(h, out, batch * hidden * sizeof(float));
        softsign(h, batch * hidden);
      });
    }
    const auto next = make(x_[layer + 1]);
    const auto down = use(layer, part::down);
    const auto bias = use(layer, part::down_bias);
    launch([out = next.data(), in = x.data(), h = h.data(), down = down.data(), bias = bias.data()] {
      std::memcpy(out, in, batch * width * sizeof(float));
      multiply(out, h, down, hidden, width, true);
      add_bias(out, bias, width);
    });
  }

  /// Logits, loss, and where it trains the gradient of the table, the flow into the last layer and the running means.
  void head(std::uint32_t now, bool evaluating)
  {
    const auto logits = workspace(batch * words);
    {
      const auto x = use(x_[layers]);
      auto table = use(parameters_[0]);
      const auto loss = make(loss_);
      launch([out = numbers(logits), in = x.data(), table = table.data(), loss = loss.data(), now] {
        multiply_transposed(out, in, table, words, width, false);
        square_loss(loss, out, now);
      });
      if (evaluating) return;
      {
        const auto flow = make(flow_);
        launch([out = flow.data(), in = numbers(logits), table = table.data()] {
          multiply(out, in, table, words, width, false);
        });
      }
      const auto gradient = m_.gradient(std::move(table));
      launch([out = gradient.data(), slope = numbers(logits), in = x.data(), beta = gradient.beta()] {
        outer(out, slope, in, words, width, beta);
      });
    }
    const auto running = m_.acquire(running_, chunkmem::access::read_write, crew_.side);
    const auto x = m_.acquire(x_[layers], chunkmem::access::read, crew_.side);
    launch(crew_.side, [out = running.data(), in = x.data(), now] { update_running(out, in, now); });
  }

  /// Reads on the host in mid step: a window of several frames, and one tensor of a chunk with others.
  [[nodiscard]] float look_from_the_host()
  {
    const auto up =
        m_.acquire(parameters_[index_of(0, part::up)], chunkmem::access::read, chunkmem::memory_location::host);
    const auto bias =
        m_.acquire(parameters_[index_of(1, part::down_bias)], chunkmem::access::read, chunkmem::memory_location::host);
    return m_.rehearsing() ? 0.0F : sum_of(up.span()) + sum_of(bias.span());
  }

  void backward(std::uint32_t now)
  {
    for (std::uint32_t layer = layers; layer-- > 0;) {
      block_backward(layer);
      m_.drop(x_[layer + 1]);
      m_.drop(h_[layer]);
    }
    {
      const auto flow = use(flow_);
      const auto gradient = m_.gradient(parameters_[0], crew_.main);
      launch([out = gradient.data(), in = flow.data(), now, beta = gradient.beta()] {
        if (beta == 0.0F) std::memset(out, 0, words * width * sizeof(float));
        embed_backward(out, in, now);
      });
    }
    m_.drop(x_[0]);
    m_.drop(flow_);
  }

  void block_backward(std::uint32_t layer)
  {
    const auto slope = workspace(batch * hidden);
    const auto h = use(h_[layer]);
    {
      const auto flow = m_.acquire(flow_, chunkmem::access::read, crew_.side);
      const auto gradient = m_.gradient(parameters_[index_of(layer, part::down_bias)], crew_.side);
      launch(crew_.side,
             [out = gradient.data(), in = flow.data(), beta = gradient.beta()] { sum_rows(out, in, width, beta); });
    }
    {
      const auto flow = use(flow_);
      auto down = use(layer, part::down);
      launch([out = numbers(slope), in = flow.data(), down = down.data()] {
        multiply_transposed(out, in, down, hidden, width, false);
      });
      const auto gradient = m_.gradient(std::move(down));
      launch([out = gradient.data(), h = h.data(), in = flow.data(), beta = gradient.beta()] {
        outer(out, h, in, hidden, width, beta);
      });
    }
    {
      const auto gradient = m_.gradient(parameters_[index_of(layer, part::up_bias)], crew_.main);
      launch([slope = numbers(slope), h = h.data(), out = gradient.data(), beta = gradient.beta()] {
        softsign_backward(slope, h, batch * hidden);
        sum_rows(out, slope, hidden, beta);
      });
    }
    auto up = use(layer, part::up);
    {
      const auto flow = m_.acquire(flow_, chunkmem::access::read_write, crew_.main);
      launch([out = flow.data(), in = numbers(slope), up = up.data()] {
        multiply_transposed(out, in, up, width, hidden, true);
      });
    }
    const auto x = use(x_[layer]);
    const auto gradient = m_.gradient(std::move(up));
    launch([out = gradient.data(), in = x.data(), slope = numbers(slope), beta = gradient.beta()] {
      outer(out, in, slope, width, hidden, beta);
    });
  }

  chunkmem::optimizer::adam kernel_{{.weight_decay = 0.01F}};
  std::vector<tensor> parameters_;
  std::vector<tensor> x_, h_;
  tensor flow_{}, running_{}, loss_{};
  std::vector<float> losses_;
};

}  // namespace support::toy
