// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/posix_file.hpp>

#include <support/catch.hpp>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
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

TEST_CASE("a file is told from another one that has got its name, and from a link", "[core]")
{
  std::string folder = (std::filesystem::temp_directory_path() / "chunkmem-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const std::string path = folder + "/it";
  const auto made = [&] { return descriptor{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)}; };
  const descriptor first = made();
  CHECK(is_named(first, path));
  CHECK_FALSE(is_named(descriptor{}, path));
  std::filesystem::create_symlink("it", folder + "/link");
  CHECK_FALSE(is_named(first, folder + "/link"));
  std::filesystem::remove(path);
  CHECK_FALSE(is_named(first, path));
  const descriptor second = made();
  CHECK_FALSE(is_named(first, path));
  CHECK(is_named(second, path));
  std::filesystem::remove_all(folder);
}

}  // namespace descriptor_test
