// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/collective/mpi_session.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/stage_links.hpp>

#include <mpi.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// Stages that are processes of an MPI program: rank s of `users` is stage s, with a communicator of two ranks for each
/// direction of each of its links.
///
/// Use:
///
///     collective::mpi_session session;
///     mpi_stages here{session, MPI_COMM_WORLD, plan};
///     backend::host_arena memory{options};
///     stage_links links = here.links(memory);
///     stage_runner runner{plan, links, memory, buffers, boundaries};
///     runner.run(my_stage);
class mpi_stages : public stage_ends<collective::mpi> {
 public:
  /// Every rank constructs one, with the same schedule and options. MPI waits for the ranks of a pair, without a
  /// deadline.
  /// @param pipeline   name of this pipeline in errors, where there are several: "replica 1"
  /// @throws config_error   on every rank: the schedule has another number of stages than there are ranks, or two
  ///   ranks have other schedules; as collective::mpi
  /// @throws comm_error     MPI failed, or the other rank of a link did not come
  mpi_stages(collective::mpi_session& session, MPI_Comm users, const schedule& plan,
             const collective::mpi_options& options = {}, std::string_view pipeline = {})
      : stage_ends{rank_in(users), identity_of(plan)}, all_{session, users, options}
  {
    const std::vector<std::string> names = compare(plan, pipeline);
    for (const stage_pair& pair : pairs_of(plan))
      if (pair.first == stage() || pair.second == stage())
        add(pair, session, pair_of(users, pair), options)
            .call_members(detail::names_of_link(pair, names, plan.all_micro_batches()));
  }

  /// A communicator of all stages, as for stage_step.
  [[nodiscard]] collective::mpi& all() noexcept { return all_; }

 private:
  [[nodiscard]] static std::uint32_t rank_in(MPI_Comm users)
  {
    int rank = 0;
    collective::detail::require_mpi("asking for the rank", MPI_Comm_rank(users, &rank));
    return static_cast<std::uint32_t>(rank);
  }
  /// All ranks exchange their schedules and nodes. @return   the name of each stage
  [[nodiscard]] std::vector<std::string> compare(const schedule& plan, std::string_view pipeline)
  {
    constexpr std::size_t words = 10;
    std::array<std::uint64_t, words> mine{made_for(), plan.stage_count()};  // and the name of the node, with a zero
    char host[MPI_MAX_PROCESSOR_NAME] = {};
    int length = 0;
    collective::detail::require_mpi("asking for the name of the node", MPI_Get_processor_name(host, &length));
    constexpr std::size_t longest = (words - 2) * sizeof(std::uint64_t) - 1;
    std::memcpy(&mine[2], host, std::min(static_cast<std::size_t>(length), longest));
    std::vector<std::uint64_t> all(words * all_.ranks());
    all_.exchange(mine, all);
    std::vector<std::string> names;
    for (std::uint32_t stage = 0; stage < all_.ranks(); ++stage) {
      const std::uint64_t* const its = &all[stage * words];
      names.push_back(detail::name_of_stage(stage, pipeline, reinterpret_cast<const char*>(its + 2)));
      if (its[1] != all_.ranks())
        throw config_error{error_text{} << "chunkmem: a schedule of " << its[1] << " stages was given to "
                                        << names.back() << ", one of " << all_.ranks()
                                        << " processes (start as many processes as stages)"};
      if (its[0] != all[0])
        throw config_error{error_text{} << "chunkmem: " << names.back() << " has another schedule than " << names[0]
                                        << " (give every stage the same one, with the same micro-batches and batches)"};
    }
    all_.call_members({"all stages", names});
    return names;
  }
  /// Two ranks, the sender first. Never freed here: MPI frees it at its end, and a free would wait for a rank that may
  /// be gone.
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

  collective::mpi all_;
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
