// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace workload {

/// The operators of a convolutional network.
enum class picture_operator_kind : std::uint8_t {
  convolution,
  transposed_convolution,  ///< doubles both sides of a picture
  batch_norm,
  relu,  ///< in place
  max_pool,
  average_pool,   ///< over a whole channel
  addition,       ///< of two tensors of one shape
  concatenation,  ///< of the channels of two tensors
  linear,
};

inline constexpr std::size_t picture_operator_kind_count = 9;

[[nodiscard]] constexpr std::string_view name_of(picture_operator_kind kind) noexcept
{
  constexpr std::string_view names[picture_operator_kind_count] = {
      "convolution", "transposed_convolution", "batch_norm", "relu", "max_pool", "average_pool",
      "addition",    "concatenation",          "linear"};
  return names[static_cast<std::size_t>(kind)];
}

/// Whether an operator of this kind is a matrix product.
[[nodiscard]] constexpr bool is_product(picture_operator_kind kind) noexcept
{
  return kind == picture_operator_kind::convolution || kind == picture_operator_kind::transposed_convolution ||
         kind == picture_operator_kind::linear;
}

/// The costs of one operator for one picture of a batch. Elements, not bytes.
///
/// FLOP are those of matrix products, two for each multiplication; all other operators have 0. A product's backward
/// pass makes two gradients, each as costly as the forward pass. The first convolution makes the gradient of its
/// weights alone, since nobody wants that of the picture.
///
///     for (const picture_operator& layer : network.operators) sum += layer.saved_elements;
struct picture_operator {
  picture_operator_kind kind = picture_operator_kind::convolution;
  std::uint64_t forward_flops = 0;    ///< [FLOP]
  std::uint64_t backward_flops = 0;   ///< [FLOP] of both gradients
  std::uint64_t parameters = 0;       ///< weights and biases; for a batch norm its gain and bias
  std::uint64_t input_elements = 0;   ///< of all tensors that it reads, parameters aside
  std::uint64_t output_elements = 0;  ///< of the tensor that it makes
  /// Elements of this operator that the backward pass needs: its output. A ReLU works in place and keeps 0; a
  /// concatenation keeps 0, since both of its parts are kept already.
  std::uint64_t saved_elements = 0;
  /// Of outputs of earlier operators that wait for a later concatenation, or for its backward pass. They are saved
  /// elements of those operators, and stay until the operator that made them runs backward.
  std::uint64_t carried_elements = 0;
  bool is_carried = false;  ///< a later concatenation reads the output too
  /// The output connects this operator and all before it with all operators after it, carried tensors aside. The graph
  /// may be cut here.
  bool ends_block = false;

  [[nodiscard]] constexpr bool operator==(const picture_operator&) const noexcept = default;
};

}  // namespace workload

}  // namespace chunkmem::inline v0
