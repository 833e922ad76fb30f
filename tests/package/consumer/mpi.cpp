// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/mpi.hpp>

#include <mpi.h>

// A user's program of one rank of many; it asks MPI nothing where no launcher started it.
int main(int count, char**)
{
  static_assert(chunkmem::communicator<chunkmem::collective::mpi, chunkmem::backend::host_arena>);
  if (count > 1) {
    chunkmem::collective::mpi_session session;
    const chunkmem::collective::mpi ranks{session, MPI_COMM_WORLD};
    return ranks.ranks() > 0 ? 0 : 1;
  }
  int has_begun = 1;
  return MPI_Initialized(&has_begun) == MPI_SUCCESS && has_begun == 0 ? 0 : 1;
}
