// SPDX-License-Identifier: Apache-2.0
#include "nccl_ranks.hpp"

#include "problem.hpp"

#ifdef GPT_HAS_NCCL
#include "control.hpp"
#include "cuda_math.hpp"
#include "rank_on_device.hpp"
#include "warm_up.hpp"

#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#include <chunkmem/collective/nccl.hpp>
#include <chunkmem/collective/nccl_runtime.hpp>
#include <chunkmem/sharding/device_scope.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#ifdef GPT_HAS_MPI
#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/collective/mpi_session.hpp>

#include <chrono>
#endif
#endif

namespace gpt::cuda {

#ifdef GPT_HAS_NCCL

namespace {

using chunkmem::backend::cuda_runtime;
using device_scope = chunkmem::sharding::device_scope<cuda_runtime>;
using group = chunkmem::collective::nccl<chunkmem::collective::nccl_runtime, control>;
using chunkmem::ownership::process_group;

/// A rank's GPU, and the ranks that share the memory of its host.
struct gpu_of_rank {
  using backend_type = chunkmem::backend::cuda_device<cuda_runtime>;
  std::uint32_t device = 0;
  std::uint32_t of_host = 1;

  [[nodiscard]] backend_type make(chunkmem::bytes on_device, chunkmem::bytes on_host) const
  {
    return backend_type{{.device = static_cast<int>(device), .device_capacity = on_device, .host_capacity = on_host}};
  }
  static constexpr chunkmem::bytes left_to_libraries = left_to_warm_libraries;
  static constexpr chunkmem::bytes largest_message{std::uint64_t{16} << 20};
  [[nodiscard]] chunkmem::bytes host_limit() const { return chunkmem::bytes{machine_memory().count() / of_host}; }
};

/// Runs one rank. @param controls   its groups by threads or processes
template <class Controls>
int run_one(const options& chosen, const training_text& text, const display& show, Controls& controls,
            const gpu_of_rank& gpu, const rank_plan& plan, std::string_view kind)
{
  const device_scope here{gpu.device};
  control with_all{controls.of(process_group::all)};
  control with_node{controls.of(process_group::node)};
  control with_places{controls.of(process_group::across)};
  group all{with_all};
  group node{with_node};
  group across{with_places};
  chunkmem::sharding::process_groups<group> process_groups{all, node, across};
  return run_rank(chosen, text, show, rank_on_device<gpu_of_rank, group, cuda_math>{gpu, process_groups}, plan, kind);
}

int run_on_threads(const options& chosen, const training_text& text, const display& show)
{
  using chunkmem::sharding::thread_ranks;
  const auto ranks = static_cast<std::uint32_t>(chosen.ranks);
  const rank_plan plan = plan_on_device(chosen, ranks);
  (void)device_scope::device_of(0, ranks);
  std::atomic<int> result = EXIT_SUCCESS;
  thread_ranks{ranks, plan.of_node}.run([&](thread_ranks::place& here) {
    const gpu_of_rank gpu{device_scope::device_of(here.rank(), ranks), ranks};
    if (const int mine = run_one(chosen, text, show, here.process_groups(), gpu, plan, "GPUs of this process");
        mine != EXIT_SUCCESS)
      result = mine;
  });
  return result;
}

#ifdef GPT_HAS_MPI
int run_on_processes(const options& chosen, const training_text& text, const display& show)
{
  using chunkmem::collective::mpi;
  using chunkmem::collective::mpi_nodes;
  chunkmem::collective::mpi_session session;
  const chunkmem::collective::mpi_options waits{.deadline = std::chrono::minutes{1}};
  mpi all{session, MPI_COMM_WORLD, waits};
  const rank_plan plan = plan_on_device(chosen, all.ranks());
  const mpi_nodes nodes{session, MPI_COMM_WORLD, plan.of_node};
  mpi node{session, nodes.node(), waits};
  mpi across{session, nodes.across(), waits};
  chunkmem::sharding::process_groups<mpi> process_groups{all, node, across};
  // A launcher may give each process a GPU of its own; NCCL refuses two ranks on one GPU.
  const mpi_nodes hosts{session, MPI_COMM_WORLD};
  return run_one(chosen, text, show, process_groups, {hosts.device_of(device_scope::devices()), hosts.of_node()}, plan,
                 "processes with a GPU each");
}
#else
int run_on_processes(const options&, const training_text&, const display&)
{
  throw problem{
      "--shard without --ranks trains over processes, and this program was built without MPI (add --ranks 2, or "
      "install libopenmpi-dev and build it again)"};
}
#endif

}  // namespace

int run_over_ranks(const options& chosen, const training_text& text, const display& show)
{
  return chosen.ranks > 0 ? run_on_threads(chosen, text, show) : run_on_processes(chosen, text, show);
}

#else

int run_over_ranks(const options&, const training_text&, const display&)
{
  throw problem{
      "--ranks and --shard join GPUs by NCCL, and this program was built without it (install NCCL 2.19 or newer and "
      "build it again)"};
}

#endif

}  // namespace gpt::cuda
