// SPDX-License-Identifier: Apache-2.0
#include <gpt_cuda/norm_kernels.hpp>

#include <gpt_cuda/column_kernels.hpp>
#include <gpt_cuda/fake_math.hpp>
#include <gpt_cuda/random_numbers.hpp>

namespace norm_kernels_test {

namespace {

using namespace gpt_cuda_test;
using gpt::cuda::slabs_of;
using support::run_in_loops;

/// A norm in float64, forward and backward.
struct reference {
  std::size_t rows, width;
  std::vector<double> y, statistics, dx, d_norm;

  reference(numbers<bf16>& x, numbers<bf16>& norm, numbers<bf16>& dy, std::size_t height, std::size_t columns)
      : rows{height}, width{columns}, y(rows * width), statistics(rows * 2), dx(rows * width), d_norm(2 * width)
  {
    const auto w = static_cast<double>(width);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t index = row * width;
      double mean = 0.0, variance = 0.0, one = 0.0, along = 0.0;
      for (std::size_t i = 0; i < width; ++i) mean += x[index + i] / w;
      for (std::size_t i = 0; i < width; ++i) variance += (x[index + i] - mean) * (x[index + i] - mean) / w;
      const double rstd = 1.0 / std::sqrt(variance + 1e-5);
      statistics[2 * row] = mean;
      statistics[2 * row + 1] = rstd;
      for (std::size_t i = 0; i < width; ++i) {
        const double normed = (x[index + i] - mean) * rstd;
        y[index + i] = normed * norm[i] + norm[width + i];
        one += dy[index + i] * norm[i] / w;
        along += dy[index + i] * norm[i] * normed / w;
        d_norm[i] += dy[index + i] * normed;
        d_norm[width + i] += dy[index + i];
      }
      for (std::size_t i = 0; i < width; ++i)
        dx[index + i] = rstd * (dy[index + i] * norm[i] - one - (x[index + i] - mean) * rstd * along);
    }
  }
};

}  // namespace

TEST_CASE("layer norm of bf16 rows and its way back are those of float64", "[gpt_cuda]")
{
  for (const auto& [rows, width] : {std::pair{1U, 8U}, std::pair{33U, 96U}, std::pair{70U, 264U}}) {
    const std::size_t size = std::size_t{rows} * width;
    numbers<bf16> x{size}, norm{2 * width}, dy{size}, y{size}, dx{size}, alone{size}, added{size}, d_norm{2 * width};
    numbers<float> statistics{2 * rows}, sums{std::size_t{slabs_of(rows)} * 2 * width};
    x.draw(1, 3.0F), norm.draw(2, 2.0F), dy.draw(3), added.draw(4, 5.0F);
    reference expected{x, norm, dy, rows, width};
    run_in_loops(gpt::cuda::norm_forward_kernel{x.data(), norm.data(), y.data(), statistics.data(), rows, width});
    check_near(y, expected.y, bf16_bound);
    check_near(statistics, expected.statistics, float_bound);
    run_in_loops(gpt::cuda::norm_backward_kernel{dy.data(), x.data(), norm.data(), statistics.data(), nullptr,
                                                 alone.data(), rows, width});
    check_near(alone, expected.dx, bf16_bound);
    run_in_loops(gpt::cuda::norm_backward_kernel{dy.data(), x.data(), norm.data(), statistics.data(), added.data(),
                                                 dx.data(), rows, width});
    for (std::size_t i = 0; i < size; ++i) expected.dx[i] += added[i];
    check_near(dx, expected.dx, bf16_bound);
    run_in_loops(gpt::cuda::norm_slab_sums_kernel{dy.data(), x.data(), statistics.data(), sums.data(), rows, width});
    run_in_loops(gpt::cuda::slab_total_kernel{sums.data(), d_norm.data(), slabs_of(rows), 2 * width, 0.0F});
    check_near(d_norm, expected.d_norm, bf16_bound);
  }
}

TEST_CASE("a way back through a norm may add to its own place", "[gpt_cuda]")
{
  const std::uint32_t rows = 33, width = 96;
  numbers<bf16> x{rows * width}, norm{2 * width}, dy{rows * width}, y{rows * width}, apart{rows * width},
      same{rows * width};
  numbers<float> statistics{2 * rows};
  x.draw(1), norm.draw(2), dy.draw(3), same.draw(4);
  run_in_loops(gpt::cuda::norm_forward_kernel{x.data(), norm.data(), y.data(), statistics.data(), rows, width});
  gpt::cuda::norm_backward_kernel body{dy.data(),   x.data(),     norm.data(), statistics.data(),
                                       same.data(), apart.data(), rows,        width};
  run_in_loops(body);
  body.dx = same.data();
  run_in_loops(body);
  for (std::size_t i = 0; i < same.size(); ++i) REQUIRE(same.data()[i].bits() == apart.data()[i].bits());
}

}  // namespace norm_kernels_test
