// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch.hpp"

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace libtorch_gpt {

/// A tensor or none, as the bias of `at::linear`: a type of LibTorch's own up to 2.1, std::optional since then.
using optional_tensor = decltype(std::declval<const c10::IValue&>().toOptional<at::Tensor>());

/// Keeps some rows of a linear layer's input from the forward to the backward pass.
struct row_keeper {
  /// The rows that one forward pass kept. They are dropped with this object, whether the backward pass used them or
  /// not.
  struct kept : torch::CustomClassHolder {
    /// @param slope      gradient of the output, [rows, outputs], dense
    /// @param of_input   called first: the products that read the gradient and no row
    [[nodiscard]] virtual at::Tensor weight_gradient(const at::Tensor& slope,
                                                     const std::function<void()>& of_input) = 0;
  };
  /// @param rows   [rows, width], dense. All of them may be freed afterwards
  [[nodiscard]] virtual c10::intrusive_ptr<kept> keep(const at::Tensor& rows) = 0;
  /// Drops the kept rows while their graph still exists. The graph throws where it is used.
  virtual void forget() {}
  virtual ~row_keeper() = default;
};

/// A linear layer with sampled rows: autograd saves only the weight, and a row_keeper saves some rows of the input.
///
///     at::Tensor y = sampled_linear::run(x, weight, bias, &keeper);   // in place of at::linear(x, weight, bias)
///
/// The output and the gradients of input and bias are those of `at::linear`. The keeper computes the weight's gradient
/// from its rows. Where no gradient of the weight is wanted, nothing is kept.
struct sampled_linear : torch::autograd::Function<sampled_linear> {
  /// @param keeper   of this layer alone; null for `at::linear`
  /// @throws c10::Error   not float on the CPU, or a weight that is not [outputs, width]; and the exceptions of the
  ///   keeper
  [[nodiscard]] static at::Tensor run(const at::Tensor& input, const at::Tensor& weight, const optional_tensor& bias,
                                      row_keeper* keeper)
  {
    if (keeper == nullptr || !at::GradMode::is_enabled() || !weight.requires_grad())
      return at::linear(input, weight, bias);
    TORCH_CHECK(input.scalar_type() == at::kFloat && input.device().is_cpu(),
                "a sampled linear layer reads float on the CPU, and this input is ", input.toString(), " on ",
                input.device(), " (use at::linear for it)");
    TORCH_CHECK(weight.dim() == 2 && input.dim() >= 1 && weight.size(1) == input.size(-1),
                "a sampled linear layer has a weight of [outputs, width], and this one is ", weight.sizes(),
                " for an input of ", input.sizes(), " (sample the inputs of linear layers alone)");
    return apply(input, weight, bias, keeper);
  }

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const optional_tensor& bias, row_keeper* keeper)
  {
    context->save_for_backward({weight});
    context->saved_data["has bias"] = bias.has_value() && bias->defined();
    at::Tensor output = at::linear(input, weight, bias);
    const at::Tensor rows = input.detach().reshape({-1, input.size(-1)}).contiguous();
    context->saved_data["rows"] = c10::IValue::make_capsule(keeper->keep(rows));
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& slopes)
  {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "a sampled linear layer has no second derivative (leave create_graph out, or use at::linear)");
    const at::Tensor weight = context->get_saved_variables()[0];
    const at::Tensor slope = slopes[0].reshape({-1, slopes[0].size(-1)});
    const bool has_bias = context->saved_data["has bias"].toBool();
    at::Tensor of_input, of_bias;
    const auto exact = [&] {
      if (context->needs_input_grad(0)) {
        std::vector<std::int64_t> sizes = slopes[0].sizes().vec();
        sizes.back() = weight.size(1);
        of_input = slope.mm(weight).view(sizes);
      }
      if (has_bias && context->needs_input_grad(2)) of_bias = slope.sum(0);
    };
    const auto rows = context->saved_data["rows"].toCapsule();
    const at::Tensor of_weight = static_cast<row_keeper::kept&>(*rows).weight_gradient(slope.contiguous(), exact);
    return {of_input, of_weight, of_bias, at::Tensor{}};
  }
};

}  // namespace libtorch_gpt
