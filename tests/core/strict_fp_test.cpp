// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/strict_fp.hpp>

#include <chunkmem/core/float_environment.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace strict_fp_test {

using namespace chunkmem;

namespace {

/// To the nearest single, ties to even, by comparing neighbours in double.
float rounded(double value)
{
  const float below = std::nextafter(static_cast<float>(value), -std::numeric_limits<float>::infinity());
  float best = below;
  for (float candidate = below; candidate <= std::nextafter(std::nextafter(below, 1e38F), 1e38F);
       candidate = std::nextafter(candidate, 1e38F)) {
    const double error = std::fabs(static_cast<double>(candidate) - value);
    const double least = std::fabs(static_cast<double>(best) - value);
    if (error < least || (error == least && (bits_as<std::uint32_t>(candidate) & 1U) == 0)) best = candidate;
    if (candidate > 1e37F) break;
  }
  return best;
}

}  // namespace

TEST_CASE("each operation rounds once, to the nearest", "[core]")
{
  const float_environment standard;
  std::uint32_t random = 12345;
  const auto next = [&] {
    random = random * 1664525U + 1013904223U;
    return 1.0F + static_cast<float>(random >> 9U) / 8388608.0F;
  };
  for (int round = 0; round < 20'000; ++round) {
    const float left = next();
    const float right = next();
    const auto wide = static_cast<double>(left);
    const auto other = static_cast<double>(right);
    REQUIRE(strict_fp::product(left, right) == rounded(wide * other));  // 48 bits: exact in double
    REQUIRE(strict_fp::sum(left, right) == rounded(wide + other));
    const float quotient = strict_fp::quotient(left, right);
    const float step = std::nextafter(quotient, 4.0F) - quotient;
    REQUIRE(std::fabs(static_cast<double>(quotient) * other - wide) <= 0.5 * static_cast<double>(step) * other);
    const auto root = static_cast<double>(strict_fp::root(left));
    const double half = 0x1p-24;  // half an ulp of a root between 1 and 2
    REQUIRE((root - half) * (root - half) <= wide);
    REQUIRE((root + half) * (root + half) >= wide);
    REQUIRE(strict_fp::to_single(wide * other) == rounded(wide * other));
  }
}

TEST_CASE("a fused operation keeps what a product rounds away, and denormals stay", "[core]")
{
  const float_environment standard;
  const float left = 1.0F + 0x1p-23F;
  CHECK(strict_fp::fused(left, left, -strict_fp::product(left, left)) == 0x1p-46F);
  CHECK(strict_fp::product(0x1p-100F, 0x1p-40F) == 0x1p-140F);
  CHECK(strict_fp::sum(0x1p-140F, 0x1p-140F) == 0x1p-139F);
  CHECK(strict_fp::product(0x1p-600, 0x1p-470) == 0x1p-1070);
  CHECK(strict_fp::quotient(1.0, 3.0) == 1.0 / 3.0);
  CHECK(strict_fp::sum(1.0, 0x1p-53) == 1.0);
  CHECK(strict_fp::root(2.0) == std::sqrt(2.0));
  CHECK(std::isnan(strict_fp::root(-1.0F)));
  CHECK(std::isinf(strict_fp::quotient(1.0F, 0.0F)));
}

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

}  // namespace strict_fp_test
