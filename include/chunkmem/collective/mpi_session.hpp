// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/mpi_error.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/own_process.hpp>

#include <mpi.h>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace chunkmem::inline v0 {

namespace collective {

/// This process' part in MPI. Starts MPI if nobody has, and ends MPI only if it started it.
///
/// Agents and the caller speak to MPI at the same time, and so may the rest of the program, which no lock of ours
/// knows. So MPI has to be started with MPI_THREAD_MULTIPLE, here or elsewhere. MPI_Finalize waits for every rank of
/// the program, without a deadline. The destructor leaves it out where it might wait for ever: after a communicator of
/// this session failed, and while an exception that began later is passing. A launcher then says, rightly, that this
/// process did not end MPI. Before MPI_Finalize the destructor waits until every rank has left the groups that this
/// rank has left, each time for their deadline at most. Communicators themselves leave without waiting. Cost: the start
/// of MPI, tenths of a second. One per program, before the first communicator and destroyed after the last.
///
/// Use:
///
///     int main()
///     {
///       collective::mpi_session session;                        // before the first communicator
///       collective::mpi ranks{session, MPI_COMM_WORLD};
///     }
///
/// @threads   one caller; `mark_broken` and `is_broken` any
class mpi_session {
 public:
  /// @throws config_error   MPI cannot be called from several threads, or has ended already
  /// @throws comm_error     MPI could not start
  mpi_session()
  {
    int has_begun = 0;
    int has_ended = 0;
    int level = MPI_THREAD_SINGLE;
    detail::require_mpi("asking whether MPI has begun", MPI_Initialized(&has_begun));
    detail::require_mpi("asking whether MPI has ended", MPI_Finalized(&has_ended));
    if (has_ended != 0)
      throw config_error{"MPI has ended in this process and cannot begin again (keep one session for all)"};
    if (has_begun == 0)
      detail::require_mpi("starting MPI", MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
    else
      detail::require_mpi("asking for the threads of MPI", MPI_Query_thread(&level));
    if (level < MPI_THREAD_MULTIPLE) {
      if (has_begun == 0) MPI_Finalize();
      throw config_error{
          error_text{} << "chunkmem: MPI allows threads of level " << static_cast<std::uint64_t>(level)
                       << ", needed is " << static_cast<std::uint64_t>(MPI_THREAD_MULTIPLE)
                       << " (start it with MPI_Init_thread and MPI_THREAD_MULTIPLE, in an MPI library that has it)"};
    }
    has_started_ = has_begun == 0;
  }
  mpi_session(const mpi_session&) = delete;
  mpi_session& operator=(const mpi_session&) = delete;
  /// Does nothing in a forked child: MPI does not work there.
  ~mpi_session()
  {
    if (!made_in_.is_here()) {
      static_cast<void>(left_.release());
      return;
    }
    const bool ends_mpi = has_started_ && std::uncaught_exceptions() <= exceptions_;
    for (look_back(); ends_mpi && left_; look_back()) std::this_thread::sleep_for(std::chrono::microseconds{50});
    while (left_) {  // nobody will ask for them any more: MPI keeps its memory
      std::unique_ptr<left_group> next = std::move(left_->next_);
      static_cast<void>(left_.release());
      left_ = std::move(next);
    }
    if (ends_mpi && !is_broken()) MPI_Finalize();
  }

  /// A group that this rank has left and that others may not have left yet.
  class left_group {
   public:
    enum class state : std::uint8_t { waiting, over, lost };
    virtual ~left_group() = default;
    /// Over: all have left, and MPI may free its memory. Lost: some never will.
    [[nodiscard]] virtual state look_back() noexcept = 0;

   private:
    friend mpi_session;
    std::unique_ptr<left_group> next_;
  };

  /// Takes over the memory of a group that MPI may still need. Does not allocate.
  void keep(std::unique_ptr<left_group> group) noexcept
  {
    {
      const std::lock_guard lock{mutex_};
      group->next_ = std::move(left_);
      left_ = std::move(group);
    }
    look_back();
  }
  /// Frees the groups that all ranks have left. Does not wait.
  void look_back() noexcept
  {
    const std::lock_guard lock{mutex_};
    for (std::unique_ptr<left_group>* at = &left_; *at;) {
      const auto found = (*at)->look_back();
      if (found == left_group::state::waiting) {
        at = &(*at)->next_;
        continue;
      }
      std::unique_ptr<left_group> gone = std::move(*at);
      *at = std::move(gone->next_);
      if (found == left_group::state::over) continue;
      mark_broken();
      static_cast<void>(gone.release());
    }
  }

  /// This session has started MPI, and will end it.
  [[nodiscard]] bool has_started() const noexcept { return has_started_; }

  /// For communicators: not all ranks will come to MPI_Finalize.
  void mark_broken() noexcept { is_broken_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool is_broken() const noexcept { return is_broken_.load(std::memory_order_relaxed); }

 private:
  int exceptions_ = std::uncaught_exceptions();
  bool has_started_ = false;
  std::atomic<bool> is_broken_{false};
  std::mutex mutex_;
  std::unique_ptr<left_group> left_;
  own_process made_in_;
};

}  // namespace collective

}  // namespace chunkmem::inline v0
