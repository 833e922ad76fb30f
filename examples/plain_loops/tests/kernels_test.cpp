// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

// Gradients of the kernels are compared with finite differences of their outputs.
namespace plain_loops_kernels_test {
namespace {

using namespace plain_loops;

std::vector<float> numbers(std::size_t count, std::uint64_t stream)
{
  std::vector<float> all(count);
  for (std::size_t index = 0; index < count; ++index) all[index] = random_uniform(7, stream, index) - 0.5F;
  return all;
}

double weighted(const std::vector<float>& out, const std::vector<float>& weights)
{
  double sum = 0;
  for (std::size_t index = 0; index < out.size(); ++index)
    sum += static_cast<double>(out[index]) * static_cast<double>(weights[index]);
  return sum;
}

/// The largest difference between the gradient of one of these numbers and the finite difference of `loss`.
template <class Loss>
double worst_difference(std::vector<float>& where, const std::vector<float>& gradient, Loss loss)
{
  constexpr float width = 1e-2F;
  double worst = 0;
  for (std::size_t index = 0; index < where.size(); ++index) {
    const float kept = where[index];
    where[index] = kept + width;
    const double above = loss();
    where[index] = kept - width;
    const double below = loss();
    where[index] = kept;
    const double slope = (above - below) / (2 * static_cast<double>(width));
    worst = std::max(worst, std::abs(slope - static_cast<double>(gradient[index])));
  }
  return worst;
}

constexpr double tolerance = 2e-3;

}  // namespace

TEST_CASE("gradients of a product are its slopes, also where rows are no multiple of four", "[plain_loops]")
{
  constexpr int rows = 7, inputs = 8, outputs = 24;
  auto in = numbers(rows * inputs, 1), weight = numbers(inputs * outputs, 2), bias = numbers(outputs, 3);
  const auto d_out = numbers(rows * outputs, 4);
  std::vector<float> out(rows * outputs), d_in(in.size()), d_weight(weight.size()), d_bias(bias.size());
  matmul_backward_input(d_in.data(), d_out.data(), weight.data(), rows, inputs, outputs);
  matmul_backward_weight(d_weight.data(), d_bias.data(), d_out.data(), in.data(), rows, inputs, outputs);
  const auto loss = [&] {
    matmul_forward(out.data(), in.data(), weight.data(), bias.data(), rows, inputs, outputs);
    return weighted(out, d_out);
  };
  CHECK(worst_difference(in, d_in, loss) < tolerance);
  CHECK(worst_difference(weight, d_weight, loss) < tolerance);
  CHECK(worst_difference(bias, d_bias, loss) < tolerance);
}

TEST_CASE("gradients of a layer norm are its slopes", "[plain_loops]")
{
  constexpr int rows = 5, width = 16;
  auto in = numbers(rows * width, 1), gain = numbers(width, 2), bias = numbers(width, 3);
  const auto d_out = numbers(rows * width, 4);
  std::vector<float> out(in.size()), mean(rows), scale(rows), d_in(in.size()), d_gain(width), d_bias(width);
  const auto loss = [&] {
    layer_norm_forward(out.data(), mean.data(), scale.data(), in.data(), gain.data(), bias.data(), rows, width);
    return weighted(out, d_out);
  };
  (void)loss();
  layer_norm_backward(d_in.data(), d_gain.data(), d_bias.data(), d_out.data(), in.data(), gain.data(), mean.data(),
                      scale.data(), rows, width);
  CHECK(worst_difference(in, d_in, loss) < tolerance);
  CHECK(worst_difference(gain, d_gain, loss) < tolerance);
  CHECK(worst_difference(bias, d_bias, loss) < tolerance);
}

TEST_CASE("the gradient of causal attention is its slope, and no position sees a later one", "[plain_loops]")
{
  constexpr int batch = 2, context = 5, heads = 2, width = 16;
  auto qkv = numbers(batch * context * 3 * width, 1);
  const auto d_out = numbers(batch * context * width, 2);
  std::vector<float> out(d_out.size()), attention(batch * heads * context * context), d_qkv(qkv.size()), d_row(context);
  const auto loss = [&] {
    attention_forward(out.data(), attention.data(), qkv.data(), batch, context, heads, width);
    return weighted(out, d_out);
  };
  (void)loss();
  attention_backward(d_qkv.data(), d_row.data(), d_out.data(), attention.data(), qkv.data(), batch, context, heads,
                     width);
  CHECK(worst_difference(qkv, d_qkv, loss) < tolerance);

  const std::vector<float> before = out;
  qkv[(context - 1) * 3 * width + width] += 1.0F;  // a key of the last position of the first sequence
  (void)loss();
  for (std::size_t index = 0; index < (context - 1) * width; ++index) CHECK(out[index] == before[index]);
}

TEST_CASE("the gradient of GELU is its slope", "[plain_loops]")
{
  auto in = numbers(64, 1);
  for (float& number : in) number *= 6.0F;
  const auto d_out = numbers(in.size(), 2);
  std::vector<float> out(in.size()), gradient = d_out;
  gelu_backward(gradient.data(), in.data(), static_cast<int>(in.size()));
  const auto loss = [&] {
    gelu_forward(out.data(), in.data(), static_cast<int>(in.size()));
    return weighted(out, d_out);
  };
  CHECK(worst_difference(in, gradient, loss) < tolerance);
}

TEST_CASE("gradients of the head and of the embedding are the slopes of the loss", "[plain_loops]")
{
  constexpr int batch = 1, context = 3, width = 8;
  const unsigned char tokens[] = {5, 200, 5}, targets[] = {200, 5, 77};
  auto table = numbers(vocabulary * width, 1), positions = numbers(context * width, 2);
  std::vector<float> in(context * width), logits(context * vocabulary), d_in(in.size()), d_table(table.size());
  std::vector<float> d_positions(positions.size());
  const auto loss = [&] {
    embedding_forward(in.data(), tokens, table.data(), positions.data(), batch, context, width);
    head_forward(logits.data(), in.data(), table.data(), context, width);
    return cross_entropy(logits.data(), targets, context) / context;
  };
  (void)loss();
  head_backward(d_in.data(), d_table.data(), logits.data(), in.data(), table.data(), context, width);
  embedding_backward(d_table.data(), d_positions.data(), d_in.data(), tokens, batch, context, width);
  CHECK(worst_difference(table, d_table, loss) < tolerance);
  CHECK(worst_difference(positions, d_positions, loss) < tolerance);
}

TEST_CASE("AdamW moves the first weight by the learning rate, against its gradient, and takes tiny gradients for zero",
          "[plain_loops]")
{
  float weight[] = {1.0F, 1.0F, 1.0F}, momentum[3] = {}, variance[3] = {};
  const float gradient[] = {3.0F, -0.5F, 1e-40F};
  adamw_update(weight, gradient, momentum, variance, 3, adamw_prepare(0.01F, 0.0F, 1));
  CHECK(std::abs(weight[0] - 0.99F) < 1e-6F);
  CHECK(std::abs(weight[1] - 1.01F) < 1e-6F);
  CHECK(weight[2] == 1.0F);
  CHECK(momentum[2] == 0.0F);
}

}  // namespace plain_loops_kernels_test
