// SPDX-License-Identifier: Apache-2.0
#include <gpt_cuda/product_kernel.hpp>

#include <gpt_cuda/fake_math.hpp>
#include <gpt_cuda/random_numbers.hpp>

namespace product_kernel_test {

namespace {

using namespace gpt_cuda_test;
using gpt::cuda::product;
using gpt::cuda::product_shape;
using support::run_in_loops;

constexpr std::uint32_t rows = 33, inputs = 24, outputs = 40;

/// Element (row, column) of a stored matrix.
double at(numbers<bf16>& all, const gpt::cuda::operand& how, std::size_t row, std::size_t column)
{
  return how.is_transposed ? all[column * how.stride + row] : all[row * how.stride + column];
}

}  // namespace

TEST_CASE("products of all three directions are those of float64, with bias and with what they add to", "[gpt_cuda]")
{
  for (product_shape shape :
       {gpt::cuda::plain_product(rows, inputs, outputs), gpt::cuda::input_product(rows, inputs, outputs),
        gpt::cuda::weight_product(rows, inputs, outputs)}) {
    shape.has_bias = true;
    numbers<bf16> left{std::size_t{shape.rows} * shape.inner}, right{std::size_t{shape.inner} * shape.columns},
        bias{shape.columns};
    numbers<bf16> out{std::size_t{shape.rows} * shape.columns}, added{out.size()};
    left.draw(1), right.draw(2), bias.draw(3), added.draw(4);
    std::vector<double> expected(out.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (std::size_t k = 0; k < shape.inner; ++k)
        expected[i] += 0.5 * at(left, shape.left, i / shape.columns, k) * at(right, shape.right, k, i % shape.columns);
      expected[i] += bias[i % shape.columns];
    }
    const product it{.shape = shape,
                     .left = left.data(),
                     .right = right.data(),
                     .out = out.data(),
                     .bias = bias.data(),
                     .scale = 0.5F};
    run_in_loops(gpt::cuda::product_kernel{it});
    check_near(out, expected, bf16_bound);
    product onto = it;
    onto.added = added.data();
    onto.beta = 1.0F;
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += added[i];
    run_in_loops(gpt::cuda::product_kernel{onto});
    check_near(out, expected, bf16_bound);
  }
}

TEST_CASE("products of a batch have their own places, and wide ones are not rounded to 16 bits", "[gpt_cuda]")
{
  product_shape shape{.rows = 9,
                      .columns = 16,
                      .inner = 8,
                      .left = {24, 8},
                      .right = {24, 8, true},
                      .out = {16, 9 * 16},
                      .is_wide = true,
                      .batch = 3};
  numbers<bf16> left{9 * 24}, right{16 * 24};
  numbers<float> out{3 * 9 * 16};
  left.draw(1), right.draw(2);
  std::vector<double> expected(out.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    for (std::size_t k = 0; k < 8; ++k)
      expected[i] += left[i / 16 % 9 * 24 + i / 144 * 8 + k] * right[i % 16 * 24 + i / 144 * 8 + k];
  run_in_loops(
      gpt::cuda::product_kernel{{.shape = shape, .left = left.data(), .right = right.data(), .out = out.data()}});
  check_near(out, expected, float_bound);
}

}  // namespace product_kernel_test
