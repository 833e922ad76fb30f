// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/thread_rendezvous.hpp>
#include <chunkmem/core/error.hpp>

#include <cstdint>
#include <memory>

namespace chunkmem::inline v0 {

namespace collective {

/// Deadline of a group of threads.
///
///     const thread_group group{4, {.deadline = 5'000'000'000}};
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
    rendezvous_ = std::make_shared<thread_rendezvous>(ranks, options.deadline, options.slow_after);
  }
  thread_group(const thread_group&) = delete;
  thread_group& operator=(const thread_group&) = delete;

  [[nodiscard]] std::uint32_t ranks() const noexcept { return rendezvous_->ranks(); }

  /// How long ranks waited for each other so far. It names a slow rank before the deadline does. Cost: a lock.
  [[nodiscard]] rendezvous_waits waits() const noexcept { return rendezvous_->waits(); }

  /// For the communicators of this group.
  [[nodiscard]] std::shared_ptr<thread_rendezvous> rendezvous() const noexcept { return rendezvous_; }

 private:
  std::shared_ptr<thread_rendezvous> rendezvous_;
};

}  // namespace collective

}  // namespace chunkmem::inline v0
