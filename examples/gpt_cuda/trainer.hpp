// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "batch_runs.hpp"
#include "ends.hpp"
#include "layer.hpp"
#include "rank_updates.hpp"
#include "settings.hpp"
#include "updates.hpp"
#include "windows.hpp"

#include <chunkmem/chunkmem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace gpt::cuda {

/// Trains the model on a device: whole micro-batches, layer by layer, on the compute stream.
///
/// The calling thread enqueues work, and updates weights where the CPU does. In a step it waits only for the loss,
/// after all other work. A step allocates no memory of its own.
///
/// @tparam Math   see network; `launcher` starts the optimizer's kernels
template <class Manager, class Math>
class batch_trainer {
 public:
  using math_type = Math;

  /// @param net, text, workers   outlive the trainer
  /// @param settings             without a plan of activations the forward pass keeps only the input of each layer
  batch_trainer(Manager& manager, const batch_model& net, const training_text& text, const trainer_settings& settings,
                chunkmem::optimizer::thread_pool& workers)
      : m_{manager},
        net_{manager, net, math_},
        text_{text},
        settings_{settings},
        windows_(ends_.window_bytes()),
        updates_{manager, settings.adam, settings.update, workers}
  {
    if constexpr (network<Manager, Math>::can_sample)
      if (settings.sample_ratio > 0) layers_.use(samples_.emplace(manager, net, settings.sample_ratio, settings.seed));
  }
  batch_trainer(const batch_trainer&) = delete;

  /// One step; `number` counts from 0. @return the mean loss per token before the update [nats], 0 in a rehearsal
  float step(std::size_t number)
  {
    auto iteration = m_.iteration(static_cast<std::uint32_t>(extent().micro_batches));
    const auto message = gradient(number, iteration);
    updates_.step({.learning_rate = learning_rate(number), .clip = {.norm = settings_.clip}});
    return mean_of(message);
  }

  /// The mean loss per token on windows of the held-out text, always the same ones [nats].
  [[nodiscard]] float evaluate()
  {
    auto iteration = m_.iteration("held out");
    const auto totals = room_for_losses(held_out_batches());
    for (std::size_t which = 0; which < held_out_batches(); ++which) {
      const auto room = n().room(text_plan_);
      const token_windows text = send(room, [&](std::size_t window) {
        return held_out_tokens(text_, extent().context, which * extent().batch + window, held_out_windows());
      });
      predict(text);
      ends_.loss(text, totals.at(which));
    }
    const auto message = fetch(totals);
    updates_.ask();
    return mean_of(message);
  }

  /// The model's prediction of the byte after some bytes. @param tokens   at most `context`
  /// @param odds   written: logits of the byte after the last one
  void next_logits(std::span<const unsigned char> tokens, std::span<float> odds)
  {
    const auto room = n().room(text_plan_);
    const token_windows text = send(
        room, [&](std::size_t) { return tokens.data(); }, tokens.size());
    predict(text);
    ends_.logits(tokens.size() - 1, [&](const float* logits) {
      const auto message = fetch_bytes(logits, odds.size_bytes());
      message.wait(m_);
      if (n().computes()) std::memcpy(odds.data(), message.room.data(), odds.size_bytes());
    });
  }

  [[nodiscard]] std::uint64_t parameter_hash() const
  {
    if constexpr (trains_over_ranks)
      return hash_of_gathered();
    else
      return hash_of_parameters(m_, n().handles());
  }
  [[nodiscard]] const trainer_settings& settings() const noexcept { return settings_; }
  [[nodiscard]] float learning_rate(std::size_t number) const noexcept { return settings_.schedule.at(number); }
  [[nodiscard]] std::size_t skipped() const noexcept { return static_cast<std::size_t>(updates_.skipped()); }
  [[nodiscard]] float loss_scale() const noexcept { return 1.0F; }  // bf16 has the exponents of float32
  [[nodiscard]] Manager& manager() const noexcept { return m_; }
  [[nodiscard]] const extents& extent() const noexcept { return n().handles().size; }

  /// The first part of a step, inside an iteration of the caller: the gradients are enqueued, nothing is updated.
  /// @return   the losses, which are being copied to the host, see mean_of
  template <class Iteration>
  [[nodiscard]] auto gradient(std::size_t number, Iteration& iteration)
  {
    const auto totals = room_for_losses(extent().micro_batches);
    for (std::uint32_t which = 0; which < extent().micro_batches; ++which) {
      const auto room = n().room(text_plan_);
      const auto told = [&](auto say) {
        if constexpr (network_type::can_sample)
          if (samples_) say(*samples_);
      };
      told([&](auto& samples) { samples.begin(number, which); });
      const token_windows text = send(room, [&](std::size_t window) {
        const unsigned char* const where = training_tokens(text_, extent().context, settings_.seed, number,
                                                           first_row() + which * extent().batch + window);
        told([&](auto& samples) { samples.set(window, static_cast<std::uint64_t>(where - text_.training().data())); });
        return where;
      });
      iteration.pass(chunkmem::pass::forward, which);
      begin(text);
      runs_.forward();
      iteration.pass(chunkmem::pass::backward, which);
      // Over ranks each micro-batch completes its gradients: the model adds them up and knows the last one.
      backward(text, totals.at(which), trains_over_ranks || which + 1 == extent().micro_batches);
    }
    return fetch(totals);
  }

  /// Waits for losses. @return   their mean per token [nats], 0 in a rehearsal
  template <class Message>
  [[nodiscard]] float mean_of(const Message& message) const
  {
    message.wait(m_);
    if (!n().computes()) return 0.0F;
    double sum = 0.0;
    for (std::size_t index = 0; index < message.count; ++index) {
      double one = 0.0;
      std::memcpy(&one, message.room.data() + index * sizeof one, sizeof one);
      sum += one;
    }
    return static_cast<float>(sum / static_cast<double>(message.count * n().size().rows));
  }

 private:
  static constexpr bool trains_over_ranks = requires(Manager& m) { m.ranks(); };
  using updates_type =
      std::conditional_t<trains_over_ranks, rank_updates<Manager>, updates<Manager, typename Math::launcher>>;
  using network_type = network<Manager, Math>;
  using scratch_type = typename network_type::scratch_type;
  using lease_type = decltype(std::declval<Manager&>().lease(chunkmem::tier::host, chunkmem::bytes{}, agent::compute));

  /// The first row of this rank in the rows of a step.
  [[nodiscard]] std::size_t first_row() const noexcept
  {
    return settings_.rank * extent().micro_batches * extent().batch;
  }

  /// As hash_of_parameters, where whole weights exist only on the device.
  [[nodiscard]] std::uint64_t hash_of_gathered() const
  {
    fnv1a hash;
    for (const parameter& each : n().handles().parameters) {
      const auto pin = n().read(each.tensor);
      const auto message = fetch_bytes(pin.data(), each.tensor.elements * sizeof(bf16));
      message.wait(m_);
      hash.add_words({message.room.data(), static_cast<std::size_t>(each.tensor.elements) * sizeof(bf16)});
    }
    return hash.value();
  }

  /// A loss for each micro-batch, in device memory.
  struct losses {
    scratch_type room;
    block<double> first;
    std::size_t count;

    [[nodiscard]] double* at(std::size_t which) const
    {
      double* const begin = room[first];
      return begin == nullptr ? nullptr : begin + which;
    }
  };

  /// Bytes that are being copied to the host.
  struct host_copy {
    lease_type room;
    chunkmem::event arrived;
    std::size_t count = 0;

    void wait(Manager& manager) const
    {
      if (!manager.rehearsing()) manager.backend().wait(agent::host, arrived);
    }
  };

  [[nodiscard]] const network_type& n() const noexcept { return net_; }
  [[nodiscard]] std::size_t held_out_batches() const noexcept { return (8 + extent().batch - 1) / extent().batch; }
  [[nodiscard]] std::size_t held_out_windows() const noexcept { return held_out_batches() * extent().batch; }

  [[nodiscard]] losses room_for_losses(std::size_t count) const
  {
    block_plan plan;
    const block<double> first = plan.add<double>(count);
    return {n().room(plan), first, count};
  }
  [[nodiscard]] host_copy fetch_bytes(const void* from, std::size_t size) const
  {
    host_copy result{m_.lease(chunkmem::tier::host, chunkmem::bytes{size}, agent::compute), {}};
    if (!n().computes()) return result;
    auto& backend = m_.backend();
    backend.copy(result.room.data(), static_cast<const std::byte*>(from), chunkmem::bytes{size}, agent::compute);
    result.arrived = backend.record(agent::compute);
    return result;
  }
  [[nodiscard]] host_copy fetch(const losses& from) const
  {
    host_copy result = fetch_bytes(from.at(0), from.count * sizeof(double));
    result.count = from.count;
    return result;
  }

  /// Copies windows of text to the device. @param bytes_of   a window to its bytes   @param length   bytes of each;
  /// default: the context and one more
  template <class BytesOf>
  [[nodiscard]] token_windows send(const scratch_type& room, BytesOf bytes_of, std::size_t length = SIZE_MAX)
  {
    const std::size_t each = extent().context + 1;
    std::fill(windows_.begin(), windows_.end(), static_cast<unsigned char>(0));
    for (std::size_t window = 0; window < extent().batch; ++window)
      std::copy_n(bytes_of(window), std::min(length, each), windows_.data() + window * each);
    ends_.send(windows_, room[text_block_]);
    return ends_.windows_at(room[text_block_]);
  }

  /// Computes the input of the first layer.
  void begin(const token_windows& text)
  {
    runs_.reset();
    ends_.embed(text);
  }
  /// A forward pass without a backward pass: the input of each layer is dropped.
  void predict(const token_windows& text)
  {
    begin(text);
    for (std::size_t layer = 0; layer < extent().layers; ++layer) {
      layers_.forward(layer);
      m_.drop(n().handles().inputs[layer]);
    }
  }

  void backward(const token_windows& text, double* total, bool last)
  {
    const auto room = n().room(slope_plan_);
    const float scale = 1.0F / static_cast<float>(extent().tokens_per_step() * settings_.ranks);
    ends_.head_backward(text, scale, total, room[slope_block_], last);
    runs_.backward(room[slope_block_], last);
    ends_.embedding_backward(text, room[slope_block_], last);
  }

  Manager& m_;
  Math math_;
  network_type net_;
  layer_pass<Manager, Math> layers_{net_};
  ends<Manager, Math> ends_{net_};
  const training_text& text_;
  trainer_settings settings_;
  batch_runs<Manager, Math> runs_{net_, layers_, settings_.activations, settings_.plan, settings_.sample_ratio > 0};
  std::vector<unsigned char> windows_;  ///< of a micro-batch, on their way
  block_plan text_plan_, slope_plan_;
  block<unsigned char> text_block_ = text_plan_.add<unsigned char>(ends_.window_bytes());
  block<bf16> slope_block_ = slope_plan_.add<bf16>(n().size().numbers(n().size().width));
  updates_type updates_;
  std::optional<typename layer_pass<Manager, Math>::samples_type> samples_;
};

}  // namespace gpt::cuda
