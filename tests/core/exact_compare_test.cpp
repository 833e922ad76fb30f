// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/exact_compare.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace exact_compare_test {

using namespace chunkmem;

namespace {

static_assert(exact::constant_product(0x1p-24F, 0x1p24F) == 1.0F && exact::constant_sum(1.0F, 2.0F) == 3.0F);
static_assert(exact::constant_sum(1.0, 0x1p-52) > 1.0 && exact::constant_quotient(1.0, 4.0) == 0.25);
static_assert(exact::constant_single(1.0 + 0x1p-25) == 1.0F && exact::to_double(0.5F) == 0.5);
static_assert(exact::negative(2.0F) == -2.0F && exact::cut(-2.75F) == -2 && exact::cut(2.75F) == 2);
static_assert(exact::is_less(1.0F, 2.0F) && !exact::is_less(2.0F, 2.0F) && exact::is_equal(0.0F, -0.0F));

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
    CHECK(bits(exact::negative(number(it))) == (it ^ 0x80000000U));
    CHECK(bits(exact::magnitude(number(it))) == (it & 0x7fffffffU));
  }
}

TEST_CASE("comparisons know denormals and are false for NaN", "[core]")
{
  CHECK(exact::is_less(0.0F, number(1)));
  CHECK(exact::is_less(number(0x80000001U), 0.0F));
  CHECK(!exact::is_equal(0.0F, number(1)));
  const float no_number = std::numeric_limits<float>::quiet_NaN();
  for (const float other : {0.0F, INFINITY, no_number}) {
    CHECK(!exact::is_less(no_number, other));
    CHECK(!exact::is_less(other, no_number));
    CHECK(!exact::is_equal(no_number, other));
  }
}

TEST_CASE("conversions keep denormals", "[core]")
{
  CHECK(exact::to_double(number(1)) == 0x1p-149);
  CHECK(exact::constant_single(0x1p-149) == number(1));
  CHECK(exact::cut(0x1p30F) == 1 << 30);
  CHECK(exact::constant_product(number(1), 0x1p23F) == 0x1p-126F);
}

}  // namespace exact_compare_test
