// SPDX-License-Identifier: Apache-2.0
// No wrong bytes over processes: rank 0 reads alone, and all others are gone, silent or make another call. Ranks that
// are killed are in deaths_test.cpp.
#include "mpi_world.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/mpi.hpp>

#include <support/catch.hpp>
#include <support/lone_reader.hpp>
#include <support/refusal.hpp>

#include <mpi.h>

#include <chrono>
#include <string>

namespace failed_ranks_test {

using namespace chunkmem;
using namespace chunkmem::literals;
using support::lone::outcome;
using support::lone::peers;
using rig_type = support::lone::rig<backend::host_arena, collective::mpi>;

/// One combination on this rank. All ranks make it anew where one was late before: the machine stood still.
outcome try_once(std::size_t which, peers how)
{
  for (int tries = 0;; ++tries) {
    outcome found;
    bool is_prepared = false;
    bool has_met = false;
    const auto meet = [&] {
      mpi_world::meet();
      has_met = true;
    };
    found.other_error = support::refusal<std::exception>([&] {
      mpi_world::doomed world;
      const std::chrono::milliseconds soon{200 << (2 * tries)};
      collective::mpi ranks{world.session,
                            MPI_COMM_WORLD,
                            {.deadline = how == peers::silent ? soon : std::chrono::milliseconds{mpi_world::patience}}};
      backend::host_arena memory{{.device_capacity = 4_MiB, .host_capacity = 8_MiB, .async_compute = true}};
      found = support::lone::fail_reader(memory, ranks, which, how, is_prepared, meet);
    });
    if (!has_met) meet();
    int mine = is_prepared ? 1 : 0;
    int all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (all != 0 || tries == 3) return found;
  }
}

void try_all(peers how, std::size_t step)
{
  const auto sites = support::lone::sites<rig_type>();
  for (std::size_t which = 0; which < sites.size(); which += step) {
    const outcome found = try_once(which, how);
    if (mpi_world::rank() != 0) continue;
    CAPTURE(std::string{sites[which].name}, std::string{support::lone::names_of_peers[static_cast<std::size_t>(how)]},
            found.other_error);
    CHECK(found.wrong == 0);
    CHECK(found.was_told);
    CHECK(found.names_tensor);
    CHECK(found.other_error.empty());
  }
}

TEST_CASE("a process that reads alone is given no bytes that were not made, and is told", "[collective_mpi]")
{
  if (mpi_world::ranks() != 2) return;  // more of them take longer and say the same
  try_all(peers::dead, 1);
  try_all(peers::other_call, 1);
  try_all(peers::silent, 5);
}

TEST_CASE("so is one of more processes, and one that waits for silent ones at every way to bytes",
          "[collective_mpi][.slow]")
{
  if (mpi_world::ranks() == 1) return;
  for (const peers how : support::lone::all_peers) try_all(how, 1);
}

}  // namespace failed_ranks_test
