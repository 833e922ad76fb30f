// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <atomic>
#include <mutex>
#include <optional>

namespace chunkmem::inline v0 {

namespace collective {

/// The first error of a communicator: any thread reports it, and the calling thread throws it.
///
///     first_failure failure;
///     failure.tell(error);  // on any thread
///     failure.check();      // on the calling one: throws the first that was told
///
/// Cost of asking: one load. Telling copies the error, which does not allocate.
///
/// @threads   any
class first_failure {
 public:
  /// Keeps the error if it is the first.
  void tell(const comm_error& error) noexcept
  {
    const std::lock_guard lock{mutex_};
    if (error_) return;
    error_.emplace(error);
    is_there_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool is_there() const noexcept { return is_there_.load(std::memory_order_acquire); }
  /// @throws comm_error   the first error that was told
  void check() const
  {
    if (is_there()) throw comm_error{*error_};  // never changed once it is there
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> is_there_{false};
  std::optional<comm_error> error_;
};

}  // namespace collective

}  // namespace chunkmem::inline v0
