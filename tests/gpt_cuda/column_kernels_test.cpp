// SPDX-License-Identifier: Apache-2.0
#include <gpt_cuda/column_kernels.hpp>

#include <gpt_cuda/fake_math.hpp>
#include <gpt_cuda/random_numbers.hpp>

namespace column_kernels_test {

using namespace gpt_cuda_test;
using gpt::cuda::slabs_of;
using support::run_in_loops;

TEST_CASE("the rows of a slope add up to the gradient of a bias, or onto it", "[gpt_cuda]")
{
  for (const auto& [rows, columns] : {std::pair{1U, 8U}, std::pair{33U, 96U}, std::pair{1100U, 24U}}) {
    numbers<bf16> dy{std::size_t{rows} * columns}, gradient{columns};
    numbers<float> sums{std::size_t{slabs_of(rows)} * columns};
    dy.draw(1);
    std::vector<double> expected(columns);
    for (std::size_t i = 0; i < dy.size(); ++i) expected[i % columns] += dy[i];
    run_in_loops(gpt::cuda::slab_sums_kernel{dy.data(), sums.data(), rows, columns});
    run_in_loops(gpt::cuda::slab_total_kernel{sums.data(), gradient.data(), slabs_of(rows), columns, 0.0F});
    check_near(gradient, expected, bf16_bound);
    run_in_loops(gpt::cuda::slab_total_kernel{sums.data(), gradient.data(), slabs_of(rows), columns, 1.0F});
    for (double& each : expected) each *= 2.0;
    check_near(gradient, expected, bf16_bound);
  }
}

}  // namespace column_kernels_test
