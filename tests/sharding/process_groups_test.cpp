// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/process_groups.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/collective/thread_group.hpp>

#include <support/catch.hpp>

#include <type_traits>

namespace process_groups_test {

using namespace chunkmem;
using collective::local_threads;
using ownership::process_group;
using sharding::process_groups;

static_assert(sharding::rank_group<local_threads, backend::host_arena>);
static_assert(sharding::rank_group<process_groups<collective::self>, backend::host_arena>);
static_assert(!sharding::rank_group<int, backend::host_arena>);
static_assert(
    std::is_same_v<sharding::process_groups_of<process_groups<local_threads>>, process_groups<local_threads>>);

TEST_CASE("process groups are three groups, a communicator is one of all ranks in one node", "[sharding]")
{
  const collective::thread_group six{6, {}};
  const collective::thread_group three{3, {}};
  const collective::thread_group two{2, {}};
  local_threads all{six, rank_id{4}};
  local_threads node{three, rank_id{1}};
  local_threads across{two, rank_id{1}};
  const process_groups<local_threads> it{all, node, across};
  CHECK(&it.of(process_group::all) == &all);
  CHECK(&it.of(process_group::node) == &node);
  CHECK(&it.of(process_group::across) == &across);
  CHECK(it.world() == ownership::rank_world{6, 3});
  const sharding::one_process_group<local_threads> one{all};
  CHECK(&one.of(process_group::node) == &all);
  CHECK(one.world() == ownership::rank_world{6, 6});
}

TEST_CASE("process groups whose numbers do not fit are refused", "[sharding]")
{
  const collective::thread_group six{6, {}};
  const collective::thread_group three{3, {}};
  const collective::thread_group two{2, {}};
  local_threads all{six, rank_id{4}};
  local_threads other{six, rank_id{3}};
  local_threads node{three, rank_id{1}};
  local_threads across{two, rank_id{1}};
  CHECK_THROWS_AS((process_groups<local_threads>{other, node, across}), config_error);
  CHECK_THROWS_AS((process_groups<local_threads>{all, across, across}), config_error);
  CHECK_THROWS_AS((process_groups<local_threads>{all, across, node}), config_error);
}

}  // namespace process_groups_test
