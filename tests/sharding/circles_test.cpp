// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/circles.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/collective/thread_group.hpp>

#include <support/catch.hpp>

#include <type_traits>

namespace circles_test {

using namespace chunkmem;
using collective::local_threads;
using ownership::circle;
using sharding::circles;

static_assert(sharding::rank_group<local_threads, backend::host_arena>);
static_assert(sharding::rank_group<circles<collective::self>, backend::host_arena>);
static_assert(!sharding::rank_group<int, backend::host_arena>);
static_assert(std::is_same_v<sharding::circles_of<circles<local_threads>>, circles<local_threads>>);

TEST_CASE("circles are three groups, a communicator is one of all ranks in one node", "[sharding]")
{
  const collective::thread_group six{6, {}};
  const collective::thread_group three{3, {}};
  const collective::thread_group two{2, {}};
  local_threads all{six, rank_id{4}};
  local_threads node{three, rank_id{1}};
  local_threads across{two, rank_id{1}};
  const circles<local_threads> it{all, node, across};
  CHECK(&it.of(circle::all) == &all);
  CHECK(&it.of(circle::node) == &node);
  CHECK(&it.of(circle::across) == &across);
  CHECK(it.world() == ownership::rank_world{6, 3});
  const sharding::one_circle<local_threads> one{all};
  CHECK(&one.of(circle::node) == &all);
  CHECK(one.world() == ownership::rank_world{6, 6});
}

TEST_CASE("circles whose numbers do not fit are refused", "[sharding]")
{
  const collective::thread_group six{6, {}};
  const collective::thread_group three{3, {}};
  const collective::thread_group two{2, {}};
  local_threads all{six, rank_id{4}};
  local_threads other{six, rank_id{3}};
  local_threads node{three, rank_id{1}};
  local_threads across{two, rank_id{1}};
  CHECK_THROWS_AS((circles<local_threads>{other, node, across}), config_error);
  CHECK_THROWS_AS((circles<local_threads>{all, across, across}), config_error);
  CHECK_THROWS_AS((circles<local_threads>{all, across, node}), config_error);
}

}  // namespace circles_test
