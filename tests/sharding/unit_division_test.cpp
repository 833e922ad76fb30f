// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/unit_division.hpp>

#include <chunkmem/ownership/ownerships.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <vector>

namespace unit_division_test {

using namespace chunkmem;
using sharding::divide;
using sharding::unit_division;

bool are_equal(const unit_division& left, const unit_division& right)
{
  return left.chunks == right.chunks && left.shares == right.shares && left.place_of == right.place_of &&
         left.owner_of == right.owner_of;
}

TEST_CASE("sharded divides a chunk over all ranks, in their order", "[sharding]")
{
  for (const std::uint32_t ranks : {1U, 2U, 3U, 7U, 8U})
    CHECK(are_equal(divide(ownership::sharded{}, {ranks, 1}), unit_division::even(ranks)));
}

TEST_CASE("hierarchical divides a chunk over a node, and each node has a copy", "[sharding]")
{
  const unit_division it = divide(ownership::hierarchical{}, {6, 3});
  CHECK(it.chunks == 1);
  CHECK(it.shares == 3);
  CHECK(it.place_of == std::vector<std::uint32_t>{0, 1, 2, 0, 1, 2});
  CHECK(it.owner_of == std::vector<std::uint32_t>{0, 1, 2});
  CHECK(are_equal(divide(ownership::hierarchical{}, {5, 5}), unit_division::even(5)));
  CHECK(divide(ownership::hierarchical{}, {5, 1}).place_of == std::vector<std::uint32_t>(5, 0));
}

TEST_CASE("whole gathers as many chunks as there are ranks, of which each owns one", "[sharding]")
{
  const unit_division it = divide(ownership::whole{}, {4, 2});
  CHECK(it.chunks == 4);
  CHECK(it.shares == 4);
  CHECK(it.place_of == std::vector<std::uint32_t>{0, 1, 2, 3});
}

/// As sharded, in the opposite order.
struct reversed : ownership::sharded {
  static constexpr std::string_view name = "reversed";
  [[nodiscard]] ownership::owned_range owned(const ownership::owned_chunk& chunk, rank_id rank,
                                             const ownership::rank_world& world) const
  {
    return ownership::sharded::owned(chunk, rank_id{world.ranks - 1 - index_of(rank)}, world);
  }
};
/// The first rank owns two shares, the last one none.
struct greedy : ownership::sharded {
  static constexpr std::string_view name = "greedy";
  [[nodiscard]] ownership::owned_range owned(const ownership::owned_chunk& chunk, rank_id rank,
                                             const ownership::rank_world& world) const
  {
    const ownership::owned_range it = ownership::sharded::owned(chunk, rank, world);
    if (index_of(rank) == 0) return {it.begin, it.end * 2};
    return index_of(rank) + 1 == world.ranks ? ownership::owned_range{}
                                             : ownership::sharded::owned(chunk, rank_id{index_of(rank) + 1}, world);
  }
};
/// Every rank owns the first share; none owns the others.
struct crowded : ownership::sharded {
  static constexpr std::string_view name = "crowded";
  [[nodiscard]] ownership::owned_range owned(const ownership::owned_chunk& chunk, rank_id,
                                             const ownership::rank_world& world) const
  {
    return ownership::sharded::owned(chunk, rank_id{0}, world);
  }
};

TEST_CASE("any order of shares will do, shares of different sizes will not", "[sharding]")
{
  const unit_division it = divide(reversed{}, {3, 1});
  CHECK(it.place_of == std::vector<std::uint32_t>{2, 1, 0});
  CHECK(it.owner_of == std::vector<std::uint32_t>{2, 1, 0});
  CHECK_THROWS_AS(divide(greedy{}, {3, 1}), config_error);
  CHECK_THROWS_AS(divide(crowded{}, {3, 1}), config_error);
  CHECK_THROWS_AS(divide(ownership::whole{.fetched = ownership::whole::run::alone}, {3, 1}), config_error);
  CHECK_THROWS_AS(divide(ownership::sharded{}, {3, 2}), config_error);
  CHECK_THROWS_AS(unit_division::even(0), usage_error);
}

}  // namespace unit_division_test
