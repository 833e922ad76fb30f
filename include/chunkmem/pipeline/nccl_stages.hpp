// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/nccl.hpp>
#include <chunkmem/collective/nccl_api.hpp>
#include <chunkmem/pipeline/stage_links.hpp>

#include <type_traits>

namespace chunkmem::inline v0 {

namespace pipeline {

/// Stages with a GPU each, whose links are NCCL communicators: bytes go from device to device.
///
/// Use:
///
///     mpi_stages hosts{session, MPI_COMM_WORLD, plan};    // or a place of thread_stages
///     nccl_stages<collective::nccl_runtime, mpi_stages> here{hosts};
///     stage_links links = here.links(memory);
///     stage_runner runner{plan, links, memory, buffers, boundaries, agent::compute};
///     runner.run(my_stage);
///
/// Runs are enqueued on a stream. NCCL sets no deadline for a host that waits for work of another stage. So a thread
/// that waits for its runs, such as in a pin for the calling thread, may wait forever if a stage is lost.
/// @tparam Api    of NCCL, see nccl_api
/// @tparam Hosts  joins the processes of the stages: mpi_stages, or a place of thread_stages
template <nccl_api Api, class Hosts>
class nccl_stages : public stage_ends<collective::nccl<Api, typename Hosts::communicator_type>> {
 public:
  using control_type = typename Hosts::communicator_type;

  /// Uses the current device of the calling thread. All stages construct it together, with the same schedule and
  /// options.
  /// @param hosts    outlives this object   @param api_of   `api_of(pair)` gives the api of a link
  /// @throws comm_error   a stage is missing or failed
  template <class ApiOf>
  nccl_stages(Hosts& hosts, const collective::nccl_options& options, ApiOf api_of)
      : nccl_stages::stage_ends{hosts.stage(), hosts.made_for()}
  {
    hosts.for_each_end(
        [&](stage_pair pair, control_type& control) { this->add(pair, control, options, api_of(pair)); });
  }
  explicit nccl_stages(Hosts& hosts, const collective::nccl_options& options = {})
    requires std::is_default_constructible_v<Api>
      : nccl_stages{hosts, options, [](stage_pair) { return Api{}; }}
  {
  }
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
