// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/mpi_session.hpp>

#include "mpi_world.hpp"

#include <support/catch.hpp>
#include <support/forked_child.hpp>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace mpi_session_test {

using namespace chunkmem;

TEST_CASE("a session that finds MPI started adopts it and does not end it", "[collective_mpi]")
{
  REQUIRE(mpi_world::session().has_started());
  {
    const collective::mpi_session adopted;
    CHECK(!adopted.has_started());
  }
  int has_ended = 1;
  MPI_Finalized(&has_ended);
  CHECK(has_ended == 0);
}

TEST_CASE("a session has all threads of MPI", "[collective_mpi]")
{
  mpi_world::session();
  int level = 0;
  MPI_Query_thread(&level);
  CHECK(level == MPI_THREAD_MULTIPLE);
}

TEST_CASE("a session knows that a communicator of its own has failed", "[collective_mpi]")
{
  mpi_world::doomed one;
  mpi_world::doomed other;
  CHECK(!one.session.is_broken());
  std::optional<collective::mpi> group;
  group.emplace(one.session, MPI_COMM_WORLD, collective::mpi_options{.deadline = mpi_world::patience});
  mpi_world::meet();
  group->revoke();
  group.reset();
  CHECK(one.session.is_broken());
  CHECK(!other.session.is_broken());
  CHECK(!mpi_world::session().is_broken());
}

TEST_CASE("a forked child of a rank ends its copies without MPI, and is told that it has no part in a group",
          "[collective_mpi]")
{
  std::optional<collective::mpi_session> session{std::in_place};
  std::optional<collective::mpi> group{std::in_place, *session, MPI_COMM_WORLD,
                                       collective::mpi_options{.deadline = mpi_world::patience}};
  std::vector<std::uint64_t> all(group->ranks());
  const std::uint64_t mine = 3;
  CHECK(support::result_in_child([&] {
          if (!support::is_refused_to_children([&] { group->exchange({&mine, 1}, all); })) return 1;
          group->revoke();
          group.reset();
          session.reset();
          return 0;
        }) == 0);
  group->exchange({&mine, 1}, all);
  CHECK(all == std::vector<std::uint64_t>(all.size(), 3));
}

}  // namespace mpi_session_test
