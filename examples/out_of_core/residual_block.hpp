// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "block_tensors.hpp"

#include <algorithm>
#include <utility>

namespace out_of_core {

/// y = x + hidden * project, where hidden = dropout(relu(convolution(x))).
class residual_block {
 public:
  residual_block(const block_tensors& tensors, tensor expand, tensor project)
      : t_{tensors}, expand_{expand}, project_{project}
  {
  }

  /// The workspace of a backward run: patches, and the slope of `hidden`.
  [[nodiscard]] static constexpr index workspace_numbers(const block_shape& shape, index batch) noexcept
  {
    return pictures_at_once(batch) * (shape.in.patch_numbers() + shape.hidden_numbers());
  }

  void forward(block_run& run) const
  {
    const auto x = run.input(t_.input);
    const auto h = run.save(t_.hidden);
    const auto y = run.save(t_.output);
    const auto expand = t_.m.acquire(expand_, chunkmem::access::read);
    const auto project = t_.m.acquire(project_, chunkmem::access::read);
    const workspace patches{t_.m, pictures_at_once(t_.batch) * t_.shape.in.patch_numbers()};
    for_pictures(t_.m, t_.batch, [&](index first, index count) {
      const float* const from = x.data() + first * t_.shape.in.numbers();
      float* const hidden = h.data() + first * t_.shape.hidden_numbers();
      convolve(from, expand.data(), patches.data(), hidden, count);
      kernels::relu_dropout(hidden, count * t_.shape.hidden_numbers(), run.random(), first * t_.shape.hidden_numbers());
      project_and_add(from, hidden, project.data(), y.data() + first * t_.shape.in.numbers(), count);
    });
  }

  /// Overwrites the slope of the output with that of the input.
  void backward(block_run& run) const
  {
    const auto x = run.input(t_.input);
    const auto h = run.restore(t_.hidden);
    const auto slope = t_.m.acquire(t_.slope, chunkmem::access::read_write);
    const auto expand = t_.m.acquire(expand_, chunkmem::access::read);
    const auto project = t_.m.acquire(project_, chunkmem::access::read);
    auto of_expand = t_.m.gradient(expand_);
    auto of_project = t_.m.gradient(project_);
    const workspace patches{t_.m, pictures_at_once(t_.batch) * t_.shape.in.patch_numbers()};
    const workspace of_hidden{t_.m, pictures_at_once(t_.batch) * t_.shape.hidden_numbers()};
    const index patch = t_.shape.in.patch();
    const index channels = t_.shape.in.channels;
    for_pictures(t_.m, t_.batch, [&](index first, index count) {
      const index rows = count * t_.shape.in.positions();
      const float* const hidden = h.data() + first * t_.shape.hidden_numbers();
      float* const d = slope.data() + first * t_.shape.in.numbers();
      kernels::weight_gradient(hidden, d, first == 0 ? of_project.beta() : 1.0F, of_project.data(), rows, t_.shape.wide,
                               channels);
      kernels::multiply_transposed(d, project.data(), of_hidden.data(), rows, t_.shape.wide, channels);
      kernels::relu_dropout_backward(hidden, of_hidden.data(), count * t_.shape.hidden_numbers());
      kernels::patches_of(x.data() + first * t_.shape.in.numbers(), patches.data(), t_.shape.in, count);
      kernels::weight_gradient(patches.data(), of_hidden.data(), first == 0 ? of_expand.beta() : 1.0F, of_expand.data(),
                               rows, patch, t_.shape.wide);
      kernels::multiply_transposed(of_hidden.data(), expand.data(), patches.data(), rows, patch, t_.shape.wide);
      kernels::add_patches(patches.data(), d, t_.shape.in, count);
    });
    t_.m.gradient_done(std::move(of_expand));
    t_.m.gradient_done(std::move(of_project));
  }

  /// The forward run of a few pictures, outside of training: without dropout.
  void evaluate(const float* x, float* y, index count) const
  {
    const auto expand = t_.m.acquire(expand_, chunkmem::access::read);
    const auto project = t_.m.acquire(project_, chunkmem::access::read);
    const workspace patches{t_.m, pictures_at_once(t_.batch) * t_.shape.in.patch_numbers()};
    const workspace hidden{t_.m, pictures_at_once(t_.batch) * t_.shape.hidden_numbers()};
    convolve(x, expand.data(), patches.data(), hidden.data(), count);
    kernels::relu(hidden.data(), count * t_.shape.hidden_numbers());
    project_and_add(x, hidden.data(), project.data(), y, count);
  }

 private:
  void convolve(const float* x, const float* expand, float* patches, float* hidden, index count) const
  {
    kernels::patches_of(x, patches, t_.shape.in, count);
    kernels::multiply(patches, expand, hidden, count * t_.shape.in.positions(), t_.shape.in.patch(), t_.shape.wide);
  }
  void project_and_add(const float* x, const float* hidden, const float* project, float* y, index count) const
  {
    kernels::multiply(hidden, project, y, count * t_.shape.in.positions(), t_.shape.wide, t_.shape.in.channels);
    kernels::add(x, y, count * t_.shape.in.numbers());
  }

  block_tensors t_;
  tensor expand_;
  tensor project_;
};

}  // namespace out_of_core
