// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/nccl.hpp>
#include <chunkmem/collective/nccl_api.hpp>
#include <chunkmem/pipeline/stage_links.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <type_traits>
#include <vector>

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
class nccl_stages {
 public:
  using control_type = typename Hosts::communicator_type;
  using communicator_type = collective::nccl<Api, control_type>;

  /// Uses the current device of the calling thread. All stages construct it together, with the same schedule and
  /// options.
  /// @param hosts    outlives this object   @param api_of   `api_of(pair)` gives the api of a link
  /// @throws comm_error   a stage is missing or failed
  template <class ApiOf>
  nccl_stages(Hosts& hosts, const collective::nccl_options& options, ApiOf api_of)
      : stage_{hosts.stage()}, made_for_{hosts.made_for()}
  {
    hosts.for_each_end([&](stage_pair pair, control_type& control) {  // ascending: no deadlock
      ends_.emplace_back(control, options, api_of(pair));
      pairs_.push_back(pair);
    });
  }
  explicit nccl_stages(Hosts& hosts, const collective::nccl_options& options = {})
    requires std::is_default_constructible_v<Api>
      : nccl_stages{hosts, options, [](stage_pair) { return Api{}; }}
  {
  }
  nccl_stages(const nccl_stages&) = delete;

  [[nodiscard]] std::uint32_t stage() const noexcept { return stage_; }
  /// The links, each with an agent of this backend. Call it once for each backend.
  /// @throws usage_error   the backend has no more agents
  template <stream_backend Backend>
  [[nodiscard]] stage_links<communicator_type> links(Backend& backend)
  {
    stage_links<communicator_type> all{stage_, made_for_};
    for (std::size_t index = 0; index < pairs_.size(); ++index) all.add(pairs_[index], ends_[index], backend.adopt());
    return all;
  }

 private:
  std::uint32_t stage_;
  std::uint64_t made_for_;
  std::deque<communicator_type> ends_;  // they do not move
  std::vector<stage_pair> pairs_;
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
