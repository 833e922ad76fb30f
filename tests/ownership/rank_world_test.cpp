// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/ownership/ownership_policy.hpp>

#include <support/catch.hpp>

namespace rank_world_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using ownership::process_group;
using ownership::rank_world;

TEST_CASE("ranks of a node follow each other, and process groups number them from 0", "[ownership]")
{
  const rank_world world{12, 4};
  world.check();
  CHECK(world.nodes() == 3);
  CHECK(world.size_of(process_group::all) == 12);
  CHECK(world.size_of(process_group::node) == 4);
  CHECK(world.size_of(process_group::across) == 3);
  CHECK(world.place_in(process_group::all, rank_id{9}) == 9);
  CHECK(world.place_in(process_group::node, rank_id{9}) == 1);
  CHECK(world.place_in(process_group::across, rank_id{9}) == 2);
}

TEST_CASE("ranks that do not fill their nodes are refused with both numbers", "[ownership]")
{
  CHECK_THROWS_AS((rank_world{10, 4}.check()), config_error);
  CHECK_THROWS_WITH((rank_world{10, 4}.check()), ContainsSubstring("10 ranks with 4 of each node"));
  CHECK_THROWS_AS((rank_world{0, 4}.check()), config_error);
  CHECK_THROWS_AS((rank_world{4, 0}.check()), config_error);
}

}  // namespace rank_world_test
