// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention.hpp"
#include "pointwise_kernels.hpp"

#include <cstddef>
#include <utility>

namespace gpt::cuda {

/// One layer for all rows of a micro-batch.
///
/// Forward keeps the layer's input alone, in a tensor of the manager; backward computes the rest again (Chen et al.
/// 2016, arXiv 1604.06174). Scratch of a pass is one lease. Within backward no weight is read after its gradient came,
/// which gradients in place want.
template <class Manager, class Math>
class layer_pass {
 public:
  using network_type = network<Manager, Math>;
  using scratch_type = typename network_type::scratch_type;

  explicit layer_pass(const network_type& net)
      : n_{net}, attention_{net}, forward_{forward_blocks()}, backward_{backward_blocks()}
  {
  }

  void forward(std::size_t which) const
  {
    const layer_weights& weights = n_.handles().layers[which];
    const auto room = n_.room(forward_.plan);
    {
      const auto x = n_.read(n_.handles().inputs[which]);
      up_to_hidden(weights, x.data(), room, forward_);
    }
    n_.run(gelu_forward_kernel{room[forward_.hidden], room[forward_.active], size().numbers(4 * size().width)});
    const auto out = n_.write(n_.handles().inputs[which + 1]);
    n_.linear(room[forward_.active], weights.contract, weights.contract_bias, out.data(),
              plain_product(size().rows, 4 * size().width, size().width), room, room[forward_.middle], true);
  }

  /// Drops the layer's input, too.
  /// @param slope   in the gradient of what the layer gives, out of its input
  /// @param last    no other micro-batch follows in this step
  void backward(std::size_t which, bf16* slope, bool last) const
  {
    const layer_weights& weights = n_.handles().layers[which];
    {
      const auto room = n_.room(backward_.plan);
      const auto x = n_.read(n_.handles().inputs[which]);
      up_to_hidden(weights, x.data(), room, backward_);
      through_mlp(weights, slope, room, last);
      through_attention(weights, x.data(), slope, room, last);
    }
    n_.manager().drop(n_.handles().inputs[which]);
  }

 private:
  /// Where everything lies. What one pass has no use for shares its bytes with what it is not needed beside.
  struct blocks {
    block_plan plan = network_type::plan_with_workspace();
    block<bf16> normed, qkv, attended, middle, mlp_normed, hidden, active;
    block<float> statistics, mlp_statistics;
    typename attention<Manager, Math>::blocks scores;
    block<bf16> d_hidden, d_qkv, between;  // of backward
    block<float> sums;
  };

  [[nodiscard]] const sizes& size() const noexcept { return n_.size(); }

  [[nodiscard]] blocks forward_blocks() const
  {
    const std::uint32_t width = size().width;
    blocks it;
    it.normed = it.attended = it.mlp_normed = it.plan.template add<bf16>(size().numbers(width));
    it.middle = it.plan.template add<bf16>(size().numbers(width));
    it.qkv = it.plan.template add<bf16>(size().numbers(3 * width));
    it.scores = attention_.plan_forward(it.plan);
    it.hidden = it.active = it.plan.template add<bf16>(size().numbers(4 * width));
    it.statistics = it.mlp_statistics = it.plan.template add<float>(size().numbers(2));
    return it;
  }

  [[nodiscard]] blocks backward_blocks() const
  {
    const std::uint32_t width = size().width;
    blocks it;
    for (block<bf16>* const each : {&it.normed, &it.attended, &it.middle, &it.mlp_normed, &it.between})
      *each = it.plan.template add<bf16>(size().numbers(width));
    it.qkv = it.plan.template add<bf16>(size().numbers(3 * width));
    for (block<bf16>* const each : {&it.hidden, &it.active, &it.d_hidden})
      *each = it.plan.template add<bf16>(size().numbers(4 * width));
    it.d_qkv = it.d_hidden;  // the MLP is done by then
    it.statistics = it.plan.template add<float>(size().numbers(2));
    it.mlp_statistics = it.plan.template add<float>(size().numbers(2));
    it.scores = attention_.plan_backward(it.plan);
    it.sums = it.plan.template add<float>(std::uint64_t{slabs_of(size().rows)} * 4 * width);
    return it;
  }

  void up_to_hidden(const layer_weights& weights, const bf16* x, const scratch_type& room, const blocks& in) const
  {
    const std::uint32_t rows = size().rows;
    const std::uint32_t width = size().width;
    n_.norm_forward(weights.attention_norm, x, room[in.normed], room[in.statistics]);
    n_.linear(room[in.normed], weights.qkv, weights.qkv_bias, room[in.qkv], plain_product(rows, width, 3 * width),
              room);
    attention_.forward(room[in.qkv], room[in.attended], room, in.scores);
    n_.linear(room[in.attended], weights.projection, weights.projection_bias, room[in.middle],
              plain_product(rows, width, width), room, x, true);
    n_.norm_forward(weights.mlp_norm, room[in.middle], room[in.mlp_normed], room[in.mlp_statistics]);
    n_.linear(room[in.mlp_normed], weights.expand, weights.expand_bias, room[in.hidden],
              plain_product(rows, width, 4 * width), room);
  }

  /// Back through a product: dx, then the gradients of its weight and bias.
  void product_backward(const weight& matrix, const weight& bias, const bf16* x, const bf16* dy, bf16* dx,
                        std::uint32_t inputs, std::uint32_t outputs, const scratch_type& room, bool last) const
  {
    auto values = n_.read(matrix);
    n_.multiply({.shape = input_product(size().rows, inputs, outputs), .left = dy, .right = values.data(), .out = dx},
                room);
    n_.product_gradient(std::move(values), x, dy, weight_product(size().rows, inputs, outputs), last, room);
    n_.bias_gradient(bias, dy, outputs, room[backward_.sums], last);
  }

  void through_mlp(const layer_weights& weights, bf16* slope, const scratch_type& room, bool last) const
  {
    const blocks& in = backward_;
    const std::uint32_t width = size().width;
    const std::uint64_t hidden = size().numbers(4 * width);
    n_.run(gelu_forward_kernel{room[in.hidden], room[in.active], hidden});
    product_backward(weights.contract, weights.contract_bias, room[in.active], slope, room[in.d_hidden], 4 * width,
                     width, room, last);
    n_.run(gelu_backward_kernel{room[in.hidden], room[in.d_hidden], hidden});
    product_backward(weights.expand, weights.expand_bias, room[in.mlp_normed], room[in.d_hidden], room[in.between],
                     width, 4 * width, room, last);
    n_.norm_backward(weights.mlp_norm,
                     {.dy = room[in.between],
                      .x = room[in.middle],
                      .norm = {},
                      .statistics = room[in.mlp_statistics],
                      .added = slope,
                      .dx = slope,
                      .rows = {},
                      .width = {}},
                     room[in.sums], last);
  }

  void through_attention(const layer_weights& weights, const bf16* x, bf16* slope, const scratch_type& room,
                         bool last) const
  {
    const blocks& in = backward_;
    const std::uint32_t width = size().width;
    product_backward(weights.projection, weights.projection_bias, room[in.attended], slope, room[in.between], width,
                     width, room, last);
    attention_.backward(room[in.qkv], room[in.between], room[in.d_qkv], room, in.scores);
    product_backward(weights.qkv, weights.qkv_bias, room[in.normed], room[in.d_qkv], room[in.between], width, 3 * width,
                     room, last);
    n_.norm_backward(weights.attention_norm,
                     {.dy = room[in.between],
                      .x = x,
                      .norm = {},
                      .statistics = room[in.statistics],
                      .added = slope,
                      .dx = slope,
                      .rows = {},
                      .width = {}},
                     room[in.sums], last);
  }

  const network_type& n_;
  attention<Manager, Math> attention_;
  blocks forward_;
  blocks backward_;
};

}  // namespace gpt::cuda
