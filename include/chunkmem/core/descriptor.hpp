// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cerrno>
#include <string>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

namespace chunkmem::inline v0 {

namespace detail {

/// Closes the file it holds, once. Needs POSIX.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int number) noexcept : number_{number} {}
  descriptor(descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  descriptor& operator=(descriptor&& other) noexcept
  {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor()
  {
    if (number_ >= 0) ::close(number_);
  }

  [[nodiscard]] int get() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

/// Repeats a call that a signal interrupted.
template <class Call>
[[nodiscard]] auto uninterrupted(Call call)
{
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// False where the path is that of another file by now, or of none; a link is not followed. The open descriptor keeps
/// the system from giving the file's number to a new file.
[[nodiscard]] inline bool is_named(const descriptor& file, const std::string& path) noexcept
{
  struct stat own = {};
  struct stat named = {};
  return ::fstat(file.get(), &own) == 0 && ::lstat(path.c_str(), &named) == 0 && own.st_dev == named.st_dev &&
         own.st_ino == named.st_ino;
}

}  // namespace detail

}  // namespace chunkmem::inline v0
