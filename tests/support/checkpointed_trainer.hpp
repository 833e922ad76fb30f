// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/tensor/philox.hpp>
#include <support/managed_parameters.hpp>
#include <support/mixed_model.hpp>
#include <support/trainer_calls.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// A chain of blocks of different sizes with dropout, trained by a `checkpointed` network.
namespace support::chain {

using mixed::floats, mixed::view;

inline constexpr std::uint64_t rows = 18;

// Kernels.

/// Keeps three of four values, chosen by the key.
inline void dropout(float* values, std::uint64_t count, const chunkmem::rounding_key& key) noexcept
{
  std::array<std::uint16_t, 128> bits{};
  for (std::uint64_t first = 0; first < count; first += bits.size()) {
    const std::uint64_t size = std::min<std::uint64_t>(bits.size(), count - first);
    chunkmem::random_bits(key, first, std::span{bits}.first(size));
    for (std::uint64_t index = 0; index < size; ++index)
      values[first + index] *= (bits[index] & 3U) != 0 ? 1.25F : 0.0F;
  }
}
/// The slope of half the squared distance from a target; adds to no gradient.
inline void distance(float* loss, float* slope, const float* out, std::uint64_t count, std::uint64_t key) noexcept
{
  float sum = 0;
  for (std::uint64_t index = 0; index < count; ++index) {
    slope[index] = out[index] - mixed::noise(key * 7919 + index);
    sum += slope[index] * slope[index];
  }
  loss[0] = sum;
}

enum class kind : std::uint8_t {
  product,   ///< dropout(softsign(x W + b)); reads its input in backward
  residual,  ///< x + dropout(softsign(x U + b)) D; reads its input in backward
  gate,      ///< dropout(softsign(x)); does not read it
};

/// The kind and the sizes of a block, before the block has tensors.
struct plan_of_block {
  kind what;
  std::uint64_t in;
  std::uint64_t hidden;
  std::uint64_t out;
  double seconds;  ///< of a forward run; a backward run takes twice as long
};

inline constexpr plan_of_block plans[] = {
    {kind::product, 8, 16, 16, 1e-3},  {kind::residual, 16, 40, 16, 5e-3}, {kind::gate, 16, 16, 16, 4e-4},
    {kind::product, 16, 24, 24, 2e-3}, {kind::residual, 24, 32, 24, 6e-3}, {kind::gate, 24, 24, 24, 5e-4},
    {kind::product, 24, 32, 32, 3e-3}, {kind::product, 32, 12, 12, 1e-3},
};
inline constexpr std::uint32_t blocks = std::size(plans);
inline constexpr std::uint64_t widest = 32;
inline constexpr float learning_rate = 0.01F;

/// The settings of a training.
struct manner {
  crew workers{};
  std::uint32_t micro_batches = 1;
  bool knows_times = true;  ///< else the first iteration measures the blocks
};

/// The chain above, trained out of a manager.
///
/// Kernels are launched on the crew; on agent::host they run at once. A step may fail at any call, be forgotten by
/// `forget_step` and be repeated. `before_kernel` is called before each kernel, while the pins of a callback are held.
template <class Manager, class Backend, class Planner>
class trainer : trainer_calls<Manager, Backend> {
  using calls = trainer_calls<Manager, Backend>;

 public:
  using network_type = chunkmem::activation::checkpointed<Manager, Planner>;
  using run_type = typename network_type::block_type::run_type;

  trainer(Manager& manager, Backend& backend, const chunkmem::activation::activation_budget& budget, Planner planner,
          const manner& how = {})
      : calls{manager, backend, how.workers},
        how_{how},
        network_{manager, {.budget = budget, .seed = 11, .name = "chain"}, std::move(planner)}
  {
    using chunkmem::role;
    m_.use(kernel_);
    data_ = m_.template add<float>({rows, plans[0].in}, role::buffer);
    slope_ = m_.template add<float>({rows, widest}, role::activation);
    loss_ = m_.template add<float>({1}, role::buffer);
    parts_.resize(blocks);
    for (std::uint32_t index = 0; index < blocks; ++index) declare(index);
  }

  /// The need of a step. Allocates nothing.
  chunkmem::memory_requirement rehearse()
  {
    return m_.rehearse([this] { step(0); });
  }

  void initialise()
  {
    for (std::size_t index = 0; index < parameters_.size(); ++index) {
      const auto pin = m_.acquire(parameters_[index], chunkmem::access::write, place_to_fill<Backend>);
      mixed::fill(pin.span(), index + 1);
    }
  }

  mixed::outcome train(std::uint32_t steps)
  {
    initialise();
    for (std::uint32_t now = 0; now < steps; ++now) step(now);
    return collect();
  }

  void step(std::uint32_t now)
  {
    auto scope = network_.iteration("train", how_.micro_batches);
    forward_and_backward(scope, now);
    update();
  }

  template <class Scope>
  void forward_and_backward(Scope& scope, std::uint32_t now)
  {
    float sum = 0;
    for (std::uint32_t batch = 0; batch < how_.micro_batches; ++batch) {
      {
        const auto data = make(data_);
        launch([out = data.data(), key = std::uint64_t{now} * 64 + batch] {
          mixed::fill({out, rows * plans[0].in}, 1000 + key);
          for (std::uint64_t index = 0; index < rows * plans[0].in; ++index) out[index] *= 8.0F;
        });
      }
      network_.run(scope, {.step = now, .micro_batch = batch});
      m_.drop(slope_);
      const auto loss = m_.acquire(loss_, chunkmem::access::read, chunkmem::memory_location::host);
      if (!m_.rehearsing()) sum += loss.span()[0];
    }
    if (!m_.rehearsing()) losses_.push_back(sum);
  }

  void update() { chunkmem::optimizer::step(m_, kernel_, {.learning_rate = learning_rate}); }

  /// Called before a step is repeated: drops everything of the failed one. The network has dropped its own tensors.
  void forget_step()
  {
    m_.drop_gradients();
    forget(slope_);
  }

  /// All results of the training, read on the host.
  mixed::outcome collect()
  {
    mixed::outcome result;
    result.add("losses", losses_);
    for (std::size_t index = 0; index < parameters_.size(); ++index)
      for (const auto& [what, list] : {std::pair{"value", chunkmem::value_list},
                                       {"first state", m_.list("adam/momentum")},
                                       {"second state", m_.list("adam/variance")}})
        result.add(what + (" of parameter " + std::to_string(index)), copy_of(parameters_[index], list));
    return result;
  }

  /// Room for the losses of this many steps, so that recording a loss allocates nothing.
  void reserve(std::size_t steps) { losses_.reserve(steps); }
  [[nodiscard]] network_type& network() noexcept { return network_; }
  /// The tensors of all blocks and the slope are without bytes.
  [[nodiscard]] bool is_empty()
  {
    const auto is_free = [this](tensor each) { return m_.state_of(each) == chunkmem::tensor_state::free; };
    return is_free(slope_) &&
           std::ranges::all_of(parts_, [&](const part& each) { return is_free(each.h) && is_free(each.y); });
  }

  std::function<void()> before_kernel;

 private:
  using tensor = chunkmem::tensor<float>;
  using calls::m_, calls::crew_, calls::use, calls::make, calls::forget, calls::copy_of;

  /// The tensors of a block.
  struct part {
    tensor weight, bias, down;  ///< `down` of a residual block
    tensor h, a, y;             ///< `a` of a residual block: h after dropout
  };

  void declare(std::uint32_t index)
  {
    using chunkmem::bytes;
    const plan_of_block& plan = plans[index];
    part& it = parts_[index];
    auto& block = network_.add("block " + std::to_string(index));
    if (plan.what != kind::gate) {
      it.weight = parameter(plan.in, plan.hidden);
      it.bias = parameter(1, plan.hidden);
    }
    if (plan.what == kind::residual) {
      it.down = parameter(plan.hidden, plan.out);
      it.a = block.template saves<float>({rows, plan.hidden});
    }
    it.h = block.template saves<float>({rows, plan.hidden});
    it.y = block.template outputs<float>({rows, plan.out});
    block.reads_input = plan.what != kind::gate;
    block.gradient = bytes{rows * plan.out * sizeof(float)};
    block.working = bytes{rows * plan.hidden * sizeof(float)};
    if (how_.knows_times) {
      block.forward_seconds = plan.seconds;
      block.backward_seconds = 2 * plan.seconds;
    }
    block.forward = [this, index](run_type& run) { forward(index, run); };
    block.backward = [this, index](run_type& run) { backward(index, run); };
  }
  tensor parameter(std::uint64_t high, std::uint64_t wide)
  {
    parameters_.push_back(m_.template add<float>({high, wide}, chunkmem::role::parameter));
    return parameters_.back();
  }

  [[nodiscard]] auto input_of(std::uint32_t index, run_type& run)
  {
    return run.input(index == 0 ? data_ : parts_[index - 1].y, crew_.main);
  }

  template <class Kernel>
  void launch(Kernel work)
  {
    launch(crew_.main, work);
  }
  template <class Kernel>
  void launch(chunkmem::agent stream, Kernel work)
  {
    if (m_.rehearsing()) return;
    if (before_kernel) before_kernel();
    this->backend_.launch(stream, work);
  }

  void forward(std::uint32_t index, run_type& run)
  {
    const plan_of_block& plan = plans[index];
    const part& it = parts_[index];
    const auto x = input_of(index, run);
    const auto h = run.save(it.h, crew_.main);
    const std::uint64_t count = rows * plan.hidden;
    if (plan.what == kind::gate) {
      launch([out = view(h), in = x.data(), count] { mixed::store_softsign(out, in, count); });
    } else {
      const auto weight = use(it.weight);
      const auto bias = use(it.bias);
      launch([out = h.data(), in = view(x), w = view(weight), b = view(bias), plan] {
        mixed::multiply(out, in, w, plan.in, plan.hidden, false, rows);
        mixed::add_bias(out, b, plan.hidden, rows);
        mixed::store_softsign(floats{out}, out, rows * plan.hidden);
      });
    }
    if (plan.what != kind::residual) {
      const auto y = run.save(it.y, crew_.main);
      launch([out = y.data(), in = h.data(), count, key = run.random()] {
        std::memcpy(out, in, count * sizeof(float));
        dropout(out, count, key);
      });
      return;
    }
    const auto a = run.save(it.a, crew_.main);
    launch([out = a.data(), in = h.data(), count, key = run.random()] {
      std::memcpy(out, in, count * sizeof(float));
      dropout(out, count, key);
    });
    const auto y = run.save(it.y, crew_.main);
    const auto down = use(it.down);
    launch([out = y.data(), in = x.data(), a = view(a), down = view(down), plan] {
      std::memcpy(out, in, rows * plan.out * sizeof(float));
      mixed::multiply(out, a, down, plan.hidden, plan.out, true, rows);
    });
  }

  void backward(std::uint32_t index, run_type& run)
  {
    const plan_of_block& plan = plans[index];
    if (index + 1 == blocks) begin_backward(run);
    const auto h = run.restore(parts_[index].h, chunkmem::access::read, crew_.main);
    const std::uint64_t count = rows * plan.hidden;
    if (plan.what == kind::gate) {
      const auto slope = change(slope_);
      launch([slope = slope.data(), h = view(h), count, key = run.random()] {
        dropout(slope, count, key);
        mixed::softsign_backward(slope, h, count);
      });
      return;
    }
    const auto inner = m_.lease(chunkmem::tier::device, chunkmem::bytes{count * sizeof(float)}, crew_.main);
    float* const of_hidden = reinterpret_cast<float*>(inner.data());
    plan.what == kind::residual ? through_down(index, run, of_hidden) : take_slope(of_hidden, count);
    launch([slope = of_hidden, h = view(h), count, key = run.random()] {
      dropout(slope, count, key);
      mixed::softsign_backward(slope, h, count);
    });
    through_weight(index, run, of_hidden);
  }

  /// The loss, and its slope.
  void begin_backward(run_type& run)
  {
    const auto y = run.restore(parts_.back().y, chunkmem::access::read, crew_.main);
    const auto slope = make(slope_);
    const auto loss = make(loss_);
    launch([loss = loss.data(), slope = slope.data(), y = y.data(), key = run.moment().step] {
      distance(loss, slope, y, rows * plans[blocks - 1].out, key);
    });
  }
  [[nodiscard]] auto change(tensor each) { return m_.acquire(each, chunkmem::access::read_write, crew_.main); }

  void take_slope(float* of_hidden, std::uint64_t count)
  {
    const auto slope = use(slope_);
    launch([out = of_hidden, in = slope.data(), count] { std::memcpy(out, in, count * sizeof(float)); });
  }
  /// The slope of the hidden values of a residual block, and the gradient of its second weight.
  void through_down(std::uint32_t index, run_type& run, float* of_hidden)
  {
    const plan_of_block& plan = plans[index];
    const auto a = run.restore(parts_[index].a, chunkmem::access::read, crew_.main);
    const auto slope = use(slope_);
    auto down = use(parts_[index].down);
    launch([out = of_hidden, in = view(slope), down = view(down), plan] {
      mixed::multiply_transposed(out, in, down, plan.hidden, plan.out, false, rows);
    });
    const auto gradient = m_.gradient(std::move(down));
    launch([out = view(gradient), a = view(a), in = view(slope), plan, beta = gradient.beta()] {
      mixed::outer(out, a, in, plan.hidden, plan.out, beta, rows);
    });
  }
  /// The gradients of the first weight and of the bias, and the slope of the input.
  void through_weight(std::uint32_t index, run_type& run, float* of_hidden)
  {
    const plan_of_block& plan = plans[index];
    {
      const auto gradient = m_.gradient(parts_[index].bias, crew_.main);
      launch([out = view(gradient), in = of_hidden, plan, beta = gradient.beta()] {
        mixed::sum_rows(out, in, plan.hidden, beta, rows);
      });
    }
    auto weight = use(parts_[index].weight);
    if (index > 0) {
      const auto slope = change(slope_);
      launch([out = slope.data(), in = floats{of_hidden}, w = view(weight), plan] {
        mixed::multiply_transposed(out, in, w, plan.in, plan.hidden, plan.what == kind::residual, rows);
      });
    }
    const auto x = input_of(index, run);
    const auto gradient = m_.gradient(std::move(weight));
    launch([out = view(gradient), x = view(x), in = floats{of_hidden}, plan, beta = gradient.beta()] {
      mixed::outer(out, x, in, plan.in, plan.hidden, beta, rows);
    });
  }

  manner how_;
  network_type network_;
  chunkmem::optimizer::adam kernel_;
  std::vector<tensor> parameters_;
  std::vector<part> parts_;
  tensor data_{}, slope_{}, loss_{};
  std::vector<float> losses_;
};

}  // namespace support::chain
