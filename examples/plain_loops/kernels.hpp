// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// The arithmetic of a GPT-2 as in a C trainer: pointers, counts, loops. No function here knows who owns the memory.
///
/// Matrices are row-major; a product is a row vector times a matrix of [inputs, outputs]. `rows` are positions of all
/// sequences of the batch. Gradients of weights are added to the old values; all other outputs are overwritten. The
/// order of every sum is fixed, and the file is compiled without contraction: no bit depends on pointers.
namespace plain_loops {

inline constexpr int vocabulary = 256;  ///< a token is a byte

/// out[row] = token_table[token] + position_table[position]
void embedding_forward(float* out, const unsigned char* tokens, const float* token_table, const float* position_table,
                       int batch, int context, int width);
void embedding_backward(float* d_token_table, float* d_position_table, const float* d_out, const unsigned char* tokens,
                        int batch, int context, int width);

/// Keeps each row's mean, and one over its deviation as `scale`, for the backward pass.
void layer_norm_forward(float* out, float* mean, float* scale, const float* in, const float* gain, const float* bias,
                        int rows, int width);
/// Adds to `d_in`, the gradient of the residual stream.
void layer_norm_backward(float* d_in, float* d_gain, float* d_bias, const float* d_out, const float* in,
                         const float* gain, const float* mean, const float* scale, int rows, int width);

void matmul_forward(float* out, const float* in, const float* weight, const float* bias, int rows, int inputs,
                    int outputs);
void matmul_backward_input(float* d_in, const float* d_out, const float* weight, int rows, int inputs, int outputs);
void matmul_backward_weight(float* d_weight, float* d_bias, const float* d_out, const float* in, int rows, int inputs,
                            int outputs);

/// `attention` keeps the probabilities, [batch, heads, context, context], for the backward pass.
void attention_forward(float* out, float* attention, const float* qkv, int batch, int context, int heads, int width);
/// @param d_row   scratch of `context` numbers
void attention_backward(float* d_qkv, float* d_row, const float* d_out, const float* attention, const float* qkv,
                        int batch, int context, int heads, int width);

void gelu_forward(float* out, const float* in, int count);
/// d_out becomes the gradient of `in`.
void gelu_backward(float* d_out, const float* in, int count);

/// into += from
void add(float* into, const float* from, int count);

/// The head shares its weight with the token table: [vocabulary, width].
void head_forward(float* logits, const float* in, const float* token_table, int rows, int width);
void head_backward(float* d_in, float* d_token_table, const float* d_logits, const float* in, const float* token_table,
                   int rows, int width);

/// Logits become their gradient. @return   the sum of the losses over all rows [nats]
double cross_entropy(float* logits, const unsigned char* targets, int rows);

/// The token whose cumulative probability reaches `coin`, a number from 0 to 1.
int sample(const float* logits, float temperature, float coin);

/// The factors that all numbers of one update of AdamW share.
struct adamw_factors {
  float rate;          ///< with the bias correction of the momentum
  float second_scale;  ///< one over the root of the bias correction of the variance
  float keep;          ///< one minus the decay of the weight
};
inline constexpr float beta1 = 0.9F;
inline constexpr float beta2 = 0.95F;

/// @param number   of the update, counted from 1
adamw_factors adamw_prepare(float learning_rate, float weight_decay, std::uint64_t number);
void adamw_update(float* weight, const float* gradient, float* momentum, float* variance, int count,
                  adamw_factors factors);

/// A number from 0 to 1 that depends only on its arguments.
float random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

}  // namespace plain_loops
