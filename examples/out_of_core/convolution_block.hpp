// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "block_tensors.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace out_of_core {

/// y = relu(convolution(x)). Where the output has half the side, the convolution reads the means of 2x2 positions.
class convolution_block {
 public:
  convolution_block(const block_tensors& tensors, tensor weight) : t_{tensors}, weight_{weight} {}

  /// The workspace of a backward run: patches, the input as the convolution reads it, the slope before the relu.
  [[nodiscard]] static constexpr index workspace_numbers(const block_shape& shape, index batch) noexcept
  {
    return pictures_at_once(batch) * (shape.read().patch_numbers() + shape.read().numbers() + shape.out.numbers());
  }

  void forward(block_run& run) const
  {
    const auto x = run.input(t_.input);
    const auto y = run.save(t_.output);
    const auto w = t_.m.acquire(weight_, chunkmem::access::read);
    const buffers work{t_};
    for_pictures(t_.m, t_.batch, [&](index first, index count) {
      compute(x.data() + first * t_.shape.in.numbers(), w.data(), work, y.data() + first * t_.shape.out.numbers(),
              count);
    });
  }

  void backward(block_run& run) const
  {
    take_slope(run);
    t_.m.drop(t_.slope);
  }

  /// The forward run of a few pictures, outside of training.
  void evaluate(const float* x, float* y, index count) const
  {
    const auto w = t_.m.acquire(weight_, chunkmem::access::read);
    compute(x, w.data(), buffers{t_}, y, count);
  }

 private:
  struct buffers {
    explicit buffers(const block_tensors& t)
        : patches{t.m, pictures_at_once(t.batch) * t.shape.read().patch_numbers()},
          small{t.m, pictures_at_once(t.batch) * t.shape.read().numbers()}
    {
    }
    workspace patches;
    workspace small;  ///< the input as the convolution reads it, or its slope
  };

  [[nodiscard]] bool halves() const noexcept { return t_.shape.in.side != t_.shape.out.side; }

  void make_patches(const float* x, const buffers& work, index count) const
  {
    if (halves()) kernels::halve(x, work.small.data(), t_.shape.in, count);
    kernels::patches_of(halves() ? work.small.data() : x, work.patches.data(), t_.shape.read(), count);
  }
  void compute(const float* x, const float* w, const buffers& work, float* y, index count) const
  {
    make_patches(x, work, count);
    kernels::multiply(work.patches.data(), w, y, count * t_.shape.out.positions(), t_.shape.read().patch(),
                      t_.shape.out.channels);
    kernels::relu(y, count * t_.shape.out.numbers());
  }

  /// Computes the gradient of the weight and the slope of the input.
  void take_slope(block_run& run) const
  {
    const auto x = run.input(t_.input);
    const auto y = run.restore(t_.output);
    const auto slope = t_.m.acquire(t_.slope, chunkmem::access::read);
    const auto w = t_.m.acquire(weight_, chunkmem::access::read);
    std::optional<decltype(t_.m.acquire(t_.slope, chunkmem::access::write))> slope_of_input;
    if (!t_.is_first) slope_of_input.emplace(t_.m.acquire(t_.slope_of_input, chunkmem::access::write));
    auto gradient = t_.m.gradient(weight_);
    const buffers work{t_};
    const workspace before_relu{t_.m, pictures_at_once(t_.batch) * t_.shape.out.numbers()};
    const index patch = t_.shape.read().patch();
    const index channels = t_.shape.out.channels;
    for_pictures(t_.m, t_.batch, [&](index first, index count) {
      const index at = first * t_.shape.out.numbers();
      const index rows = count * t_.shape.out.positions();
      float* const d = before_relu.data();
      std::copy_n(slope.data() + at, count * t_.shape.out.numbers(), d);
      kernels::relu_backward(y.data() + at, d, count * t_.shape.out.numbers());
      make_patches(x.data() + first * t_.shape.in.numbers(), work, count);
      kernels::weight_gradient(work.patches.data(), d, first == 0 ? gradient.beta() : 1.0F, gradient.data(), rows,
                               patch, channels);
      if (t_.is_first) return;
      kernels::multiply_transposed(d, w.data(), work.patches.data(), rows, patch, channels);
      leave_slope(work, slope_of_input->data() + first * t_.shape.in.numbers(), count);
    });
    t_.m.gradient_done(std::move(gradient));
  }
  /// Computes the slope of the input from that of the patches.
  void leave_slope(const buffers& work, float* slope, index count) const
  {
    float* const read = halves() ? work.small.data() : slope;
    std::fill_n(read, count * t_.shape.read().numbers(), 0.0F);
    kernels::add_patches(work.patches.data(), read, t_.shape.read(), count);
    if (halves()) kernels::halve_backward(read, slope, t_.shape.in, count);
  }

  block_tensors t_;
  tensor weight_;
};

}  // namespace out_of_core
