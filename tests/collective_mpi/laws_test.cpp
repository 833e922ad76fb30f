// SPDX-License-Identifier: Apache-2.0
// The laws of a communicator, for ranks that are processes: each tries them for the number of ranks that its program
// has.
#include <conformance/communicator.hpp>

#include "mpi_world.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <support/catch.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace laws_test {

struct process_harness {
  using communicator = chunkmem::collective::mpi;
  using backend = chunkmem::backend::host_arena;
  using stage = support::rank_stage<communicator, backend>;

  std::vector<std::uint32_t> worlds{mpi_world::ranks()};

  /// The complaint of this rank.
  template <class Body>
  std::vector<std::string> run(std::uint32_t, Body body) const
  {
    return {support::complaint_of([&] {
      mpi_world::doomed world;
      const chunkmem::collective::mpi_options options{.deadline = mpi_world::patience};
      backend memory{{.device_capacity = chunkmem::bytes{1U << 20U}, .host_capacity = chunkmem::bytes{1U << 20U}}};
      communicator one{world.session, MPI_COMM_WORLD, options};
      communicator two{world.session, MPI_COMM_WORLD, options};
      mpi_world::meet();  // nobody fails before all have come
      stage here{.ranks = one, .others = two, .backend = memory};
      body(here);
      return here.complaint;
    })};
  }
};

TEST_CASE("mpi moves and adds bytes as a communicator does", "[collective_mpi]")
{
  conformance::communicator_moves_bytes(process_harness{});
}

TEST_CASE("mpi plays a random schedule as vectors do", "[collective_mpi]")
{
  conformance::communicator_plays_schedules(process_harness{}, 1, 300);
}

TEST_CASE("mpi fails on all ranks, before bytes change", "[collective_mpi]")
{
  conformance::communicator_fails_for_all(process_harness{});
}

TEST_CASE("mpi plays many random schedules as vectors do", "[collective_mpi][.slow]")
{
  for (std::uint64_t seed = 2; seed < 40; ++seed)
    conformance::communicator_plays_schedules(process_harness{}, seed, 400);
}

}  // namespace laws_test
