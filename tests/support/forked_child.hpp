// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

#include <sys/wait.h>
#include <unistd.h>

namespace support {

inline constexpr unsigned child_limit = 60;  ///< seconds after which a hanging child is killed

/// Exit codes of a child that did not report its result.
inline constexpr int child_threw = 101;
inline constexpr int child_hung = 102;

namespace detail {

/// The letter of proc(5) for this thread's state: S while it waits for something other than a disk.
inline char state_of_thread(const std::filesystem::path& task)
{
  std::ifstream file{task / "stat"};
  std::string text;
  std::getline(file, text);  // empty where the thread ended meanwhile
  const auto end_of_name = text.rfind(')');
  return end_of_name + 2 < text.size() ? text[end_of_name + 2] : 'X';
}

inline bool other_threads_sleep()
{
  const std::string own = std::to_string(::gettid());
  std::error_code gone;  // a thread that ends meanwhile
  return std::ranges::all_of(std::filesystem::directory_iterator{"/proc/self/task", gone}, [&](const auto& task) {
    const char state = task.path().filename() == own ? 'S' : state_of_thread(task.path());
    return state == 'S' || state == 'X' || state == 'Z';
  });
}

}  // namespace detail

/// As `fork`, with a time limit in the child.
///
/// The address sanitizer's allocator has no fork handlers: locks that another thread holds during the fork stay locked
/// in the child. So the fork waits until all other threads sleep, except for one that never does.
inline pid_t fork_child()
{
  for (int tries = 0; sanitized && !detail::other_threads_sleep() && tries < 100'000; ++tries) ::usleep(100);
  const pid_t child = ::fork();
  if (child == 0) ::alarm(child_limit);
  return child;
}

/// The result of `work` in a forked child, below 100; else one of the above, or 103 where the child ended otherwise.
///
/// The child ends without the destructors of this program, unless `work` ends it by `std::exit`.
template <class Work>
int result_in_child(Work work)
{
  std::cout.flush();
  std::fflush(nullptr);  // the child has a copy of unwritten buffers
  const pid_t child = fork_child();
  if (child == 0) {
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

/// Whether `call` throws the error that a caller gets in a forked child.
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
