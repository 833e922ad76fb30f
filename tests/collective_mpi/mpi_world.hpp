// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/core/error.hpp>

#include <mpi.h>
#include <chrono>
#include <cstdint>

/// Common parts of the tests of MPI. Every rank runs the same cases in the same order, and all start a case together.
namespace mpi_world {

/// MPI, for the life of the program.
inline chunkmem::collective::mpi_session& session()
{
  static chunkmem::collective::mpi_session only;
  return only;
}
inline std::uint32_t rank()
{
  session();
  int mine = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &mine);
  return static_cast<std::uint32_t>(mine);
}
inline std::uint32_t ranks()
{
  session();
  int all = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &all);
  return static_cast<std::uint32_t>(all);
}
/// The user's own barrier, so that no rank is late for the next case.
inline void meet()
{
  session();
  MPI_Barrier(MPI_COMM_WORLD);
}

/// A session for a group that will fail: it adopts MPI and does not end it, so a failure leaves the program's own
/// session whole.
struct doomed {
  bool has_met = (meet(), true);  // before: whoever starts MPI ends it
  chunkmem::collective::mpi_session session;
};

/// Long enough that no healthy case meets it on a slow machine.
inline constexpr std::chrono::seconds patience{60};

/// The fault that `work` throws; its number is -1 if nothing is thrown.
template <class Work>
chunkmem::comm_fault fault_of(Work&& work)
{
  try {
    work();
  } catch (const chunkmem::comm_error& error) {
    return error.fault();
  }
  return {.number = -1};
}

}  // namespace mpi_world
