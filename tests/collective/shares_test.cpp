// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/shares.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <vector>

namespace shares_test {

using namespace chunkmem;
using collective::ring_traffic;
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

namespace {

const std::vector<std::uint64_t> sizes{0, 1, 255, 256, 257, 1'000, 4'096, 5'003, 65'536};

/// Walks a ring: in each of its steps rank r passes one share to its next, first the one `first` places from its own.
std::vector<ring_traffic> walked(const shares& parts, std::uint32_t first)
{
  const std::uint32_t ranks = parts.ranks;
  std::vector<ring_traffic> moved(ranks);
  for (std::uint32_t step = 0; step + 1 < ranks; ++step)
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const std::uint64_t share = parts.size((rank + 2 * ranks - first - step) % ranks);
      moved[rank].sent += share;
      moved[(rank + 1) % ranks].received += share;
    }
  return moved;
}

}  // namespace

TEST_CASE("ring_traffic is what ranks send and receive when a ring is walked step by step", "[collective]")
{
  for (std::uint32_t ranks = 1; ranks <= 9; ++ranks)
    for (const std::uint64_t size : sizes) {
      CAPTURE(ranks, size);
      const shares parts = shares::of(bytes{size}, ranks);
      const std::vector<ring_traffic> gather = walked(parts, 0);   // own share first
      const std::vector<ring_traffic> scatter = walked(parts, 1);  // what the previous rank keeps first
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        CHECK(ring_traffic::of_all_gather(parts, rank) == gather[rank]);
        CHECK(ring_traffic::of_reduce_scatter(parts, rank) == scatter[rank]);
        CHECK(ring_traffic::of_all_reduce(parts, rank) ==
              ring_traffic{gather[rank].sent + scatter[rank].sent, gather[rank].received + scatter[rank].received});
      }
    }
}

TEST_CASE("a chain of a broadcast gives every rank but the root the bytes, and every rank but the last sends them",
          "[collective]")
{
  for (std::uint32_t ranks = 1; ranks <= 9; ++ranks)
    for (std::uint32_t root = 0; root < ranks; ++root) {
      CAPTURE(ranks, root);
      for (std::uint32_t hop = 0; hop < ranks; ++hop)
        CHECK(ring_traffic::of_broadcast(bytes{1'000}, (root + hop) % ranks, root, ranks) ==
              ring_traffic{hop + 1 == ranks ? 0U : 1'000U, hop == 0 ? 0U : 1'000U});
    }
}

TEST_CASE("bytes of an all_reduce that 64 bits do not hold are refused", "[collective]")
{
  const shares huge = shares::of(bytes{std::uint64_t{3} << 62}, 8);
  CHECK(ring_traffic::of_all_gather(huge, 0).received == (std::uint64_t{3} << 62) / 8 * 7);
  CHECK_THROWS_AS(ring_traffic::of_all_reduce(huge, 0), size_overflow);
}

}  // namespace shares_test
