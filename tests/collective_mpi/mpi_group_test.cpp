// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/mpi_group.hpp>

#include "mpi_world.hpp"

#include <support/catch.hpp>

#include <memory>

namespace mpi_group_test {

using namespace chunkmem;
using collective::mpi_group;

constexpr auto over = collective::mpi_session::left_group::state::over;

// Its state once every rank has left or failed.
collective::mpi_session::left_group::state leave_behind(mpi_group& group)
{
  for (;;)
    if (const auto found = group.look_back(); found != collective::mpi_session::left_group::state::waiting)
      return found;
}

// Left to MPI where it failed, as its owner does.
struct own_group {
  own_group() { mpi_world::meet(); }  // nobody fails while another still makes it
  ~own_group()
  {
    mpi_world::meet();  // nobody leaves while another still looks
    if (!one->has_failed()) one->leave();
    if (leave_behind(*one) != over) static_cast<void>(one.release());
  }
  bool has_met = (mpi_world::meet(), true);  // before: whoever starts MPI ends it
  collective::mpi_session session;
  std::unique_ptr<mpi_group> one = std::make_unique<mpi_group>(session, MPI_COMM_WORLD, mpi_world::patience);
};

comm_fault look_until_it_throws(mpi_group& group, const mpi_group::attempt& this_attempt)
{
  return mpi_world::fault_of([&] {
    for (;;) group.look(this_attempt, std::chrono::nanoseconds{5});
  });
}

TEST_CASE("a group knows its ranks, and its communicators are not the user's", "[collective_mpi]")
{
  own_group group;
  CHECK(group.one->rank() == mpi_world::rank());
  CHECK(group.one->ranks() == mpi_world::ranks());
  int same = MPI_IDENT;
  MPI_Comm_compare(MPI_COMM_WORLD, group.one->notices(), &same);
  CHECK(same == MPI_CONGRUENT);
}

TEST_CASE("a group that all leave stays healthy", "[collective_mpi]")
{
  mpi_world::doomed world;
  mpi_group group{world.session, MPI_COMM_WORLD, mpi_world::patience};
  group.leave();
  CHECK(leave_behind(group) == over);
  CHECK(!group.has_failed());
  CHECK(!world.session.is_broken());
}

TEST_CASE("the first rank to fail ends the waits of all others, who name it", "[collective_mpi]")
{
  own_group group;
  if (group.one->rank() == 0) group.one->fail(group.one->error(comm_failure::deadline, {}, std::chrono::seconds{1}));
  const comm_fault fault = look_until_it_throws(*group.one, {.sequence = 3});
  if (group.one->rank() == 0) {
    CHECK(fault.failure == comm_failure::deadline);
  } else {
    CHECK(fault.failure == comm_failure::revoked);
    CHECK(fault.rank == 0);
    CHECK(fault.sequence == 3);
    CHECK(fault.waited == 5);
  }
  CHECK(group.session.is_broken());
}

TEST_CASE("a mismatch that one rank found is a mismatch for all", "[collective_mpi]")
{
  own_group group;
  if (group.one->rank() == 0) group.one->fail(group.one->error(comm_failure::mismatch, {}, {}, 0));
  CHECK(look_until_it_throws(*group.one, {.sequence = 3}).failure == comm_failure::mismatch);
}

TEST_CASE("who left is lost for what it had not done, and not for what it had", "[collective_mpi]")
{
  if (mpi_world::ranks() < 2) SKIP("one rank leaves nobody behind");
  own_group group;
  const std::uint32_t gone = group.one->ranks() - 1;
  MPI_Comm others = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, group.one->rank() == gone ? 1 : 0, 0, &others);
  if (group.one->rank() == gone) {
    group.one->finish({.sequence = 2});
    group.one->finish({.of = mpi_group::part::words, .sequence = 4});
    group.one->finish({.of = mpi_group::part::pair, .sequence = 1, .peer = 0});
    group.one->leave();
    CHECK(leave_behind(*group.one) != over);  // the others fail
    CHECK(group.session.is_broken());
    MPI_Comm_free(&others);
    return;
  }
  // Nothing says when the notice arrives, but once it has for one attempt it has for all.
  const mpi_group::attempt beyond{.sequence = 3};
  const comm_fault fault = look_until_it_throws(*group.one, beyond);
  CHECK(fault.failure == comm_failure::peer_lost);
  CHECK(fault.rank == gone);
  using part = mpi_group::part;
  const auto is_lost = [&](const mpi_group::attempt& this_attempt) {
    return mpi_world::fault_of([&] { group.one->look(this_attempt, {}); }).number != -1;
  };
  CHECK(!is_lost({.sequence = 2}));
  CHECK(is_lost({.of = part::words, .sequence = 5}));
  CHECK(!is_lost({.of = part::words, .sequence = 4}));
  CHECK(is_lost({.of = part::pair, .sequence = group.one->rank() == 0 ? 2U : 1U, .peer = gone}));
  CHECK(!is_lost({.of = part::pair, .sequence = group.one->rank() == 0 ? 1U : 0U, .peer = gone}));
  if (group.one->ranks() > 2)
    CHECK(!is_lost({.of = part::pair, .sequence = 9, .peer = (group.one->rank() + 1) % gone}));
  MPI_Barrier(others);
  group.one->fail(group.one->error(comm_failure::peer_lost, beyond, {}, gone));
  MPI_Comm_free(&others);
}

}  // namespace mpi_group_test
