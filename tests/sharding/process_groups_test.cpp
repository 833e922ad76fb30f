// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/process_groups.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>

#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

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

TEST_CASE("errors of each process group say which rank of all ranks is meant, and which node", "[sharding]")
{
  const auto error_of = [](auto& here, process_group which) {
    std::vector<std::uint64_t> all(6);
    auto& group = here.process_groups().of(which);
    return support::refusal<comm_error>(
        [&] { group.exchange(std::vector<std::uint64_t>{1}, std::span{all}.first(group.ranks())); });
  };
  struct expected {
    process_group which;
    const char* words;
    std::vector<std::uint32_t> asked;  // ranks that wait for rank 4 of all, which is rank 1 of node 1
  };
  for (const expected& it :
       {expected{process_group::all, "rank 4 (rank 1 of node 1) has left its group of 6 (all ranks)", {0, 1, 2, 3, 5}},
        {process_group::node, "rank 1 (rank 4 of all) has left its group of 3 (node 1)", {3, 5}},
        {process_group::across,
         "rank 1 (rank 4 of all, in node 1) has left its group of 2 (ranks in place 1 of",
         {1}}}) {
    std::vector<std::string> found(6);
    sharding::thread_ranks{6, 3}.run([&](sharding::thread_ranks::place& here) {
      if (here.rank() != 4) found[here.rank()] = error_of(here, it.which);
    });
    for (const std::uint32_t rank : it.asked) {
      CAPTURE(rank, found[rank]);
      CHECK(found[rank].find(it.words) != std::string::npos);
    }
  }
}

}  // namespace process_groups_test
