// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lent_bytes.hpp"

#include <chunkmem/optimizer/adam.hpp>

#include <cfloat>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace libtorch_gpt {

/// The same model without chunkmem: LibTorch owns all tensors, all the time. The reference for chunked_parameters.
///
/// Autograd accumulates into `.grad`. The update is the arithmetic of chunkmem's Adam, called on the plain memory of
/// each tensor: LibTorch's own Adam rounds differently, and not alike on every processor.
class plain_parameters {
 public:
  struct hold {
    template <class Layer>
    hold(plain_parameters&, const Layer&) noexcept
    {
    }
  };

  std::size_t add(const std::string&, at::IntArrayRef sizes, chunkmem::group_id group)
  {
    entries_.push_back({at::empty(sizes).requires_grad_(), at::zeros(sizes), at::zeros(sizes), group});
    return entries_.size() - 1;
  }
  [[nodiscard]] const at::Tensor& tensor(std::size_t which) const { return entries_.at(which).leaf; }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  template <class Write>
  void fill(std::size_t which, Write&& write)
  {
    const at::NoGradGuard without_graph;
    write(entries_.at(which).leaf.detach());
  }
  [[nodiscard]] at::Tensor values(std::size_t which) const { return tensor(which).detach().clone(); }

  template <class Layer, class Body>
  [[nodiscard]] static at::Tensor run(const Layer&, const at::Tensor& input, Body&& body)
  {
    return body(input);
  }
  template <class Layer, class Body>
  [[nodiscard]] static at::Tensor run_again(const Layer&, const at::Tensor& input, Body&& body)
  {
    return body(input);
  }
  static void backward(const at::Tensor& loss) { torch::autograd::backward({loss}, {}); }

  /// One update of all parameters that have a gradient.
  void update(chunkmem::optimizer::adam& kernel, float learning_rate)
  {
    const at::NoGradGuard without_graph;
    ++kernel.progress.number;
    for (entry& it : entries_) {
      at::Tensor& gradient = it.leaf.mutable_grad();
      if (!gradient.defined()) continue;
      gradient = gradient.contiguous();
      const std::span slopes = floats(gradient);
      for (float& slope : slopes) slope = std::fabs(slope) < FLT_MIN ? std::copysign(0.0F, slope) : slope;
      kernel.update(
          {.parameter = floats(it.leaf), .gradient = slopes, .lists = {floats(it.momentum), floats(it.variance)}},
          {.learning_rate = learning_rate, .number = kernel.progress.number, .group = it.group});
      gradient = at::Tensor{};
    }
  }

 private:
  struct entry {
    at::Tensor leaf, momentum, variance;
    chunkmem::group_id group;
  };
  [[nodiscard]] static std::span<float> floats(const at::Tensor& of)
  {
    return {of.data_ptr<float>(), static_cast<std::size_t>(of.numel())};
  }

  std::vector<entry> entries_;
};

}  // namespace libtorch_gpt
