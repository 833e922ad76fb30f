// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "network.hpp"
#include "pictures.hpp"

#include "../gpt/random.hpp"

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace out_of_core {

/// The memory of a training, and the plan of its activations.
struct memory_limits {
  chunkmem::bytes device{};
  chunkmem::bytes host{};
  chunkmem::bytes for_activations{};  ///< of the device: the room for the planner
  chunkmem::bytes chunk{};
  chunkmem::activation::activation_plan plan{};  ///< without steps: the planner makes one
};

/// The quality of the network on held-out pictures.
struct held_out_result {
  float loss = 0;      ///< mean [nats]
  float accuracy = 0;  ///< percent
};

/// The result of a training, to be compared with another one.
struct training_result {
  std::vector<float> losses{};              ///< by step
  std::vector<held_out_result> held_out{};  ///< before the first step, and at each quarter of them
  std::vector<float> weights{};             ///< all of them, after the last step
  chunkmem::report report{};                ///< of the manager
  int signal = 0;                           ///< that ended the training early; 0: none
};

/// A manager, the network in it, and the loop over steps.
class training {
 public:
  /// @param pictures   outlive the training
  training(const picture_set& pictures, std::size_t batch, const memory_limits& limits, planner_choice planner)
      : pictures_{pictures},
        memory_{{.device_capacity = limits.device, .host_capacity = limits.host}},
        m_{memory_, {.chunk_bytes = limits.chunk}},
        network_{m_, static_cast<index>(batch), limits.chunk, limits.for_activations, planner},
        labels_(batch)
  {
    m_.use(adam_);
    if (!limits.plan.steps.empty()) network_.chain().use(limits.plan);
  }
  training(const training&) = delete;

  /// The need of a step with the plan of its activations. Nothing is allocated and nothing is computed.
  /// @throws chunkmem::config_error   no plan fits, or the memory is too small for a step
  chunkmem::memory_requirement rehearse()
  {
    return m_.rehearse([this] { (void)step(0); });
  }
  void fill() { network_.weights().fill(); }

  /// Forward, backward, update. @return   the mean loss before the update [nats], 0 in a rehearsal
  float step(std::uint64_t number)
  {
    auto iteration = network_.chain().iteration();
    bring_pictures(number);
    network_.chain().run(iteration, {.step = number});
    chunkmem::optimizer::step(m_, adam_, {.learning_rate = 3e-3F});
    return static_cast<float>(network_.labels().loss);
  }

  [[nodiscard]] held_out_result held_out()
  {
    const auto iteration = m_.iteration("held out");
    const picture_list& all = pictures_.held_out;
    const auto size = static_cast<index>(all.size());
    const index most = network_.at_once();
    std::vector<float> logits(static_cast<std::size_t>(most) * classes);
    double loss = 0;
    index hits = 0;
    for (index first = 0; first < size; first += most) {
      const index count = std::min(most, size - first);
      const std::uint8_t* const labels = all.labels.data() + first;
      network_.evaluate(all.numbers.data() + first * static_cast<index>(picture_numbers), logits.data(), count);
      hits += kernels::hits(logits.data(), labels, count, classes);
      loss += kernels::softmax_cross_entropy(logits.data(), labels, 1.0F, count, classes);
    }
    return {static_cast<float>(loss / static_cast<double>(size)),
            100.0F * static_cast<float>(hits) / static_cast<float>(size)};
  }

  [[nodiscard]] std::vector<float> weights()
  {
    std::vector<float> all;
    for (const tensor& each : network_.weights().all()) {
      const auto pin = m_.acquire(each, chunkmem::access::read);
      all.insert(all.end(), pin.span().begin(), pin.span().end());
    }
    return all;
  }

  [[nodiscard]] network& net() noexcept { return network_; }
  [[nodiscard]] chunkmem::report report() const { return m_.report(); }

 private:
  /// Loads the pictures of a step, which are a function of its number.
  void bring_pictures(std::uint64_t number)
  {
    const auto pin = m_.acquire(network_.pictures(), chunkmem::access::write);
    if (m_.rehearsing()) return;
    const gpt::counter_random random{1, gpt::stream::batches + number};
    for (std::size_t row = 0; row < labels_.size(); ++row) {
      const std::size_t which = random.below(pictures_.training.size(), row);
      std::ranges::copy(pictures_.training.picture(which), pin.data() + row * picture_numbers);
      labels_[row] = pictures_.training.labels[which];
    }
    network_.labels().labels = labels_.data();
  }

  const picture_set& pictures_;
  chunkmem::backend::host_arena memory_;
  manager m_;
  network network_;
  chunkmem::optimizer::adam adam_{};
  std::vector<std::uint8_t> labels_;  // of the pictures of the step
};

}  // namespace out_of_core
