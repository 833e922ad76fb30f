// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/strict_fp_lanes.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace strict_fp_lanes_test {

using namespace chunkmem;

namespace {

constexpr std::size_t count = 4096;

/// All NaNs count as one: the payload of a result is not promised.
std::vector<float> with_one_nan(std::vector<float> all)
{
  for (float& it : all)
    if (std::isnan(it)) it = std::nanf("");
  return all;
}

/// The results of `work(a, b, c)` for lanes and for singles.
template <class Work>
void check(Work work)
{
  const auto a = support::hostile_numbers(count, 1), b = support::hostile_numbers(count, 2),
             c = support::hostile_numbers(count, 3);
  std::vector<float> seen(count), expected(count);
  for (std::size_t index = 0; index < count; index += 4) {
    lanes<4> x, y, z;
    std::memcpy(&x, a.data() + index, sizeof x);
    std::memcpy(&y, b.data() + index, sizeof y);
    std::memcpy(&z, c.data() + index, sizeof z);
    const lanes<4> result = work(x, y, z);
    std::memcpy(seen.data() + index, &result, sizeof result);
    for (std::size_t lane = index; lane < index + 4; ++lane) expected[lane] = work(a[lane], b[lane], c[lane]);
  }
  CHECK(support::same_bits(with_one_nan(seen), with_one_nan(expected)));
}

}  // namespace

TEST_CASE("lanes are worked on as single numbers are", "[core]")
{
  check([](const auto& a, const auto& b, const auto&) { return strict_fp::product(a, b); });
  check([](const auto& a, const auto& b, const auto&) { return strict_fp::quotient(a, b); });
  check([](const auto& a, const auto& b, const auto& c) { return strict_fp::fused(a, b, c); });
  check([](const auto& a, const auto& b, const auto& c) { return strict_fp::fused(a, b, strict_fp::product(a, c)); });
  check([](const auto& a, const auto& b, const auto&) { return strict_fp::zero_if_small(a, b); });
  check([](const auto& a, const auto& b, const auto&) { return strict_fp::zero_if_less(a, b); });
  check([](const auto& a, const auto&, const auto&) { return strict_fp::with_one_nan(a); });
  check([](const auto& a, const auto& b, const auto&) { return strict_fp::stored(a, b); });
  check([](const auto& a, const auto&, const auto&) { return strict_fp::negative(a); });
}

TEST_CASE("numbers are cut to a range, and NaN stays", "[core]")
{
  const lanes<4> wild{-7.0F, 0.25F, std::nanf(""), INFINITY};
  const lanes<4> cut = strict_fp::cut_to(wild, in_all_lanes<lanes<4>>(-0.5F), in_all_lanes<lanes<4>>(0.5F));
  CHECK(cut[0] == -0.5F);
  CHECK(cut[1] == 0.25F);
  CHECK(std::isnan(cut[2]));
  CHECK(cut[3] == 0.5F);
}

TEST_CASE("a small number becomes +0, and every NaN becomes one", "[core]")
{
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  CHECK(bits(strict_fp::zero_if_small(-0x1.fffffep-101F, 0x1p-100F)) == 0);
  CHECK(bits(strict_fp::zero_if_small(-0.0F, 0x1p-100F)) == 0);
  CHECK(strict_fp::zero_if_small(-0x1p-100F, 0x1p-100F) == -0x1p-100F);
  CHECK(strict_fp::zero_if_less(-INFINITY, 0x1p-100F) == 0.0F);
  CHECK(std::isnan(strict_fp::zero_if_less(std::nanf(""), INFINITY)));
  CHECK(std::isnan(strict_fp::zero_if_small(std::nanf(""), INFINITY)));
  CHECK(strict_fp::zero_if_small(-INFINITY, INFINITY) == -INFINITY);
  for (const std::uint32_t nan : {0x7f800001U, 0xff800001U, 0x7fffffffU, 0xffc00000U})
    CHECK(bits(strict_fp::with_one_nan(std::bit_cast<float>(nan))) == 0x7fc00000U);
  CHECK(strict_fp::with_one_nan(-INFINITY) == -INFINITY);
  CHECK(bits(strict_fp::stored(std::bit_cast<float>(0xff800001U), 0x1p-100F)) == 0x7fc00000U);
  CHECK(bits(strict_fp::stored(-0x1p-101F, 0x1p-100F)) == 0);
}

TEST_CASE("both products of a sum are rounded first", "[core]")
{
  const volatile float third = 1.0F / 3;
  const float square = third * third;
  CHECK(strict_fp::sum_of_products(third * third, -square) == 0.0F);
}

TEST_CASE("a number is in each lane, zero with its sign", "[core]")
{
  const auto same = in_all_lanes<lanes<4>>(-0.0F);
  for (std::size_t lane = 0; lane < 4; ++lane) CHECK(std::signbit(same[lane]));
  CHECK(lane_count<lanes<16>> == 16);
  CHECK(lane_count<float> == 0);
}

}  // namespace strict_fp_lanes_test
