// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/workload/picture_operator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace chunkmem::inline v0 {

namespace workload {

/// A convolutional network: its operators in the order of the forward pass. All sums are for one picture of a batch.
///
/// The order is one in which each operator follows all operators that it reads from. Cost of each sum: O(operators).
///
///     const picture_network network = resnet(50);
///     const std::uint64_t kept = network.saved_elements() * pictures;   // elements when the forward pass ends
struct picture_network {
  std::string name;
  std::vector<picture_operator> operators;

  [[nodiscard]] bool operator==(const picture_network&) const noexcept = default;

  /// Weights and biases of all operators. @throws size_overflow
  [[nodiscard]] std::uint64_t parameters() const { return total(&picture_operator::parameters); }
  /// [FLOP] of all matrix products. @throws size_overflow
  [[nodiscard]] std::uint64_t forward_flops() const { return total(&picture_operator::forward_flops); }
  /// [FLOP] of all gradients. @throws size_overflow
  [[nodiscard]] std::uint64_t backward_flops() const { return total(&picture_operator::backward_flops); }
  /// Elements that all operators make, those that a ReLU overwrites included. @throws size_overflow
  [[nodiscard]] std::uint64_t output_elements() const { return total(&picture_operator::output_elements); }
  /// Elements that the backward pass keeps of all operators; the picture is not among them. @throws size_overflow
  [[nodiscard]] std::uint64_t saved_elements() const { return total(&picture_operator::saved_elements); }

  /// The most blocks that the network can be cut into. The last operator ends a block.
  [[nodiscard]] std::size_t blocks() const noexcept
  {
    return static_cast<std::size_t>(std::count_if(operators.begin(), operators.end(),
                                                  [](const picture_operator& layer) { return layer.ends_block; }));
  }

 private:
  [[nodiscard]] std::uint64_t total(std::uint64_t picture_operator::*member) const
  {
    checked sum;
    for (const picture_operator& layer : operators) sum += layer.*member;
    return sum.value();
  }
};

}  // namespace workload

}  // namespace chunkmem::inline v0
