// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/bytes.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <type_traits>

namespace checked_test {

using namespace chunkmem;

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

}  // namespace checked_test
