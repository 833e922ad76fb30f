// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "text.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace plain_loops {

/// The trainer before chunkmem: every kind of bytes is a block from malloc, every tensor a pointer into it.
class plain_trainer {
 public:
  plain_trainer(const model_shape& model, const training& how);
  ~plain_trainer();
  plain_trainer(const plain_trainer&) = delete;
  plain_trainer& operator=(const plain_trainer&) = delete;

  /// Forward, backward, update. @return   the mean loss before the update [nats]
  float step(const token_batch& batch);
  /// `count` bytes that follow the prompt, each by a forward pass of one sequence.
  [[nodiscard]] std::string generate(const std::string& prompt, int count);

  /// All trained numbers, kind by kind, layer by layer.
  [[nodiscard]] std::vector<float> weights() const;
  /// All bytes that this trainer allocated with malloc.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  float* take(int count);
  void take_activations(const batch_shape& batch);
  void forward(const unsigned char* tokens, int batch);
  void forward_layer(int layer, int batch);
  void backward(const token_batch& batch);
  void backward_layer(int layer);
  void update();

  float* w(weight_kind kind, int layer = 0) const { return weights_[kind] + layer * shape_of(kind, model_).size(); }
  float* dw(weight_kind kind, int layer = 0) const { return gradients_[kind] + layer * shape_of(kind, model_).size(); }
  float* a(activation_kind kind, int layer = 0) const
  {
    return activations_[kind] + layer * shape_of(kind, model_, batch_).size();
  }
  float* input_of(int layer) const { return layer == 0 ? a(embedded) : a(output, layer - 1); }

  model_shape model_;
  training how_;
  batch_shape batch_;  // empty before the first batch
  std::uint64_t updates_ = 0;
  std::size_t bytes_ = 0;
  std::vector<float*> blocks_;
  float* weights_[weight_kinds] = {};
  float* gradients_[weight_kinds] = {};
  float* momenta_[weight_kinds] = {};
  float* variances_[weight_kinds] = {};
  float* activations_[activation_kinds] = {};
  float* d_stream_ = nullptr;  // of the backward pass: the gradient of the residual stream
  float* d_narrow_ = nullptr;  // [rows, width]
  float* d_wide_ = nullptr;    // [rows, 4 width]
  float* d_row_ = nullptr;     // [context]
};

}  // namespace plain_loops
