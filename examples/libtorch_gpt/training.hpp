// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chunked_parameters.hpp"
#include "chunked_saved_tensors.hpp"
#include "network.hpp"
#include "plain_parameters.hpp"
#include "sampled_inputs.hpp"

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace libtorch_gpt {

/// Tokens of one micro-batch of one step: [batch, context + 1], int64, on the device.
using token_source = std::function<at::Tensor(std::size_t step, std::size_t micro_batch)>;

/// The samples of the data in a micro-batch, by number.
struct sample_numbers {
  std::function<std::vector<std::uint64_t>(std::size_t step, std::size_t micro_batch)> of{};
  std::uint64_t lasting = 0;  ///< numbers below this come back in later epochs; 0: none does
};

/// The settings of a training.
struct settings {
  extents size;
  float learning_rate = 1e-3F;
  std::uint64_t seed = 1;
  bool recompute = false;  ///< blocks are recomputed in the backward pass
  bool late = false;       ///< updates wait until their weights are used in the next step
  /// The kept part of the rows of inputs that have no other use; weight gradients are estimates below 1. Without a
  /// value, autograd saves these inputs.
  std::optional<double> sample{};
};

/// The sampling of one such input. @pre how.sample
[[nodiscard]] inline cm::activation::sampling_options sampling_of(const settings& how, std::int64_t width)
{
  return {.rows = static_cast<std::uint64_t>(how.size.batch * how.size.context),
          .width = static_cast<std::uint64_t>(width),
          .ratio = *how.sample};
}

/// AdamW with the usual settings of GPTs.
[[nodiscard]] inline chunkmem::optimizer::adam adam_for_gpt()
{
  const chunkmem::optimizer::adam_options usual{.beta1 = 0.9F, .beta2 = 0.95F, .epsilon = 1e-8F, .weight_decay = 0.1F};
  chunkmem::optimizer::adam kernel{usual};
  chunkmem::optimizer::adam_options without = usual;
  without.weight_decay = 0.0F;
  kernel.group(kept, without);
  return kernel;
}

/// Forward and backward of one step, over its micro-batches. @param forward   tokens to their loss
/// @return   the mean loss before the update [nats]
template <class Parameters, class Forward, class Iteration>
float run_micro_batches(Parameters& parameters, Forward&& forward, const token_source& tokens, std::size_t step,
                        std::int64_t micro_batches, Iteration& iteration)
{
  double sum = 0.0;
  for (std::uint32_t which = 0; which < static_cast<std::uint32_t>(micro_batches); ++which) {
    iteration.pass(chunkmem::pass::forward, which);
    const at::Tensor loss = forward(tokens(step, which));
    iteration.pass(chunkmem::pass::backward, which);
    parameters.backward(loss / static_cast<double>(micro_batches));
    sum += static_cast<double>(loss.template item<float>());
  }
  return static_cast<float>(sum / static_cast<double>(micro_batches));
}

/// Training with the parameters, their gradients and the states of Adam in chunks, and optionally activations.
template <class Manager, cm::element Element>
class chunked_training {
 public:
  /// @param manager   nothing was declared in it yet; it and the workers outlive this object
  /// @param saved     sizes of the activations that a forward pass saves; empty leaves activations to LibTorch
  /// @param numbers   of the samples, where inputs are sampled
  /// @throws as sampled_input and norm_cache; config_error   samples on a device whose memory this thread cannot read,
  ///         or in 16 bits
  chunked_training(Manager& manager, const torch_place& where, const settings& how, cm::optimizer::thread_pool& workers,
                   const saved_sizes& saved = {}, const sample_numbers& numbers = {})
      : m_{manager},
        how_{how},
        workers_{workers},
        numbers_{numbers},
        parameters_{manager, where},
        net_{parameters_, how.size, how.recompute}
  {
    manager.use(kernel_);
    if (!saved.empty()) saved_.emplace(manager, where.device, saving_rules{}, saved);
    if (how.sample) declare_samples();
    if (how.late) late_.emplace(manager, kernel_, workers);
  }

  void fill() { net_.fill(how_.seed); }

  /// @throws the exceptions of LibTorch and the manager. If `gradients` threw, nothing of the step was done and it can
  ///   be repeated; if `update` threw, call it again: no update is lost or done twice
  float step(std::size_t number, const token_source& tokens)
  {
    auto iteration = m_.iteration(static_cast<std::uint32_t>(how_.size.micro_batches));
    const float loss = gradients(number, tokens, iteration);
    update();
    return loss;
  }

  template <class Iteration>
  float gradients(std::size_t number, const token_source& tokens, Iteration& iteration)
  try {
    const token_source numbered = [&](std::size_t step, std::size_t micro_batch) {
      if (inputs_) inputs_->begin(step, numbers_.of ? numbers_.of(step, micro_batch) : std::vector<std::uint64_t>{});
      return tokens(step, micro_batch);
    };
    return run_micro_batches(
        parameters_, [this](const at::Tensor& batch) { return forward(batch); }, numbered, number,
        how_.size.micro_batches, iteration);
  } catch (...) {
    parameters_.forget_gradients();
    if (inputs_) inputs_->forget();
    throw;
  }

  void update()
  {
    const cm::optimizer::step_options options{.learning_rate = how_.learning_rate};
    if (late_)
      late_->step(options);
    else
      cm::optimizer::step(m_, kernel_, options, workers_);
    parameters_.weights_changed();
    if (inputs_) inputs_->commit();
  }

  [[nodiscard]] chunked_parameters<Manager, Element>& parameters() noexcept { return parameters_; }
  [[nodiscard]] network<chunked_parameters<Manager, Element>>& net() noexcept { return net_; }
  /// Null where LibTorch keeps activations.
  [[nodiscard]] const chunked_saved_tensors<Manager>* saved() const noexcept { return saved_ ? &*saved_ : nullptr; }

  /// Null where autograd saves all inputs.
  [[nodiscard]] const sampled_inputs<Manager>* inputs() const noexcept { return inputs_ ? &*inputs_ : nullptr; }

  /// All parameters, on the CPU, in the order of their declaration.
  [[nodiscard]] std::vector<at::Tensor> values()
  {
    if (late_) late_->finish();
    std::vector<at::Tensor> all;
    for (std::size_t index = 0; index < parameters_.size(); ++index) all.push_back(parameters_.values(index));
    return all;
  }

 private:
  [[nodiscard]] at::Tensor forward(const at::Tensor& batch)
  {
    const saving into{saved_ ? &*saved_ : nullptr};
    return net_.loss(batch);
  }
  void declare_samples()
  {
    if constexpr (Manager::engine_type::host_addressable && std::same_as<Element, float>) {
      inputs_.emplace(
          m_, cm::activation::norm_cache::options{.name = "sampling", .samples = numbers_.lasting, .seed = how_.seed});
      std::vector<row_keeper*> keepers;
      for (const lone_input& it : net_.lone_inputs())
        keepers.push_back(&inputs_->add(it.name, static_cast<std::uint32_t>(how_.size.context),
                                        sampling_of(how_, it.width), parameters_.handle(it.weight)));
      inputs_->use();
      net_.sample(std::move(keepers));
    } else {
      throw cm::config_error{
          "inputs of LibTorch's linear layers are sampled in float on the CPU alone (leave the sampling out here)"};
    }
  }

  Manager& m_;
  settings how_;
  cm::optimizer::thread_pool& workers_;
  sample_numbers numbers_;
  cm::optimizer::adam kernel_ = adam_for_gpt();
  std::optional<sampled_inputs<Manager>> inputs_;  // the network knows it
  chunked_parameters<Manager, Element> parameters_;
  network<chunked_parameters<Manager, Element>> net_;
  std::optional<chunked_saved_tensors<Manager>> saved_;
  std::optional<cm::optimizer::late_updates<Manager, cm::optimizer::adam, cm::optimizer::thread_pool>> late_;
};

/// The same training with plain tensors.
class plain_training {
 public:
  explicit plain_training(const settings& how) : how_{how}, net_{parameters_, how.size, false} { net_.fill(how.seed); }

  float step(std::size_t number, const token_source& tokens)
  {
    struct {
      void pass(chunkmem::pass, std::uint32_t) noexcept {}
    } iteration;
    const float loss = run_micro_batches(
        parameters_, [this](const at::Tensor& batch) { return net_.loss(batch); }, tokens, number,
        how_.size.micro_batches, iteration);
    parameters_.update(kernel_, how_.learning_rate);
    return loss;
  }

  [[nodiscard]] std::vector<at::Tensor> values() const
  {
    std::vector<at::Tensor> all;
    for (std::size_t index = 0; index < parameters_.size(); ++index) all.push_back(parameters_.values(index));
    return all;
  }

 private:
  settings how_;
  chunkmem::optimizer::adam kernel_ = adam_for_gpt();
  plain_parameters parameters_;
  network<plain_parameters> net_;
};

}  // namespace libtorch_gpt
