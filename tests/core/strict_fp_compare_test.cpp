// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/strict_fp.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace strict_fp_compare_test {

using namespace chunkmem;

namespace {

static_assert(strict_fp::constant_product(0x1p-24F, 0x1p24F) == 1.0F && strict_fp::constant_sum(1.0F, 2.0F) == 3.0F);
static_assert(strict_fp::constant_sum(1.0, 0x1p-52) > 1.0 && strict_fp::constant_quotient(1.0, 4.0) == 0.25);
static_assert(strict_fp::constant_single(1.0 + 0x1p-25) == 1.0F && strict_fp::to_double(0.5F) == 0.5);
static_assert(strict_fp::negative(2.0F) == -2.0F && strict_fp::cut(-2.75F) == -2 && strict_fp::cut(2.75F) == 2);
static_assert(strict_fp::is_less(1.0F, 2.0F) && !strict_fp::is_less(2.0F, 2.0F) && strict_fp::is_equal(0.0F, -0.0F));

float number(std::uint32_t bits)
{
  return std::bit_cast<float>(bits);
}
std::uint32_t bits(float value)
{
  return std::bit_cast<std::uint32_t>(value);
}

}  // namespace

TEST_CASE("signs are the sign bit, of NaN and zero too", "[core]")
{
  for (const std::uint32_t it : support::hostile_bits) {
    CHECK(bits(strict_fp::negative(number(it))) == (it ^ 0x80000000U));
    CHECK(bits(strict_fp::magnitude(number(it))) == (it & 0x7fffffffU));
  }
}

TEST_CASE("comparisons know denormals and are false for NaN", "[core]")
{
  CHECK(strict_fp::is_less(0.0F, number(1)));
  CHECK(strict_fp::is_less(number(0x80000001U), 0.0F));
  CHECK(!strict_fp::is_equal(0.0F, number(1)));
  const float no_number = std::numeric_limits<float>::quiet_NaN();
  for (const float other : {0.0F, INFINITY, no_number}) {
    CHECK(!strict_fp::is_less(no_number, other));
    CHECK(!strict_fp::is_less(other, no_number));
    CHECK(!strict_fp::is_equal(no_number, other));
  }
}

TEST_CASE("conversions keep denormals", "[core]")
{
  CHECK(strict_fp::to_double(number(1)) == 0x1p-149);
  CHECK(strict_fp::constant_single(0x1p-149) == number(1));
  CHECK(strict_fp::cut(0x1p30F) == 1 << 30);
  CHECK(strict_fp::constant_product(number(1), 0x1p23F) == 0x1p-126F);
}

}  // namespace strict_fp_compare_test
