// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/first_failure.hpp>
#include <chunkmem/collective/mpi_session.hpp>
#include <chunkmem/core/error.hpp>

#include <mpi.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace collective {

/// The ranks that take part, that failed, and that left. The lanes of a communicator share this.
///
///     mpi_group group{session, MPI_COMM_WORLD, std::chrono::seconds{60}};
///     mpi_lane lane{group};  // how its ranks reach each other
///
/// Every rank sends every other rank exactly one notice, over a separate communicator: that it failed, or that it left
/// after which operations. A waiting rank looks for notices, so the first rank to fail ends the waits of all. A rank
/// that left after its part of an operation lets the others finish the operation. There is no pending receive that a
/// thread would own: the thread that looks probes for notices and receives them. Cost of a look: one probe.
/// Memory: 64 bytes for each rank.
///
/// @threads   any, but for the constructor, `leave` and `look_back`
class mpi_group {
 public:
  /// The three counts of operations: operations of all ranks, operations of two, and the words of callers.
  enum class part : std::uint8_t { group, pair, words };

  /// One operation as this rank does it.
  struct attempt {
    call what{};
    std::uint64_t each = 0;  ///< of the shares [bytes]
    part of = part::group;
    std::uint64_t sequence = 0;        ///< among those of its part, and of its peer; counted from 1
    std::uint32_t peer = UINT32_MAX;   ///< of a pair
    std::uint64_t group_sequence = 0;  ///< of the last operation of all before a pair's
  };

  /// Collective over `users`, which stays the user's and carries only the agreement on new communicators.
  /// @throws comm_error   MPI failed, or another rank did not come before the deadline; memory that MPI still needs is
  ///   leaked
  mpi_group(mpi_session& session, MPI_Comm users, std::chrono::milliseconds deadline)
      : session_{&session}, deadline_{deadline}
  {
    notices_ = duplicate(users);
    int rank = 0;
    int ranks = 0;
    detail::require_mpi("asking for the rank", MPI_Comm_rank(notices_, &rank));
    detail::require_mpi("asking for the number of ranks", MPI_Comm_size(notices_, &ranks));
    rank_ = static_cast<std::uint32_t>(rank);
    ranks_ = static_cast<std::uint32_t>(ranks);
    outgoing_.resize(ranks_);
    requests_.assign(ranks_, MPI_REQUEST_NULL);
    pairs_ = std::make_unique<pair_counts[]>(ranks_);
    name_processes();
  }
  mpi_group(const mpi_group&) = delete;
  mpi_group& operator=(const mpi_group&) = delete;

  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return ranks_; }
  [[nodiscard]] std::chrono::milliseconds deadline() const noexcept { return deadline_; }
  [[nodiscard]] bool has_failed() const noexcept { return failure_.is_there(); }
  [[nodiscard]] MPI_Comm notices() const noexcept { return notices_; }
  /// Sets the names of ranks in this rank's errors; the first names stay. The errors of a group that is not the whole
  /// job also name the ranks of the job. @pre   no operation is under way
  void call_members(member_names names)
  {
    if (has_names_) return;
    has_names_ = !names.empty();
    names.ranks.resize(ranks_);
    for (std::uint32_t rank = 0; rank < processes_.size(); ++rank) {
      std::string& it = names.ranks[rank];
      it += (it.empty() ? "rank " : ", rank ") + std::to_string(processes_[rank]) + " of MPI_COMM_WORLD";
    }
    names_ = std::move(names);
  }
  [[nodiscard]] const member_names& names() const noexcept { return names_; }

  /// One more communicator of the same ranks that returns its errors; freed by `look_back`.
  [[nodiscard]] MPI_Comm duplicate(MPI_Comm from)
  {
    auto fresh = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
    MPI_Request request = MPI_REQUEST_NULL;
    detail::require_mpi("duplicating a communicator", MPI_Comm_idup(from, fresh.get(), &request));
    const auto begin = std::chrono::steady_clock::now();
    for (int done = 0;;) {
      detail::require_mpi("duplicating a communicator", MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      if (done != 0) break;
      const auto waited = std::chrono::steady_clock::now() - begin;
      if (waited > deadline_) {
        static_cast<void>(fresh.release());  // MPI may still write to it
        session_->mark_broken();
        throw error(comm_failure::deadline, {}, waited);
      }
      std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
    detail::require_mpi("setting how errors are told", MPI_Comm_set_errhandler(*fresh, MPI_ERRORS_RETURN));
    owned_.push_back(*fresh);
    return *fresh;
  }

  /// For a rank that waits: the notice of another rank ends the wait, if it concerns this attempt.
  /// @throws comm_error   the first cause
  void look(const attempt& this_attempt, std::chrono::nanoseconds waited)
  {
    listen(this_attempt, waited);
    failure_.check();
    const std::uint32_t gone = left_before(this_attempt);
    if (gone != UINT32_MAX) throw error(comm_failure::peer_lost, this_attempt, waited, gone);
  }
  /// For a rank that does not wait.
  /// @throws comm_error   the first cause
  void look()
  {
    listen({}, {});
    failure_.check();
  }

  /// Counts an operation: this rank has done its part.
  void finish(const attempt& this_attempt) noexcept
  {
    auto& count = this_attempt.of == part::pair    ? pairs_[this_attempt.peer].done
                  : this_attempt.of == part::group ? group_done_
                                                   : words_done_;
    count.store(this_attempt.sequence, std::memory_order_relaxed);
  }

  /// Ends the group with an error. The first error is kept, and told to all. Waits some milliseconds for MPI to take
  /// the notices.
  void fail(const comm_error& cause) noexcept
  {
    failure_.tell(cause);
    session_->mark_broken();
    tell(static_cast<std::uint64_t>(cause.fault().failure), cause.fault().rank, std::chrono::milliseconds{20});
  }

  /// Notes a backend's flag before the first operation on its memory.
  void uses(const std::shared_ptr<std::atomic<bool>>& held)
  {
    if (held.get() == latest_) [[likely]]
      return;
    const std::lock_guard lock{held_mutex_};
    if (std::ranges::find(held_, held) == held_.end()) held_.push_back(held);
    latest_ = held.get();
  }
  /// After a failure: MPI may still use the memory of operations, so their backends do not free it.
  void keep_memory() noexcept
  {
    const std::lock_guard lock{held_mutex_};
    for (const auto& held : held_) *held = true;
  }

  /// The healthy end: tells all, and does not wait for them.
  void leave() noexcept
  {
    left_at_ = std::chrono::steady_clock::now();
    tell(has_left, rank_, std::chrono::milliseconds{20});
  }
  /// After leaving: frees the communicators once all ranks have left. If some ranks fail, or do not leave before the
  /// deadline, the communicators are leaked: a late notice must not reach a later communicator of the same number.
  [[nodiscard]] mpi_session::left_group::state look_back() noexcept
  {
    using state = mpi_session::left_group::state;
    listen({}, {});
    int is_told = 0;
    const bool holds =
        MPI_Testall(static_cast<int>(ranks_), requests_.data(), &is_told, MPI_STATUSES_IGNORE) == MPI_SUCCESS;
    if (has_failed() || !holds || std::chrono::steady_clock::now() - left_at_ > deadline_) return state::lost;
    if (heard_.load() + 1 < ranks_ || is_told == 0) return state::waiting;
    for (MPI_Comm& each : owned_) MPI_Comm_free(&each);
    return state::over;
  }

  /// A failure of this attempt, in words and numbers.
  [[nodiscard]] comm_error error(comm_failure failure, const attempt& this_attempt, std::chrono::nanoseconds waited,
                                 std::uint32_t failed_rank = UINT32_MAX) const noexcept
  {
    error_text text;
    text << "chunkmem: " << name_of(this_attempt.what.what) << " of " << this_attempt.what.size
         << " B failed: " << name_of(failure) << ", operation " << this_attempt.sequence << " with ";
    names_.tell_label(text, this_attempt.what.label);
    names_.tell_rank(text << " on ", rank_);
    text << " of " << ranks_ << ", waited " << static_cast<std::uint64_t>(waited.count()) / 1'000'000 << " ms";
    if (failed_rank != UINT32_MAX) names_.tell_rank(text << ", ", failed_rank);
    text << (failure == comm_failure::deadline
                 ? " (see what has become of that rank: it may wait in other calls; or raise the deadline)"
                 : " (see what that rank says, and start the ranks again)");
    return {text,
            {.failure = failure,
             .rank = failed_rank,
             .sequence = this_attempt.sequence,
             .waited = static_cast<std::uint64_t>(waited.count())}};
  }

 private:
  /// The ranks of the job, where this group is a part of it or counts in another order. Nothing is sent.
  void name_processes()
  {
    int relation = MPI_UNEQUAL;
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group mine = MPI_GROUP_NULL;
    detail::require_mpi("asking for the group of the job", MPI_Comm_group(MPI_COMM_WORLD, &all));
    detail::require_mpi("asking for the group of the ranks", MPI_Comm_group(notices_, &mine));
    detail::require_mpi("comparing groups", MPI_Group_compare(all, mine, &relation));
    if (relation != MPI_IDENT) {
      std::vector<int> own(ranks_);
      std::vector<int> found(ranks_, MPI_UNDEFINED);
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) own[rank] = static_cast<int>(rank);
      detail::require_mpi("asking for the ranks of the job",
                          MPI_Group_translate_ranks(mine, static_cast<int>(ranks_), own.data(), all, found.data()));
      if (std::find(found.begin(), found.end(), MPI_UNDEFINED) == found.end()) processes_ = std::move(found);
    }
    MPI_Group_free(&mine);
    MPI_Group_free(&all);
    call_members({});
  }

  static constexpr std::uint64_t has_left = 255;
  static constexpr int notice_tag = 1;

  struct pair_counts {
    std::atomic<std::uint64_t> done{0};         // by this rank, with that one
    std::atomic<std::uint64_t> left_at{never};  // how many that one had done with this rank when it left
  };
  static constexpr std::uint64_t never = UINT64_MAX;
  using notice = std::array<std::uint64_t, 5>;  // cause, rank, counts of done operations: of all, of the pair, words

  void tell(std::uint64_t why, std::uint32_t failed_rank, std::chrono::milliseconds patience) noexcept
  {
    if (has_told_.exchange(true)) return;
    for (std::uint32_t to = 0; to < ranks_; ++to) {
      if (to == rank_) continue;
      outgoing_[to] = {why, failed_rank, group_done_.load(), pairs_[to].done.load(), words_done_.load()};
      MPI_Isend(outgoing_[to].data(), 5, MPI_UINT64_T, static_cast<int>(to), notice_tag, notices_, &requests_[to]);
    }
    const auto begin = std::chrono::steady_clock::now();
    for (int done = 0; done == 0 && std::chrono::steady_clock::now() - begin < patience;) {
      if (MPI_Testall(static_cast<int>(ranks_), requests_.data(), &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) break;
      if (done == 0) std::this_thread::yield();
    }
  }

  void listen(const attempt& this_attempt, std::chrono::nanoseconds waited) noexcept
  {
    for (;;) {
      int is_there = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status from;
      if (MPI_Improbe(MPI_ANY_SOURCE, notice_tag, notices_, &is_there, &message, &from) != MPI_SUCCESS || is_there == 0)
        return;
      notice told{};
      if (MPI_Mrecv(told.data(), 5, MPI_UINT64_T, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
      hear(static_cast<std::uint32_t>(from.MPI_SOURCE), told, this_attempt, waited);
    }
  }

  void hear(std::uint32_t from, const notice& told, const attempt& this_attempt,
            std::chrono::nanoseconds waited) noexcept
  {
    if (told[0] == has_left) {
      pairs_[from].left_at.store(told[3]);
      lower(group_left_, told[2], from);
      lower(words_left_, told[4], from);
    } else {
      // A rank with a passed deadline gave up. Any other cause is passed on unchanged, with the rank that began it.
      const auto cause = static_cast<comm_failure>(told[0]);
      const bool gave_up = cause == comm_failure::deadline || told[1] >= ranks_;
      fail(error(gave_up && cause != comm_failure::mismatch ? comm_failure::revoked : cause, this_attempt, waited,
                 gave_up ? from : static_cast<std::uint32_t>(told[1])));
    }
    heard_.fetch_add(1);
  }

  // The least count of the ranks that left, and its rank, in one word: 40 bits and 24.
  static void lower(std::atomic<std::uint64_t>& least, std::uint64_t count, std::uint32_t rank) noexcept
  {
    const std::uint64_t mine = count << 24U | rank;
    for (std::uint64_t seen = least.load(); mine < seen && !least.compare_exchange_weak(seen, mine);) {
    }
  }

  [[nodiscard]] std::uint32_t left_before(const attempt& this_attempt) const noexcept
  {
    if (this_attempt.of == part::pair)
      return pairs_[this_attempt.peer].left_at.load() < this_attempt.sequence ? this_attempt.peer : UINT32_MAX;
    const std::uint64_t least = (this_attempt.of == part::group ? group_left_ : words_left_).load();
    return least != never && least >> 24U < this_attempt.sequence ? static_cast<std::uint32_t>(least & 0xffffffU)
                                                                  : UINT32_MAX;
  }

  mpi_session* session_;
  std::chrono::milliseconds deadline_;
  std::mutex held_mutex_;
  std::vector<std::shared_ptr<std::atomic<bool>>> held_;
  const std::atomic<bool>* latest_ = nullptr;  ///< of these
  MPI_Comm notices_ = MPI_COMM_NULL;
  std::vector<MPI_Comm> owned_;
  std::uint32_t rank_ = 0;
  std::uint32_t ranks_ = 1;
  std::vector<int> processes_;  // by rank: its number in MPI_COMM_WORLD, where that is another
  member_names names_;
  bool has_names_ = false;
  first_failure failure_;
  std::vector<notice> outgoing_;
  std::vector<MPI_Request> requests_;
  std::unique_ptr<pair_counts[]> pairs_;
  std::atomic<std::uint64_t> group_done_{0};
  std::atomic<std::uint64_t> words_done_{0};
  std::atomic<std::uint64_t> group_left_{never};
  std::atomic<std::uint64_t> words_left_{never};
  std::atomic<std::uint32_t> heard_{0};
  std::atomic<bool> has_told_{false};
  std::chrono::steady_clock::time_point left_at_{};
};

}  // namespace collective

}  // namespace chunkmem::inline v0
