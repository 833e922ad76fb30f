// SPDX-License-Identifier: Apache-2.0
#include <gpt_cuda/token_kernels.hpp>

#include <gpt_cuda/fake_math.hpp>
#include <gpt_cuda/loss_kernels.hpp>
#include <gpt_cuda/random_numbers.hpp>

#include <algorithm>

namespace token_kernels_test {

namespace {

using namespace gpt_cuda_test;
using gpt::vocabulary;
using support::run_in_loops;

constexpr std::uint32_t context = 33, windows = 5, rows = context * windows, width = 96;

/// Windows of random bytes, few of them different, so that tokens meet.
struct windows_of_text {
  std::vector<unsigned char> bytes = std::vector<unsigned char>(windows * (context + 1));
  gpt::cuda::token_windows text{bytes.data(), context, windows};

  windows_of_text()
  {
    const gpt::counter_random random{fresh_seed(), 9};
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(random.below(7, i) * 42);
  }
};

}  // namespace

TEST_CASE("windows travel in pieces as arguments", "[gpt_cuda]")
{
  std::vector<unsigned char> to(40, 0xee);
  gpt::cuda::write_bytes_kernel body{to.data() + 3, 30, {}};
  for (unsigned i = 0; i < 30; ++i) body.values[i] = static_cast<unsigned char>(i);
  run_in_loops(body);
  for (unsigned i = 0; i < to.size(); ++i) CHECK(unsigned{to[i]} == (i < 3 || i >= 33 ? 0xeeU : i - 3));
}

TEST_CASE("rows are sorted by their tokens, and stay in order within one", "[gpt_cuda]")
{
  const windows_of_text all;
  std::vector<std::uint32_t> order(rows, ~0U), begins(vocabulary + 1, ~0U), expected(rows);
  run_in_loops(gpt::cuda::sort_rows_kernel{all.text, order.data(), begins.data()});
  for (std::uint32_t row = 0; row < rows; ++row) expected[row] = row;
  const auto token = [&](std::uint32_t row) { return all.bytes[row / context * (context + 1) + row % context]; };
  std::stable_sort(expected.begin(), expected.end(), [&](auto left, auto right) { return token(left) < token(right); });
  CHECK(order == expected);
  for (unsigned value = 0; value <= vocabulary; ++value) {
    const auto first = std::find_if(expected.begin(), expected.end(), [&](auto row) { return token(row) >= value; });
    CHECK(begins[value] == static_cast<std::uint32_t>(first - expected.begin()));
  }
}

TEST_CASE("embedding adds a token and its position, and each number's slope comes back to it", "[gpt_cuda]")
{
  const windows_of_text all;
  numbers<bf16> tokens{vocabulary * width}, positions{context * width}, x{rows * width}, slope{rows * width};
  numbers<bf16> d_tokens{vocabulary * width}, d_positions{context * width};
  tokens.draw(1), positions.draw(2), slope.draw(3);
  std::vector<double> expected(x.size()), back_tokens(d_tokens.size()), back_positions(d_positions.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t row = i / width;
    const std::size_t token = all.text.token(row) * std::size_t{width} + i % width;
    const std::size_t position = row % context * width + i % width;
    expected[i] = tokens[token] + positions[position];
    back_tokens[token] += slope[i];
    back_positions[position] += slope[i];
  }
  run_in_loops(gpt::cuda::embed_kernel{all.text, tokens.data(), positions.data(), x.data(), width});
  check_near(x, expected, bf16_bound);

  std::vector<std::uint32_t> order(rows), begins(vocabulary + 1);
  run_in_loops(gpt::cuda::sort_rows_kernel{all.text, order.data(), begins.data()});
  for (const float beta : {0.0F, 1.0F}) {
    run_in_loops(
        gpt::cuda::token_gradient_kernel{slope.data(), order.data(), begins.data(), d_tokens.data(), width, beta});
    run_in_loops(gpt::cuda::position_gradient_kernel{slope.data(), d_positions.data(), windows, context, width, beta});
    check_near(d_tokens, back_tokens, bf16_bound);
    check_near(d_positions, back_positions, bf16_bound);
    for (double& each : back_tokens) each *= 2.0;
    for (double& each : back_positions) each *= 2.0;
  }
}

TEST_CASE("the loss of every row and the slope of its logits are those of float64", "[gpt_cuda]")
{
  const windows_of_text all;
  numbers<float> logits{rows * vocabulary}, losses{rows};
  numbers<bf16> slope{rows * vocabulary};
  logits.draw(1, 10.0F);
  std::vector<double> expected(rows), back(slope.size());
  double whole = 0.0;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t target = all.bytes[row / context * (context + 1) + row % context + 1];
    double sum = 0.0;
    for (std::size_t i = 0; i < vocabulary; ++i) sum += std::exp(logits[row * vocabulary + i]);
    expected[row] = std::log(sum) - logits[row * vocabulary + target];
    whole += expected[row];
    for (std::size_t i = 0; i < vocabulary; ++i)
      back[row * vocabulary + i] = 3.0 * (std::exp(logits[row * vocabulary + i]) / sum - (i == target ? 1.0 : 0.0));
  }
  run_in_loops(gpt::cuda::cross_entropy_kernel{all.text, logits.data(), slope.data(), losses.data(), 3.0F});
  check_near(losses, expected, float_bound);
  check_near(slope, back, bf16_bound);
  numbers<float> again{rows};
  run_in_loops(gpt::cuda::cross_entropy_kernel{all.text, logits.data(), nullptr, again.data(), 1.0F});
  check_near(again, expected, float_bound);
  double total = std::nan("");
  run_in_loops(gpt::cuda::loss_total_kernel{losses.data(), &total, rows});
  CHECK(std::abs(total - whole) <= 1e-5 * whole);
}

}  // namespace token_kernels_test
