// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

namespace chunkmem::inline v0 {

/// The process that made this object, so that a forked child leaves resources to its parent.
///
///     const own_process made_in;             // a member
///     if (made_in.is_here()) worker.join();  // in the destructor
///
/// A child of `fork` has a copy of all memory, but none of the threads; it shares files, devices and connections to
/// other ranks with its parent. Limit: a child in a new PID namespace that gets the number of its parent is taken for
/// the parent. Cost: `is_here` is one short system call: for waits, copies and ends, not for hot paths.
/// Without POSIX there is no fork.
/// @threads   any
class own_process {
 public:
  [[nodiscard]] bool is_here() const noexcept { return number_ == now(); }
  /// @param what   the object, as the subject of the message's sentence
  /// @throws usage_error   this is a forked child
  void expect_here(std::string_view what) const
  {
    if (is_here()) [[likely]]
      return;
    throw usage_error{
        error_text{}
        << "chunkmem: " << what << " was used in a forked child: made in process "
        << static_cast<std::uint64_t>(number_) << ", used in process " << static_cast<std::uint64_t>(now())
        << ", which has none of its threads (make it after the fork, or let the child run another program)"};
  }

 private:
  [[nodiscard]] static long now() noexcept
  {
#if __has_include(<unistd.h>)
    return static_cast<long>(::getpid());
#else
    return 0;
#endif
  }

  long number_ = now();
};

/// A value that is destroyed only in the process that made it: for threads, and for objects that threads wait on.
///
///     process_owned<std::thread> worker{work};
///     if (worker.is_owner()) worker->join();
///
/// In a forked child the threads do not exist: joining one, or destroying a condition variable that one waits on, would
/// never return, and data of a thread may be half changed. There the value is left as it is, with all its memory. Cost:
/// the number of a process next to the value.
template <class Value>
class process_owned {
 public:
  template <class... Arguments>
  explicit process_owned(Arguments&&... arguments) : value_(std::forward<Arguments>(arguments)...)
  {
  }
  process_owned(const process_owned&) = delete;
  process_owned& operator=(const process_owned&) = delete;
  ~process_owned()
  {
    if (owner_.is_here()) std::destroy_at(&value_);
  }

  [[nodiscard]] bool is_owner() const noexcept { return owner_.is_here(); }
  /// @throws usage_error   this is a forked child; @see own_process
  void expect_owner(std::string_view what) const { owner_.expect_here(what); }

  [[nodiscard]] Value& operator*() noexcept { return value_; }
  [[nodiscard]] const Value& operator*() const noexcept { return value_; }
  [[nodiscard]] Value* operator->() noexcept { return &value_; }
  [[nodiscard]] const Value* operator->() const noexcept { return &value_; }
  [[nodiscard]] decltype(auto) operator[](std::size_t index) noexcept
    requires requires(Value& value) { value[index]; }
  {
    return value_[index];
  }
  [[nodiscard]] decltype(auto) operator[](std::size_t index) const noexcept
    requires requires(const Value& value) { value[index]; }
  {
    return value_[index];
  }

 private:
  own_process owner_;
  union {
    Value value_;
  };
};

}  // namespace chunkmem::inline v0
