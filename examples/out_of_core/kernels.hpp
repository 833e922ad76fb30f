// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/philox.hpp>

#include <cstddef>
#include <cstdint>

/// The arithmetic of a convolutional network on plain arrays. No kernel knows where the bytes come from.
///
/// The planes of a picture are stored position by position, with all channels of a position together. Matrices are
/// row-major.
/// Gradients of weights obey `result = beta * old + new` with beta 0 or 1, and beta 0 never reads the old bytes.
///
/// One thread computes in a fixed order, so one build gives the same bits for the same input each time.
namespace out_of_core::kernels {

using index = std::ptrdiff_t;

/// The planes of one picture: `side` times `side` positions with `channels` numbers each.
struct planes {
  index side{};
  index channels{};

  [[nodiscard]] constexpr index positions() const noexcept { return side * side; }
  [[nodiscard]] constexpr index numbers() const noexcept { return positions() * channels; }
  /// Numbers in the patch of one position: nine neighbours and a 1. The weight of the 1 is the bias.
  [[nodiscard]] constexpr index patch() const noexcept { return 9 * channels + 1; }
  [[nodiscard]] constexpr index patch_numbers() const noexcept { return positions() * patch(); }
};

/// The matrix whose product with a weight is a 3x3 convolution (im2col): one row for each position, which is a patch of
/// 3x3 positions and a 1. Positions outside of the picture are 0.
void patches_of(const float* x, float* patches, const planes& shape, index pictures);

/// The transposed operation: adds each number of a patch to the position that it was read from.
void add_patches(const float* patches, float* x, const planes& shape, index pictures);

/// out[rows, columns] = left[rows, inner] * right[inner, columns]
void multiply(const float* left, const float* right, float* out, index rows, index inner, index columns);

/// out[rows, inner] = left[rows, columns] * right[inner, columns]^T
void multiply_transposed(const float* left, const float* right, float* out, index rows, index inner, index columns);

/// gradient[inputs, outputs] = beta * gradient + x[rows, inputs]^T * slope[rows, outputs]
void weight_gradient(const float* x, const float* slope, float beta, float* gradient, index rows, index inputs,
                     index outputs);

/// y += x
void add(const float* x, float* y, index numbers);

/// Negative numbers become 0.
void relu(float* y, index numbers);

/// slope = 0 where y is 0. @param y   the output of `relu`
void relu_backward(const float* y, float* slope, index numbers);

/// relu, then dropout: an eighth of the numbers become 0 and the others are multiplied by 8/7.
/// @param first   index of the first element in its tensor: random bits depend on the key and on the index
void relu_dropout(float* y, index numbers, const chunkmem::rounding_key& key, index first);

/// @param y   the output of `relu_dropout`: 0 blocks the slope
void relu_dropout_backward(const float* y, float* slope, index numbers);

/// The mean of each 2x2 positions. @param shape   of x
void halve(const float* x, float* out, const planes& shape, index pictures);

/// slope of x = a quarter of the slope of its mean. @param shape   of x
void halve_backward(const float* slope_of_out, float* slope, const planes& shape, index pictures);

/// Turns logits into `scale` times the gradient of the cross entropy of their softmax.
/// @return   the cross entropy [nats], summed over rows
double softmax_cross_entropy(float* logits, const std::uint8_t* labels, float scale, index rows, index classes);

/// The number of rows whose largest number is the one of the label.
[[nodiscard]] index hits(const float* logits, const std::uint8_t* labels, index rows, index classes);

}  // namespace out_of_core::kernels
