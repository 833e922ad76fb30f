// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <utility>

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

}  // namespace detail

}  // namespace chunkmem::inline v0
