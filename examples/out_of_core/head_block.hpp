// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "block_tensors.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace out_of_core {

/// The labels of one step, and its loss.
struct batch_labels {
  const std::uint8_t* labels = nullptr;
  double loss = 0;  ///< mean of the batch [nats]
};

/// logits = x * weight, and the loss: the cross entropy of their softmax.
class head_block {
 public:
  /// @param labels   outlives the block
  head_block(const block_tensors& tensors, tensor weight, batch_labels& labels)
      : t_{tensors}, weight_{weight}, labels_{&labels}
  {
  }

  /// The lease of a backward run: the slope of all logits.
  [[nodiscard]] static constexpr index workspace_numbers(const block_shape& shape, index batch) noexcept
  {
    return batch * shape.out.numbers();
  }

  void forward(block_run& run) const
  {
    const auto x = run.input(t_.input);
    const auto logits = run.save(t_.output);
    const auto w = t_.m.acquire(weight_, chunkmem::access::read);
    if (!t_.m.rehearsing()) compute(x.data(), w.data(), logits.data(), t_.batch);
  }

  void backward(block_run& run) const
  {
    const auto x = run.input(t_.input);
    const auto logits = run.restore(t_.output);
    const auto w = t_.m.acquire(weight_, chunkmem::access::read);
    const auto slope = t_.m.acquire(t_.slope_of_input, chunkmem::access::write);
    auto gradient = t_.m.gradient(weight_);
    const workspace of_logits{t_.m, t_.batch * outputs()};
    if (!t_.m.rehearsing()) {
      float* const d = of_logits.data();
      const float share = 1.0F / static_cast<float>(t_.batch);
      std::copy_n(logits.data(), t_.batch * outputs(), d);
      labels_->loss =
          kernels::softmax_cross_entropy(d, labels_->labels, share, t_.batch, outputs()) * static_cast<double>(share);
      kernels::weight_gradient(x.data(), d, gradient.beta(), gradient.data(), t_.batch, inputs(), outputs());
      kernels::multiply_transposed(d, w.data(), slope.data(), t_.batch, inputs(), outputs());
    }
    t_.m.gradient_done(std::move(gradient));
  }

  /// The forward run of a few pictures, outside of training.
  void evaluate(const float* x, float* y, index count) const
  {
    const auto w = t_.m.acquire(weight_, chunkmem::access::read);
    compute(x, w.data(), y, count);
  }

 private:
  [[nodiscard]] index inputs() const noexcept { return t_.shape.in.numbers(); }
  [[nodiscard]] index outputs() const noexcept { return t_.shape.out.numbers(); }
  void compute(const float* x, const float* w, float* logits, index count) const
  {
    kernels::multiply(x, w, logits, count, inputs(), outputs());
  }

  block_tensors t_;
  tensor weight_;
  batch_labels* labels_;
};

}  // namespace out_of_core
