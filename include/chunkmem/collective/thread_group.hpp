// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/thread_meeting.hpp>
#include <chunkmem/core/error.hpp>

#include <cstdint>
#include <memory>

namespace chunkmem::inline v0 {

namespace collective {

/// Deadline of a group of threads.
struct thread_group_options {
  std::uint64_t deadline = 60'000'000'000;   ///< longest wait for a rank [ns]; after it the group fails
  std::uint64_t slow_after = 1'000'000'000;  ///< a wait that `waits` counts as slow [ns]
};

/// The shared part of ranks that are threads of one process. Make it once; then each rank makes its `local_threads` of
/// it.
///
/// It may end before its communicators, and they may end before their queued work: the shared part lives as long as
/// anybody uses it.
///
/// Use:
///
///     const collective::thread_group group{4};                        // once for all ranks
///     collective::local_threads ranks{group, rank_id{rank}};          // on the thread of each rank
///
/// @threads   any
class thread_group {
 public:
  /// @throws usage_error     there are no ranks
  /// @throws config_error    a deadline of 0
  /// @throws std::bad_alloc  no room for the shared part
  explicit thread_group(std::uint32_t ranks, const thread_group_options& options = {})
  {
    if (ranks == 0) throw usage_error{"a group of 0 ranks (give one or more)"};
    if (options.deadline == 0)
      throw config_error{"a group of ranks with a deadline of 0 ns (give the longest wait for a rank)"};
    meeting_ = std::make_shared<thread_meeting>(ranks, options.deadline, options.slow_after);
  }
  thread_group(const thread_group&) = delete;
  thread_group& operator=(const thread_group&) = delete;

  [[nodiscard]] std::uint32_t ranks() const noexcept { return meeting_->ranks(); }

  /// How long ranks waited for each other so far. It names a slow rank before the deadline does. Cost: a lock.
  [[nodiscard]] meeting_waits waits() const noexcept { return meeting_->waits(); }

  /// For the communicators of this group.
  [[nodiscard]] std::shared_ptr<thread_meeting> meeting() const noexcept { return meeting_; }

 private:
  std::shared_ptr<thread_meeting> meeting_;
};

}  // namespace collective

}  // namespace chunkmem::inline v0
