// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <support/chosen_planner.hpp>
#include <support/rank_training.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace support::ranks {

/// Activations of a training over ranks, two blocks for each weight: a planner keeps, swaps or recomputes them. Each
/// backward run checks the bytes that its block saved, so lost or different bytes are reported.
///
/// The interface of no_activations. The calling thread has to reach the device.
template <class Model>
class activation_chain {
  using network_type = cm::activation::checkpointed<Model, chosen_planner>;
  using run_type = typename network_type::block_type::run_type;

 public:
  static constexpr bool runs_blocks = true;

  activation_chain(Model& model, const job& wanted, std::uint32_t rank)
      : m_{model},
        stream_{wanted.on_compute ? cm::agent::compute : cm::agent::host},
        rank_{rank},
        network_{model, {.budget = budget()}, chosen_planner{wanted.planner}}
  {
    for (std::size_t index = 0; index < 2 * sizes().size(); ++index) declare(index);
  }

  [[nodiscard]] auto iteration(std::uint32_t micro_batches) { return network_.iteration("train", micro_batches); }
  /// @param forward, backward   `forward(index)`: the trainer's work with this weight in that pass
  template <class Scope, class Forward, class Backward>
  void run(Scope& scope, std::uint32_t step, std::uint32_t batch, Forward forward, Backward backward)
  {
    forward_ = forward;
    backward_ = backward;
    network_.run(scope, {.step = step, .micro_batch = batch});
  }
  [[nodiscard]] bool is_right() const noexcept { return !has_other_bytes_; }

 private:
  static constexpr std::size_t most_weights = 8;
  static constexpr std::uint64_t output = 28000;      ///< elements of a block
  static constexpr std::uint64_t saved = 2 * output;  ///< the same, without the output

  struct part {
    cm::tensor<float> inner;
    cm::tensor<float> out;
  };

  /// Room for three of the blocks. Copies and blocks take about the same time.
  [[nodiscard]] static cm::activation::activation_budget budget()
  {
    const double rate = 1e9;
    return {.device = cm::bytes{3 * (saved + 2 * output) * sizeof(float)},
            .to_host_bytes_per_second = rate,
            .to_device_bytes_per_second = rate};
  }
  void declare(std::size_t index)
  {
    auto& block = network_.add("block " + std::to_string(index));
    parts_.push_back({block.template saves<float>({saved}), block.template outputs<float>({output})});
    block.reads_input = index % 2 == 1;
    block.forward_seconds = 1e-5 * static_cast<double>(1 + index % 3);
    block.backward_seconds = 2 * block.forward_seconds;
    block.forward = [this, index](run_type& run) { forward(index, run); };
    block.backward = [this, index](run_type& run) { backward(index, run); };
  }

  /// An element of the tensor that block `index` adds to its input.
  [[nodiscard]] static float value(float of_block, std::uint64_t element)
  {
    return of_block + static_cast<float>(element & 1023U);
  }
  /// The number of one block in one run.
  [[nodiscard]] static float number_of(std::size_t index, std::uint64_t of_run) { return noise(index, of_run, 3); }
  [[nodiscard]] static std::uint64_t source_of(std::uint64_t element)
  {
    return element < output ? element : element - output;
  }
  /// A number of the rank, the step and the micro-batch.
  [[nodiscard]] std::uint64_t run_number(const run_type& run) const
  {
    return (run.moment().step * 16 + run.moment().micro_batch) * 64 + rank_;
  }
  void forward(std::size_t index, run_type& run)
  {
    if (index % 2 == 0) forward_(index / 2);
    const auto inner = run.save(parts_[index].inner, stream_);
    const auto out = run.save(parts_[index].out, stream_);
    float* const to = inner.data();
    float* const next = out.data();
    const float own = number_of(index, run_number(run));
    if (index == 0)
      return work([=](auto&) {
        for (std::uint64_t i = 0; i < saved; ++i) to[i] = value(own, source_of(i));
        std::copy_n(to, output, next);
      });
    const auto in = run.input(parts_[index - 1].out, stream_);
    work([=, from = in.data()](auto&) {
      for (std::uint64_t i = 0; i < saved; ++i) to[i] = value(own, i) + from[source_of(i)];
      std::copy_n(to, output, next);
    });
  }
  void backward(std::size_t index, run_type& run)
  {
    {
      const auto inner = run.restore(parts_[index].inner, cm::access::read, stream_);
      std::array<float, 2 * most_weights> numbers{};
      for (std::size_t block = 0; block <= index; ++block) numbers[block] = number_of(block, run_number(run));
      work([=, from = inner.data()](std::atomic<bool>& other) {
        for (std::uint64_t i = 0; i < saved; i += 7) {
          float right = value(numbers[0], source_of(i));
          for (std::size_t block = 1; block <= index; ++block)
            right = value(numbers[block], block == index ? i : source_of(i)) + right;
          if (from[i] != right) other = true;
        }
      });
    }
    if (index % 2 == 0) backward_(index / 2);
  }
  template <class Work>
  void work(Work kernel)
  {
    if (m_.rehearsing()) return;
    if (stream_ == cm::agent::host) return kernel(has_other_bytes_);
    m_.backend().launch(stream_, [kernel, other = &has_other_bytes_]() noexcept { kernel(*other); });
  }

  Model& m_;
  cm::agent stream_;
  std::uint32_t rank_;
  network_type network_;
  std::vector<part> parts_;
  std::function<void(std::size_t)> forward_, backward_;
  std::atomic<bool> has_other_bytes_ = false;  // a kernel sets it
};

}  // namespace support::ranks
