// SPDX-License-Identifier: Apache-2.0
#include "problem.hpp"
#include "ranks.hpp"

#ifdef GPT_HAS_MPI
#include "rank_on_host.hpp"

#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/collective/mpi_session.hpp>
#include <chunkmem/sharding/process_groups.hpp>

#include <chrono>
#include <cstdint>
#endif

namespace gpt {

#ifdef GPT_HAS_MPI

int run_on_processes(const options& chosen, const training_text& text, const display& show)
{
  using chunkmem::collective::mpi;
  chunkmem::collective::mpi_session session;
  const chunkmem::collective::mpi_options waits{.deadline = std::chrono::minutes{1}};
  mpi all{session, MPI_COMM_WORLD, waits};
  const rank_plan plan = rank_plan::of(chosen, all.ranks());
  const chunkmem::collective::mpi_nodes nodes{session, MPI_COMM_WORLD, plan.of_node};
  mpi node{session, nodes.node(), waits};
  mpi across{session, nodes.across(), waits};
  chunkmem::sharding::process_groups<mpi> gathers{all, node, across};
  mpi sum_all{session, MPI_COMM_WORLD, waits}, sum_node{session, nodes.node(), waits};
  mpi sum_across{session, nodes.across(), waits};
  chunkmem::sharding::process_groups<mpi> sums{sum_all, sum_node, sum_across};
  chunkmem::sharding::sums_apart both{gathers, sums};
  return run_rank(chosen, text, show, rank_on_host{both}, plan, "processes");
}

#else

int run_on_processes(const options&, const training_text&, const display&)
{
  throw problem{
      "--shard without --ranks trains over processes, and this program was built without MPI (add --ranks 2, or "
      "install libopenmpi-dev and build it again)"};
}

#endif

}  // namespace gpt
