// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common_flags.hpp"
#include "interruption.hpp"
#include "progress_line.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include <fcntl.h>

namespace command_line {

/// One sentence on standard error, in a line of its own.
inline void tell(const char* program, const std::string& sentence) noexcept
{
  std::fflush(stdout);
  erase_line(stderr);
  std::fprintf(stderr, "%s: %s\n", program, sentence.c_str());
}

/// Answers --help and --version.
inline int answer(const char* program, const common_flags& asked, const std::string& help)
{
  std::fputs((asked.help ? help : version_text(program)).c_str(), stdout);
  return EXIT_SUCCESS;
}

/// Replaces a standard stream that the caller closed by one whose use fails, so that no file of the program gets its
/// number.
inline void reserve_standard_streams() noexcept
{
  for (const int stream : {0, 1, 2})
    if (::fcntl(stream, F_GETFD) == -1 && errno == EBADF) (void)::open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
}

/// The frame of main: runs a program, and reports its failure in one sentence.
///
///     int main(int count, char** arguments)
///     {
///       return command_line::run_program("schedule", [&] { return run(parse_options(count - 1, arguments + 1)); });
///     }
/// @return   the result of `run`; 2 where it throws, or where standard output did not take all that was printed, as on
///   a full disk; 128 plus the number of the signal where it throws interrupted
template <class Run>
[[nodiscard]] int run_program(const char* program, Run run)
{
  reserve_standard_streams();
  int status = 2;
  try {
    status = run();
  } catch (const interrupted& by) {
    tell(program, "ended by " + interruption::name(by.number) + ": nothing was written (start it again)");
    return interruption::exit_status(by.number);
  } catch (const std::exception& failure) {
    tell(program, failure.what());
    return 2;
  }
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  const std::string reason = errno == 0 ? "" : std::string{": "} + std::strerror(errno);
  tell(program, "standard output did not take all that was printed" + reason + " (name a place with room)");
  return status == EXIT_SUCCESS ? 2 : status;
}

}  // namespace command_line
