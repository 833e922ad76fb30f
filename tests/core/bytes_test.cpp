// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/bytes.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <string>
#include <type_traits>

namespace bytes_test {

using namespace chunkmem;

namespace {

constexpr std::uint64_t top = UINT64_MAX;

static_assert(bytes{}.count() == 0);
static_assert(3_B == bytes{3} && 1_KiB == bytes{1'024} && 1_MiB == bytes{1'048'576} && 1_GiB == bytes{1'073'741'824});
static_assert(2_KiB + 1_B == bytes{2'049} && 2_KiB - 1_B == bytes{2'047} && 3 * 2_KiB == 2_KiB * 3);
static_assert(1_KiB < 1_MiB && 1_KiB <= 1'024_B && 1_MiB > 1_KiB && 1_B != 2_B);
static_assert(!std::is_convertible_v<std::uint64_t, bytes>, "a number is not silently a size");
static_assert(sizeof(bytes) == 8 && std::is_trivially_copyable_v<bytes>);

}  // namespace

TEST_CASE("a sum of bytes that does not fit throws and changes nothing", "[core]")
{
  bytes size{top - 1};
  REQUIRE((size += bytes{1}) == bytes{top});
  REQUIRE_THROWS_AS(size += bytes{1}, size_overflow);
  REQUIRE(size == bytes{top});
  REQUIRE_THROWS_AS(bytes{top} + bytes{top}, size_overflow);
  REQUIRE_THROWS_AS(bytes{std::uint64_t{1} << 63} + bytes{std::uint64_t{1} << 63}, size_overflow);
  REQUIRE(bytes{top} + bytes{0} == bytes{top});
}

TEST_CASE("a difference of bytes below zero throws and changes nothing", "[core]")
{
  bytes size{5};
  REQUIRE_THROWS_AS(size -= bytes{6}, size_overflow);
  REQUIRE(size == bytes{5});
  REQUIRE((size -= bytes{5}) == bytes{0});
  REQUIRE_THROWS_AS(bytes{0} - bytes{1}, size_overflow);
  REQUIRE(bytes{top} - bytes{top} == bytes{0});
}

TEST_CASE("a product of bytes that does not fit throws and changes nothing", "[core]")
{
  bytes size{std::uint64_t{1} << 32};
  REQUIRE_THROWS_AS(size *= std::uint64_t{1} << 32, size_overflow);
  REQUIRE(size == bytes{std::uint64_t{1} << 32});
  REQUIRE(bytes{top} * 1 == bytes{top});
  REQUIRE(bytes{top} * 0 == bytes{0});
  REQUIRE(0 * bytes{top} == bytes{0});
  REQUIRE(bytes{0} * top == bytes{0});
  REQUIRE_THROWS_AS(bytes{top} * 2, size_overflow);
  REQUIRE_THROWS_AS(2 * bytes{top}, size_overflow);
  REQUIRE(bytes{top / 3} * 3 == bytes{top});  // 2^64 - 1 is a multiple of 3
  REQUIRE_THROWS_AS(bytes{top / 3 + 1} * 3, size_overflow);
}

TEST_CASE("a literal that does not fit throws", "[core]")
{
  REQUIRE(17'179'869'183_GiB == bytes{top - (std::uint64_t{1} << 30) + 1});
  REQUIRE_THROWS_AS(17'179'869'184_GiB, size_overflow);
  REQUIRE_THROWS_AS(17'592'186'044'416_MiB, size_overflow);
  REQUIRE_THROWS_AS(18'014'398'509'481'984_KiB, size_overflow);
  REQUIRE(18'446'744'073'709'551'615_B == bytes{top});
}

TEST_CASE("align_up gives the smallest multiple that is not below", "[core]")
{
  for (const std::uint64_t alignment : {1u, 2u, 3u, 7u, 256u, 1'000u})
    for (std::uint64_t size = 0; size < 2'100; size += 1 + size / 64) {
      const std::uint64_t up = align_up(bytes{size}, bytes{alignment}).count();
      if (up < size || up - size >= alignment || up % alignment != 0)
        FAIL(size << " to " << alignment << " gave " << up);
    }
}

TEST_CASE("align_up near the end of 64 bits throws instead of wrapping", "[core]")
{
  const std::uint64_t last = top - 255;  // the largest multiple of 256
  REQUIRE(align_up(bytes{last}, tensor_alignment) == bytes{last});
  REQUIRE(align_up(bytes{last - 1}, tensor_alignment) == bytes{last});
  REQUIRE(align_up(bytes{last - 255}, tensor_alignment) == bytes{last});
  REQUIRE_THROWS_AS(align_up(bytes{last + 1}, tensor_alignment), size_overflow);
  REQUIRE_THROWS_AS(align_up(bytes{top}, tensor_alignment), size_overflow);
  REQUIRE(align_up(bytes{top}, bytes{1}) == bytes{top});
  REQUIRE(align_up(bytes{top}, bytes{top}) == bytes{top});
  REQUIRE(align_up(bytes{1}, bytes{top}) == bytes{top});
}

TEST_CASE("an overflow says which numbers did not fit", "[core]")
{
  using Catch::Matchers::ContainsSubstring;
  try {
    (void)(bytes{top} + bytes{7});
    FAIL("the sum was accepted");
  } catch (const size_overflow& refused) {
    const std::string text = refused.what();
    CHECK_THAT(text, ContainsSubstring("sum of bytes") && ContainsSubstring("18446744073709551615 and 7"));
  }
}

TEST_CASE("counts add and multiply as whole numbers do, in constant expressions too", "[core]")
{
  STATIC_REQUIRE(sizeof(checked) == 8);
  STATIC_REQUIRE(std::is_trivially_copyable_v<checked>);
  STATIC_REQUIRE((checked{3} + 4 * checked{5} + 1).value() == 24);
  STATIC_REQUIRE((checked{0} * UINT64_MAX).value() == 0);
  STATIC_REQUIRE((checked{UINT64_MAX} * 0).value() == 0);
  STATIC_REQUIRE((checked{UINT64_MAX} * 1).value() == UINT64_MAX);
  STATIC_REQUIRE((checked{UINT64_MAX} + 0).value() == UINT64_MAX);
  STATIC_REQUIRE(checked{2} < checked{3});
  STATIC_REQUIRE(checked{} == checked{0});
}

TEST_CASE("a count that needs more than 64 bits throws with both numbers, and stays what it was", "[core]")
{
  checked most = UINT64_MAX;
  CHECK_THROWS_AS(most += 1, size_overflow);
  CHECK_THROWS_AS(most *= 2, size_overflow);
  CHECK(most.value() == UINT64_MAX);
  checked half = std::uint64_t{1} << 32;
  CHECK_THROWS_AS(half * half, size_overflow);
  CHECK((half * (half.value() - 1)).value() == 0xffff'ffff'0000'0000);
  CHECK_THROWS_WITH(half * half,
                    Catch::Matchers::ContainsSubstring("a product does not fit 64 bits: 4294967296 and 4294967296"));
  CHECK_THROWS_WITH(most + 7,
                    Catch::Matchers::ContainsSubstring("a sum does not fit 64 bits: 18446744073709551615 and 7"));
}

}  // namespace bytes_test
