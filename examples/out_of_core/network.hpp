// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "block_shape.hpp"
#include "block_tensors.hpp"
#include "convolution_block.hpp"
#include "head_block.hpp"
#include "planners.hpp"
#include "residual_block.hpp"
#include "weight_list.hpp"

#include <chunkmem/activation/checkpointed.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace out_of_core {

/// The rates of the device in the times for planners: a small GPU and its link.
///
/// The times of blocks are counted operations over a rate. So a plan is the same on every machine, and exists before
/// the first step. With measured times, a plan fits the machine that measures them.
inline constexpr double operations_per_second = 8e11;
inline constexpr double link_bytes_per_second = 12e9;

/// The blocks of `shapes_of_network` as a `checkpointed` chain.
class network {
 public:
  using chain_type = chunkmem::activation::checkpointed<manager, chosen_planner>;

  /// @param m   outlives the network, and moves chunks of `chunk`
  network(manager& m, index batch, chunkmem::bytes chunk, chunkmem::bytes for_activations, planner_choice planner)
      : m_{m},
        batch_{batch},
        weights_{m},
        chain_{m,
               {.budget = {.device = for_activations,
                           .to_host_bytes_per_second = link_bytes_per_second,
                           .to_device_bytes_per_second = link_bytes_per_second,
                           .frame = chunk},
                .seed = 42,
                .name = "pictures"},
               chosen_planner{planner}}
  {
    pictures_ = add(static_cast<index>(picture_numbers), chunkmem::role::buffer);
    blocks_.reserve(shapes.size());
    tensor before = pictures_;
    tensor slope{};
    for (const block_shape& shape : shapes) {
      block_tensors tensors{.m = m_, .shape = shape, .batch = batch, .input = before, .slope_of_input = slope};
      tensors.is_first = blocks_.empty();
      if (shape.kind == block_kind::convolution) slope = add(shape.out.numbers(), chunkmem::role::activation);
      tensors.slope = slope;
      before = declare(tensors);
    }
  }
  network(const network&) = delete;

  [[nodiscard]] chain_type& chain() noexcept { return chain_; }
  [[nodiscard]] weight_list& weights() noexcept { return weights_; }
  [[nodiscard]] batch_labels& labels() noexcept { return labels_; }
  /// The pictures of a step, [batch, 64].
  [[nodiscard]] tensor pictures() const noexcept { return pictures_; }

  /// The most pictures of one `evaluate`.
  [[nodiscard]] index at_once() const noexcept { return pictures_at_once(batch_); }
  /// The logits of a few pictures, outside of training.
  void evaluate(const float* pictures, float* logits, index count) const
  {
    const workspace one{m_, at_once() * most_numbers};
    const workspace other{m_, at_once() * most_numbers};
    float* from = one.data();
    float* to = other.data();
    std::copy_n(pictures, count * static_cast<index>(picture_numbers), from);
    for (const block& each : blocks_) {
      std::visit([&](const auto& which) { which.evaluate(from, to, count); }, each);
      std::swap(from, to);
    }
    std::copy_n(from, count * static_cast<index>(classes), logits);
  }

 private:
  using block = std::variant<convolution_block, residual_block, head_block>;
  static constexpr auto shapes = shapes_of_network();
  static constexpr index most_numbers =
      std::ranges::max(shapes, {}, [](const block_shape& each) { return each.out.numbers(); }).out.numbers();

  [[nodiscard]] chunkmem::shape of_batch(index numbers) const
  {
    return {static_cast<std::uint64_t>(batch_), static_cast<std::uint64_t>(numbers)};
  }
  tensor add(index numbers, chunkmem::role part) { return m_.add<float>(of_batch(numbers), part); }

  /// Declares the next block: its tensors, its weights, its callbacks. @return   its output
  tensor declare(block_tensors& tensors)
  {
    constexpr const char* names[] = {"convolution ", "residual ", "head "};
    const block_shape& shape = tensors.shape;
    const std::size_t number = blocks_.size();
    auto& added = chain_.add(names[static_cast<std::size_t>(shape.kind)] + std::to_string(number));
    if (shape.kind == block_kind::residual) tensors.hidden = added.saves<float>(of_batch(shape.hidden_numbers()));
    tensors.output = added.outputs<float>(of_batch(shape.out.numbers()));
    if (shape.kind != block_kind::head) added.gradient = bytes_of(batch_ * shape.out.numbers());
    added.working = bytes_of(make(tensors));
    added.reads_input = true;
    added.forward_seconds = static_cast<double>(batch_) * shape.operations() / operations_per_second;
    added.backward_seconds = 2 * added.forward_seconds;
    added.forward = [this, number](block_run& run) {
      std::visit([&](const auto& which) { which.forward(run); }, blocks_[number]);
    };
    added.backward = [this, number](block_run& run) {
      std::visit([&](const auto& which) { which.backward(run); }, blocks_[number]);
    };
    return tensors.output;
  }
  /// @return   numbers of the block's workspace
  index make(const block_tensors& tensors)
  {
    const block_shape& shape = tensors.shape;
    switch (shape.kind) {
      case block_kind::convolution: {
        const tensor weight = weights_.add_with_bias(9 * shape.in.channels, shape.out.channels);
        blocks_.emplace_back(convolution_block{tensors, weight});
        return convolution_block::workspace_numbers(shape, batch_);
      }
      case block_kind::residual: {
        const tensor expand = weights_.add_with_bias(9 * shape.in.channels, shape.wide);
        const tensor project = weights_.add(shape.wide, shape.out.channels, 0.2F);  // many blocks add up
        blocks_.emplace_back(residual_block{tensors, expand, project});
        return residual_block::workspace_numbers(shape, batch_);
      }
      case block_kind::head: break;
    }
    const tensor weight = weights_.add(shape.in.numbers(), shape.out.numbers(), 0.3F);
    blocks_.emplace_back(head_block{tensors, weight, labels_});
    return head_block::workspace_numbers(shape, batch_);
  }

  manager& m_;
  index batch_;
  weight_list weights_;
  chain_type chain_;
  tensor pictures_{};
  batch_labels labels_{};
  std::vector<block> blocks_{};
};

}  // namespace out_of_core
