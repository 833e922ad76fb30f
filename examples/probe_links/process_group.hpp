// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"

#include <chunkmem/collective/mpi_session.hpp>

#include <mpi.h>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <string>
#include <vector>

namespace probe_links {

using chunkmem::collective::detail::require_mpi;

/// A problem that all processes know. One process prints it.
class shared_problem : public problem {
 public:
  using problem::problem;
};

/// All processes of the program. Every process makes the same calls.
class process_group {
 public:
  /// @param session   outlives this
  explicit process_group(chunkmem::collective::mpi_session& session) : session_{&session}
  {
    require_mpi("asking for the rank", MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    require_mpi("asking for the ranks", MPI_Comm_size(MPI_COMM_WORLD, &ranks_));
  }

  [[nodiscard]] std::uint32_t rank() const noexcept { return static_cast<std::uint32_t>(rank_); }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return static_cast<std::uint32_t>(ranks_); }

  [[nodiscard]] chunkmem::collective::mpi_session& session() const noexcept { return *session_; }

  void barrier() const { require_mpi("waiting for all ranks", MPI_Barrier(MPI_COMM_WORLD)); }

  /// Runs work of this process that may fail and sends nothing, so that no other process waits for its messages.
  /// @throws shared_problem   on every process: the sentence of the first rank that failed
  template <class Work>
  void together(Work work) const
  {
    std::string sentence;
    try {
      work();
    } catch (const std::exception& failure) {
      sentence = failure.what();
      if (rank_ != 0) sentence = "rank " + std::to_string(rank_) + ": " + sentence;
    }
    int failed = sentence.empty() ? ranks_ : rank_;
    require_mpi("asking who failed", MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    if (failed == ranks_) return;
    auto length = static_cast<std::uint64_t>(sentence.size());
    require_mpi("telling a problem", MPI_Bcast(&length, 1, MPI_UINT64_T, failed, MPI_COMM_WORLD));
    sentence.resize(length);
    require_mpi("telling a problem",
                MPI_Bcast(sentence.data(), static_cast<int>(length), MPI_CHAR, failed, MPI_COMM_WORLD));
    throw shared_problem{sentence};
  }

  /// The numbers of all processes, in the order of ranks, on rank 0. Empty on the other processes.
  [[nodiscard]] std::vector<double> gather(const std::vector<double>& mine) const
  {
    const int count = static_cast<int>(mine.size());
    std::vector<int> counts(ranks());
    std::vector<int> begins(ranks());
    require_mpi("counting numbers", MPI_Gather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, MPI_COMM_WORLD));
    std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), 0);
    std::vector<double> all(
        rank_ == 0 ? static_cast<std::size_t>(begins.back()) + static_cast<std::size_t>(counts.back()) : 0);
    require_mpi("gathering numbers", MPI_Gatherv(mine.data(), count, MPI_DOUBLE, all.data(), counts.data(),
                                                 begins.data(), MPI_DOUBLE, 0, MPI_COMM_WORLD));
    return all;
  }

 private:
  chunkmem::collective::mpi_session* session_;
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace probe_links
