// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <csignal>
#include <string>

/// The handler of command_line::interruption.
extern "C" inline void note_signal_of_end(int number);

namespace command_line {

/// A user's request to end the program: Ctrl-C, SIGTERM of a batch system, or SIGUSR1, which MPI launchers forward to
/// all processes.
///
///     interruption::listen();
///     while (!is_done() && interruption::signal() == 0) step();
///     return interruption::exit_status(interruption::signal());
///
/// The first signal is noted, and the program ends at the next place where it checks. The second signal ends the
/// process at once. A signal that was ignored when the program began stays ignored, as under nohup.
class interruption {
 public:
  static void listen() noexcept
  {
    for (const int number : numbers) hand_to(number, note_signal_of_end);
  }
  /// The number of the signal that was received, 0 for none.
  [[nodiscard]] static int signal() noexcept { return noted(); }
  /// 130 for SIGINT, 143 for SIGTERM, 138 for SIGUSR1, as shells have it.
  [[nodiscard]] static constexpr int exit_status(int number) noexcept { return 128 + number; }
  [[nodiscard]] static std::string name(int number)
  {
    return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGUSR1";
  }

  /// Notes a signal and restores the default actions of all of them. For the handler: calls only async-signal-safe
  /// functions.
  static void note(int number) noexcept
  {
    noted() = number;
    for (const int each : numbers) hand_to(each, SIG_DFL);
  }

 private:
  static constexpr int numbers[] = {SIGINT, SIGTERM, SIGUSR1};

  static void hand_to(int number, void (*handler)(int)) noexcept
  {
    struct sigaction now = {};
    if (sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) std::signal(number, handler);
  }
  [[nodiscard]] static std::atomic<int>& noted() noexcept
  {
    static constinit std::atomic<int> number{0};
    static_assert(std::atomic<int>::is_always_lock_free, "a signal handler writes it");
    return number;
  }
};

/// Ends work that has no partial result. The exception runs destructors, so no unfinished file stays.
struct interrupted {
  int number = 0;  ///< of the signal
};

/// @throws interrupted   a signal was received
inline void expect_no_signal()
{
  if (const int number = interruption::signal(); number != 0) throw interrupted{number};
}

}  // namespace command_line

extern "C" inline void note_signal_of_end(int number)
{
  command_line::interruption::note(number);
}
