// SPDX-License-Identifier: Apache-2.0
// Eigen packs the blocks of a product into scratch memory, and takes it from the stack up to this limit. Eigen bounds a
// block by its estimate of the second-level cache, not by the matrix, so a block stays below 2 MiB. So no product of a
// training step touches the heap, and an 8 MiB stack is large enough.
#define EIGEN_STACK_ALLOCATION_LIMIT (4 * 1024 * 1024)

#include "kernels.hpp"

#include <Eigen/Core>

#include <cmath>

namespace gpt::kernels {
namespace {

constexpr float epsilon = 1e-5f;

using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using matrix = Eigen::Map<row_major, Eigen::Aligned16>;
using const_matrix = Eigen::Map<const row_major, Eigen::Aligned16>;
using row = Eigen::Map<Eigen::Array<float, 1, Eigen::Dynamic>>;
using const_row = Eigen::Map<const Eigen::Array<float, 1, Eigen::Dynamic>>;
// The columns of one head inside rows of all heads: the stride from row to row is wider than the row.
using slice = Eigen::Map<row_major, Eigen::Unaligned, Eigen::OuterStride<>>;
using const_slice = Eigen::Map<const row_major, Eigen::Unaligned, Eigen::OuterStride<>>;
// At most this many numbers on the stack at once, where one intermediate value is used twice.
constexpr index block = 256;
using stack_row = Eigen::Array<float, 1, Eigen::Dynamic, Eigen::RowMajor, 1, block>;

void add_or_set(float beta, row old, const const_row& fresh)
{
  if (beta == 0.0f) {
    old = fresh;
  } else {
    old += fresh;
  }
}

/// scores = causal softmax of q k^T / sqrt(head width); positions after the query become 0.
void probabilities(const const_slice& queries, const const_slice& keys, float* scores, const attention_extents& extents)
{
  const float scale = 1.0f / std::sqrt(static_cast<float>(extents.head_width()));
  matrix all{scores, extents.count, extents.keys()};
  all.noalias() = scale * queries * keys.transpose();
  for (index query = 0; query < extents.count; ++query) {
    const index visible = extents.first + query + 1;
    float* const start = scores + query * extents.keys();
    row seen{start, visible};
    seen = (seen - seen.maxCoeff()).exp();
    seen *= 1.0f / seen.sum();
    row{start + visible, extents.keys() - visible}.setZero();
  }
}

}  // namespace

void layer_norm_forward(const float* x, const float* norm, float* statistics, float* y, index rows, index width)
{
  for (index i = 0; i < rows; ++i) {
    const const_row from{x + i * width, width};
    const float mean = from.sum() / static_cast<float>(width);
    const float variance = (from - mean).square().sum() / static_cast<float>(width);
    statistics[2 * i] = mean;
    statistics[2 * i + 1] = 1.0f / std::sqrt(variance + epsilon);
  }
  layer_norm_again(x, norm, statistics, y, rows, width);
}

void layer_norm_again(const float* x, const float* norm, const float* statistics, float* y, index rows, index width)
{
  const const_row gain{norm, width};
  const const_row bias{norm + width, width};
  for (index i = 0; i < rows; ++i) {
    const const_row from{x + i * width, width};
    row{y + i * width, width} = (from - statistics[2 * i]) * statistics[2 * i + 1] * gain + bias;
  }
}

void layer_norm_backward_input(const float* dy, const float* x, const float* norm, const float* statistics, float* dx,
                               index rows, index width)
{
  const const_row gain{norm, width};
  const float share = 1.0f / static_cast<float>(width);
  for (index i = 0; i < rows; ++i) {
    const float mean = statistics[2 * i];
    const float rstd = statistics[2 * i + 1];
    const const_row from{x + i * width, width};
    const const_row slope{dy + i * width, width};
    const float along_one = (slope * gain).sum() * share;
    const float along_x = (slope * gain * (from - mean)).sum() * (rstd * share);
    row{dx + i * width, width} += (slope * gain - along_one - (from - mean) * (rstd * along_x)) * rstd;
  }
}

void layer_norm_backward_norm(const float* dy, const float* x, const float* statistics, float beta, float* d_norm,
                              index rows, index width)
{
  row d_gain{d_norm, width};
  row d_bias{d_norm + width, width};
  if (beta == 0.0f) clear(d_norm, 2 * width);
  for (index i = 0; i < rows; ++i) {
    const const_row from{x + i * width, width};
    const const_row slope{dy + i * width, width};
    d_gain += slope * (from - statistics[2 * i]) * statistics[2 * i + 1];
    d_bias += slope;
  }
}

void linear_forward(const float* x, const float* weight, const float* bias, float* y, index rows, index inputs,
                    index outputs)
{
  matrix out{y, rows, outputs};
  out.rowwise() = const_row{bias, outputs}.matrix();
  out.noalias() += const_matrix{x, rows, inputs} * const_matrix{weight, inputs, outputs};
}

void multiply_transposed(const float* dy, const float* weight, float* dx, index rows, index inputs, index outputs)
{
  matrix{dx, rows, inputs}.noalias() =
      const_matrix{dy, rows, outputs} * const_matrix{weight, inputs, outputs}.transpose();
}

void add_product(const float* x, const float* weight, float* y, index rows, index inputs, index outputs)
{
  matrix{y, rows, outputs}.noalias() += const_matrix{x, rows, inputs} * const_matrix{weight, inputs, outputs};
}

void add_product_transposed(const float* dy, const float* weight, float* dx, index rows, index inputs, index outputs)
{
  matrix{dx, rows, inputs}.noalias() +=
      const_matrix{dy, rows, outputs} * const_matrix{weight, inputs, outputs}.transpose();
}

void multiply(const float* x, const float* weight, float* out, index rows, index inputs, index outputs)
{
  matrix{out, rows, outputs}.noalias() = const_matrix{x, rows, inputs} * const_matrix{weight, inputs, outputs};
}

void weight_gradient(const float* x, const float* dy, float beta, float* d_weight, index rows, index inputs,
                     index outputs)
{
  matrix gradient{d_weight, inputs, outputs};
  if (beta == 0.0f) gradient.setZero();
  gradient.noalias() += const_matrix{x, rows, inputs}.transpose() * const_matrix{dy, rows, outputs};
}

void bias_gradient(const float* dy, float beta, float* d_bias, index rows, index outputs)
{
  add_or_set(beta, row{d_bias, outputs}, const_row{dy, outputs});
  for (index i = 1; i < rows; ++i) row{d_bias, outputs} += const_row{dy + i * outputs, outputs};
}

void add(const float* x, float* y, index elements)
{
  row{y, elements} += const_row{x, elements};
}

void copy(const float* x, float* y, index elements)
{
  row{y, elements} = const_row{x, elements};
}

void clear(float* y, index elements)
{
  row{y, elements}.setZero();
}

namespace {

constexpr float gelu_scale = 0.7978845608f;  // sqrt(2 / pi)
constexpr float gelu_cubic = 0.044715f;

stack_row gelu_tanh(const const_row& x)
{
  return (gelu_scale * x * (1.0f + gelu_cubic * x.square())).tanh();
}

}  // namespace

void gelu_forward(const float* x, float* y, index elements)
{
  for (index start = 0; start < elements; start += block) {
    const index size = std::min(block, elements - start);
    const const_row from{x + start, size};
    row{y + start, size} = 0.5f * from * (1.0f + gelu_tanh(from));
  }
}

void gelu_backward(const float* dy, float* x, index elements)
{
  for (index start = 0; start < elements; start += block) {
    const index size = std::min(block, elements - start);
    const const_row from{x + start, size};
    const const_row slope{dy + start, size};
    const stack_row bend = gelu_tanh(from);
    const auto inner = gelu_scale * (1.0f + 3.0f * gelu_cubic * from.square());
    row{x + start, size} = slope * (0.5f * (1.0f + bend) + 0.5f * from * (1.0f - bend.square()) * inner);
  }
}

void relu(float* x, index elements)
{
  for (index i = 0; i < elements; ++i) x[i] = x[i] <= 0.0f ? 0.0f : x[i];  // NaN stays
}

void relu_backward(const float* dy, float* x, index elements)
{
  for (index i = 0; i < elements; ++i) x[i] = x[i] <= 0.0f ? 0.0f : dy[i];
}

void positive_bits(const float* x, std::uint8_t* bits, index elements)
{
  for (index start = 0; start < elements; start += 8) {
    unsigned byte = 0;
    for (index i = 0; i < 8; ++i) byte |= (x[start + i] <= 0.0f ? 0U : 1U) << static_cast<unsigned>(i);
    bits[start / 8] = static_cast<std::uint8_t>(byte);
  }
}

void clear_others(const std::uint8_t* bits, float* dy, index elements)
{
  for (index start = 0; start < elements; start += 8)
    for (index i = 0; i < 8; ++i)
      if ((bits[start / 8] >> static_cast<unsigned>(i) & 1U) == 0) dy[start + i] = 0.0f;
}

void attention_forward(const float* qkv, float* scores, float* out, const attention_extents& extents)
{
  const index width = extents.width;
  const index size = extents.head_width();
  const Eigen::OuterStride<> step{3 * width};
  for (index head = 0; head < extents.heads; ++head) {
    const float* const start = qkv + head * size;
    const const_slice queries{start + extents.first * 3 * width, extents.count, size, step};
    const const_slice keys{start + width, extents.keys(), size, step};
    const const_slice values{start + 2 * width, extents.keys(), size, step};
    probabilities(queries, keys, scores, extents);
    slice{out + head * size, extents.count, size, Eigen::OuterStride<>{width}}.noalias() =
        const_matrix{scores, extents.count, extents.keys()} * values;
  }
}

void attention_backward(const float* qkv, const float* d_out, float* scores, float* d_scores, float* d_qkv,
                        const attention_extents& extents)
{
  const index width = extents.width;
  const index size = extents.head_width();
  const index count = extents.count;
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  const Eigen::OuterStride<> step{3 * width};
  for (index head = 0; head < extents.heads; ++head) {
    const float* const start = qkv + head * size;
    const const_slice queries{start, count, size, step};
    const const_slice keys{start + width, count, size, step};
    const const_slice values{start + 2 * width, count, size, step};
    const const_slice slope{d_out + head * size, count, size, Eigen::OuterStride<>{width}};
    float* const d_start = d_qkv + head * size;
    matrix weights{scores, count, count};
    matrix d_weights{d_scores, count, count};
    probabilities(queries, keys, scores, extents);
    slice{d_start + 2 * width, count, size, step}.noalias() = weights.transpose() * slope;
    d_weights.noalias() = slope * values.transpose();
    for (index i = 0; i < count; ++i) {
      const const_row weight{scores + i * count, count};
      row d_weight{d_scores + i * count, count};
      const float mean = (d_weight * weight).sum();
      d_weight = weight * (d_weight - mean) * scale;
    }
    slice{d_start, count, size, step}.noalias() = d_weights * keys;
    slice{d_start + width, count, size, step}.noalias() = d_weights.transpose() * queries;
  }
}

void embedding_forward(const unsigned char* tokens, const float* token_table, const float* position_table, float* x,
                       index first, index count, index width)
{
  for (index i = 0; i < count; ++i) {
    row{x + i * width, width} =
        const_row{token_table + tokens[i] * width, width} + const_row{position_table + (first + i) * width, width};
  }
}

void embedding_backward_tokens(const unsigned char* tokens, const float* dx, float beta, float* d_table, index count,
                               index vocabulary, index width)
{
  if (beta == 0.0f) clear(d_table, vocabulary * width);
  for (index i = 0; i < count; ++i) row{d_table + tokens[i] * width, width} += const_row{dx + i * width, width};
}

void embedding_backward_positions(const float* dx, float beta, float* d_table, index count, index context, index width)
{
  if (beta == 0.0f) clear(d_table, context * width);
  row{d_table, count* width} += const_row{dx, count * width};
}

double softmax_cross_entropy(float* logits, const unsigned char* targets, float scale, index rows, index vocabulary)
{
  double loss = 0.0;
  for (index i = 0; i < rows; ++i) {
    row scores{logits + i * vocabulary, vocabulary};
    const float highest = scores.maxCoeff();
    const float wanted = scores[targets[i]] - highest;
    scores = (scores - highest).exp();
    const float sum = scores.sum();
    loss += std::log(static_cast<double>(sum)) - static_cast<double>(wanted);
    scores *= scale / sum;
    scores[targets[i]] -= scale;
  }
  return loss;
}

}  // namespace gpt::kernels
