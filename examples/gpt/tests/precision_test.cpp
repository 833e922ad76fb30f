// SPDX-License-Identifier: Apache-2.0
#include "precision.hpp"

#include "finite_difference.hpp"

#include <chunkmem/tensor/dtype.hpp>

#include <limits>
#include <vector>

namespace precision_test {

namespace {

using namespace gpt;
using test::numbers;

constexpr std::size_t lengths[] = {1, 63, 64, 65, 200};

}  // namespace

TEMPLATE_TEST_CASE("16-bit numbers are widened exactly", "[gpt]", chunkmem::bf16, chunkmem::fp16)
{
  for (const std::size_t length : lengths) {
    std::vector<TestType> stored(length);
    for (std::size_t i = 0; i < length; ++i)
      stored[i] = TestType::from_bits(static_cast<std::uint16_t>(0x3c00 + 37 * i));
    std::vector<float> wide(length + 1, -1.0f);
    kernels::widen(stored.data(), wide.data(), static_cast<kernels::index>(length));
    for (std::size_t i = 0; i < length; ++i) CHECK(wide[i] == chunkmem::to_float(stored[i]));
    CHECK(wide[length] == -1.0f);
  }
}

TEMPLATE_TEST_CASE("a gradient is added in single precision and rounded once", "[gpt]", chunkmem::bf16, chunkmem::fp16)
{
  for (const std::size_t length : lengths) {
    numbers first{length}, second{length};
    first.draw(1);
    second.draw(2, 0.01f);
    const TestType garbage = chunkmem::round_to<TestType>(std::numeric_limits<float>::quiet_NaN());
    std::vector<TestType> stored(length + 1, garbage);
    kernels::add_rounded(first.data(), 0.0f, stored.data(), static_cast<kernels::index>(length));
    for (std::size_t i = 0; i < length; ++i) {
      CHECK(stored[i].bits() == chunkmem::round_to<TestType>(first[i]).bits());
    }
    const std::vector<TestType> before = stored;
    kernels::add_rounded(second.data(), 1.0f, stored.data(), static_cast<kernels::index>(length));
    for (std::size_t i = 0; i < length; ++i) {
      CHECK(stored[i].bits() == chunkmem::round_to<TestType>(chunkmem::to_float(before[i]) + second[i]).bits());
    }
    CHECK(stored[length].bits() == garbage.bits());
  }
}

}  // namespace precision_test
