// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels.hpp"
#include "pictures.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace out_of_core {

using kernels::index;
using kernels::planes;

enum class block_kind : std::uint8_t {
  convolution,  ///< relu(convolution(x)), where the sides of x may be halved before
  residual,     ///< x + project(dropout(relu(convolution(x)))), wide inside
  head,         ///< logits = x * weight
};

/// The kind and the sizes of a block, before the block has tensors.
struct block_shape {
  block_kind kind = block_kind::convolution;
  planes in{};
  planes out{};
  index wide = 0;  ///< channels within a residual block

  /// The input as the convolution reads it: halved where the output is smaller.
  [[nodiscard]] constexpr planes read() const noexcept { return {out.side, in.channels}; }
  /// Numbers that a residual block saves in addition to its output, for one picture.
  [[nodiscard]] constexpr index hidden_numbers() const noexcept { return out.positions() * wide; }
  /// Floating-point operations of a forward run, for one picture.
  [[nodiscard]] constexpr double operations() const noexcept
  {
    if (kind == block_kind::head) return 2.0 * static_cast<double>(in.numbers() * out.numbers());
    const index products =
        kind == block_kind::residual ? (in.patch() + out.channels) * wide : in.patch() * out.channels;
    return 2.0 * static_cast<double>(out.positions() * products);
  }
};

/// The network: a stem, nine residual blocks on planes of 8x8, two on planes of 4x4, and the logits.
///
/// A residual block is narrow at its ends and wide inside, as in EfficientNetV2 ("Fused-MBConv", Tan and Le 2021,
/// arXiv 2104.00298). So the input of a block, which a second forward run starts from, is a ninth of the numbers that
/// the block saves. With nine such blocks, a device that holds a quarter of all activations can compute each block
/// again.
[[nodiscard]] constexpr std::array<block_shape, 14> shapes_of_network() noexcept
{
  constexpr planes picture{static_cast<index>(picture_side), 1};
  constexpr planes fine{8, 8};
  constexpr planes coarse{4, 16};
  std::array<block_shape, 14> shapes{};
  shapes[0] = {block_kind::convolution, picture, fine, 0};
  for (std::size_t each = 1; each < 10; ++each) shapes[each] = {block_kind::residual, fine, fine, 64};
  shapes[10] = {block_kind::convolution, fine, coarse, 0};
  for (std::size_t each = 11; each < 13; ++each) shapes[each] = {block_kind::residual, coarse, coarse, 64};
  shapes[13] = {block_kind::head, coarse, {1, static_cast<index>(classes)}, 0};
  return shapes;
}

}  // namespace out_of_core
