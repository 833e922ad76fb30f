// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch.hpp"

#include <functional>
#include <utility>

namespace libtorch_gpt {

/// A recomputed part of a model: autograd keeps only its input, and the backward pass computes the part again.
///
/// The gradients of the part's parameters come from a backward pass inside the outer one, through the same hooks.
/// Source: Chen et al. 2016, arXiv 1604.06174. @pre nothing in the part is random
struct recomputed : torch::autograd::Function<recomputed> {
  using body = std::function<at::Tensor(const at::Tensor&)>;
  using bracket = std::function<void(const std::function<void()>&)>;

  /// @param within   called with the work of each pass, which needs the parameters; calls the work
  [[nodiscard]] static at::Tensor run(const at::Tensor& input, body compute, bracket within)
  {
    return apply(input, c10::make_intrusive<work>(std::move(compute), std::move(within)));
  }

  struct work : torch::CustomClassHolder {
    work(body what, bracket where) : compute{std::move(what)}, within{std::move(where)} {}
    body compute;
    bracket within;
  };

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const c10::intrusive_ptr<work>& piece)
  {
    context->save_for_backward({input});
    context->saved_data["piece"] = c10::IValue::make_capsule(piece);
    at::Tensor output;
    piece->within([&] { output = piece->compute(input); });
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& slopes)
  {
    const auto capsule = context->saved_data["piece"].toCapsule();
    const work& piece = static_cast<const work&>(*capsule);
    at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    piece.within([&] {
      at::Tensor output;
      {
        const at::AutoGradMode with_graph{true};
        output = piece.compute(input);
      }
      torch::autograd::backward({output}, {slopes[0]});
    });
    return {input.grad(), at::Tensor{}};
  }
};

}  // namespace libtorch_gpt
