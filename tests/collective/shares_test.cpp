// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/shares.hpp>

#include <support/catch.hpp>

#include <cstdint>

namespace shares_test {

using namespace chunkmem;
using collective::shares;

TEST_CASE("shares cover a run without gaps, in order, with whole units for all but the last", "[collective]")
{
  for (std::uint32_t ranks = 1; ranks <= 9; ++ranks)
    for (std::uint64_t whole = 0; whole < 6'000; whole += whole < 600 ? 1 : 251) {
      const shares parts = shares::of(bytes{whole}, ranks);
      std::uint64_t end = 0;
      bool is_short = false;
      bool holds = parts.begin(0) == 0 && parts.each % tensor_alignment.count() == 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        holds =
            holds && parts.begin(rank) == end && (!is_short || parts.size(rank) == 0) && parts.size(rank) <= parts.each;
        is_short = parts.size(rank) < parts.each;
        end = parts.end(rank);
      }
      CAPTURE(ranks, whole);
      CHECK((holds && end == whole));
      CHECK(parts.each < whole / ranks + tensor_alignment.count() + 1);
      CHECK(parts.are_equal() == (parts.size(ranks - 1) == parts.each));
    }
}

TEST_CASE("shares of the largest runs neither overflow nor pass the end", "[collective]")
{
  const shares parts = shares::of(bytes{UINT64_MAX - 255}, 3);
  CHECK(parts.end(2) == UINT64_MAX - 255);
  CHECK(parts.begin(UINT32_MAX) == parts.whole);
  CHECK_THROWS_AS(shares::of(bytes{UINT64_MAX}, 1), size_overflow);
  CHECK_THROWS_AS(shares::of(1_B, 0), usage_error);
}

}  // namespace shares_test
