// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/collective/mpi_error.hpp>
#include <chunkmem/collective/mpi_session.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/stage_links.hpp>

#include <mpi.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// Stages that are processes of an MPI program: rank s of `users` is stage s, with a group of two for each direction of
/// each of its links.
///
/// Use:
///
///     collective::mpi_session session;
///     mpi_stages here{session, MPI_COMM_WORLD, plan};
///     backend::host_arena memory{options};
///     stage_links links = here.links(memory);
///     stage_runner runner{plan, links, memory, buffers, boundaries};
///     runner.run(my_stage);
class mpi_stages {
 public:
  /// Every rank makes one, with the same schedule and options. MPI waits for the ranks of a pair, without a deadline.
  /// @throws config_error   the schedule has another number of stages than there are ranks; as collective::mpi
  /// @throws comm_error     MPI could not, or the other rank of a link did not come
  mpi_stages(collective::mpi_session& session, MPI_Comm users, const schedule& plan,
             const collective::mpi_options& options = {})
      : all_{session, users, options}
  {
    int rank = 0;
    int ranks = 0;
    collective::detail::require_mpi("asking for the rank", MPI_Comm_rank(users, &rank));
    collective::detail::require_mpi("asking for the ranks", MPI_Comm_size(users, &ranks));
    stage_ = static_cast<std::uint32_t>(rank);
    if (static_cast<std::uint32_t>(ranks) != plan.stage_count())
      throw config_error{error_text{} << "chunkmem: a schedule of " << plan.stage_count() << " stages was given to "
                                      << static_cast<std::uint64_t>(ranks)
                                      << " processes (start as many processes as stages)"};
    // Ascending on every rank, so no ranks wait for each other in a circle.
    for (const stage_pair& pair : pairs_of(plan)) {
      if (pair.first != stage_ && pair.second != stage_) continue;
      ends_.emplace_back(session, pair_of(users, pair), options);
      pairs_.push_back(pair);
    }
  }
  mpi_stages(const mpi_stages&) = delete;

  [[nodiscard]] std::uint32_t stage() const noexcept { return stage_; }
  /// A group of all stages, as for stage_step.
  [[nodiscard]] collective::mpi& all() noexcept { return all_; }
  using communicator_type = collective::mpi;
  /// Calls `visit(pair, end)` for each link, in ascending order.
  template <class Visit>
  void for_each_end(Visit visit)
  {
    for (std::size_t index = 0; index < pairs_.size(); ++index) visit(pairs_[index], ends_[index]);
  }
  /// The links, each with an agent of this backend. Call it once for a backend.
  /// @throws usage_error   the backend has no more agents
  template <stream_backend Backend>
  [[nodiscard]] stage_links<collective::mpi> links(Backend& backend)
  {
    stage_links<collective::mpi> all{stage_};
    for (std::size_t index = 0; index < pairs_.size(); ++index) all.add(pairs_[index], ends_[index], backend.adopt());
    return all;
  }

 private:
  /// Two ranks, the sender first. It is left to MPI, which ends it: freeing it would wait for a rank that may be gone.
  [[nodiscard]] static MPI_Comm pair_of(MPI_Comm users, const stage_pair& pair)
  {
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group two = MPI_GROUP_NULL;
    MPI_Comm made = MPI_COMM_NULL;
    const std::array<int, 2> ranks{static_cast<int>(pair.first), static_cast<int>(pair.second)};
    collective::detail::require_mpi("asking for the group of the ranks", MPI_Comm_group(users, &all));
    collective::detail::require_mpi("choosing the ranks of a link", MPI_Group_incl(all, 2, ranks.data(), &two));
    collective::detail::require_mpi("grouping the ranks of a link", MPI_Comm_create_group(users, two, 0, &made));
    MPI_Group_free(&two);
    MPI_Group_free(&all);
    return made;
  }

  std::uint32_t stage_ = 0;
  collective::mpi all_;
  std::deque<collective::mpi> ends_;  // they do not move
  std::vector<stage_pair> pairs_;
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
