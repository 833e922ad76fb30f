// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/error_text.hpp>

#include <atomic>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

namespace checks {

/// Which thread is inside of a manager, and in which call: a second one is refused.
///
///     caller_guard callers;
///     const auto inside = callers.enter("acquire");  // throws where another thread is inside
///
/// Threads may take turns. A call within a call of the same thread is no second caller.
/// Cost: one exchange of an atomic for each outermost call. @threads   any
class caller_guard {
 public:
  /// A call that goes on; the outermost one of its thread lets others in when it ends.
  class scope {
   public:
    scope() = default;
    explicit scope(caller_guard* guard) noexcept : guard_{guard} {}
    scope(scope&& other) noexcept : guard_{std::exchange(other.guard_, nullptr)} {}
    scope& operator=(scope&&) = delete;
    /// No call of the same thread goes on around it.
    [[nodiscard]] bool is_outermost() const noexcept { return guard_ != nullptr; }
    ~scope()
    {
      if (guard_ != nullptr) guard_->leave();
    }

   private:
    caller_guard* guard_ = nullptr;
  };

  /// @param call   a literal
  /// @throws usage_error   another thread is inside
  [[nodiscard]] scope enter(const char* call)
  {
    const void* other = nullptr;
    if (inside_.compare_exchange_strong(other, this_thread(), std::memory_order_acquire)) {
      call_.store(call, std::memory_order_relaxed);
      return scope{this};
    }
    if (other == this_thread()) return {};
    const char* const theirs = call_.load(std::memory_order_relaxed);
    throw usage_error{
        error_text{} << "chunkmem: the manager was called by two threads at once: " << std::string_view{call}
                     << ", while another thread is in " << std::string_view{theirs == nullptr ? "another call" : theirs}
                     << " (one caller at a time: guard the manager with a mutex, or give each thread its own)"};
  }

  /// The same where nothing may be thrown: waits until the other thread is out.
  /// @param waited   whether it had to
  [[nodiscard]] scope wait_to_enter(const char* call, bool& waited) noexcept
  {
    waited = false;
    for (const void* other = nullptr; !inside_.compare_exchange_strong(other, this_thread(), std::memory_order_acquire);
         other = nullptr) {
      if (other == this_thread()) return {};
      waited = true;
      inside_.wait(other, std::memory_order_relaxed);
    }
    call_.store(call, std::memory_order_relaxed);
    return scope{this};
  }

 private:
  void leave() noexcept
  {
    call_.store(nullptr, std::memory_order_relaxed);
    inside_.store(nullptr, std::memory_order_release);
    inside_.notify_all();
  }
  /// An address that no other thread has. `<thread>` is not for headers that everybody includes.
  [[nodiscard]] static const void* this_thread() noexcept
  {
    static thread_local const char mark = 0;
    return &mark;
  }

  std::atomic<const void*> inside_{nullptr};
  std::atomic<const char*> call_{nullptr};
};

}  // namespace checks

}  // namespace chunkmem::inline v0
