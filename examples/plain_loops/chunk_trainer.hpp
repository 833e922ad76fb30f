// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adamw.hpp"
#include "run_kernel.hpp"
#include "text.hpp"

#include <chunkmem/chunkmem.hpp>
#include <chunkmem/optimizer/step.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

namespace plain_loops {

/// The trainer over chunks: plain_trainer with pins in the place of pointers. It calls the same kernels with the same
/// numbers.
///
/// The constructor declares weights, and `declare_activations` declares activations once the first batch is known. Then
/// call `rehearse` if the order or the need is wanted, then `fill`, then steps.
template <class Manager>
class chunk_trainer {
 public:
  chunk_trainer(Manager& manager, const model_shape& model, const training& how)
      : m_{manager}, model_{model}, how_{how}, adamw_{how.weight_decay}
  {
    for (int kind = 0; kind < weight_kinds; ++kind) {
      const auto which = static_cast<weight_kind>(kind);
      const auto group = decays(which, model) ? decaying : chunkmem::group_id{0};
      weights_[kind] = declare(shape_of(which, model), chunkmem::role::parameter, group);
    }
    m_.use(adamw_);
  }
  chunk_trainer(const chunk_trainer&) = delete;

  /// All tensors are declared before the first access: lazily allocated tensors are declared when their sizes are
  /// known.
  void declare_activations(const batch_shape& batch)
  {
    batch_ = batch;
    for (int kind = 0; kind < activation_kinds; ++kind)
      activations_[kind] =
          declare(shape_of(static_cast<activation_kind>(kind), model_, batch), chunkmem::role::activation);
  }

  /// The exact need of a step. Nothing is allocated and no kernel runs.
  chunkmem::memory_requirement rehearse(const token_batch& batch)
  {
    return m_.rehearse([&] { (void)step(batch); });
  }

  void fill()
  {
    each_weight([&](weight_kind kind, std::uint32_t layer, int first) {
      const auto pin = m_.acquire(weights_[kind].slice(layer), chunkmem::access::write);
      for (float& number : pin.span()) number = first_value(kind, model_, how_.seed, first++);
    });
  }

  /// Forward, backward, update. @return   the mean loss before the update [nats], 0 in a rehearsal
  float step(const token_batch& batch)
  {
    auto iteration = m_.iteration();
    iteration.pass(chunkmem::pass::forward);
    forward(batch.tokens.data(), batch_.batch, true);
    run_kernel{m_, head_forward, write(logits), read(final_norm), read(token_table), batch_.rows(), model_.width};
    iteration.pass(chunkmem::pass::backward);
    const double loss = loss_of(batch);
    backward(batch);
    chunkmem::optimizer::step(m_, adamw_, {.learning_rate = how_.learning_rate, .skip_nonfinite = false});
    return static_cast<float>(loss / batch_.rows());
  }

  /// `count` bytes that follow the prompt, each in an iteration with a record and a plan of their own.
  [[nodiscard]] std::string generate(const std::string& prompt, int count)
  {
    std::string text = prompt;
    std::vector<unsigned char> window(static_cast<std::size_t>(batch_.context));
    for (int index = 0; index < count; ++index) {
      const auto iteration = m_.iteration("generate");
      const int last = place_window(window, text);
      forward(window.data(), 1, false);
      run_kernel{m_, head_forward, write(logits), read(final_norm), read(token_table), batch_.context, model_.width};
      text.push_back(next_byte(last, static_cast<std::uint64_t>(index)));
      forget({logits, final_norm, final_mean, final_scale});
    }
    return text;
  }

  /// All trained numbers, kind by kind, layer by layer.
  [[nodiscard]] std::vector<float> weights()
  {
    std::vector<float> all;
    each_weight([&](weight_kind kind, std::uint32_t layer, int) {
      const auto pin = m_.acquire(weights_[kind].slice(layer), chunkmem::access::read);
      all.insert(all.end(), pin.span().begin(), pin.span().end());
    });
    return all;
  }

 private:
  using stack = chunkmem::stacked<float>;
  using tensor = chunkmem::tensor<float>;

  stack declare(const tensor_shape& shape, chunkmem::role part, chunkmem::group_id group = chunkmem::group_id{0})
  {
    const auto rows = static_cast<std::uint64_t>(shape.rows);
    const auto columns = static_cast<std::uint64_t>(shape.columns);
    return m_.template add_stacked<float>(static_cast<std::uint32_t>(shape.layers), {rows, columns}, part, group);
  }

  /// Calls `visit(kind, layer, first)`; `first` counts numbers over the layers of a kind.
  template <class Visit>
  void each_weight(Visit visit)
  {
    for (int kind = 0; kind < weight_kinds; ++kind) {
      const auto which = static_cast<weight_kind>(kind);
      const int size = shape_of(which, model_).size();
      for (std::uint32_t layer = 0; layer < weights_[kind].layers; ++layer)
        visit(which, layer, static_cast<int>(layer) * size);
    }
  }

  [[nodiscard]] tensor w(weight_kind kind, int layer = 0) const
  {
    return weights_[kind].slice(static_cast<std::uint32_t>(layer));
  }
  [[nodiscard]] tensor a(activation_kind kind, int layer = 0) const
  {
    return activations_[kind].slice(static_cast<std::uint32_t>(layer));
  }
  [[nodiscard]] tensor input_of(int layer) const { return layer == 0 ? a(embedded) : a(output, layer - 1); }

  // Pins, in the words of the loops below.
  [[nodiscard]] auto read(tensor which) const { return m_.acquire(which, chunkmem::access::read); }
  [[nodiscard]] auto update(tensor which) const { return m_.acquire(which, chunkmem::access::read_write); }
  [[nodiscard]] auto write(tensor which) const { return m_.acquire(which, chunkmem::access::write); }
  [[nodiscard]] auto read(weight_kind kind, int layer = 0) const { return read(w(kind, layer)); }
  [[nodiscard]] auto read(activation_kind kind, int layer = 0) const { return read(a(kind, layer)); }
  [[nodiscard]] auto update(activation_kind kind, int layer = 0) const { return update(a(kind, layer)); }
  [[nodiscard]] auto write(activation_kind kind, int layer = 0) const { return write(a(kind, layer)); }
  /// The kernels add to gradients, so the first one of a step has to find zeros: this replaces the zeroing of all
  /// gradients.
  [[nodiscard]] auto gradient(weight_kind kind, int layer = 0) const
  {
    auto pin = m_.gradient(w(kind, layer));
    if (pin.beta() == 0.0F && !m_.rehearsing()) std::ranges::fill(pin.span(), 0.0F);
    return pin;
  }

  /// Scratch of the backward pass, from the same budget.
  struct floats {
    [[nodiscard]] float* data() const { return reinterpret_cast<float*>(bytes.data()); }
    chunkmem::lease<typename Manager::engine_type> bytes;
  };
  [[nodiscard]] floats scratch(int count) const
  {
    return {m_.lease(chunkmem::tier::device, chunkmem::bytes{static_cast<std::uint64_t>(count) * sizeof(float)})};
  }

  /// @param keeps   a backward pass follows; else activations are dropped after the layer that reads them last
  void forward(const unsigned char* tokens, int batch, bool keeps)
  {
    run_kernel{m_,    embedding_forward, write(embedded), tokens, read(token_table), read(position_table),
               batch, batch_.context,    model_.width};
    for (int layer = 0; layer < model_.layers; ++layer) {
      forward_layer(layer, batch);
      if (!keeps) forget_layer(layer);
    }
    run_kernel{m_,
               layer_norm_forward,
               write(final_norm),
               write(final_mean),
               write(final_scale),
               read(input_of(model_.layers)),
               read(final_gain),
               read(final_bias),
               batch * batch_.context,
               model_.width};
    if (!keeps) m_.drop(input_of(model_.layers));
  }

  void forward_layer(int l, int batch)
  {
    const int width = model_.width;
    const int rows = batch * batch_.context;
    run_kernel{m_,
               layer_norm_forward,
               write(norm1, l),
               write(norm1_mean, l),
               write(norm1_scale, l),
               read(input_of(l)),
               read(norm1_gain, l),
               read(norm1_bias, l),
               rows,
               width};
    run_kernel{m_,   matmul_forward, write(qkv, l), read(norm1, l), read(qkv_weight, l), read(qkv_bias, l),
               rows, width,          3 * width};
    run_kernel{m_,
               attention_forward,
               write(attended, l),
               write(attention, l),
               read(qkv, l),
               batch,
               batch_.context,
               model_.heads,
               width};
    run_kernel{m_,
               matmul_forward,
               write(middle, l),
               read(attended, l),
               read(projection_weight, l),
               read(projection_bias, l),
               rows,
               width,
               width};
    run_kernel{m_, add, update(middle, l), read(input_of(l)), rows * width};
    run_kernel{m_,
               layer_norm_forward,
               write(norm2, l),
               write(norm2_mean, l),
               write(norm2_scale, l),
               read(middle, l),
               read(norm2_gain, l),
               read(norm2_bias, l),
               rows,
               width};
    run_kernel{m_,   matmul_forward, write(hidden, l), read(norm2, l), read(expand_weight, l), read(expand_bias, l),
               rows, width,          4 * width};
    run_kernel{m_, gelu_forward, write(activated, l), read(hidden, l), rows * 4 * width};
    run_kernel{m_,
               matmul_forward,
               write(output, l),
               read(activated, l),
               read(contract_weight, l),
               read(contract_bias, l),
               rows,
               4 * width,
               width};
    run_kernel{m_, add, update(output, l), read(middle, l), rows * width};
  }

  [[nodiscard]] double loss_of(const token_batch& batch) const
  {
    const auto pin = update(logits);
    return m_.rehearsing() ? 0.0 : cross_entropy(pin.data(), batch.targets.data(), batch_.rows());
  }

  [[nodiscard]] char next_byte(int position, std::uint64_t number) const
  {
    const auto pin = read(logits);
    const float coin = random_uniform(how_.seed, 2000, number);
    return static_cast<char>(sample(pin.data() + position * vocabulary, how_.temperature, coin));
  }

  void backward(const token_batch& batch)
  {
    const int width = model_.width;
    const int rows = batch_.rows();
    const floats d_stream = scratch(rows * width);
    const floats d_narrow = scratch(rows * width);
    const floats d_wide = scratch(rows * 4 * width);
    const floats d_row = scratch(batch_.context);
    run_kernel{m_,   head_backward, d_narrow, gradient(token_table), read(logits), read(final_norm), read(token_table),
               rows, width};
    if (!m_.rehearsing()) std::memset(d_stream.data(), 0, static_cast<std::size_t>(rows * width) * sizeof(float));
    run_kernel{m_,
               layer_norm_backward,
               d_stream,
               gradient(final_gain),
               gradient(final_bias),
               d_narrow,
               read(input_of(model_.layers)),
               read(final_gain),
               read(final_mean),
               read(final_scale),
               rows,
               width};
    forget({logits, final_norm, final_mean, final_scale});
    for (int layer = model_.layers; layer-- > 0;) backward_layer(layer, d_stream, d_narrow, d_wide, d_row);
    run_kernel{m_,       embedding_backward,  gradient(token_table), gradient(position_table),
               d_stream, batch.tokens.data(), batch_.batch,          batch_.context,
               width};
    forget({embedded});
  }

  void backward_layer(int l, const floats& d_stream, const floats& d_narrow, const floats& d_wide, const floats& d_row)
  {
    const int width = model_.width;
    const int rows = batch_.rows();
    run_kernel{m_,
               matmul_backward_weight,
               gradient(contract_weight, l),
               gradient(contract_bias, l),
               d_stream,
               read(activated, l),
               rows,
               4 * width,
               width};
    run_kernel{m_, matmul_backward_input, d_wide, d_stream, read(contract_weight, l), rows, 4 * width, width};
    run_kernel{m_, gelu_backward, d_wide, read(hidden, l), rows * 4 * width};
    forget({activated, hidden, output}, l);
    run_kernel{m_,
               matmul_backward_weight,
               gradient(expand_weight, l),
               gradient(expand_bias, l),
               d_wide,
               read(norm2, l),
               rows,
               width,
               4 * width};
    run_kernel{m_, matmul_backward_input, d_narrow, d_wide, read(expand_weight, l), rows, width, 4 * width};
    run_kernel{m_,
               layer_norm_backward,
               d_stream,
               gradient(norm2_gain, l),
               gradient(norm2_bias, l),
               d_narrow,
               read(middle, l),
               read(norm2_gain, l),
               read(norm2_mean, l),
               read(norm2_scale, l),
               rows,
               width};
    forget({norm2, norm2_mean, norm2_scale, middle}, l);
    run_kernel{m_,
               matmul_backward_weight,
               gradient(projection_weight, l),
               gradient(projection_bias, l),
               d_stream,
               read(attended, l),
               rows,
               width,
               width};
    run_kernel{m_, matmul_backward_input, d_narrow, d_stream, read(projection_weight, l), rows, width, width};
    run_kernel{m_,           attention_backward, d_wide,         d_row,        d_narrow, read(attention, l),
               read(qkv, l), batch_.batch,       batch_.context, model_.heads, width};
    forget({attended, attention, qkv}, l);
    run_kernel{m_,
               matmul_backward_weight,
               gradient(qkv_weight, l),
               gradient(qkv_bias, l),
               d_wide,
               read(norm1, l),
               rows,
               width,
               3 * width};
    run_kernel{m_, matmul_backward_input, d_narrow, d_wide, read(qkv_weight, l), rows, width, 3 * width};
    run_kernel{m_,
               layer_norm_backward,
               d_stream,
               gradient(norm1_gain, l),
               gradient(norm1_bias, l),
               d_narrow,
               read(input_of(l)),
               read(norm1_gain, l),
               read(norm1_mean, l),
               read(norm1_scale, l),
               rows,
               width};
    forget({norm1, norm1_mean, norm1_scale}, l);
  }

  /// Drops activations: their bytes are not copied when they leave the device.
  void forget(std::initializer_list<activation_kind> kinds, int layer = 0)
  {
    for (const activation_kind kind : kinds) m_.drop(a(kind, layer));
  }
  void forget_layer(int l)
  {
    m_.drop(input_of(l));
    forget({norm1, norm1_mean, norm1_scale, qkv, attention, attended, middle, norm2, norm2_mean, norm2_scale, hidden,
            activated},
           l);
  }

  Manager& m_;
  model_shape model_;
  training how_;
  batch_shape batch_;
  adamw adamw_;
  stack weights_[weight_kinds];
  stack activations_[activation_kinds];
};

}  // namespace plain_loops
