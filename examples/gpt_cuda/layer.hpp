// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attended_samples.hpp"
#include "attention.hpp"
#include "pointwise_kernels.hpp"
#include "saved_activations.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace gpt::cuda {

/// One layer for all rows of a micro-batch.
///
/// A forward run may save the tensors that its backward run reads. Else only the layer's input is kept, in a tensor of
/// the manager, and the backward run recomputes the rest (Chen et al. 2016, arXiv 1604.06174). Both ways have the same
/// bits. Scratch of a run is one lease. Within a backward run no weight is read after its gradient was added, as
/// gradients in place require.
template <class Manager, class Math>
class layer_pass {
 public:
  using network_type = network<Manager, Math>;
  using scratch_type = typename network_type::scratch_type;
  using samples_type = typename samples_of<Manager, typename Math::sampler>::type;

  explicit layer_pass(const network_type& net) : n_{net}, attention_{net} {}

  /// Runs that save keep rows of the output of attention in place of all of it. Gradients of projections come from such
  /// rows also where a layer is recomputed, so that every plan has the same bits.
  void use(samples_type& samples) noexcept { samples_ = &samples; }

  /// Computes only the next layer's input.
  void forward(std::size_t which) const
  {
    const auto room = n_.room(passing_.plan);
    run_forward(which, places_in(room, passing_), room, passing_);
  }
  /// @param to   saved activations, written too
  void forward(std::size_t which, const saved_activations& to) const
  {
    const auto room = n_.room(saving_.plan);
    const auto qkv = n_.write(to.qkv);
    const auto attended = samples_ == nullptr ? std::optional{n_.write(to.attended)} : std::nullopt;
    const auto middle = n_.write(to.middle);
    const auto hidden = n_.write(to.hidden);
    run_forward(which, {qkv.data(), attended ? attended->data() : room[saving_.attended], middle.data(), hidden.data()},
                room, saving_, true);
  }

  /// Recomputes the layer from its input.
  /// @param slope   on entry the gradient of the layer's output, on return that of its input
  /// @param last    no other micro-batch follows in this step
  void backward(std::size_t which, bf16* slope, bool last) const
  {
    const layer_weights& weights = n_.handles().layers[which];
    const auto room = n_.room(again_.plan);
    const auto x = n_.read(n_.handles().inputs[which]);
    const activation_places<bf16> made = places_in(room, again_);
    up_to_hidden(weights, x.data(), made, room, again_, [&] { keep_rows(which, made.attended); });
    run_backward({weights, x.data(), made.as_read(), room, again_, last, samples_, which}, slope);
  }
  /// @param from   the tensors that the last forward run saved
  void backward(std::size_t which, const saved_activations& from, bf16* slope, bool last) const
  {
    const layer_weights& weights = n_.handles().layers[which];
    const auto room = n_.room(backward_.plan);
    const auto x = n_.read(n_.handles().inputs[which]);
    const auto qkv = n_.read(from.qkv);
    const auto attended = samples_ == nullptr ? std::optional{n_.read(from.attended)} : std::nullopt;
    const auto middle = n_.read(from.middle);
    const auto hidden = n_.read(from.hidden);
    n_.norm_forward(weights.attention_norm, x.data(), room[backward_.normed], room[backward_.statistics]);
    n_.norm_forward(weights.mlp_norm, middle.data(), room[backward_.mlp_normed], room[backward_.mlp_statistics]);
    run_backward({weights,
                  x.data(),
                  {qkv.data(), attended ? attended->data() : nullptr, middle.data(), hidden.data()},
                  room,
                  backward_,
                  last,
                  samples_,
                  which},
                 slope);
  }

 private:
  /// The layout of scratch. Blocks that are never in use at the same time share bytes.
  struct blocks {
    block_plan plan = network_type::plan_with_workspace();
    block<bf16> normed, qkv, attended, middle, mlp_normed, hidden, active;
    block<float> statistics, mlp_statistics;
    typename attention<Manager, Math>::blocks scores;
    block<bf16> d_hidden, d_qkv, between;  // of backward
    block<float> sums;
  };

  /// A backward run: its inputs and its scratch.
  struct way_back {
    const layer_weights& weights;
    const bf16* x = nullptr;
    activation_places<const bf16> saved{};
    const scratch_type& room;
    const blocks& in;
    bool last = false;
    samples_type* samples = nullptr;  ///< with rows of the output of attention
    std::size_t layer = 0;            ///< of the run
  };

  [[nodiscard]] const sizes& size() const noexcept { return n_.size(); }

  /// @param saves   saved activations have tensors of their own
  [[nodiscard]] blocks forward_blocks(bool saves) const
  {
    const std::uint32_t width = size().width;
    blocks it;
    it.normed = it.attended = it.mlp_normed = it.plan.template add<bf16>(size().numbers(width));
    it.hidden = it.active = it.plan.template add<bf16>(size().numbers(4 * width));
    if (!saves) {
      it.middle = it.plan.template add<bf16>(size().numbers(width));
      it.qkv = it.plan.template add<bf16>(size().numbers(3 * width));
    }
    it.scores = attention_.plan_forward(it.plan);
    it.statistics = it.mlp_statistics = it.plan.template add<float>(size().numbers(2));
    return it;
  }

  /// @param again   the layer is recomputed
  [[nodiscard]] blocks backward_blocks(bool again) const
  {
    const std::uint32_t width = size().width;
    blocks it;
    for (block<bf16>* const each : {&it.normed, &it.mlp_normed, &it.between})
      *each = it.plan.template add<bf16>(size().numbers(width));
    for (block<bf16>* const each : {&it.active, &it.d_hidden})
      *each = it.plan.template add<bf16>(size().numbers(4 * width));
    it.d_qkv = it.d_hidden;  // the MLP is done by then
    if (again) {
      it.qkv = it.plan.template add<bf16>(size().numbers(3 * width));
      it.attended = it.plan.template add<bf16>(size().numbers(width));
      it.middle = it.plan.template add<bf16>(size().numbers(width));
      it.hidden = it.plan.template add<bf16>(size().numbers(4 * width));
    }
    it.statistics = it.plan.template add<float>(size().numbers(2));
    it.mlp_statistics = it.plan.template add<float>(size().numbers(2));
    it.scores = attention_.plan_backward(it.plan);
    it.sums = it.plan.template add<float>(std::uint64_t{slabs_of(size().rows)} * 4 * width);
    return it;
  }

  [[nodiscard]] static activation_places<bf16> places_in(const scratch_type& room, const blocks& in)
  {
    return {room[in.qkv], room[in.attended], room[in.middle], room[in.hidden]};
  }

  void run_forward(std::size_t which, const activation_places<bf16>& to, const scratch_type& room, const blocks& in,
                   bool saves = false) const
  {
    const layer_weights& weights = n_.handles().layers[which];
    {
      const auto x = n_.read(n_.handles().inputs[which]);
      up_to_hidden(weights, x.data(), to, room, in, [&] {
        if (saves) keep_rows(which, to.attended);
      });
    }
    n_.run(gelu_forward_kernel{to.hidden, room[in.active], size().numbers(4 * size().width)});
    const auto out = n_.write(n_.handles().inputs[which + 1]);
    n_.linear(room[in.active], weights.contract, weights.contract_bias, out.data(),
              plain_product(size().rows, 4 * size().width, size().width), room, to.middle, true);
  }

  /// `width` numbers of each row. Empty in a rehearsal.
  [[nodiscard]] std::span<const bf16> all_of(const bf16* rows) const
  {
    return {rows, n_.computes() ? static_cast<std::size_t>(size().numbers(size().width)) : 0};
  }

  void keep_rows([[maybe_unused]] std::size_t which, [[maybe_unused]] const bf16* attended) const
  {
    if constexpr (network_type::can_sample)
      if (samples_ != nullptr) samples_->of(which).keep(samples_->batch(), all_of(attended), agent::compute);
  }

  /// @param attended   called when the output of attention has been read and is still there
  template <class Attended>
  void up_to_hidden(const layer_weights& weights, const bf16* x, const activation_places<bf16>& to,
                    const scratch_type& room, const blocks& in, Attended attended) const
  {
    const std::uint32_t rows = size().rows;
    const std::uint32_t width = size().width;
    n_.norm_forward(weights.attention_norm, x, room[in.normed], room[in.statistics]);
    n_.linear(room[in.normed], weights.qkv, weights.qkv_bias, to.qkv, plain_product(rows, width, 3 * width), room);
    attention_.forward(to.qkv, to.attended, room, in.scores);
    n_.linear(to.attended, weights.projection, weights.projection_bias, to.middle, plain_product(rows, width, width),
              room, x, true);
    attended();
    n_.norm_forward(weights.mlp_norm, to.middle, room[in.mlp_normed], room[in.mlp_statistics]);
    n_.linear(room[in.mlp_normed], weights.expand, weights.expand_bias, to.hidden,
              plain_product(rows, width, 4 * width), room);
  }

  void run_backward(const way_back& way, bf16* slope) const
  {
    through_mlp(way, slope);
    through_attention(way, slope);
  }

  /// The backward pass of a product: dx, then the gradients of its weight and bias.
  void product_backward(const way_back& way, const weight& matrix, const weight& bias, const bf16* x, const bf16* dy,
                        bf16* dx, std::uint32_t inputs, std::uint32_t outputs) const
  {
    auto values = n_.read(matrix);
    n_.multiply({.shape = input_product(size().rows, inputs, outputs), .left = dy, .right = values.data(), .out = dx},
                way.room);
    n_.product_gradient(std::move(values), x, dy, weight_product(size().rows, inputs, outputs), way.last, way.room);
    n_.bias_gradient(bias, dy, outputs, way.room[way.in.sums], way.last);
  }

  /// The same for the projection, whose weight's gradient is computed from the kept rows. Gradients are rounded to bf16
  /// stochastically: their expected value is exact.
  void sampled_backward(const way_back& way, const bf16* dy) const
    requires network_type::can_sample
  {
    const std::uint32_t width = size().width;
    bf16* const slopes = way.room[way.in.d_hidden];  // unused between the MLP and attention
    auto values = n_.read(way.weights.projection);
    const auto of_input = [&] {
      n_.multiply({.shape = input_product(size().rows, width, width),
                   .left = dy,
                   .right = values.data(),
                   .out = way.room[way.in.between]},
                  way.room);
    };
    const auto of_weight = [&](const auto& it) {
      n_.run(round_slopes_kernel{it.slopes, slopes, it.count * width,
                                 chunkmem::detail::rounding_stream{way.samples->key_of(way.layer)}});
      const auto kept = static_cast<std::uint32_t>(it.count);
      n_.product_gradient(std::move(values), it.rows, slopes, weight_product(kept, width, width), way.last, way.room);
    };
    chunkmem::activation::sampled(way.samples->of(way.layer), way.samples->batch(), agent::compute,
                                  chunkmem::activation::linear_slope{all_of(dy), width, of_input, of_weight});
    n_.bias_gradient(way.weights.projection_bias, dy, width, way.room[way.in.sums], way.last);
  }

  void through_mlp(const way_back& way, bf16* slope) const
  {
    const auto& [weights, x, saved, room, in, last, samples, layer] = way;
    const std::uint32_t width = size().width;
    const std::uint64_t hidden = size().numbers(4 * width);
    n_.run(gelu_forward_kernel{saved.hidden, room[in.active], hidden});
    product_backward(way, weights.contract, weights.contract_bias, room[in.active], slope, room[in.d_hidden], 4 * width,
                     width);
    n_.run(gelu_backward_kernel{saved.hidden, room[in.d_hidden], hidden});
    product_backward(way, weights.expand, weights.expand_bias, room[in.mlp_normed], room[in.d_hidden], room[in.between],
                     width, 4 * width);
    n_.norm_backward(weights.mlp_norm,
                     {.dy = room[in.between],
                      .x = saved.middle,
                      .norm = {},
                      .statistics = room[in.mlp_statistics],
                      .added = slope,
                      .dx = slope,
                      .rows = {},
                      .width = {}},
                     room[in.sums], last);
  }

  void through_attention(const way_back& way, bf16* slope) const
  {
    const auto& [weights, x, saved, room, in, last, samples, layer] = way;
    const std::uint32_t width = size().width;
    bool is_sampled = false;
    if constexpr (network_type::can_sample)
      if (samples != nullptr) is_sampled = (sampled_backward(way, slope), true);
    if (!is_sampled)
      product_backward(way, weights.projection, weights.projection_bias, saved.attended, slope, room[in.between], width,
                       width);
    attention_.backward(saved.qkv, room[in.between], room[in.d_qkv], room, in.scores);
    product_backward(way, weights.qkv, weights.qkv_bias, room[in.normed], room[in.d_qkv], room[in.between], width,
                     3 * width);
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
  samples_type* samples_ = nullptr;
  attention<Manager, Math> attention_;
  blocks passing_ = forward_blocks(false);
  blocks saving_ = forward_blocks(true);
  blocks again_ = backward_blocks(true);
  blocks backward_ = backward_blocks(false);
};

}  // namespace gpt::cuda
