// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/descriptor.hpp>

#include <support/catch.hpp>

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace descriptor_test {

using chunkmem::detail::descriptor;

namespace {

bool is_open(int number)
{
  return ::fcntl(number, F_GETFD) >= 0;
}

}  // namespace

TEST_CASE("a descriptor closes its file once, and not one that it gave away", "[core]")
{
  int number = -1;
  {
    descriptor first{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    number = first.get();
    descriptor second{std::move(first)};
    CHECK(second.get() == number);
    descriptor third;
    CHECK_FALSE(third.is_open());
    third = std::move(second);
    CHECK(third.is_open());
    CHECK(is_open(number));
  }
  CHECK_FALSE(is_open(number));
  {
    descriptor kept{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    number = kept.release();
    CHECK_FALSE(kept.is_open());
  }
  CHECK(is_open(number));
  ::close(number);
}

TEST_CASE("a call that a signal interrupts is taken up again", "[core]")
{
  int calls = 0;
  CHECK(chunkmem::detail::uninterrupted([&] { return ++calls < 3 ? (errno = EINTR, -1) : 7; }) == 7);
  CHECK(calls == 3);
  CHECK(chunkmem::detail::uninterrupted([&] { return errno = EAGAIN, -1; }) == -1);
}

}  // namespace descriptor_test
