// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/own_process.hpp>

#if !__has_include(<mpi.h>)
#error "chunkmem: ranks over MPI need mpi.h: link chunkmem::mpi, or compile with mpicxx"
#endif
#include <mpi.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace chunkmem::inline v0 {

namespace collective {

/// The answer of an MPI library as an error, in its own words and with its own number.
///
/// A message that is longer than its receive means that the calls of ranks differ. After any other error inside MPI the
/// group cannot go on: the error is `peer_lost`. Cost: one look-up in MPI's table of errors; no allocation.
[[nodiscard]] inline comm_error mpi_error(std::string_view asked, int answer, std::uint32_t rank = UINT32_MAX,
                                          const member_names& names = {}) noexcept
{
  char words[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  int kind = MPI_ERR_OTHER;
  if (MPI_Error_string(answer, words, &length) != MPI_SUCCESS) length = 0;
  if (MPI_Error_class(answer, &kind) != MPI_SUCCESS) kind = MPI_ERR_OTHER;
  error_text text;
  text << "chunkmem: " << asked << " failed: MPI error " << static_cast<std::uint64_t>(answer) << ", "
       << std::string_view{words, static_cast<std::size_t>(length)};
  if (rank != UINT32_MAX) names.tell_rank(text << ", with ", rank);
  text << " (the group has ended: start its ranks again)";
  const comm_failure failure = kind == MPI_ERR_TRUNCATE ? comm_failure::mismatch : comm_failure::peer_lost;
  return {text, {.failure = failure, .rank = rank, .number = answer}};
}

namespace detail {

/// @throws comm_error   MPI answered anything but success
inline void require_mpi(std::string_view asked, int answer)
{
  if (answer != MPI_SUCCESS) throw mpi_error(asked, answer);
}

}  // namespace detail

/// How a session of MPI ends.
///
///     collective::mpi_session session{{.end_deadline = std::chrono::hours{1}}};  // rank 0 works longer than the
///     others
struct mpi_session_options {
  /// longest wait of MPI_Finalize for the last process of the job, its work after its communicators included
  std::chrono::milliseconds end_deadline = std::chrono::minutes{10};
};

/// This process' part in MPI. Starts MPI unless the program has, and ends MPI only if it started it.
///
/// Agents and the caller call MPI at the same time, and so may the rest of the program, without a lock of this library.
/// So MPI has to be started with MPI_THREAD_MULTIPLE, here or elsewhere. MPI_Finalize waits for every rank of the
/// program (MPI 4.0, 11.2.2). The destructor does not call it after a communicator of this session failed, with a line
/// on the standard error, or during stack unwinding. A launcher then reports, correctly, that this process did not end
/// MPI. Before MPI_Finalize the destructor waits until every rank has left the groups that this rank has left, each
/// time for at most their deadline. Communicators themselves leave without waiting. Where MPI_Finalize has not returned
/// after `end_deadline`, the process says so and ends with status 1, so that its launcher ends the others: a rank is
/// silent, and no call of MPI can end that wait. Cost: the start of MPI, tenths of a second, and a thread at its end.
/// One per program, made before the first communicator and destroyed after the last.
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
  /// @throws config_error   MPI cannot be called from several threads, or has ended already; no deadline
  /// @throws comm_error     MPI could not start
  explicit mpi_session(const mpi_session_options& options = {})
      : end_deadline_{std::min<std::chrono::milliseconds>(options.end_deadline, std::chrono::years{1})}
  {
    if (end_deadline_ <= std::chrono::milliseconds{})
      throw config_error{"a session of MPI with an end_deadline of 0 ms (give the longest wait for the last process)"};
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
    while (left_) {  // their memory stays with MPI
      std::unique_ptr<left_group> next = std::move(left_->next_);
      static_cast<void>(left_.release());
      left_ = std::move(next);
    }
    if (!ends_mpi) return;
    if (is_broken())
      std::fputs(
          "chunkmem: this process does not call MPI_Finalize, since a communicator failed and not every rank "
          "would come to it (see the error of the communicator)\n",
          stderr);
    else
      finalize();
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

  /// Whether this session has started MPI, and will end it.
  [[nodiscard]] bool has_started() const noexcept { return has_started_; }

  /// For communicators: not all ranks will come to MPI_Finalize.
  void mark_broken() noexcept { is_broken_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool is_broken() const noexcept { return is_broken_.load(std::memory_order_relaxed); }

 private:
  /// MPI_Finalize, and the end of the process where it does not return.
  void finalize() noexcept
  {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_over = false;
    std::thread watch;
    const auto end_late = [&] {
      std::unique_lock lock{mutex};
      if (changed.wait_for(lock, end_deadline_, [&] { return is_over; })) return;
      std::fprintf(
          stderr,
          "chunkmem: MPI_Finalize did not return within %lld ms, since another process of this job does not "
          "end MPI; this process ends with status %d (look at what the others do, or give mpi_session a longer "
          "end_deadline)\n",
          static_cast<long long>(end_deadline_.count()), EXIT_FAILURE);
      std::_Exit(EXIT_FAILURE);
    };
    try {
      watch = std::thread{end_late};
    } catch (const std::system_error&) {  // no thread could be started: MPI waits without a deadline
    }
    MPI_Finalize();
    {
      const std::lock_guard lock{mutex};
      is_over = true;
    }
    changed.notify_all();
    if (watch.joinable()) watch.join();
  }

  int exceptions_ = std::uncaught_exceptions();
  bool has_started_ = false;
  std::chrono::milliseconds end_deadline_;
  std::atomic<bool> is_broken_{false};
  std::mutex mutex_;
  std::unique_ptr<left_group> left_;
  own_process made_in_;
};

/// Processes by nodes: a group of the processes of a node, and a group of the processes in one place of every node.
/// Both are MPI_Comm of the user's own.
///
/// A process needs this before it makes its communicators: its place, its groups, and the device of its node that is
/// its own. Ranks of `users` have to be numbered node by node, as launchers do unless they are told otherwise;
/// sharding::process_groups refuses others.
///
/// Use:
///
///     const collective::mpi_nodes nodes{session, MPI_COMM_WORLD};
///     collective::mpi node{session, nodes.node()}, across{session, nodes.across()};
///     cudaSetDevice(static_cast<int>(nodes.device_of(devices)));
class mpi_nodes {
 public:
  /// Collective over `users`; MPI waits for all of them, without a deadline.
  /// @param of_node   consecutive ranks of a node; 0: the ranks that share memory
  /// @throws config_error   nodes are not full; comm_error   MPI failed
  explicit mpi_nodes(mpi_session&, MPI_Comm users, std::uint32_t of_node = 0)
  {
    int rank = 0;
    int ranks = 0;
    detail::require_mpi("asking for the rank", MPI_Comm_rank(users, &rank));
    detail::require_mpi("asking for the ranks", MPI_Comm_size(users, &ranks));
    if (of_node != 0 && static_cast<std::uint32_t>(ranks) % of_node != 0)
      throw config_error{error_text{} << "chunkmem: " << static_cast<std::uint64_t>(ranks) << " processes in nodes of "
                                      << of_node << " (fill nodes)"};
    if (of_node == 0)
      detail::require_mpi("grouping a node",
                          MPI_Comm_split_type(users, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node_));
    else
      detail::require_mpi("grouping a node", MPI_Comm_split(users, rank / static_cast<int>(of_node), rank, &node_));
    int place = 0;
    int size = 0;
    detail::require_mpi("asking for the rank in a node", MPI_Comm_rank(node_, &place));
    detail::require_mpi("asking for the ranks of a node", MPI_Comm_size(node_, &size));
    detail::require_mpi("grouping over nodes", MPI_Comm_split(users, place, rank, &across_));
    place_ = static_cast<std::uint32_t>(place);
    of_node_ = static_cast<std::uint32_t>(size);
  }
  mpi_nodes(const mpi_nodes&) = delete;
  mpi_nodes& operator=(const mpi_nodes&) = delete;
  /// Leaves its groups to MPI, which ends them: freeing them would wait for ranks that may be gone.
  ~mpi_nodes() = default;

  [[nodiscard]] MPI_Comm node() const noexcept { return node_; }
  [[nodiscard]] MPI_Comm across() const noexcept { return across_; }
  /// The place of this process in its node, and the number of processes there.
  [[nodiscard]] std::uint32_t rank_in_node() const noexcept { return place_; }
  [[nodiscard]] std::uint32_t of_node() const noexcept { return of_node_; }
  /// The device of this process on a node with `devices`, round robin. @throws usage_error   no devices
  [[nodiscard]] std::uint32_t device_of(std::uint32_t devices) const
  {
    expects(devices > 0, "a rank on a node without devices");
    return place_ % devices;
  }

 private:
  MPI_Comm node_ = MPI_COMM_NULL;
  MPI_Comm across_ = MPI_COMM_NULL;
  std::uint32_t place_ = 0;
  std::uint32_t of_node_ = 1;
};

}  // namespace collective

}  // namespace chunkmem::inline v0
