// SPDX-License-Identifier: Apache-2.0
#include "../../run_program.hpp"

#include <support/catch.hpp>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace run_program_test {
namespace {

struct ended_program {
  int status = -1;    ///< of the process
  std::string error;  ///< its standard error
};

/// Runs a program in a process of its own. @param output   a file that becomes its standard output; null: it is closed
template <class Run>
ended_program end_of(const char* output, Run run)
{
  std::array<int, 2> error{};
  REQUIRE(::pipe(error.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::dup2(error[1], STDERR_FILENO);
    ::close(STDOUT_FILENO);
    if (output != nullptr && ::open(output, O_WRONLY) != STDOUT_FILENO) ::_exit(99);
    ::_exit(command_line::run_program("program", run));
  }
  ::close(error[1]);
  ended_program ended;
  std::array<char, 512> piece{};
  for (ssize_t count = 0; (count = ::read(error[0], piece.data(), piece.size())) > 0;)
    ended.error.append(piece.data(), static_cast<std::size_t>(count));
  ::close(error[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

int print(int status)
{
  std::printf("a line\n");
  return status;
}

}  // namespace

TEST_CASE("a program ends with the status of its run, and an exception is one sentence and 2", "[gpt]")
{
  const ended_program good = end_of("/dev/null", [] { return print(7); });
  CHECK(good.status == 7);
  CHECK(good.error.empty());
  const ended_program failed = end_of("/dev/null", []() -> int { throw std::runtime_error{"no such file"}; });
  CHECK(failed.status == 2);
  CHECK(failed.error == "program: no such file\n");
  CHECK(end_of("/dev/null", []() -> int { throw command_line::interrupted{2}; }).status == 130);
}

TEST_CASE("output that was lost on a full disk is an error, and no success", "[gpt]")
{
  const ended_program full = end_of("/dev/full", [] { return print(0); });
  CHECK(full.status == 2);
  CHECK(full.error ==
        "program: standard output did not take all that was printed: No space left on device (name a "
        "place with room)\n");
  CHECK(end_of("/dev/full", [] { return print(1); }).status == 1);  // the status of a failed run has priority
  CHECK(end_of("/dev/full", [] { return 0; }).status == 0);         // nothing was printed
}

TEST_CASE("no file of a program becomes its closed standard output", "[gpt]")
{
  const ended_program closed = end_of(nullptr, [] {
    const int file = ::open("/dev/null", O_WRONLY);
    return file > STDERR_FILENO ? print(0) : 99;
  });
  CHECK(closed.status == 2);
  CHECK(closed.error.find("did not take all that was printed: Bad file descriptor") != std::string::npos);
}

}  // namespace run_program_test
