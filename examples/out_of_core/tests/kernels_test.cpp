// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include "../../gpt/random.hpp"

#include <support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace out_of_core_kernels_test {

namespace {

using namespace out_of_core;
using numbers = std::vector<float>;

numbers drawn(kernels::index count, std::uint64_t stream)
{
  const gpt::counter_random random{3, stream};
  numbers values(static_cast<std::size_t>(count));
  for (std::size_t each = 0; each < values.size(); ++each) values[each] = 2.0F * random.uniform(each) - 1.0F;
  return values;
}

double product(const numbers& one, const numbers& other)
{
  double sum = 0;
  for (std::size_t each = 0; each < one.size(); ++each)
    sum += static_cast<double>(one[each]) * static_cast<double>(other[each]);
  return sum;
}

constexpr kernels::planes shape{4, 3};
constexpr kernels::index pictures = 2;

}  // namespace

TEST_CASE("the patches times a weight are a convolution with a bias", "[out_of_core]")
{
  const kernels::index outputs = 2;
  const numbers x = drawn(pictures * shape.numbers(), 1);
  const numbers weight = drawn(shape.patch() * outputs, 2);
  numbers patches(static_cast<std::size_t>(pictures * shape.patch_numbers()), 9.0F);
  numbers y(static_cast<std::size_t>(pictures * shape.positions() * outputs));
  kernels::patches_of(x.data(), patches.data(), shape, pictures);
  kernels::multiply(patches.data(), weight.data(), y.data(), pictures * shape.positions(), shape.patch(), outputs);
  const auto at = [&](kernels::index picture, kernels::index row, kernels::index column, kernels::index channel) {
    if (row < 0 || column < 0 || row >= shape.side || column >= shape.side) return 0.0F;
    return x[static_cast<std::size_t>(((picture * shape.side + row) * shape.side + column) * shape.channels + channel)];
  };
  for (kernels::index place = 0; place < pictures * shape.positions(); ++place)
    for (kernels::index output = 0; output < outputs; ++output) {
      const auto weight_of = [&](kernels::index row) {
        return weight[static_cast<std::size_t>(row * outputs + output)];
      };
      float sum = weight_of(9 * shape.channels);
      for (kernels::index each = 0; each < 9 * shape.channels; ++each) {
        const kernels::index neighbour = each / shape.channels;
        sum += weight_of(each) * at(place / shape.positions(), place / shape.side % shape.side + neighbour / 3 - 1,
                                    place % shape.side + neighbour % 3 - 1, each % shape.channels);
      }
      CHECK(y[static_cast<std::size_t>(place * outputs + output)] == Catch::Approx(sum).margin(1e-5));
    }
}

TEST_CASE("the ways back of patches and of halving are the transposed ways", "[out_of_core]")
{
  const numbers x = drawn(pictures * shape.numbers(), 3);
  numbers back(x.size(), 0.0F);
  SECTION("patches")
  {
    numbers patches(static_cast<std::size_t>(pictures * shape.patch_numbers()));
    numbers slope = drawn(pictures * shape.patch_numbers(), 4);
    for (std::size_t row = 1; row <= static_cast<std::size_t>(pictures * shape.positions()); ++row)
      slope[row * static_cast<std::size_t>(shape.patch()) - 1] = 0.0F;  // the 1 of the bias is no number of x
    kernels::patches_of(x.data(), patches.data(), shape, pictures);
    kernels::add_patches(slope.data(), back.data(), shape, pictures);
    CHECK(product(patches, slope) == Catch::Approx(product(x, back)).margin(1e-5));
  }
  SECTION("halving")
  {
    numbers small(x.size() / 4);
    const numbers slope = drawn(pictures * shape.numbers() / 4, 5);
    kernels::halve(x.data(), small.data(), shape, pictures);
    kernels::halve_backward(slope.data(), back.data(), shape, pictures);
    CHECK(product(small, slope) == Catch::Approx(product(x, back)).margin(1e-5));
  }
}

TEST_CASE("dropout draws the same elements in parts as at once", "[out_of_core]")
{
  const chunkmem::rounding_key key{.seed = 1, .step = 2, .tensor = 3, .list = 4};
  const kernels::index count = 1000;
  numbers whole(static_cast<std::size_t>(count), 1.0F);
  numbers parts = whole;
  kernels::relu_dropout(whole.data(), count, key, 0);
  kernels::relu_dropout(parts.data(), 300, key, 0);
  kernels::relu_dropout(parts.data() + 300, count - 300, key, 300);
  CHECK(whole == parts);
  CHECK(std::ranges::count(whole, 0.0F) > 80);
  CHECK(std::ranges::count(whole, 0.0F) < 170);
}

TEST_CASE("the slope of logits is that of finite differences of the loss", "[out_of_core]")
{
  const kernels::index rows = 2;
  const kernels::index classes = 4;
  const std::vector<std::uint8_t> labels{3, 0};
  numbers logits = drawn(rows * classes, 6);
  const auto loss = [&] {
    numbers copy = logits;
    return kernels::softmax_cross_entropy(copy.data(), labels.data(), 1.0F, rows, classes);
  };
  numbers slope = logits;
  (void)kernels::softmax_cross_entropy(slope.data(), labels.data(), 0.5F, rows, classes);
  for (std::size_t each = 0; each < logits.size(); ++each) {
    const float before = logits[each];
    logits[each] = before + 0.01F;
    const double above = loss();
    logits[each] = before - 0.01F;
    const double below = loss();
    logits[each] = before;
    CHECK(static_cast<double>(slope[each]) == Catch::Approx(0.5 * (above - below) / 0.02).margin(1e-4));
  }
  CHECK(kernels::hits(numbers{0, 1, 2, 3, 9, 1, 1, 1}.data(), labels.data(), rows, classes) == 2);
}

}  // namespace out_of_core_kernels_test
