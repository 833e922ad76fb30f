// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/managed_parameters.hpp>
#include <support/mixed_model.hpp>
#include <support/trainer_calls.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace support::mixed {

using support::crew;

/// The network of mixed_model, trained out of a manager with parameters in `Element`.
///
/// Kernels are launched on the crew; on agent::host they run at once. Covers windows of several frames, tiny tensors
/// that share a chunk, element types that share a model, weights tied in two ways, a frozen weight, one that no step
/// uses, leases, reads on the host in the middle of a step, an evaluation with its own record, and gradients finished
/// in each possible way.
/// @tparam Executor   shares the updates
template <class Manager, class Backend, class Element, class Executor = const chunkmem::serial>
class trainer : trainer_calls<Manager, Backend> {
  using calls = trainer_calls<Manager, Backend>;

 public:
  trainer(Manager& manager, Backend& backend, const recipe& how, const crew& workers = {},
          Executor& pool = chunkmem::on_this_thread)
      : calls{manager, backend, workers}, how_{how}, weights_{manager, backend, how, parameters(), pool}
  {
    using chunkmem::role;
    gate_ = m_.template add<Element>({width}, role::frozen);
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      x_.push_back(m_.template add<Element>({batch, width}, role::activation));
      z_.push_back(m_.template add<Element>({batch, width}, role::activation));
      h_.push_back(m_.template add<Element>({batch, hidden}, role::activation));
    }
    x_.push_back(m_.template add<Element>({batch, width}, role::activation));
    flow_ = m_.template add<float>({batch, width}, role::activation);
    running_ = m_.template add<float>({how.micro_batches + std::uint64_t{1}, width}, role::buffer);
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
    weights_.initialise();
    {
      const auto pin = m_.acquire(gate_, chunkmem::access::write, place_to_fill<Backend>);
      for (std::size_t index = 0; index < width; ++index) view(pin).set(index, initial_gate(index));
    }
    const auto pin = m_.acquire(running_, chunkmem::access::write, place_to_fill<Backend>);
    for (float& value : pin.span()) value = 0;
  }

  outcome train()
  {
    initialise();
    for (std::uint32_t now = 0; now < how_.steps; ++now) whole_step(now);
    return collect();
  }

  /// A step and the evaluation that may follow it.
  void whole_step(std::uint32_t now)
  {
    step(now);
    if (how_.evaluates_after(now)) evaluate(now);
  }
  void step(std::uint32_t now)
  {
    auto scope = m_.iteration(how_.micro_batches);
    for (std::uint32_t turn = 0; turn < how_.micro_batches; ++turn) forward_and_backward(scope, now, turn);
    update();
  }

  template <class Scope>
  void forward_and_backward(Scope& scope, std::uint32_t now, std::uint32_t turn)
  {
    last_ = turn + 1 == how_.micro_batches;
    scope.pass(chunkmem::pass::forward, turn);
    forward(key_of(now, turn), weights_.loss_factor(), how_.is_spoilt(now, turn), false);
    update_means(std::uint64_t{now} * how_.micro_batches + turn);
    const float extra = look_from_the_host();
    scope.pass(chunkmem::pass::backward, turn);
    backward(key_of(now, turn));
    const auto loss = m_.acquire(loss_, chunkmem::access::read, chunkmem::memory_location::host);
    if (!m_.rehearsing()) losses_.push_back(loss.span()[0] + extra);
  }

  chunkmem::optimizer::step_result update() { return weights_.update(); }

  void evaluate(std::uint32_t now)
  {
    auto scope = m_.iteration("eval");
    forward(key_of(now + 1000, 0), 1.0F, false, true);
    const auto loss = m_.acquire(loss_, chunkmem::access::read, chunkmem::memory_location::host);
    if (!m_.rehearsing()) losses_.push_back(loss.span()[0]);
  }

  /// Called before a step is repeated: drops everything of the failed one.
  void forget_step()
  {
    m_.drop_gradients();
    forget_activations();
  }
  void forget_activations()
  {
    for (const auto* list : {&x_, &z_, &h_})
      for (const auto& it : *list) forget(it);
    forget(flow_);
  }

  void forget_last_loss() { losses_.pop_back(); }
  /// Room for all recorded numbers, so that training itself allocates nothing.
  void reserve()
  {
    losses_.reserve(std::size_t{how_.steps} * (how_.micro_batches + 1));
    weights_.reserve(how_.steps);
  }

  /// All results of the training, read on the host.
  outcome collect()
  {
    outcome result;
    result.add("losses", losses_);
    weights_.add_numbers_to(result);
    add_values_to(result);
    return result;
  }
  /// The part of the results that does not depend on how it was computed.
  [[nodiscard]] outcome values()
  {
    outcome result;
    add_values_to(result);
    return result;
  }

  [[nodiscard]] managed_parameters<Manager, Backend, Element, Executor>& weights() noexcept { return weights_; }
  [[nodiscard]] const std::vector<float>& losses() const noexcept { return losses_; }

 private:
  void add_values_to(outcome& result)
  {
    result.add("running means", copy_of(running_));
    weights_.add_weights_to(result);
    result.add("gate", copy_of(gate_));
  }

  using tensor = chunkmem::tensor<Element>;
  using calls::m_, calls::crew_, calls::use, calls::make, calls::workspace, calls::numbers, calls::launch,
      calls::forget, calls::copy_of;

  template <class Kind>
  [[nodiscard]] chunkmem::tensor<Kind> as(std::size_t index) const noexcept
  {
    return weights_.template as<Kind>(index);
  }
  [[nodiscard]] auto use(std::uint32_t layer, part which) { return use(as<Element>(index_of(layer, which))); }

  void forward(std::uint64_t key, float factor, bool spoilt, bool evaluating)
  {
    {
      const auto table = use(as<Element>(0));
      const auto x = make(x_[0]);
      launch([out = view(x), in = view(table), key] { embed(out, in, key); });
    }
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      block(layer);
      if (!evaluating) continue;
      for (const auto& it : {x_[layer], z_[layer], h_[layer]}) m_.drop(it);
    }
    head(key, factor, spoilt, evaluating);
    if (evaluating) m_.drop(x_[layers]);
  }

  void block(std::uint32_t layer)
  {
    const auto narrow = workspace(batch * width);
    const auto x = use(x_[layer]);
    const auto h = make(h_[layer]);
    {
      const auto wide = workspace(batch * hidden);
      const auto z = make(z_[layer]);
      {
        const auto mix = use(as<Element>(mix_of(layer)));
        launch([out = numbers(narrow), in = view(x), mix = view(mix), z = view(z)] {
          multiply(out, in, mix, width, width);
          store(z, out, batch * width);
        });
      }
      const auto up = use(layer, part::up);
      const auto bias = use(as<float>(index_of(layer, part::up_bias)));
      launch([out = numbers(wide), z = view(z), up = view(up), bias = view(bias), h = view(h)] {
        multiply(out, z, up, width, hidden);
        add_bias(out, bias, hidden);
        store_softsign(h, out, batch * hidden);
      });
    }
    const auto next = make(x_[layer + 1]);
    const auto down = use(layer, part::down);
    const auto bias = use(layer, part::down_bias);
    const auto gate = use(gate_);
    launch([work = numbers(narrow), out = view(next), x = view(x), h = view(h), down = view(down), bias = view(bias),
            gate = view(gate)] {
      multiply(work, h, down, hidden, width);
      add_bias(work, bias, width);
      gate_forward(out, x, gate, work);
    });
  }

  /// Logits, loss, and where it trains the first gradient of the table and the flow into the last layer.
  void head(std::uint64_t key, float factor, bool spoilt, bool evaluating)
  {
    const auto logits = workspace(batch * words);
    const auto x = use(x_[layers]);
    auto table = use(as<Element>(0));
    {
      const auto loss = make(loss_);
      launch([out = numbers(logits), in = view(x), table = view(table), loss = loss.data(), key, factor, spoilt] {
        multiply_transposed(out, in, table, words, width, false);
        square_loss(loss, out, key, factor, spoilt);
      });
    }
    if (evaluating) return;
    {
      const auto flow = make(flow_);
      launch([out = flow.data(), in = floats{numbers(logits)}, table = view(table)] {
        multiply(out, in, table, words, width);
      });
    }
    weights_.differentiate(std::move(table), 0, false,
                           [slope = floats{numbers(logits)}, in = view(x)](auto out, float beta) {
                             outer(out, slope, in, words, width, beta);
                           });
  }

  void update_means(std::uint64_t turn)
  {
    const auto running = m_.acquire(running_, chunkmem::access::read_write, crew_.side);
    const auto x = m_.acquire(x_[layers], chunkmem::access::read, crew_.side);
    launch(crew_.side, [out = running.data(), in = view(x), turn, rows = how_.micro_batches + std::uint64_t{1}] {
      update_running(out, in, turn, rows);
    });
  }

  /// Reads on the host in mid step: a window of several frames, and one tensor of a chunk with others.
  [[nodiscard]] float look_from_the_host()
  {
    const auto up =
        m_.acquire(as<Element>(index_of(0, part::up)), chunkmem::access::read, chunkmem::memory_location::host);
    const auto bias =
        m_.acquire(as<Element>(index_of(1, part::down_bias)), chunkmem::access::read, chunkmem::memory_location::host);
    return m_.rehearsing() ? 0.0F : sum_of(view(up), up.size()) + sum_of(view(bias), bias.size());
  }

  void backward(std::uint64_t key)
  {
    for (std::uint32_t layer = layers; layer-- > 0;) {
      block_backward(layer);
      for (const auto& it : {x_[layer + 1], z_[layer], h_[layer]}) m_.drop(it);
    }
    {
      const auto flow = use(flow_);
      weights_.differentiate(0, crew_.main, last_,
                             [in = flow.data(), key](auto out, float) { embed_backward(out, in, key); });
    }
    m_.drop(x_[0]);
    m_.drop(flow_);
  }

  void block_backward(std::uint32_t layer)
  {
    const auto narrow = workspace(batch * width);
    const auto slope = workspace(batch * hidden);
    const auto h = use(h_[layer]);
    down_backward(layer, narrow, slope, h);
    weights_.differentiate(index_of(layer, part::up_bias), crew_.main, last_,
                           [slope = numbers(slope), h = view(h)](auto out, float beta) {
                             softsign_backward(slope, h, batch * hidden);
                             sum_rows(out, slope, hidden, beta);
                           });
    {
      const auto z = use(z_[layer]);
      auto up = use(layer, part::up);
      launch([out = numbers(narrow), in = floats{numbers(slope)}, up = view(up)] {
        multiply_transposed(out, in, up, width, hidden, false);
      });
      weights_.differentiate(
          std::move(up), index_of(layer, part::up), last_,
          [z = view(z), in = floats{numbers(slope)}](auto out, float beta) { outer(out, z, in, width, hidden, beta); });
    }
    const auto x = use(x_[layer]);
    auto mix = use(as<Element>(mix_of(layer)));
    {
      const auto flow = m_.acquire(flow_, chunkmem::access::read_write, crew_.main);
      launch([out = flow.data(), in = floats{numbers(narrow)}, mix = view(mix)] {
        multiply_transposed(out, in, mix, width, width, true);
      });
    }
    weights_.differentiate(
        std::move(mix), mix_of(layer), last_ && layer < 2,
        [x = view(x), in = floats{numbers(narrow)}](auto out, float beta) { outer(out, x, in, width, width, beta); });
  }

  template <class Lease, class Pin>
  void down_backward(std::uint32_t layer, const Lease& narrow, const Lease& slope, const Pin& h)
  {
    {
      const auto flow = use(flow_);
      const auto gate = use(gate_);
      launch([out = numbers(narrow), in = flow.data(), gate = view(gate)] { gate_backward(out, in, gate); });
    }
    {
      // Leases belong to one agent: what another one reads goes through a tensor, here the flow again.
      const auto flow = m_.acquire(flow_, chunkmem::access::read, crew_.side);
      const auto gate = m_.acquire(gate_, chunkmem::access::read, crew_.side);
      weights_.differentiate(index_of(layer, part::down_bias), crew_.side, last_,
                             [in = flow.data(), gate = view(gate)](auto out, float beta) {
                               float gated[batch * width];
                               gate_backward(gated, in, gate);
                               sum_rows(out, gated, width, beta);
                             });
    }
    auto down = use(layer, part::down);
    launch([out = numbers(slope), in = floats{numbers(narrow)}, down = view(down)] {
      multiply_transposed(out, in, down, hidden, width, false);
    });
    weights_.differentiate(
        std::move(down), index_of(layer, part::down), last_,
        [h = view(h), in = floats{numbers(narrow)}](auto out, float beta) { outer(out, h, in, hidden, width, beta); });
  }

  recipe how_;
  managed_parameters<Manager, Backend, Element, Executor> weights_;
  std::vector<tensor> x_, z_, h_;
  tensor gate_{};
  chunkmem::tensor<float> flow_{}, running_{}, loss_{};
  bool last_ = true;  // the current micro-batch is the last of its step
  std::vector<float> losses_;
};

}  // namespace support::mixed
