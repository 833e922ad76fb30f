// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "packs.hpp"

#include <cstdint>

namespace gpt::cuda {

/// A matrix in row-major order, or a batch of them: `stride` numbers from row to row, `step` from one matrix to the
/// next.
struct operand {
  std::uint32_t stride = 0;
  std::uint64_t step = 0;
  bool is_transposed = false;  ///< stored with its rows as columns

  friend constexpr bool operator==(const operand&, const operand&) = default;
};

/// The shape of a product: everything that the choice of an algorithm depends on, so that each shape has one algorithm.
struct product_shape {
  std::uint32_t rows = 0, columns = 0, inner = 0;
  operand left, right;  ///< bf16
  operand out;          ///< bf16, or float32 where wide
  bool is_wide = false;
  bool has_bias = false;
  std::uint32_t batch = 1;

  friend constexpr bool operator==(const product_shape&, const product_shape&) = default;
};

/// out (rows x columns) = scale * left (rows x inner) * right (inner x columns) + bias + beta * added
///
/// Sums are float32, and the result is rounded once. `added` has the layout of `out`, and may be `out`; with beta 0 it
/// is not read. All addresses, strides and steps are multiples of 16 bytes.
struct product {
  product_shape shape;
  const bf16* left = nullptr;
  const bf16* right = nullptr;
  void* out = nullptr;
  const bf16* bias = nullptr;   ///< [columns]
  const void* added = nullptr;  ///< of the type of out; null: `out`
  float scale = 1.0F;
  float beta = 0.0F;
};

/// y = x * weight: x [rows, inputs], weight [inputs, outputs]
[[nodiscard]] constexpr product_shape plain_product(std::uint32_t rows, std::uint32_t inputs, std::uint32_t outputs)
{
  return {.rows = rows, .columns = outputs, .inner = inputs, .left = {inputs}, .right = {outputs}, .out = {outputs}};
}
/// dx = dy * weight^T: the backward pass of plain_product; also the logits of a table of tokens.
[[nodiscard]] constexpr product_shape input_product(std::uint32_t rows, std::uint32_t inputs, std::uint32_t outputs)
{
  return {.rows = rows,
          .columns = inputs,
          .inner = outputs,
          .left = {outputs},
          .right = {.stride = outputs, .is_transposed = true},
          .out = {inputs}};
}
/// d_weight = x^T * dy: x [rows, inputs], dy [rows, outputs]
[[nodiscard]] constexpr product_shape weight_product(std::uint32_t rows, std::uint32_t inputs, std::uint32_t outputs)
{
  return {.rows = inputs,
          .columns = outputs,
          .inner = rows,
          .left = {.stride = inputs, .is_transposed = true},
          .right = {outputs},
          .out = {outputs}};
}

}  // namespace gpt::cuda
