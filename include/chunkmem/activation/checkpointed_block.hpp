// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/block_run.hpp>
#include <chunkmem/activation/saved_tensor.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/tensor/role.hpp>
#include <chunkmem/tensor/shape.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

namespace activation {

/// A block of a `checkpointed` network: its tensors, its two callbacks, and what is known of their times.
///
///     auto& layer = network.add("layer 0");
///     const tensor<float> hidden = layer.template saves<float>({rows, 4 * width});
///     const tensor<float> out = layer.template outputs<float>({rows, width});
///     layer.forward = [&, hidden, out](auto& run) { ... };
///     layer.backward = [&, hidden](auto& run) { ... };
template <class Manager>
class checkpointed_block {
 public:
  using run_type = block_run<Manager>;

  std::function<void(run_type&)> forward;
  std::function<void(run_type&)> backward;
  bool reads_input = false;    ///< the backward callback reads the block's input
  bytes gradient{};            ///< of the output, as the trainer keeps it between two backward callbacks
  bytes working{};             ///< leases of a callback, at most
  double forward_seconds = 0;  ///< 0: measured in the first step, as the other one
  double backward_seconds = 0;

  checkpointed_block(Manager& owner, std::string_view name) : manager_{owner}, name_{name} {}
  checkpointed_block(const checkpointed_block&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Declares a tensor that the forward callback writes and the backward callback reads.
  /// @throws usage_error   the manager is sealed
  template <element Element>
  tensor<Element> saves(const shape& extents)
  {
    return saves(manager_.template add<Element>(extents, role::activation));
  }
  /// The same for a tensor that the trainer declared, with role::activation.
  template <element Element>
  tensor<Element> saves(tensor<Element> declared)
  {
    tensors_.inner.push_back(make_saved_tensor(manager_, declared, name_ + " saved ", tensors_.inner.size()));
    return declared;
  }
  /// Declares the output: the next block's input. A block may have several.
  template <element Element>
  tensor<Element> outputs(const shape& extents)
  {
    return outputs(manager_.template add<Element>(extents, role::activation));
  }
  template <element Element>
  tensor<Element> outputs(tensor<Element> declared)
  {
    tensors_.outputs.push_back(make_saved_tensor(manager_, declared, name_ + " output ", tensors_.outputs.size()));
    return declared;
  }

  [[nodiscard]] block_tensors<Manager>& tensors() noexcept { return tensors_; }
  [[nodiscard]] const block_tensors<Manager>& tensors() const noexcept { return tensors_; }

 private:
  Manager& manager_;
  std::string name_;
  block_tensors<Manager> tensors_;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
