// SPDX-License-Identifier: Apache-2.0
#include "../../interruption.hpp"

#include <chunkmem/core/version.hpp>

#include <support/catch.hpp>

#include <csignal>

#include <sys/wait.h>
#include <unistd.h>

namespace interruption_test {
namespace {

using command_line::interruption;

/// Runs `body` in a process of its own, whose signals are its own. @return   its status, as waitpid has it
template <class Body>
int status_of(Body body)
{
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}
bool has_ended_with(int status, int code)
{
  return WIFEXITED(status) && WEXITSTATUS(status) == code;
}
bool was_ended_by(int status, int number)
{
  return WIFSIGNALED(status) && WTERMSIG(status) == number;
}

}  // namespace

TEST_CASE("the first signal is noted, and a second one of any kind ends the process", "[gpt]")
{
  for (const int first : {SIGINT, SIGTERM, SIGUSR1})
    for (const int second : {SIGINT, SIGTERM, SIGUSR1}) {
      const auto body = [&](bool has_second) {
        interruption::listen();
        std::raise(first);
        if (has_second) std::raise(second);
        return interruption::exit_status(interruption::signal());
      };
      CHECK(has_ended_with(status_of([&] { return body(false); }), 128 + first));
      CHECK(was_ended_by(status_of([&] { return body(true); }), second));
    }
}

TEST_CASE("a signal that was ignored at the start stays ignored, also behind another signal", "[gpt]")
{
  const int status = status_of([] {
    std::signal(SIGINT, SIG_IGN);
    interruption::listen();
    std::raise(SIGINT);
    if (interruption::signal() != 0) return 1;
    std::raise(SIGTERM);
    std::raise(SIGINT);
    return interruption::signal();
  });
  CHECK(has_ended_with(status, SIGTERM));
}

}  // namespace interruption_test
