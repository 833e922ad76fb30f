// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include "finite_difference.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

namespace kernels_test {

namespace {

using namespace gpt;
using test::expects_gradient;
using test::numbers;
using test::weighed;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("layer norm has the gradient of its finite differences", "[gpt]")
{
  const kernels::index rows = 3;
  const kernels::index width = 8;
  numbers x{24}, norm{16}, statistics{6}, y{24}, slope{24}, dx{24, 0.25f}, d_norm{16, not_a_number};
  x.draw(1, 2.0f);
  norm.draw(2, 2.0f);
  slope.draw(3);
  const auto loss = [&] {
    kernels::layer_norm_forward(x.data(), norm.data(), statistics.data(), y.data(), rows, width);
    return weighed(y, slope);
  };
  (void)loss();
  kernels::layer_norm_backward_input(slope.data(), x.data(), norm.data(), statistics.data(), dx.data(), rows, width);
  for (float& each : dx.span()) each -= 0.25f;  // it adds to what was there
  kernels::layer_norm_backward_norm(slope.data(), x.data(), statistics.data(), 0.0f, d_norm.data(), rows, width);
  expects_gradient(loss, x.span(), dx.span());
  expects_gradient(loss, norm.span(), d_norm.span());
}

TEST_CASE("ReLU goes back by its numbers or by a bit of each, and keeps what is no number", "[gpt]")
{
  numbers before{24}, x{24}, slope{24}, by_bits{24};
  before.draw(1, 2.0f);
  slope.draw(2);
  before[3] = 0.0f;
  before[7] = not_a_number;
  for (std::size_t i = 0; i < before.size(); ++i) x[i] = before[i], by_bits[i] = slope[i];
  kernels::relu(x.data(), 24);
  std::uint8_t bits[3];
  kernels::positive_bits(x.data(), bits, 24);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (i != 7) CHECK(x[i] == (before[i] > 0.0f ? before[i] : 0.0f));
  CHECK(std::isnan(x[7]));
  kernels::clear_others(bits, by_bits.data(), 24);
  kernels::relu_backward(slope.data(), x.data(), 24);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(x[i] == (before[i] > 0.0f || i == 7 ? slope[i] : 0.0f));
    CHECK(by_bits[i] == x[i]);
  }
}

TEST_CASE("a norm computed again has the bits of the first time", "[gpt]")
{
  numbers x{24}, norm{16}, statistics{6}, first{24}, again{24};
  x.draw(1, 3.0f);
  norm.draw(2);
  kernels::layer_norm_forward(x.data(), norm.data(), statistics.data(), first.data(), 3, 8);
  kernels::layer_norm_again(x.data(), norm.data(), statistics.data(), again.data(), 3, 8);
  for (std::size_t i = 0; i < first.size(); ++i) CHECK(first[i] == again[i]);
}

TEST_CASE("a product with bias has the gradient of its finite differences", "[gpt]")
{
  const kernels::index rows = 5;
  const kernels::index inputs = 8;
  const kernels::index outputs = 12;
  numbers x{40}, weight{96}, bias{12}, y{60}, slope{60}, dx{40, not_a_number}, d_weight{96, not_a_number},
      d_bias{12, not_a_number};
  x.draw(1);
  weight.draw(2);
  bias.draw(3);
  slope.draw(4);
  const auto loss = [&] {
    kernels::linear_forward(x.data(), weight.data(), bias.data(), y.data(), rows, inputs, outputs);
    return weighed(y, slope);
  };
  kernels::multiply_transposed(slope.data(), weight.data(), dx.data(), rows, inputs, outputs);
  kernels::weight_gradient(x.data(), slope.data(), 0.0f, d_weight.data(), rows, inputs, outputs);
  kernels::bias_gradient(slope.data(), 0.0f, d_bias.data(), rows, outputs);
  expects_gradient(loss, x.span(), dx.span());
  expects_gradient(loss, weight.span(), d_weight.span());
  expects_gradient(loss, bias.span(), d_bias.span());
}

TEST_CASE("a gradient with beta 1 adds to the old one", "[gpt]")
{
  numbers x{40}, slope{60}, once{96, not_a_number}, twice{96}, bias_once{12, not_a_number}, bias_twice{12};
  x.draw(1);
  slope.draw(2);
  kernels::weight_gradient(x.data(), slope.data(), 0.0f, once.data(), 5, 8, 12);
  kernels::bias_gradient(slope.data(), 0.0f, bias_once.data(), 5, 12);
  for (const float beta : {0.0f, 1.0f}) {
    kernels::weight_gradient(x.data(), slope.data(), beta, twice.data(), 5, 8, 12);
    kernels::bias_gradient(slope.data(), beta, bias_twice.data(), 5, 12);
  }
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(std::abs(twice[i] - 2.0f * once[i]) <= 1e-6f);
  for (std::size_t i = 0; i < bias_once.size(); ++i) CHECK(std::abs(bias_twice[i] - 2.0f * bias_once[i]) <= 1e-6f);
}

TEST_CASE("GELU has the gradient of its finite differences", "[gpt]")
{
  numbers x{301}, y{301}, weights{301}, slope{301};  // more than one block, and a rest
  x.draw(1, 6.0f);
  weights.draw(2);
  const auto loss = [&] {
    kernels::gelu_forward(x.data(), y.data(), 301);
    return weighed(y, weights);
  };
  for (std::size_t i = 0; i < slope.size(); ++i) slope[i] = x[i];
  kernels::gelu_backward(weights.data(), slope.data(), 301);
  expects_gradient(loss, x.span(), slope.span());
}

TEST_CASE("attention has the gradient of its finite differences", "[gpt]")
{
  const kernels::attention_extents size{0, 5, 2, 8};
  numbers qkv{120}, scores{25}, d_scores{25}, y{40}, slope{40}, d_qkv{120, not_a_number};
  qkv.draw(1, 3.0f);
  slope.draw(2);
  const auto loss = [&] {
    kernels::attention_forward(qkv.data(), scores.data(), y.data(), size);
    return weighed(y, slope);
  };
  kernels::attention_backward(qkv.data(), slope.data(), scores.data(), d_scores.data(), d_qkv.data(), size);
  expects_gradient(loss, qkv.span(), d_qkv.span());
}

TEST_CASE("attention of one late query equals the last row of all queries", "[gpt]")
{
  numbers qkv{120}, scores{25}, all{40}, last{8};
  qkv.draw(1, 3.0f);
  kernels::attention_forward(qkv.data(), scores.data(), all.data(), {0, 5, 2, 8});
  kernels::attention_forward(qkv.data(), scores.data(), last.data(), {4, 1, 2, 8});
  for (std::size_t i = 0; i < last.size(); ++i) CHECK(std::abs(last[i] - all[32 + i]) <= 1e-6f);
}

TEST_CASE("attention never sees the future", "[gpt]")
{
  numbers qkv{120}, scores{25}, before{40}, after{40};
  qkv.draw(1);
  kernels::attention_forward(qkv.data(), scores.data(), before.data(), {0, 5, 2, 8});
  for (std::size_t i = 96; i < qkv.size(); ++i) qkv[i] += 1.0f;  // the last position
  kernels::attention_forward(qkv.data(), scores.data(), after.data(), {0, 5, 2, 8});
  for (std::size_t i = 0; i < 32; ++i) CHECK(before[i] == after[i]);
}

TEST_CASE("embeddings have the gradient of their finite differences", "[gpt]")
{
  const unsigned char tokens[] = {2, 0, 2};
  numbers table{16}, positions{16}, x{12}, slope{12}, d_table{16, not_a_number}, d_positions{16, not_a_number};
  table.draw(1);
  positions.draw(2);
  slope.draw(3);
  const auto loss = [&] {
    kernels::embedding_forward(tokens, table.data(), positions.data(), x.data(), 0, 3, 4);
    return weighed(x, slope);
  };
  kernels::embedding_backward_tokens(tokens, slope.data(), 0.0f, d_table.data(), 3, 4, 4);
  kernels::embedding_backward_positions(slope.data(), 0.0f, d_positions.data(), 3, 4, 4);
  expects_gradient(loss, table.span(), d_table.span());
  expects_gradient(loss, positions.span(), d_positions.span());
}

TEST_CASE("cross entropy has the gradient of its finite differences", "[gpt]")
{
  const unsigned char targets[] = {3, 0};
  numbers logits{16}, spent{16};
  logits.draw(1, 4.0f);
  const auto loss = [&] {
    for (std::size_t i = 0; i < logits.size(); ++i) spent[i] = logits[i];
    return 0.5 * kernels::softmax_cross_entropy(spent.data(), targets, 0.5f, 2, 8);
  };
  numbers gradient{16};
  (void)loss();
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = spent[i];
  expects_gradient(loss, logits.span(), gradient.span());
}

}  // namespace kernels_test
