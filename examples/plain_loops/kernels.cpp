// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <cfloat>
#include <cmath>

namespace plain_loops {
namespace {

constexpr int lanes = 8;  // a constant count of neighbours, which compilers vectorize at -O2

/// The product of two rows, as 8 sums that are added in order.
float dot(const float* __restrict left, const float* __restrict right, int count)
{
  float sums[lanes] = {};
  int index = 0;
  for (; index + lanes <= count; index += lanes)
    for (int lane = 0; lane < lanes; ++lane) sums[lane] += left[index + lane] * right[index + lane];
  float sum = 0.0F;
  for (int lane = 0; lane < lanes; ++lane) sum += sums[lane];
  for (; index < count; ++index) sum += left[index] * right[index];
  return sum;
}

/// into += factor * from
void add_scaled(float* __restrict into, const float* __restrict from, float factor, int count)
{
  int index = 0;
  for (; index + lanes <= count; index += lanes)
    for (int lane = 0; lane < lanes; ++lane) into[index + lane] += factor * from[index + lane];
  for (; index < count; ++index) into[index] += factor * from[index];
}

/// The first rows of a product, and the distances between rows and between numbers of a row.
struct product_rows {
  float* out;
  int out_step;
  const float* in;
  int in_step;
  int number_step;
};

/// For 8 neighbours o: out[o] = start[o] + the sum over i of in[i] * matrix[i, o].
void one_row(float* __restrict out, const float* __restrict in, int step, const float* __restrict matrix,
             const float* start, int count, int columns)
{
  float sums[lanes];
  for (int lane = 0; lane < lanes; ++lane) sums[lane] = start == nullptr ? out[lane] : start[lane];
  for (int index = 0; index < count; ++index)
    for (int lane = 0; lane < lanes; ++lane) sums[lane] += in[index * step] * matrix[index * columns + lane];
  for (int lane = 0; lane < lanes; ++lane) out[lane] = sums[lane];
}

/// The same for four rows at once, whose sums stay in registers.
void four_rows(float* __restrict out, int out_step, const float* __restrict in, int in_step, int step,
               const float* __restrict matrix, const float* start, int count, int columns)
{
  float first[lanes], second[lanes], third[lanes], fourth[lanes];
  for (int lane = 0; lane < lanes; ++lane) {
    first[lane] = start == nullptr ? out[lane] : start[lane];
    second[lane] = start == nullptr ? out[out_step + lane] : start[lane];
    third[lane] = start == nullptr ? out[2 * out_step + lane] : start[lane];
    fourth[lane] = start == nullptr ? out[3 * out_step + lane] : start[lane];
  }
  for (int index = 0; index < count; ++index) {
    const float* numbers = in + index * step;
    const float a = numbers[0], b = numbers[in_step], c = numbers[2 * in_step], d = numbers[3 * in_step];
    const float* row = matrix + index * columns;
    for (int lane = 0; lane < lanes; ++lane) {
      first[lane] += a * row[lane];
      second[lane] += b * row[lane];
      third[lane] += c * row[lane];
      fourth[lane] += d * row[lane];
    }
  }
  for (int lane = 0; lane < lanes; ++lane) {
    out[lane] = first[lane];
    out[out_step + lane] = second[lane];
    out[2 * out_step + lane] = third[lane];
    out[3 * out_step + lane] = fourth[lane];
  }
}

/// Rows times a matrix of [count, columns]. Without a start, adds to the old values.
void product(const product_rows& all, int rows, const float* matrix, const float* start, int count, int columns)
{
  for (int o = 0; o < columns; o += lanes) {
    const float* from = start == nullptr ? nullptr : start + o;
    int row = 0;
    for (; row + 4 <= rows; row += 4)
      four_rows(all.out + row * all.out_step + o, all.out_step, all.in + row * all.in_step, all.in_step,
                all.number_step, matrix + o, from, count, columns);
    for (; row < rows; ++row)
      one_row(all.out + row * all.out_step + o, all.in + row * all.in_step, all.number_step, matrix + o, from, count,
              columns);
  }
}

}  // namespace

void embedding_forward(float* out, const unsigned char* tokens, const float* token_table, const float* position_table,
                       int batch, int context, int width)
{
  for (int row = 0; row < batch * context; ++row) {
    const float* token = token_table + tokens[row] * width;
    const float* position = position_table + row % context * width;
    for (int index = 0; index < width; ++index) out[row * width + index] = token[index] + position[index];
  }
}

void embedding_backward(float* d_token_table, float* d_position_table, const float* d_out, const unsigned char* tokens,
                        int batch, int context, int width)
{
  for (int row = 0; row < batch * context; ++row) {
    add(d_token_table + tokens[row] * width, d_out + row * width, width);
    add(d_position_table + row % context * width, d_out + row * width, width);
  }
}

void layer_norm_forward(float* out, float* mean, float* scale, const float* in, const float* gain, const float* bias,
                        int rows, int width)
{
  for (int row = 0; row < rows; ++row) {
    const float* x = in + row * width;
    float sum = 0.0F;
    for (int index = 0; index < width; ++index) sum += x[index];
    const float center = sum / static_cast<float>(width);
    float squares = 0.0F;
    for (int index = 0; index < width; ++index) squares += (x[index] - center) * (x[index] - center);
    scale[row] = 1.0F / std::sqrt(squares / static_cast<float>(width) + 1e-5F);
    mean[row] = center;
    for (int index = 0; index < width; ++index)
      out[row * width + index] = (x[index] - center) * scale[row] * gain[index] + bias[index];
  }
}

void layer_norm_backward(float* d_in, float* d_gain, float* d_bias, const float* d_out, const float* in,
                         const float* gain, const float* mean, const float* scale, int rows, int width)
{
  for (int row = 0; row < rows; ++row) {
    const float* dy = d_out + row * width;
    const float* x = in + row * width;
    float sum = 0.0F;
    float weighted = 0.0F;
    for (int index = 0; index < width; ++index) {
      const float normed = (x[index] - mean[row]) * scale[row];
      const float d_normed = dy[index] * gain[index];
      sum += d_normed;
      weighted += d_normed * normed;
      d_gain[index] += dy[index] * normed;
      d_bias[index] += dy[index];
    }
    sum /= static_cast<float>(width);
    weighted /= static_cast<float>(width);
    for (int index = 0; index < width; ++index) {
      const float normed = (x[index] - mean[row]) * scale[row];
      d_in[row * width + index] += (dy[index] * gain[index] - sum - normed * weighted) * scale[row];
    }
  }
}

void matmul_forward(float* out, const float* in, const float* weight, const float* bias, int rows, int inputs,
                    int outputs)
{
  product({out, outputs, in, inputs, 1}, rows, weight, bias, inputs, outputs);
}

void matmul_backward_input(float* d_in, const float* d_out, const float* weight, int rows, int inputs, int outputs)
{
  for (int row = 0; row < rows; ++row)
    for (int index = 0; index < inputs; ++index)
      d_in[row * inputs + index] = dot(d_out + row * outputs, weight + index * outputs, outputs);
}

void matmul_backward_weight(float* d_weight, float* d_bias, const float* d_out, const float* in, int rows, int inputs,
                            int outputs)
{
  for (int row = 0; row < rows; ++row) add(d_bias, d_out + row * outputs, outputs);
  product({d_weight, outputs, in, 1, inputs}, inputs, d_out, nullptr, rows,
          outputs);  // the transposed input times d_out
}

void attention_forward(float* out, float* attention, const float* qkv, int batch, int context, int heads, int width)
{
  const int size = width / heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(size));
  for (int sequence = 0; sequence < batch; ++sequence)
    for (int head = 0; head < heads; ++head)
      for (int to = 0; to < context; ++to) {
        const float* of_sequence = qkv + sequence * context * 3 * width + head * size;
        float* row = attention + ((sequence * heads + head) * context + to) * context;
        float largest = -FLT_MAX;
        for (int from = 0; from <= to; ++from) {
          row[from] = scale * dot(of_sequence + to * 3 * width, of_sequence + from * 3 * width + width, size);
          largest = row[from] > largest ? row[from] : largest;
        }
        float sum = 0.0F;
        for (int from = 0; from <= to; ++from) {
          row[from] = std::exp(row[from] - largest);
          sum += row[from];
        }
        for (int from = 0; from <= to; ++from) row[from] /= sum;
        for (int from = to + 1; from < context; ++from) row[from] = 0.0F;
        float* result = out + (sequence * context + to) * width + head * size;
        for (int index = 0; index < size; ++index) result[index] = 0.0F;
        for (int from = 0; from <= to; ++from)
          add_scaled(result, of_sequence + from * 3 * width + 2 * width, row[from], size);
      }
}

void attention_backward(float* d_qkv, float* d_row, const float* d_out, const float* attention, const float* qkv,
                        int batch, int context, int heads, int width)
{
  const int size = width / heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(size));
  for (int index = 0; index < batch * context * 3 * width; ++index) d_qkv[index] = 0.0F;
  for (int sequence = 0; sequence < batch; ++sequence)
    for (int head = 0; head < heads; ++head)
      for (int to = 0; to < context; ++to) {
        const int begin = sequence * context * 3 * width + head * size;
        const float* q = qkv + begin + to * 3 * width;
        const float* row = attention + ((sequence * heads + head) * context + to) * context;
        const float* dy = d_out + (sequence * context + to) * width + head * size;
        float sum = 0.0F;
        for (int from = 0; from <= to; ++from) {
          const int other = begin + from * 3 * width;
          d_row[from] = dot(dy, qkv + other + 2 * width, size);
          sum += d_row[from] * row[from];
          add_scaled(d_qkv + other + 2 * width, dy, row[from], size);
        }
        for (int from = 0; from <= to; ++from) {
          const int other = begin + from * 3 * width;
          const float slope = row[from] * (d_row[from] - sum) * scale;
          add_scaled(d_qkv + begin + to * 3 * width, qkv + other + width, slope, size);
          add_scaled(d_qkv + other + width, q, slope, size);
        }
      }
}

namespace {
constexpr float gelu_scale = 0.7978845608F;  // the root of 2 / pi
constexpr float gelu_cubic = 0.044715F;
}  // namespace

void gelu_forward(float* out, const float* in, int count)
{
  for (int index = 0; index < count; ++index) {
    const float x = in[index];
    out[index] = 0.5F * x * (1.0F + std::tanh(gelu_scale * (x + gelu_cubic * x * x * x)));
  }
}

void gelu_backward(float* d_out, const float* in, int count)
{
  for (int index = 0; index < count; ++index) {
    const float x = in[index];
    const float bend = std::tanh(gelu_scale * (x + gelu_cubic * x * x * x));
    const float inner = gelu_scale * (1.0F + 3.0F * gelu_cubic * x * x);
    d_out[index] *= 0.5F * (1.0F + bend) + 0.5F * x * (1.0F - bend * bend) * inner;
  }
}

void add(float* into, const float* from, int count)
{
  add_scaled(into, from, 1.0F, count);
}

void head_forward(float* logits, const float* in, const float* token_table, int rows, int width)
{
  matmul_backward_input(logits, in, token_table, rows, vocabulary, width);  // a product with the table's rows
}

void head_backward(float* d_in, float* d_token_table, const float* d_logits, const float* in, const float* token_table,
                   int rows, int width)
{
  for (int index = 0; index < rows * width; ++index) d_in[index] = 0.0F;
  product({d_in, width, d_logits, vocabulary, 1}, rows, token_table, nullptr, vocabulary, width);
  product({d_token_table, width, d_logits, 1, vocabulary}, vocabulary, in, nullptr, rows, width);
}

double cross_entropy(float* logits, const unsigned char* targets, int rows)
{
  double loss = 0.0;
  const float share = 1.0F / static_cast<float>(rows);
  for (int row = 0; row < rows; ++row) {
    float* x = logits + row * vocabulary;
    float largest = -FLT_MAX;
    for (int index = 0; index < vocabulary; ++index) largest = x[index] > largest ? x[index] : largest;
    const float target = x[targets[row]] - largest;
    float sum = 0.0F;
    for (int index = 0; index < vocabulary; ++index) {
      x[index] = std::exp(x[index] - largest);
      sum += x[index];
    }
    loss += static_cast<double>(std::log(sum) - target);
    for (int index = 0; index < vocabulary; ++index)
      x[index] = (x[index] / sum - (index == targets[row] ? 1.0F : 0.0F)) * share;
  }
  return loss;
}

int sample(const float* logits, float temperature, float coin)
{
  float largest = -FLT_MAX;
  for (int index = 0; index < vocabulary; ++index) largest = logits[index] > largest ? logits[index] : largest;
  float odds[vocabulary];
  float sum = 0.0F;
  for (int index = 0; index < vocabulary; ++index) {
    odds[index] = std::exp((logits[index] - largest) / temperature);
    sum += odds[index];
  }
  float reached = 0.0F;
  for (int index = 0; index < vocabulary; ++index) {
    reached += odds[index];
    if (reached >= coin * sum) return index;
  }
  return vocabulary - 1;
}

adamw_factors adamw_prepare(float learning_rate, float weight_decay, std::uint64_t number)
{
  const auto t = static_cast<double>(number);
  const double first = 1.0 - std::pow(static_cast<double>(beta1), t);
  const double second = 1.0 - std::pow(static_cast<double>(beta2), t);
  return {static_cast<float>(static_cast<double>(learning_rate) / first), static_cast<float>(1.0 / std::sqrt(second)),
          1.0F - learning_rate * weight_decay};
}

namespace {
/// One number. A gradient too small to be a normal number is zero: denormals are slow, and the optimizer step of
/// chunkmem passes none to its kernel.
inline void adamw_one(float& weight, float gradient, float& momentum, float& variance, adamw_factors factors)
{
  const float g = std::fabs(gradient) < FLT_MIN ? 0.0F : gradient;
  const float m = beta1 * momentum + (1.0F - beta1) * g;
  const float v = beta2 * variance + (1.0F - beta2) * g * g;
  momentum = m;
  variance = v;
  weight = factors.keep * weight - factors.rate * m / (std::sqrt(v) * factors.second_scale + 1e-8F);
}
}  // namespace

void adamw_update(float* __restrict weight, const float* __restrict gradient, float* __restrict momentum,
                  float* __restrict variance, int count, adamw_factors factors)
{
  for (int index = 0; index < count; ++index)
    adamw_one(weight[index], gradient[index], momentum[index], variance[index], factors);
}

float random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index)
{
  std::uint64_t bits = seed * 0x9E3779B97F4A7C15U + stream * 0xD1B54A32D192ED03U + index + 1;
  for (int round = 0; round < 3; ++round) {
    bits ^= bits >> 29;
    bits *= 0xBF58476D1CE4E5B9U;
    bits ^= bits >> 32;
  }
  return static_cast<float>(bits >> 40) * 0x1p-24F;
}

}  // namespace plain_loops
