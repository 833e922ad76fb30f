// SPDX-License-Identifier: Apache-2.0
#include "mpi_world.hpp"

#include <chunkmem/collective/mpi_session.hpp>

#include <support/catch.hpp>

#include <mpi.h>

#include <cstdint>

namespace mpi_nodes_test {

using namespace chunkmem;
using collective::mpi_nodes;

std::uint32_t size_of(MPI_Comm group)
{
  int size = 0;
  MPI_Comm_size(group, &size);
  return static_cast<std::uint32_t>(size);
}

TEST_CASE("processes of one machine share a node, and each has a device of it in turn", "[collective_mpi]")
{
  mpi_world::meet();
  const mpi_nodes it{mpi_world::session(), MPI_COMM_WORLD};
  CHECK(it.of_node() == mpi_world::ranks());
  CHECK(it.rank_in_node() == mpi_world::rank());
  CHECK(size_of(it.node()) == mpi_world::ranks());
  CHECK(size_of(it.across()) == 1);
  CHECK(it.device_of(2) == mpi_world::rank() % 2);
  CHECK_THROWS_AS(it.device_of(0), usage_error);
  mpi_world::meet();
}

TEST_CASE("nodes of a given size are ranks in a row", "[collective_mpi]")
{
  mpi_world::meet();
  const mpi_nodes single{mpi_world::session(), MPI_COMM_WORLD, 1};
  CHECK(size_of(single.node()) == 1);
  CHECK(size_of(single.across()) == mpi_world::ranks());
  CHECK_THROWS_AS((mpi_nodes{mpi_world::session(), MPI_COMM_WORLD, mpi_world::ranks() + 1}), config_error);
  if (mpi_world::ranks() == 4) {
    const mpi_nodes pairs{mpi_world::session(), MPI_COMM_WORLD, 2};
    CHECK(pairs.rank_in_node() == mpi_world::rank() % 2);
    CHECK(size_of(pairs.across()) == 2);
  }
  mpi_world::meet();
}

}  // namespace mpi_nodes_test
