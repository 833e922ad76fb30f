// SPDX-License-Identifier: Apache-2.0
#include "plain_trainer.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

namespace plain_loops {

plain_trainer::plain_trainer(const model_shape& model, const training& how) : model_{model}, how_{how}
{
  for (int kind = 0; kind < weight_kinds; ++kind) {
    const auto which = static_cast<weight_kind>(kind);
    const tensor_shape shape = shape_of(which, model);
    const int count = shape.layers * shape.size();
    weights_[kind] = take(count);
    gradients_[kind] = take(count);
    momenta_[kind] = take(count);
    variances_[kind] = take(count);
    for (int index = 0; index < count; ++index) weights_[kind][index] = first_value(which, model, how.seed, index);
  }
}

plain_trainer::~plain_trainer()
{
  for (float* block : blocks_) std::free(block);
}

float* plain_trainer::take(int count)
{
  const std::size_t size = static_cast<std::size_t>(count) * sizeof(float);
  auto* const block = static_cast<float*>(std::malloc(size));
  if (block == nullptr) throw std::bad_alloc{};
  std::memset(block, 0, size);
  blocks_.push_back(block);
  bytes_ += size;
  return block;
}

/// Called when the first batch is known, and with it the sizes.
void plain_trainer::take_activations(const batch_shape& batch)
{
  batch_ = batch;
  for (int kind = 0; kind < activation_kinds; ++kind) {
    const tensor_shape shape = shape_of(static_cast<activation_kind>(kind), model_, batch);
    activations_[kind] = take(shape.layers * shape.size());
  }
  d_stream_ = take(batch.rows() * model_.width);
  d_narrow_ = take(batch.rows() * model_.width);
  d_wide_ = take(batch.rows() * 4 * model_.width);
  d_row_ = take(batch.context);
}

float plain_trainer::step(const token_batch& batch)
{
  if (batch_.batch == 0) take_activations(batch.shape);
  forward(batch.tokens.data(), batch_.batch);
  head_forward(a(logits), a(final_norm), w(token_table), batch_.rows(), model_.width);
  const double loss = cross_entropy(a(logits), batch.targets.data(), batch_.rows());
  backward(batch);
  update();
  return static_cast<float>(loss / batch_.rows());
}

void plain_trainer::forward(const unsigned char* tokens, int batch)
{
  embedding_forward(a(embedded), tokens, w(token_table), w(position_table), batch, batch_.context, model_.width);
  for (int layer = 0; layer < model_.layers; ++layer) forward_layer(layer, batch);
  layer_norm_forward(a(final_norm), a(final_mean), a(final_scale), input_of(model_.layers), w(final_gain),
                     w(final_bias), batch * batch_.context, model_.width);
}

void plain_trainer::forward_layer(int l, int batch)
{
  const int width = model_.width;
  const int rows = batch * batch_.context;
  layer_norm_forward(a(norm1, l), a(norm1_mean, l), a(norm1_scale, l), input_of(l), w(norm1_gain, l), w(norm1_bias, l),
                     rows, width);
  matmul_forward(a(qkv, l), a(norm1, l), w(qkv_weight, l), w(qkv_bias, l), rows, width, 3 * width);
  attention_forward(a(attended, l), a(attention, l), a(qkv, l), batch, batch_.context, model_.heads, width);
  matmul_forward(a(middle, l), a(attended, l), w(projection_weight, l), w(projection_bias, l), rows, width, width);
  add(a(middle, l), input_of(l), rows * width);
  layer_norm_forward(a(norm2, l), a(norm2_mean, l), a(norm2_scale, l), a(middle, l), w(norm2_gain, l), w(norm2_bias, l),
                     rows, width);
  matmul_forward(a(hidden, l), a(norm2, l), w(expand_weight, l), w(expand_bias, l), rows, width, 4 * width);
  gelu_forward(a(activated, l), a(hidden, l), rows * 4 * width);
  matmul_forward(a(output, l), a(activated, l), w(contract_weight, l), w(contract_bias, l), rows, 4 * width, width);
  add(a(output, l), a(middle, l), rows * width);
}

void plain_trainer::backward(const token_batch& batch)
{
  const int width = model_.width;
  const int rows = batch_.rows();
  for (int kind = 0; kind < weight_kinds; ++kind) {
    const tensor_shape shape = shape_of(static_cast<weight_kind>(kind), model_);
    std::memset(gradients_[kind], 0, static_cast<std::size_t>(shape.layers * shape.size()) * sizeof(float));
  }
  head_backward(d_narrow_, dw(token_table), a(logits), a(final_norm), w(token_table), rows, width);
  std::memset(d_stream_, 0, static_cast<std::size_t>(rows * width) * sizeof(float));
  layer_norm_backward(d_stream_, dw(final_gain), dw(final_bias), d_narrow_, input_of(model_.layers), w(final_gain),
                      a(final_mean), a(final_scale), rows, width);
  for (int layer = model_.layers; layer-- > 0;) backward_layer(layer);
  embedding_backward(dw(token_table), dw(position_table), d_stream_, batch.tokens.data(), batch_.batch, batch_.context,
                     width);
}

void plain_trainer::backward_layer(int l)
{
  const int width = model_.width;
  const int rows = batch_.rows();
  matmul_backward_weight(dw(contract_weight, l), dw(contract_bias, l), d_stream_, a(activated, l), rows, 4 * width,
                         width);
  matmul_backward_input(d_wide_, d_stream_, w(contract_weight, l), rows, 4 * width, width);
  gelu_backward(d_wide_, a(hidden, l), rows * 4 * width);
  matmul_backward_weight(dw(expand_weight, l), dw(expand_bias, l), d_wide_, a(norm2, l), rows, width, 4 * width);
  matmul_backward_input(d_narrow_, d_wide_, w(expand_weight, l), rows, width, 4 * width);
  layer_norm_backward(d_stream_, dw(norm2_gain, l), dw(norm2_bias, l), d_narrow_, a(middle, l), w(norm2_gain, l),
                      a(norm2_mean, l), a(norm2_scale, l), rows, width);
  matmul_backward_weight(dw(projection_weight, l), dw(projection_bias, l), d_stream_, a(attended, l), rows, width,
                         width);
  matmul_backward_input(d_narrow_, d_stream_, w(projection_weight, l), rows, width, width);
  attention_backward(d_wide_, d_row_, d_narrow_, a(attention, l), a(qkv, l), batch_.batch, batch_.context, model_.heads,
                     width);
  matmul_backward_weight(dw(qkv_weight, l), dw(qkv_bias, l), d_wide_, a(norm1, l), rows, width, 3 * width);
  matmul_backward_input(d_narrow_, d_wide_, w(qkv_weight, l), rows, width, 3 * width);
  layer_norm_backward(d_stream_, dw(norm1_gain, l), dw(norm1_bias, l), d_narrow_, input_of(l), w(norm1_gain, l),
                      a(norm1_mean, l), a(norm1_scale, l), rows, width);
}

void plain_trainer::update()
{
  ++updates_;
  for (int kind = 0; kind < weight_kinds; ++kind) {
    const auto which = static_cast<weight_kind>(kind);
    const tensor_shape shape = shape_of(which, model_);
    const float decay = decays(which, model_) ? how_.weight_decay : 0.0F;
    adamw_update(weights_[kind], gradients_[kind], momenta_[kind], variances_[kind], shape.layers * shape.size(),
                 adamw_prepare(how_.learning_rate, decay, updates_));
  }
}

std::string plain_trainer::generate(const std::string& prompt, int count)
{
  std::string text = prompt;
  std::vector<unsigned char> window(static_cast<std::size_t>(batch_.context));
  for (int index = 0; index < count; ++index) {
    const int last = place_window(window, text);
    forward(window.data(), 1);
    head_forward(a(logits), a(final_norm), w(token_table), batch_.context, model_.width);
    const float coin = random_uniform(how_.seed, 2000, static_cast<std::uint64_t>(index));
    text.push_back(static_cast<char>(sample(a(logits) + last * vocabulary, how_.temperature, coin)));
  }
  return text;
}

std::vector<float> plain_trainer::weights() const
{
  std::vector<float> all;
  for (int kind = 0; kind < weight_kinds; ++kind) {
    const tensor_shape shape = shape_of(static_cast<weight_kind>(kind), model_);
    all.insert(all.end(), weights_[kind], weights_[kind] + shape.layers * shape.size());
  }
  return all;
}

}  // namespace plain_loops
