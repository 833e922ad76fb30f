// SPDX-License-Identifier: Apache-2.0
#include <gpt_cuda/pointwise_kernels.hpp>

#include <gpt_cuda/fake_math.hpp>
#include <gpt_cuda/random_numbers.hpp>

namespace pointwise_kernels_test {

using namespace gpt_cuda_test;
using support::run_in_loops;

namespace {

double gelu(double x)
{
  return 0.5 * x * (1.0 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

}  // namespace

TEST_CASE("GELU is that of float64, and its way back the slope of it", "[gpt_cuda]")
{
  const std::size_t size = 33 * 96;
  numbers<bf16> x{size}, y{size}, slope{size};
  x.draw(1, 8.0F), slope.draw(2);
  std::vector<double> expected(size), back(size);
  for (std::size_t i = 0; i < size; ++i) {
    expected[i] = gelu(x[i]);
    back[i] = slope[i] * (gelu(x[i] + 1e-6) - gelu(x[i] - 1e-6)) / 2e-6;
  }
  run_in_loops(gpt::cuda::gelu_forward_kernel{x.data(), y.data(), size});
  check_near(y, expected, bf16_bound);
  run_in_loops(gpt::cuda::gelu_backward_kernel{x.data(), slope.data(), size});
  check_near(slope, back, bf16_bound);
  run_in_loops(gpt::cuda::gelu_forward_kernel{x.data(), x.data(), size});  // in its own place
  for (std::size_t i = 0; i < size; ++i) REQUIRE(x.data()[i].bits() == y.data()[i].bits());
}

}  // namespace pointwise_kernels_test
