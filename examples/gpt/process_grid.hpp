// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "grid_names.hpp"

#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/collective/mpi_session.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/pipeline/mpi_stages.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <mpi.h>
#include <cstdint>
#include <optional>

namespace gpt {

/// A rank of parallel pipelines whose stages are processes of an MPI program, as thread_grid::place.
class process_grid {
 public:
  using communicator_type = chunkmem::collective::mpi;

  /// Every process makes one object. @param rank   of this process in the grid: `replica * stages + stage`
  /// @throws comm_error   a call of MPI failed
  process_grid(chunkmem::collective::mpi_session& session, const chunkmem::pipeline::schedule& plan, std::uint32_t rank)
      : replica_{rank / plan.stage_count()},
        stage_{rank % plan.stage_count()},
        everyone_{part_of(MPI_COMM_WORLD, 0, rank)},
        world_{session, everyone_},
        pipeline_{
            session, part_of(everyone_, replica_, stage_), plan, {}, name_of_pipeline(replica_, replicas_of(plan))},
        replicas_{session, part_of(everyone_, stage_, replica_)}
  {
    const std::uint32_t first = plan.owners.front();
    const std::uint32_t last = plan.owners.back();
    const bool has_table = first != last && (stage_ == first || stage_ == last);
    const MPI_Comm both =
        part_of(everyone_, has_table ? std::optional{replica_} : std::nullopt, stage_ == last ? 1U : 0U);
    if (has_table) tables_.emplace(session, both).call_members(names_of_tables(first, last, replica_));
    replicas_.call_members(names_of_replicas(stage_, replicas_.ranks()));
    world_.call_members(names_of_grid(plan.stage_count(), replicas_.ranks()));
  }
  process_grid(const process_grid&) = delete;

  [[nodiscard]] std::uint32_t stage() const noexcept { return stage_; }
  [[nodiscard]] std::uint32_t replica() const noexcept { return replica_; }
  [[nodiscard]] communicator_type& all() noexcept { return pipeline_.all(); }
  [[nodiscard]] communicator_type& replicas() noexcept { return replicas_; }
  [[nodiscard]] communicator_type& world() noexcept { return world_; }
  [[nodiscard]] communicator_type* tables() noexcept { return tables_ ? &*tables_ : nullptr; }
  template <class Backend>
  [[nodiscard]] auto links(Backend& backend)
  {
    return pipeline_.links(backend);
  }

 private:
  [[nodiscard]] std::uint32_t replicas_of(const chunkmem::pipeline::schedule& plan) const noexcept
  {
    return world_.ranks() / plan.stage_count();
  }
  /// The ranks with the same number, in the order of `place`; none: a group that this rank is not in. The group is
  /// never freed, since that would wait for a rank that may be gone: MPI frees it at the end.
  [[nodiscard]] static MPI_Comm part_of(MPI_Comm users, std::optional<std::uint32_t> number, std::uint32_t place)
  {
    MPI_Comm made = MPI_COMM_NULL;
    chunkmem::collective::detail::require_mpi(
        "grouping the ranks of pipelines",
        MPI_Comm_split(users, number ? static_cast<int>(*number) : MPI_UNDEFINED, static_cast<int>(place), &made));
    return made;
  }

  std::uint32_t replica_;
  std::uint32_t stage_;
  MPI_Comm everyone_;  // in the order of ranks of the grid
  communicator_type world_;
  chunkmem::pipeline::mpi_stages pipeline_;
  communicator_type replicas_;
  std::optional<communicator_type> tables_;
};

}  // namespace gpt
