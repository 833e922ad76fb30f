// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

namespace command_line {

/// True for a terminal whose lines can be overwritten. An MPI launcher gives its processes a terminal as standard
/// output, and a pipe as standard error, wherever its own output goes: so both streams have to be terminals.
[[nodiscard]] inline bool is_terminal(std::FILE* out) noexcept
{
  return ::isatty(fileno(out)) == 1 && ::isatty(STDERR_FILENO) == 1;
}

/// Erases the progress line of a terminal before another line is printed.
inline void erase_line(std::FILE* out) noexcept
{
  if (is_terminal(out)) std::fputs("\r\x1b[K", out);
}

/// The part of a line that a terminal shows in one row: a line that wraps cannot be overwritten. A pipe gets the whole
/// line.
[[nodiscard]] inline std::string_view fitting(std::FILE* out, std::string_view line) noexcept
{
  winsize room{};
  const bool is_known = ::ioctl(fileno(out), TIOCGWINSZ, &room) == 0 && room.ws_col > 0;
  return is_known ? line.substr(0, room.ws_col - 1U) : line;
}

/// One line on standard error with the progress of some work. It is overwritten, and erased at the end. Work of less
/// than two seconds shows no line, and a pipe or a file gets none.
///
///     progress_line progress{"verify"};
///     for (std::size_t step = 0; step < steps; ++step) run(step), progress.tell(step + 1, steps);
class progress_line {
 public:
  explicit progress_line(std::string work) : work_{std::move(work)}, is_shown_{is_terminal(stderr)} {}
  progress_line(const progress_line&) = delete;
  ~progress_line() { erase(); }

  /// "verify: 12 of 50, about 8 s left". The time left is estimated from the parts so far.
  /// @param first   parts that were completed before this line began
  void tell(std::size_t done, std::size_t of, std::size_t first = 0)
  {
    std::string text = work_ + ": " + std::to_string(done) + " of " + std::to_string(of);
    if (done > first) text += left_text(seconds() / static_cast<double>(done - first) * static_cast<double>(of - done));
    show(text);
  }
  /// ", about 8 s left"
  [[nodiscard]] static std::string left_text(double seconds)
  {
    char text[48];
    std::snprintf(text, sizeof text, ", about %.0f s left", seconds);
    return text;
  }
  /// Shows the line after the first two seconds. @param text   without an end of line
  void show(std::string_view text)
  {
    if (!is_shown_ || seconds() < 2) return;
    const std::string_view seen = fitting(stderr, text);
    std::fprintf(stderr, "\r\x1b[K%.*s", static_cast<int>(seen.size()), seen.data());
    is_there_ = true;
  }
  void erase() noexcept
  {
    if (std::exchange(is_there_, false)) erase_line(stderr);
  }

 private:
  using clock = std::chrono::steady_clock;
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(clock::now() - begin_).count(); }

  std::string work_;
  bool is_shown_;
  bool is_there_ = false;
  clock::time_point begin_ = clock::now();
};

}  // namespace command_line
