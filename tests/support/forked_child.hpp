// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string_view>

#include <sys/wait.h>
#include <unistd.h>

namespace support {

inline constexpr unsigned child_limit = 60;  ///< seconds after which a child that hangs is ended

/// Ends of a child that did not say how it went.
inline constexpr int child_threw = 101;
inline constexpr int child_hung = 102;

/// What `work` returns in a forked child, below 100; else one of the above, or 103 where the child was ended otherwise.
///
/// The child ends without the destructors of this program, unless `work` ends it by `std::exit`.
template <class Work>
int result_in_child(Work work)
{
  std::cout.flush();
  std::fflush(nullptr);  // the child has a copy of what is not yet written
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(child_limit);
    int result = child_threw;
    try {
      result = work();
    } catch (const std::exception& failed) {
      std::cerr << "in a child: " << failed.what() << '\n';
    }
    ::_exit(result);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return 103;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? child_hung : 103;
}

/// `call` throws what tells a caller that it is a forked child.
template <class Call>
bool is_refused_to_children(Call call)
{
  try {
    call();
  } catch (const chunkmem::usage_error& failed) {
    return std::string_view{failed.what()}.find("in a forked child") != std::string_view::npos;
  }
  return false;
}

}  // namespace support
