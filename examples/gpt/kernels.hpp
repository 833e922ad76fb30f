// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// The arithmetic of a transformer on plain row-major arrays: no function here knows where the bytes come from.
///
/// Every array starts at a multiple of 16 bytes and holds what the comment says; arrays do not overlap. Gradients of
/// weights obey
/// `result = beta * old + new` with beta 0 or 1, and beta 0 never reads the old bytes.
///
/// Numerics: one thread and a fixed order, so the same build gives the same bits for the same input. Eigen and the
/// compiler choose instructions by flags (contraction of `a * b + c` among them), so bits are compared within one
/// build only; the library's own kernels promise more (see its docs/numerics.md).
namespace gpt::kernels {

using index = std::ptrdiff_t;

/// y = (x - mean) * rstd * gain + bias for each row. `norm` is {gain, bias}, [2, width].
/// @param statistics   written: {mean, rstd} for each row, [rows, 2]
void layer_norm_forward(const float* x, const float* norm, float* statistics, float* y, index rows, index width);

/// The same y again from the saved statistics: cheaper to recompute than to keep.
void layer_norm_again(const float* x, const float* norm, const float* statistics, float* y, index rows, index width);

/// dx += the gradient with respect to x.
void layer_norm_backward_input(const float* dy, const float* x, const float* norm, const float* statistics, float* dx,
                               index rows, index width);

/// d_norm = beta * d_norm + {d gain, d bias}, [2, width].
void layer_norm_backward_norm(const float* dy, const float* x, const float* statistics, float beta, float* d_norm,
                              index rows, index width);

/// y[rows, outputs] = x[rows, inputs] * weight[inputs, outputs] + bias[outputs]
void linear_forward(const float* x, const float* weight, const float* bias, float* y, index rows, index inputs,
                    index outputs);

/// y[rows, outputs] += x[rows, inputs] * weight[inputs, outputs]
void add_product(const float* x, const float* weight, float* y, index rows, index inputs, index outputs);

/// dx[rows, inputs] += dy[rows, outputs] * weight[inputs, outputs]^T
void add_product_transposed(const float* dy, const float* weight, float* dx, index rows, index inputs, index outputs);

/// dx[rows, inputs] = dy[rows, outputs] * weight[inputs, outputs]^T. With weight = a table of embeddings and dy = the
/// activations this is also the tied head.
void multiply_transposed(const float* dy, const float* weight, float* dx, index rows, index inputs, index outputs);

/// out[rows, outputs] = x[rows, inputs] * weight[inputs, outputs]
void multiply(const float* x, const float* weight, float* out, index rows, index inputs, index outputs);

/// d_weight[inputs, outputs] = beta * d_weight + x[rows, inputs]^T * dy[rows, outputs]
void weight_gradient(const float* x, const float* dy, float beta, float* d_weight, index rows, index inputs,
                     index outputs);

/// d_bias[outputs] = beta * d_bias + the sum of the rows of dy[rows, outputs]
void bias_gradient(const float* dy, float beta, float* d_bias, index rows, index outputs);

/// y += x
void add(const float* x, float* y, index elements);

/// y = x
void copy(const float* x, float* y, index elements);

/// y = 0
void clear(float* y, index elements);

/// y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) (Hendrycks and Gimpel 2016)
void gelu_forward(const float* x, float* y, index elements);

/// x: on entry the input of GELU, on return its gradient.
void gelu_backward(const float* dy, float* x, index elements);

/// x = max(x, 0). NaN stays NaN.
void relu(float* x, index elements);

/// x: on entry the output of ReLU, on return the gradient of its input.
void relu_backward(const float* dy, float* x, index elements);

/// bits[i / 8], bit i % 8: whether x[i] is above 0, or NaN. @pre elements is a multiple of 8
void positive_bits(const float* x, std::uint8_t* bits, index elements);

/// dy[i] = 0 where bit i is 0.
void clear_others(const std::uint8_t* bits, float* dy, index elements);

/// Extents of one row of a batch in attention.
struct attention_extents {
  index first = 0;  ///< position of the first query; the keys start at 0
  index count = 0;  ///< queries
  index heads = 0;
  index width = 0;  ///< of all heads together

  [[nodiscard]] constexpr index keys() const noexcept { return first + count; }
  [[nodiscard]] constexpr index head_width() const noexcept { return width / heads; }
};

/// Causal softmax attention. `qkv` is [keys, 3 * width], `out` is [count, width], `scores` [count, keys] is scratch.
void attention_forward(const float* qkv, float* scores, float* out, const attention_extents& extents);

/// The gradient with respect to qkv; the probabilities are recomputed. @pre extents.first == 0
/// @param scores, d_scores   scratch, [count, count] each
void attention_backward(const float* qkv, const float* d_out, float* scores, float* d_scores, float* d_qkv,
                        const attention_extents& extents);

/// x[i] = token_table[tokens[i]] + position_table[first + i]
void embedding_forward(const unsigned char* tokens, const float* token_table, const float* position_table, float* x,
                       index first, index count, index width);

/// d_table = beta * d_table + dx scattered to the rows of the tokens. `d_table` is [vocabulary, width].
void embedding_backward_tokens(const unsigned char* tokens, const float* dx, float beta, float* d_table, index count,
                               index vocabulary, index width);

/// d_table = beta * d_table + dx in its first `count` rows. `d_table` is [context, width].
void embedding_backward_positions(const float* dx, float beta, float* d_table, index count, index context, index width);

/// The sum over the rows of -log softmax(logits)[target]; logits become their gradient times `scale`.
[[nodiscard]] double softmax_cross_entropy(float* logits, const unsigned char* targets, float scale, index rows,
                                           index vocabulary);

}  // namespace gpt::kernels
