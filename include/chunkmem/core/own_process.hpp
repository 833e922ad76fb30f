// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <string_view>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

namespace chunkmem::inline v0 {

/// The process that made this: tells a forked child what it must leave to its parent.
///
///     const own_process made_in;             // a member
///     if (made_in.is_here()) worker.join();  // in the destructor
///
/// A child of `fork` has a copy of all memory, but none of the threads; files, devices and other ranks it shares with
/// its parent. Limit: a child in a new namespace of processes that gets the number of its parent is taken for the
/// parent. Cost: `is_here` is one short system call: for waits, copies and ends, not for what is called all the time.
/// Without POSIX there is no fork.
/// @threads   any
class own_process {
 public:
  [[nodiscard]] bool is_here() const noexcept { return number_ == now(); }
  /// @param what   cannot be used in a child, as the subject of a sentence
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

}  // namespace chunkmem::inline v0
