// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/mpi_session.hpp>

#include "mpi_world.hpp"

#include <support/catch.hpp>

namespace mpi_error_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("an answer of MPI becomes an error with its number, its words and who it was about", "[collective_mpi]")
{
  mpi_world::meet();
  const comm_error error = collective::mpi_error("sending", MPI_ERR_RANK, 7);
  CHECK(error.fault().number == MPI_ERR_RANK);
  CHECK(error.fault().rank == 7);
  CHECK(error.fault().failure == comm_failure::peer_lost);
  CHECK_THAT(error.what(), ContainsSubstring("chunkmem: sending failed: MPI error ") && ContainsSubstring("rank 7"));
}

TEST_CASE("a message longer than its room means that ranks ask for different things", "[collective_mpi]")
{
  mpi_world::meet();
  CHECK(collective::mpi_error("receiving", MPI_ERR_TRUNCATE).fault().failure == comm_failure::mismatch);
}

TEST_CASE("only success of MPI is no error", "[collective_mpi]")
{
  mpi_world::meet();
  CHECK_NOTHROW(collective::detail::require_mpi("asking", MPI_SUCCESS));
  CHECK(mpi_world::fault_of([] { collective::detail::require_mpi("asking", MPI_ERR_COMM); }).number == MPI_ERR_COMM);
}

}  // namespace mpi_error_test
