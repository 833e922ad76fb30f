// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/mpi_work.hpp>

#include "mpi_world.hpp"

#include <support/catch.hpp>

#include <array>
#include <cstddef>

namespace mpi_transfers_test {

using namespace chunkmem;
using collective::mpi_transfers;

struct own_group {
  own_group()
  {
    mpi_world::meet();
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  }
  ~own_group() { MPI_Comm_free(&comm); }
  MPI_Comm comm = MPI_COMM_NULL;
  std::uint32_t rank = mpi_world::rank();
  std::uint32_t next = (mpi_world::rank() + 1) % mpi_world::ranks();
  std::uint32_t last = (mpi_world::rank() + mpi_world::ranks() - 1) % mpi_world::ranks();
};

TEST_CASE("messages arrive, and are forgotten when all have", "[collective_mpi]")
{
  own_group group;
  mpi_transfers transfers{2};
  const std::array<std::byte, 3> mine{std::byte(group.rank), std::byte{1}, std::byte{2}};
  std::array<std::byte, 3> theirs{};
  transfers.receive(group.comm, 5, group.last, theirs.data(), theirs.size());
  transfers.send(group.comm, 5, group.next, mine.data(), mine.size());
  CHECK(transfers.size() == 2);
  while (!transfers.are_done()) {
  }
  CHECK(theirs == std::array{std::byte(group.last), std::byte{1}, std::byte{2}});
  CHECK(transfers.size() == 0);
  CHECK(transfers.awaited() == UINT32_MAX);
}

TEST_CASE("a receive that nobody answers names its rank, and can be taken back", "[collective_mpi]")
{
  own_group group;
  mpi_transfers transfers{2};
  std::array<std::byte, 3> theirs{};
  transfers.receive(group.comm, 6, group.last, theirs.data(), theirs.size());
  CHECK(!transfers.are_done());
  CHECK(transfers.awaited() == group.last);
  CHECK(transfers.cancel(1'000'000));
}

TEST_CASE("a message longer than its room is a mismatch that names the sender", "[collective_mpi]")
{
  if (mpi_world::ranks() < 2) SKIP("what Open MPI 4 says of a message to oneself names no message");
  own_group group;
  mpi_transfers transfers{2};
  const std::array<std::byte, 4> mine{};
  std::array<std::byte, 3> theirs{};
  transfers.receive(group.comm, 7, group.last, theirs.data(), theirs.size());
  transfers.send(group.comm, 7, group.next, mine.data(), mine.size());
  const comm_fault fault = mpi_world::fault_of([&] {
    while (!transfers.are_done()) {
    }
  });
  CHECK(fault.failure == comm_failure::mismatch);
  CHECK(fault.rank == group.last);
  CHECK(fault.number != 0);
}

}  // namespace mpi_transfers_test
