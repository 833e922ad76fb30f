// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "product.hpp"

#include <cmath>
#include <cstdint>

namespace gpt::cuda {

/// A product by loops, one number at a time: the reference for other products, and the product where there is no GPU.
struct product_kernel {
  product it;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept
  {
    return std::uint64_t{it.shape.batch} * it.shape.rows * it.shape.columns;
  }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const
  {
    const product_shape& shape = it.shape;
    const std::uint64_t column = index % shape.columns;
    const std::uint64_t row = index / shape.columns % shape.rows;
    const std::uint64_t which = index / shape.columns / shape.rows;
    const bf16* const left = it.left + which * shape.left.step + row * along(shape.left, false);
    const bf16* const right = it.right + which * shape.right.step + column * along(shape.right, true);
    float sum = 0.0F;
    for (std::uint64_t position = 0; position < shape.inner; ++position)
      sum = fmaf(chunkmem::to_float(left[position * along(shape.left, true)]),
                 chunkmem::to_float(right[position * along(shape.right, false)]), sum);
    sum *= it.scale;
    if (shape.has_bias) sum += chunkmem::to_float(it.bias[column]);
    const std::uint64_t to = which * shape.out.step + row * shape.out.stride + column;
    const void* const added = it.added != nullptr ? it.added : it.out;
    if (shape.is_wide) {
      if (it.beta != 0.0F) sum += it.beta * static_cast<const float*>(added)[to];
      static_cast<float*>(it.out)[to] = sum;
    } else {
      if (it.beta != 0.0F) sum += it.beta * chunkmem::to_float(static_cast<const bf16*>(added)[to]);
      static_cast<bf16*>(it.out)[to] = chunkmem::round_to<bf16>(sum);
    }
  }

 private:
  /// Numbers from row to row of an operand, or from column to column.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE static std::uint64_t along(const operand& which, bool columns) noexcept
  {
    return columns == which.is_transposed ? which.stride : 1;
  }
};

}  // namespace gpt::cuda
