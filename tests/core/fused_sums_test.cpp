// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/lagrangian_dual.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

namespace fused_sums_test {

using namespace chunkmem;

namespace {

std::vector<double> numbers(support::dice& dice, std::size_t count)
{
  std::vector<double> all;
  for (std::size_t index = 0; index < count; ++index)
    all.push_back(std::ldexp(static_cast<double>(dice.below(1U << 30)) - 5e8, static_cast<int>(dice.below(80)) - 60));
  return all;
}

}  // namespace

TEST_CASE("fused sums have the bits of std::fma, for every length", "[core]")
{
  support::dice dice{3};
  for (std::size_t count = 0; count < 70; ++count) {
    const std::vector<double> left = numbers(dice, count);
    const std::vector<double> right = numbers(dice, count);
    double lanes[4] = {};
    for (std::size_t index = 0; index < count; ++index) {
      double& sum = lanes[index < count / 4 * 4 ? index % 4 : 0];
      sum = std::fma(left[index], right[index], sum);
    }
    CHECK(fused_product(left, right) == (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));

    const double factor = numbers(dice, 1)[0];
    std::vector<double> sums = left;
    fused_add(sums, factor, right);
    for (std::size_t index = 0; index < count; ++index)
      CHECK(sums[index] == std::fma(factor, right[index], left[index]));
  }
}

TEST_CASE("one rounding for each product: a rest is not lost", "[core]")
{
  const std::vector<double> left{-1, 1 + 0x1p-30};
  const std::vector<double> right{1 + 0x1p-29, 1 + 0x1p-30};
  CHECK(fused_product(left, right) == 0x1p-60);
  std::vector<double> sum{-1 - 0x1p-29};
  fused_add(sum, 1 + 0x1p-30, std::vector<double>{1 + 0x1p-30});
  CHECK(sum[0] == 0x1p-60);
}

}  // namespace fused_sums_test
