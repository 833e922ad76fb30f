// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/posix_file.hpp>

#include <support/catch.hpp>
#include <support/forked_child.hpp>
#include <support/temporary_folder.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

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
  const support::temporary_folder folder;
  const std::string path = folder / "it";
  const auto made = [&] { return descriptor{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)}; };
  const descriptor first = made();
  CHECK(is_named(first, path));
  CHECK_FALSE(is_named(descriptor{}, path));
  std::filesystem::create_symlink("it", folder / "link");
  CHECK_FALSE(is_named(first, folder / "link"));
  std::filesystem::remove(path);
  CHECK_FALSE(is_named(first, path));
  const descriptor second = made();
  CHECK_FALSE(is_named(first, path));
  CHECK(is_named(second, path));
}

}  // namespace descriptor_test

namespace replaced_file_test {

using namespace chunkmem;
using naming = replaced_file::naming;

namespace {

using support::temporary_folder;

std::string text_of(const std::string& path)
{
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}
void write_file(const std::string& path, const std::string& text)
{
  std::ofstream{path, std::ios::binary} << text;
}

int errno_of(const std::string& path, naming when = naming::at_end)
{
  try {
    replaced_file file{path, "a text", when};
    file.finish();
    return -1;
  } catch (const io_error& failed) {
    return failed.fault().number;
  }
}

}  // namespace

TEST_CASE("a file is replaced as a whole at its end, or at once and then filled", "[core]")
{
  const temporary_folder place;
  const std::string path = place / "it";
  replace_file(path, "a text", "first");
  CHECK(text_of(path) == "first");
  {
    replaced_file file{path, "a text", naming::at_end};
    file.write("second");
    CHECK(text_of(path) == "first");
    CHECK(file.is_open());
    file.finish();
    CHECK_FALSE(file.is_open());
    CHECK_NOTHROW(file.finish());
    CHECK(text_of(path) == "second");
  }
  {
    replaced_file file{path, "a text", naming::at_once};
    CHECK(text_of(path).empty());
    file.write("thi");
    file.flush();
    CHECK(text_of(path) == "thi");
    file.write("rd");
  }
  CHECK(text_of(path) == "third");
  {
    replaced_file dropped{path, "a text", naming::at_end};
  }
  CHECK(text_of(path) == "third");
  CHECK(place.files() == 1);
}

TEST_CASE("a long text and many short ones are written whole and in order", "[core]")
{
  const temporary_folder place;
  const std::string path = place / "it";
  std::string expected;
  {
    replaced_file file{path, "a text", naming::at_end};
    for (int number = 0; number < 5'000; ++number) {
      const std::string part = number % 1'000 == 0 ? std::string(10'000, 'x') : std::to_string(number);
      file.write(part);
      expected += part;
    }
    file.finish();
  }
  CHECK(text_of(path) == expected);
}

TEST_CASE("a full disk leaves an older file, whole writes, or no file", "[core]")
{
  const temporary_folder place;
  const std::string path = place / "it";
  write_file(path, "older");
  const auto is_refused = [](auto write) {
    try {
      write();
      return false;
    } catch (const io_error& failed) {
      return failed.fault().number == EFBIG;
    }
  };
  const auto on_full_disk = [&](auto write) {
    return support::result_in_child([&] {
      const rlimit room{8, 8};  // bytes of a file
      if (std::signal(SIGXFSZ, SIG_IGN) == SIG_ERR || ::setrlimit(RLIMIT_FSIZE, &room) != 0) return 1;
      return is_refused(write) ? 0 : 2;
    });
  };
  const naming when = GENERATE(naming::at_once, naming::at_end);
  CHECK(on_full_disk([&] { replaced_file(path, "a text", when, "a longer line\n"); }) == 0);
  CHECK(text_of(path) == "older");
  CHECK(place.files() == 1);

  const auto lines = [&](auto... line) {
    return on_full_disk([&] {
      replaced_file file{path, "a text", when, "1\n"};
      (..., (file.write(line), file.flush()));
      file.finish();
    });
  };
  CHECK(lines("22\n", "longer\n") == 0);
  CHECK(text_of(path) == (when == naming::at_once ? "1\n22\n" : "older"));
  CHECK(place.files() == 1);

  CHECK(on_full_disk([&] {
          replaced_file file{path, "a text", when};
          file.write("a longer line\n");
          file.finish();
        }) == 0);
  CHECK(std::filesystem::exists(path) == (when == naming::at_end));
  CHECK(place.files() == (when == naming::at_end ? 1 : 0));
}

TEST_CASE("of two writers of one name each has a file of its own, and no reader finds half a text", "[core]")
{
  const temporary_folder place;
  const std::string path = place / "it";
  std::optional<replaced_file> first{std::in_place, path, "a text", naming::at_end};
  first->write("whole of the first");
  std::optional<replaced_file> second{std::in_place, path, "a text", naming::at_end};
  second->write("half of the ");
  second->flush();
  CHECK(place.files() == 2);
  CHECK_NOTHROW(first->finish());
  CHECK(text_of(path) == "whole of the first");
  SECTION("the other one ends")
  {
    second->write("second");
    CHECK_NOTHROW(second->finish());
    CHECK(text_of(path) == "half of the second");
  }
  SECTION("the other one is dropped")
  {
    second.reset();
    CHECK(text_of(path) == "whole of the first");
  }
  CHECK(place.files() == 1);
}

TEST_CASE("a file that somebody put in the place of an unfinished one is neither taken nor removed", "[core]")
{
  const temporary_folder place;
  const std::string path = place / "it";
  write_file(path, "older");
  std::optional<replaced_file> file{std::in_place, path, "a text", naming::at_end};
  std::filesystem::remove(path + ".new");
  write_file(path + ".new", "of another program");
  SECTION("at its end")
  {
    CHECK_THROWS_AS(file->finish(), io_error);
    CHECK(text_of(path) == "older");
  }
  SECTION("where it is dropped") {}
  file.reset();
  CHECK(text_of(path + ".new") == "of another program");
}

TEST_CASE("a forked child writes nothing of its parent's text, however it ends", "[core]")
{
  const temporary_folder place;
  const std::string path = place / "it";
  const naming when = GENERATE(naming::at_once, naming::at_end);
  static std::optional<replaced_file> file;  // also destroyed where the child calls exit
  file.emplace(path, "a text", when);
  file->write("line 1\n");
  CHECK(support::result_in_child([] {
          std::exit(7);
          return 0;
        }) == 7);
  CHECK(support::result_in_child([] {
          file.reset();
          return 7;
        }) == 7);
  CHECK(support::result_in_child([] {
          file->write("of the child");
          file->write(std::string(10'000, 'x'));
          file->flush();
          return support::is_refused_to_children([] { file->finish(); }) ? 7 : 1;
        }) == 7);
  file->write("line 2\n");
  file->finish();
  CHECK(text_of(path) == "line 1\nline 2\n");
  CHECK(place.files() == 1);
}

TEST_CASE("a link is never followed, and another name of a file keeps its bytes", "[core]")
{
  const temporary_folder place;
  const naming when = GENERATE(naming::at_once, naming::at_end);
  write_file(place / "precious", "kept");
  std::filesystem::create_symlink("precious", place / "link");
  std::filesystem::create_symlink("nothing", place / "dangling");
  std::filesystem::create_symlink("loop", place / "loop");
  for (const char* const name : {"link", "dangling", "loop"}) CHECK(errno_of(place / name, when) == ELOOP);
  std::filesystem::create_hard_link(place / "precious", place / "other");
  CHECK(errno_of(place / "other", when) == -1);
  std::filesystem::create_symlink("precious", place / "new.new");  // where the new file is made
  CHECK(errno_of(place / "new", when) == EEXIST);
  CHECK(text_of(place / "precious") == "kept");
  CHECK_FALSE(std::filesystem::exists(place / "nothing"));
  CHECK_FALSE(std::filesystem::exists(place / "new"));
}

TEST_CASE("what is no plain file is refused at once, and stays; a device is written to", "[core]")
{
  const temporary_folder place;
  REQUIRE(::mkfifo((place / "pipe").c_str(), 0600) == 0);
  CHECK(errno_of(place / "pipe") == EINVAL);  // and waits for nobody who reads
  std::filesystem::create_directory(place / "folder");
  CHECK(errno_of(place / "folder") == EISDIR);
  CHECK(errno_of(place / "nowhere/it") == ENOENT);
  CHECK(errno_of(place / "pipe/it") == ENOTDIR);
  CHECK(place.files() == 2);
  CHECK(errno_of("/dev/null") == -1);
  if (std::filesystem::exists("/dev/full")) CHECK_THROWS_AS(replace_file("/dev/full", "a text", "x"), io_error);
}

TEST_CASE("a file that a killed program left unfinished is no hindrance, and one of a forked child is its parent's",
          "[core]")
{
  const temporary_folder place;
  write_file(place / "it.new", "half");
  replace_file(place / "it", "a text", "whole");
  CHECK(text_of(place / "it") == "whole");
  CHECK(place.files() == 1);
  std::optional<replaced_file> file{std::in_place, place / "it", "a text", naming::at_end};
  CHECK(support::result_in_child([&] {
          file.reset();
          return 0;
        }) == 0);
  CHECK_NOTHROW(file->finish());
}

TEST_CASE("a file of another user in a shared folder is neither written to nor replaced", "[core]")
{
  if (::geteuid() != 0) SKIP("only root makes a file of another user");
  const temporary_folder place;
  REQUIRE(::chmod((place / ".").c_str(), 01777) == 0);
  write_file(place / "it", "theirs");
  REQUIRE(::chmod((place / "it").c_str(), 0666) == 0);
  REQUIRE(::chown((place / "it").c_str(), 2001, 2001) == 0);
  CHECK(support::result_in_child([&] {
          if (::setgid(2002) != 0 || ::setuid(2002) != 0) return 1;
          return errno_of(place / "it") == EPERM && errno_of(place / "it", naming::at_once) == EPERM ? 0 : 2;
        }) == 0);
  CHECK(text_of(place / "it") == "theirs");
  CHECK(place.files() == 1);
}

TEST_CASE("the error of a file tells its path in one line", "[core]")
{
  try {
    replace_file("/nowhere/a\nb\x1b[m", "a text", "");
    FAIL("not refused");
  } catch (const io_error& failed) {
    CHECK(
        std::string{failed.what()}.starts_with(R"(chunkmem: opening a text failed: /nowhere/a\x0ab\x1b[m, errno 2 ()"));
  }
}

}  // namespace replaced_file_test
