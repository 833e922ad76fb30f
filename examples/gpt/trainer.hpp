// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backward.hpp"
#include "forward.hpp"
#include "head.hpp"
#include "layer_runs.hpp"
#include "settings.hpp"
#include "step_meter.hpp"
#include "update_times.hpp"
#include "windows.hpp"

#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gpt {

/// Trains the model: batches, forward, backward, update, and the loss on held-out text.
///
/// A step allocates no memory of its own: tokens are read in place, and all other bytes are pins and leases.
template <class Manager>
class trainer {
 public:
  /// @param net, text, workers   outlive the trainer
  /// @param settings             without a plan of activations each layer runs forward once
  trainer(Manager& manager, const model& net, const training_text& text, const trainer_settings& settings,
          chunkmem::optimizer::thread_pool& workers)
      : m_{manager}, net_{manager, net}, text_{text}, settings_{settings}
  {
    manager.use(adam_);
    manager.use(scale_);
    updates_.emplace(manager, adam_, settings.when, workers,
                     undo_bytes(size().parameters() / settings.owners, settings.precision));
    if constexpr (network<Manager>::can_sample)
      if (settings.sample_ratio > 0)
        net_.use(samples_.emplace(
            manager, net, sample_settings{settings.sample_ratio, settings.sample_ratios, settings.measures_noise},
            settings.seed, windows_.count()));
    net_.run_qkv_again(settings.runs_qkv_again);
    manager.state("skipped steps", std::as_writable_bytes(std::span{&skipped_, 1}));
  }
  trainer(const trainer&) = delete;
  trainer& operator=(const trainer&) = delete;

  /// One step; `number` counts from 0. @return the mean loss per token before the update [nats], 0 in a rehearsal
  float step(std::size_t number)
  {
    float loss = 0;
    {
      auto iteration = m_.iteration(name_, static_cast<std::uint32_t>(size().micro_batches));
      loss = gradient(number, iteration);
      finish(number);
    }
    updates_->end_step();
    return loss;
  }

  /// The need of `work`, which contains a step. Nothing is computed.
  /// @param known   see basic_manager::rehearse
  auto rehearse(chunkmem::call_ref<void()> work, const chunkmem::memory_requirement* known = nullptr)
  {
    return updates_->rehearse(work, known);
  }

  /// The first part of a step, inside an iteration of the caller: computes the gradients, and updates nothing.
  ///
  /// Every position has the same weight in the mean over all micro-batches. So the grouping of rows into batches
  /// changes the gradient only by rounding.
  template <class Iteration>
  float gradient(std::size_t number, Iteration& iteration)
  {
    double loss = 0.0;
    runs_.reset();
    for (std::uint32_t which = 0; which < size().micro_batches; ++which) {
      iteration.pass(chunkmem::pass::forward, which);
      forward(number, which);
      iteration.pass(chunkmem::pass::backward, which);
      loss += backward(number, which);
    }
    return static_cast<float>(loss / static_cast<double>(size().tokens_per_step()));
  }

  /// The second part: the update.
  void finish(std::size_t number)
  {
    const auto running = meter_.during(step_part::update);
    const chunkmem::optimizer::step_outcome result = updates_->step({.learning_rate = learning_rate(number),
                                                                     .clip = {.norm = settings_.clip},
                                                                     .loss_scale = scales() ? &scale_ : nullptr});
    if (result == chunkmem::optimizer::step_result::skipped_nonfinite) ++skipped_;
    norm_ = result.norm;
    if (samples_ && net_.computes()) take_norms();
  }

  /// Between two steps: layers run by another plan from now on. The record of steps gets a new name, so that none
  /// diverges from the record of another plan.
  void use(const chunkmem::activation::activation_plan& plan)
  {
    runs_.use(plan);
    name_ = "train as planned";
  }
  [[nodiscard]] const step_meter<Manager>& meter() const noexcept { return meter_; }
  [[nodiscard]] step_meter<Manager>& meter() noexcept { return meter_; }

  /// A step keeps less than a forward pass of evaluation, so a rehearsal includes both.
  [[nodiscard]] bool keeps_less() const noexcept { return samples_.has_value() || settings_.runs_qkv_again; }
  /// The mean loss per token on windows of the held-out text, always the same ones [nats].
  [[nodiscard]] float evaluate()
  {
    auto iteration = m_.iteration("held out");
    double sum = 0.0;
    for (std::size_t which = 0; which < held_out_windows; ++which) sum += held_out_loss(which);
    return static_cast<float>(sum / static_cast<double>(held_out_windows * size().context));
  }

  /// A hash of all parameters, byte by byte in the order they were declared.
  [[nodiscard]] std::uint64_t parameter_hash() const { return hash_of_parameters(m_, net_.handles()); }

  /// The inputs with sampled rows; null where gradients are exact.
  [[nodiscard]] projection_samples<Manager>* samples() noexcept { return samples_ ? &*samples_ : nullptr; }
  [[nodiscard]] const trainer_settings& settings() const noexcept { return settings_; }
  /// For steps of a caller that take the place of `finish`.
  [[nodiscard]] adam_of<Manager>& kernel() noexcept { return adam_; }
  [[nodiscard]] float learning_rate(std::size_t number) const noexcept { return settings_.schedule.at(number); }
  /// Steps whose gradients were not finite: they changed nothing.
  [[nodiscard]] std::size_t skipped() const noexcept { return skipped_; }
  /// Of all gradients of the last step, before clipping; 0 where it was not computed.
  [[nodiscard]] double norm() const noexcept { return norm_; }
  [[nodiscard]] std::optional<measured_updates> measured() const { return updates_->measured(); }
  /// See update_times::apart.
  [[nodiscard]] std::uint64_t updates_apart() const noexcept { return updates_->apart(); }
  /// What the loss is multiplied by before it is differentiated.
  [[nodiscard]] float loss_scale() const noexcept { return scale_.scale(); }
  /// @param row   counted over all micro-batches of the step; rows of other ranks come before and after
  [[nodiscard]] window training_window(std::size_t number, std::size_t row) const
  {
    return {windows_.tokens(number, row_of_all(row)), 0, net_.context()};
  }
  [[nodiscard]] const network<Manager>& net() const noexcept { return net_; }
  [[nodiscard]] const forward_pass<Manager>& forward() const noexcept { return forward_; }
  [[nodiscard]] const head<Manager>& end() const noexcept { return head_; }

  /// Drops the activations that a forward pass saved for one row.
  void drop(std::size_t row)
  {
    for (const saved_layer& saved : net_.handles().rows[row].layers)
      for (const auto& tensor : of_layer(saved)) m_.drop(tensor);
    m_.drop(net_.handles().rows[row].output);
  }

 private:
  static constexpr std::size_t held_out_windows = 8;
  static constexpr bool trains_over_ranks = requires(Manager& m) { m.ranks(); };

  using profiled_run = chunkmem::configurator::profiled_run;

  [[nodiscard]] const extents& size() const noexcept { return net_.handles().size; }
  /// A row of the step, counted over all ranks.
  [[nodiscard]] std::size_t row_of_all(std::size_t row) const noexcept
  {
    return settings_.rank * size().micro_batches * size().batch + row;
  }
  void take_norms()
  {
    if constexpr (trains_over_ranks)
      samples_->commit(m_.ranks());
    else
      samples_->commit();
  }

  [[nodiscard]] bool scales() const noexcept { return settings_.precision == chunkmem::dtype::float16; }

  /// One layer for all rows of a micro-batch.
  void run_layer(std::size_t layer, std::size_t number, std::size_t micro_batch)
  {
    const auto running = meter_.during(step_part::forward, layer, profiled_run::forward);
    const std::size_t batch = size().batch;
    for (std::size_t row = 0; row < batch; ++row)
      forward_.layer(layer, row, training_window(number, micro_batch * batch + row));
  }

  void forward(std::size_t number, std::size_t micro_batch)
  {
    const std::size_t batch = size().batch;
    net_.set_training(true);
    if (samples_) {
      samples_->begin(number, loss_scale());
      for (std::size_t row = 0; row < batch; ++row)
        samples_->set(row, windows_.number(number, row_of_all(micro_batch * batch + row)));
    }
    {
      const auto running = meter_.during(step_part::ends, 0, profiled_run::forward);
      for (std::size_t row = 0; row < batch; ++row)
        forward_.embed(row, training_window(number, micro_batch * batch + row));
    }
    runs_.forward([&](std::size_t layer) { run_layer(layer, number, micro_batch); });
  }

  /// @return the loss of the micro-batch, summed over its positions
  [[nodiscard]] double backward(std::size_t number, std::size_t micro_batch)
  {
    const auto tokens_of = [&](std::size_t row) {
      return training_window(number, micro_batch * size().batch + row).tokens;
    };
    // Over ranks each micro-batch completes its gradients: the model adds them up and knows the last one.
    const bool last = trains_over_ranks || micro_batch + 1 == size().micro_batches;
    const float scale = loss_scale() / static_cast<float>(size().tokens_per_step() * settings_.ranks);
    double loss = 0;
    {
      const auto running = meter_.during(step_part::ends, size().layers - 1, profiled_run::backward);
      loss = head_.backward([&](std::size_t row) { return tokens_of(row) + 1; }, scale, last);
    }
    runs_.backward([&](std::size_t layer) { run_layer(layer, number, micro_batch); },
                   [&](std::size_t layer) {
                     const auto running = meter_.during(step_part::backward, layer, profiled_run::backward);
                     backward_.layer(layer, last);
                   });
    {
      const auto running = meter_.during(step_part::ends, 0, profiled_run::backward);
      backward_.embed(tokens_of, last, last);
    }
    net_.set_training(false);
    return loss;
  }

  [[nodiscard]] double held_out_loss(std::size_t which)
  {
    const window where{held_out_tokens(text_, size().context, which, held_out_windows), 0, net_.context()};
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
  trainer_settings settings_;
  training_windows windows_{text_, size().context, settings_.seed, settings_.windows,
                            size().tokens_per_step() / size().context* settings_.ranks};
  step_meter<Manager> meter_{m_};
  std::string_view name_ = "train";  // of the record of steps
  layer_runs<Manager> runs_{net_, settings_.activations, settings_.plan};
  adam_of<Manager> adam_ = make_adam(m_, settings_.adam);
  chunkmem::optimizer::loss_scale scale_ = scales() ? chunkmem::optimizer::loss_scale::dynamic(settings_.scale)
                                                    : chunkmem::optimizer::loss_scale::fixed(1.0f);
  std::uint64_t skipped_ = 0;
  double norm_ = 0;
  std::optional<update_times<Manager>> updates_;
  std::optional<projection_samples<Manager>> samples_;
};

}  // namespace gpt
