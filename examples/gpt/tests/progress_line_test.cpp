// SPDX-License-Identifier: Apache-2.0
#include "../../progress_line.hpp"

#include <support/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace progress_line_test {
namespace {

/// A terminal with this many columns. 0: the terminal does not report its columns.
class narrow_terminal {
 public:
  explicit narrow_terminal(unsigned short columns) : window_{::posix_openpt(O_RDWR | O_NOCTTY)}
  {
    REQUIRE(window_ >= 0);
    REQUIRE((::grantpt(window_) == 0 && ::unlockpt(window_) == 0));
    const winsize room{24, columns, 0, 0};
    REQUIRE(::ioctl(window_, TIOCSWINSZ, &room) == 0);
    out_ = std::fopen(::ptsname(window_), "w");
    REQUIRE(out_ != nullptr);
  }
  narrow_terminal(const narrow_terminal&) = delete;
  ~narrow_terminal()
  {
    if (out_ != nullptr) std::fclose(out_);
    ::close(window_);
  }
  [[nodiscard]] std::FILE* out() const noexcept { return out_; }

 private:
  int window_;
  std::FILE* out_ = nullptr;
};

}  // namespace

TEST_CASE("a line of progress is cut where a terminal would wrap it", "[gpt]")
{
  const std::string line = "step 9/200  loss 5.41719723  lr 0.00045";
  CHECK(command_line::fitting(narrow_terminal{20}.out(), line) == line.substr(0, 19));
  CHECK(command_line::fitting(narrow_terminal{80}.out(), line) == line);
  CHECK(command_line::fitting(narrow_terminal{0}.out(), line) == line);
  std::FILE* const file = std::fopen("/dev/null", "w");
  CHECK(command_line::fitting(file, line) == line);
  std::fclose(file);
}

}  // namespace progress_line_test
