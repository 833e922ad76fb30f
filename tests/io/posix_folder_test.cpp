// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/io/posix_folder.hpp>

#include <conformance/file_folder.hpp>
#include <support/catch.hpp>
#include <support/forked_child.hpp>
#include <support/short_files.hpp>
#include <support/temporary_folder.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace posix_folder_test {

using namespace chunkmem;
using conformance::detail::as_content;
using conformance::detail::errno_of;
using conformance::detail::make_file;
using conformance::detail::text_of;

namespace {

using support::temporary_folder;

mode_t mode_of(const std::string& path)
{
  struct stat what = {};
  REQUIRE(::lstat(path.c_str(), &what) == 0);
  return what.st_mode & 07777;
}

/// Open descriptors of this process, and whether a child gets them.
std::map<int, bool> open_descriptors()
{
  std::map<int, bool> found;
  for (int number = 0; number < 1'024; ++number)
    if (const int flags = ::fcntl(number, F_GETFD); flags >= 0) found[number] = (flags & FD_CLOEXEC) == 0;
  return found;
}

/// Which files this program has synced, by their numbers on the disk, and which of them cannot be.
struct watched_syncs {
  std::vector<ino_t> done;
  ino_t broken = 0;
};
watched_syncs& syncs()
{
  static watched_syncs all;
  return all;
}
ino_t number_of(const std::string& path)
{
  struct stat what = {};
  REQUIRE(::stat(path.c_str(), &what) == 0);
  return what.st_ino;
}

}  // namespace

/// In place of the system's, in this program.
extern "C" int fsync(int file)
{
  struct stat what = {};
  if (::fstat(file, &what) == 0 && what.st_ino == syncs().broken) return errno = EIO, -1;
  const long result = ::syscall(SYS_fsync, file);
  if (result == 0) syncs().done.push_back(what.st_ino);
  return static_cast<int>(result);
}

TEST_CASE("another object for a folder sees its files after the first is gone, and whatever its path is", "[io]")
{
  const temporary_folder place;
  std::optional<io::posix_folder> first{place / "a"};
  make_file(*first, "file", "content");
  const io::posix_folder other{place / "b"};
  const auto before = open_descriptors();
  const io::posix_folder again = first->again();
  for (const auto& [number, is_for_children] : open_descriptors())
    if (!before.contains(number)) CHECK_FALSE(is_for_children);
  CHECK(again.identity() == first->identity());
  CHECK(again.identity() != other.identity());
  CHECK(again.identity() == io::posix_folder{place / "a"}.identity());
  first.reset();
  std::filesystem::rename(place / "a", place / "c");
  CHECK(text_of(again, "file") == "content");
  CHECK(again.names() == std::vector<std::string>{"file"});
}

TEST_CASE("a folder that was made stays after a power cut, or is not there", "[io]")
{
  const temporary_folder top;
  const ino_t around = number_of(top / ".");
  for (const char* const name : {"a", "b/", "a"}) {  // the last one is there: whoever made it may not have come so far
    syncs().done.clear();
    const io::posix_folder folder{top / name};
    CHECK(std::count(syncs().done.begin(), syncs().done.end(), around) == 1);
  }
  syncs().broken = around;
  CHECK(errno_of([&] { io::posix_folder{top / "c"}; }) == EIO);
  CHECK_FALSE(std::filesystem::exists(top / "c"));
  CHECK_NOTHROW(io::posix_folder{top / "a"});
  syncs().broken = 0;
  CHECK_NOTHROW(io::posix_folder{top / "c"});
}

TEST_CASE("a folder of this machine keeps the laws of a folder", "[io]")
{
  const temporary_folder top;
  io::posix_folder folder{top / "new"};
  conformance::file_folder_laws(folder);
  io::posix_folder again{top / "new"};
  conformance::file_folder_laws(again);
}

TEST_CASE("a folder and its files are for their owner alone", "[io]")
{
  const temporary_folder top;
  const mode_t before = ::umask(0);
  io::posix_folder folder{top / "new"};
  make_file(folder, "file", "x");
  ::umask(before);
  CHECK(mode_of(top / "new") == 0700);
  CHECK(mode_of(top / "new/file") == 0600);
}

TEST_CASE("a folder is made, its parent is not, and a file is no folder", "[io]")
{
  const temporary_folder top;
  CHECK(errno_of([&] { io::posix_folder{top / "a/b"}; }) == ENOENT);
  io::posix_folder folder{top / "a"};
  make_file(folder, "file", "x");
  CHECK(errno_of([&] { io::posix_folder{top / "a/file"}; }) == ENOTDIR);
  CHECK(errno_of([&] { io::posix_folder{top / "a/file/b"}; }) == ENOTDIR);
  CHECK(errno_of([&] { io::posix_folder{""}; }) == ENOENT);
  CHECK_NOTHROW(io::posix_folder{top / "a/b"});
}

TEST_CASE("a folder in which everybody may replace files is refused", "[io]")
{
  const temporary_folder top;
  const std::string path = top / "open";
  REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  for (const mode_t mode : {0777U, 0722U, 0702U, 02702U}) {
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    CHECK_THROWS_AS(io::posix_folder{path}, config_error);
  }
  for (const mode_t mode : {0700U, 0755U, 0770U, 01777U}) {  // with the sticky bit nobody replaces another one's files
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    CHECK_NOTHROW(io::posix_folder{path});
  }
}

TEST_CASE("a symbolic link is never followed, and what it points at stays", "[io]")
{
  const temporary_folder top;
  io::posix_folder folder{top / "in"};
  io::posix_folder outside{top / "out"};
  make_file(outside, "secret", "kept");
  REQUIRE(::symlink("../out/secret", (top / "in/file").c_str()) == 0);
  REQUIRE(::symlink("../out/new", (top / "in/file.tmp").c_str()) == 0);  // points at nothing yet

  CHECK(errno_of([&] { (void)folder.open("file"); }) == ELOOP);
  CHECK(errno_of([&] { (void)folder.create("file"); }) == EEXIST);
  CHECK(errno_of([&] { (void)folder.create("file.tmp"); }) == EEXIST);
  CHECK(outside.names() == std::vector<std::string>{"secret"});

  make_file(folder, "mine", "new");
  folder.rename("mine", "file");  // replaces the link itself
  CHECK(text_of(folder, "file") == "new");
  CHECK(folder.remove("file.tmp"));
  CHECK(text_of(outside, "secret") == "kept");
}

TEST_CASE("what is no plain file is refused at once", "[io]")
{
  const temporary_folder top;
  io::posix_folder folder{top / "in"};
  REQUIRE(::mkfifo((top / "in/fifo").c_str(), 0600) == 0);
  REQUIRE(::mkdir((top / "in/folder").c_str(), 0700) == 0);
  CHECK(errno_of([&] { (void)folder.open("fifo"); }) == 0);  // and does not wait for somebody to write
  CHECK(errno_of([&] { (void)folder.open("folder"); }) == 0);
  CHECK_FALSE(folder.remove("folder"));
  CHECK(folder.names().size() == 2);
}

TEST_CASE("a file's name has no separator and is a name", "[io]")
{
  const temporary_folder top;
  io::posix_folder folder{top / "in"};
  for (const std::string& name :
       {std::string{}, std::string{"."}, std::string{".."}, std::string{"/"}, std::string{"a/b"},
        std::string{"../in/a"}, std::string{"a/"}, std::string("a\0b", 3)}) {
    CHECK_THROWS_AS(folder.create(name), usage_error);
    CHECK_THROWS_AS(folder.open(name), usage_error);
    CHECK_THROWS_AS(folder.rename(name, "b"), usage_error);
    CHECK_THROWS_AS(folder.rename("b", name), usage_error);
    CHECK_FALSE(folder.remove(name));
  }
  CHECK(errno_of([&] { (void)folder.create(std::string(300, 'n')); }) == ENAMETOOLONG);
  for (const char* const name : {"...", "-rf", "with space", "\xff\xfe"}) {  // odd, and fine
    make_file(folder, name, name);
    CHECK(text_of(folder, name) == name);
    CHECK(folder.remove(name));
  }
}

TEST_CASE("a folder is the one that was opened, whatever happens to its path", "[io]")
{
  const temporary_folder top;
  io::posix_folder folder{top / "here"};
  std::filesystem::rename(top / "here", top / "there");
  make_file(folder, "a", "1");
  CHECK(std::filesystem::exists(top / "there/a"));
  CHECK_FALSE(std::filesystem::exists(top / "here"));

  std::filesystem::remove_all(top / "there");
  CHECK(errno_of([&] { (void)folder.create("b"); }) == ENOENT);
  CHECK(errno_of([&] { (void)folder.open("a"); }) == ENOENT);
  CHECK(folder.remove("a"));
  CHECK(folder.names().empty());
}

TEST_CASE("a file that may not grow takes what fits and then fails with the number of the system", "[io]")
{
  const temporary_folder top;
  io::posix_folder folder{top / "in"};
  const std::string text(10'000, 'x');
  int number = 0;
  std::uint64_t offset = 0;
  {
    const support::short_files limit{4096};
    auto file = folder.create("file");
    CHECK(file.write(as_content(text)) == 4096);  // short, no error yet
    try {
      io::write_all(file, as_content(text));
    } catch (const io_error& failed) {
      number = failed.fault().number;
      offset = failed.fault().offset;
    }
  }
  CHECK(number == EFBIG);
  CHECK(offset == 4096);
  CHECK(text_of(folder, "file") == text.substr(0, 4096));
}

TEST_CASE("a full disk is an error with its number", "[io]")
{
  if (::access("/dev/full", W_OK) != 0) SKIP("there is no /dev/full");
  // The device in place of a file: what the folder itself never opens.
  io::posix_folder::writer file{io::detail::descriptor{::open("/dev/full", O_WRONLY | O_CLOEXEC)}, "full"};
  CHECK(errno_of([&] { io::write_all(file, as_content("x")); }) == ENOSPC);
}

TEST_CASE("what the system says when a file is synced, closed or read reaches the caller", "[io]")
{
  io::posix_folder::writer written{io::detail::descriptor{}, "none"};
  CHECK(errno_of([&] { written.sync(); }) == EBADF);
  CHECK(errno_of([&] { written.close(); }) == EBADF);
  CHECK(errno_of([&] { (void)written.write(as_content("x")); }) == EBADF);
  io::posix_folder::reader read{io::detail::descriptor{}, "none"};
  std::byte room[1];
  CHECK(errno_of([&] { (void)read.size(); }) == EBADF);
  CHECK(errno_of([&] { (void)read.read(0, room); }) == EBADF);

  const temporary_folder top;
  io::posix_folder folder{top / "in"};
  make_file(folder, "file", "x");
  CHECK(errno_of([&] { (void)folder.open("file").read(UINT64_MAX, room); }) == EINVAL);
}

TEST_CASE("no descriptor is left open, whatever failed, and a child gets none", "[io]")
{
  const temporary_folder top;
  const std::map<int, bool> before = open_descriptors();
  {
    io::posix_folder folder{top / "in"};
    conformance::file_folder_laws(folder);
    REQUIRE(::mkfifo((top / "in/fifo").c_str(), 0600) == 0);
    CHECK(errno_of([&] { (void)folder.open("fifo"); }) == 0);
    CHECK(open_descriptors().size() == before.size() + 1);

    auto file = folder.create("file");
    auto moved = std::move(file);
    auto other = folder.create("other");
    other = std::move(moved);
    auto reader = folder.open("file");
    CHECK(open_descriptors().size() <= before.size() + 4);
    for (const auto& [number, is_for_children] : open_descriptors())
      if (!before.contains(number)) CHECK_FALSE(is_for_children);
    other.close();
    CHECK(errno_of([&] { other.close(); }) == EBADF);

    io::posix_folder second = std::move(folder);
    CHECK(second.names().size() == 3);
  }
  CHECK_THROWS_AS(io::posix_folder{top / "a/b"}, io_error);
  REQUIRE(::mkdir((top / "open").c_str(), 0700) == 0);
  REQUIRE(::chmod((top / "open").c_str(), 0777) == 0);
  CHECK_THROWS_AS(io::posix_folder{top / "open"}, config_error);
  CHECK(open_descriptors() == before);
}

TEST_CASE("one at a time has the lock of a folder, in this process too, and no file is left of it", "[io]")
{
  const temporary_folder top;
  io::posix_folder folder{top / "in"};
  io::posix_folder same{top / "in"};
  io::posix_folder other{top / "other"};
  const auto descriptors = open_descriptors();
  {
    auto held = folder.lock();
    CHECK(errno_of([&] { (void)folder.lock(); }) == EWOULDBLOCK);
    CHECK(errno_of([&] { (void)same.lock(); }) == EWOULDBLOCK);
    CHECK(errno_of([&] { (void)other.lock(); }) == -1);
    const auto moved = std::move(held);
    CHECK(errno_of([&] { (void)same.lock(); }) == EWOULDBLOCK);
    CHECK(folder.names().empty());
    make_file(same, "a", "a lock is for those who ask");
  }
  CHECK(errno_of([&] { (void)same.lock(); }) == -1);
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("a lock ends with its process, however that ends, and not with a child of it", "[io]")
{
  const temporary_folder top;
  io::posix_folder folder{top / "in"};
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = support::fork_child();
  REQUIRE(child >= 0);
  if (child == 0) {
    io::posix_folder same{top / "in"};
    const auto held = same.lock();
    (void)!::write(ends[1], "x", 1);
    for (;;) ::pause();
  }
  char said = 0;
  REQUIRE(::read(ends[0], &said, 1) == 1);
  CHECK(errno_of([&] { (void)folder.lock(); }) == EWOULDBLOCK);
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(errno_of([&] { (void)folder.lock(); }) == -1);

  pid_t heir = 0;
  {
    const auto held = folder.lock();
    heir = support::fork_child();  // has the descriptor for as long as it lives
    REQUIRE(heir >= 0);
    if (heir == 0)
      for (;;) ::pause();
  }
  CHECK(errno_of([&] { (void)folder.lock(); }) == -1);
  ::kill(heir, SIGKILL);
  REQUIRE(::waitpid(heir, nullptr, 0) == heir);

  // A child that ends its copy of the guard ends nothing.
  std::optional<io::posix_folder::guard> held{folder.lock()};
  const pid_t tidy = support::fork_child();
  REQUIRE(tidy >= 0);
  if (tidy == 0) {
    held.reset();
    ::_exit(0);
  }
  REQUIRE(::waitpid(tidy, nullptr, 0) == tidy);
  CHECK(errno_of([&] { (void)folder.lock(); }) == EWOULDBLOCK);
  held.reset();
  CHECK(errno_of([&] { (void)folder.lock(); }) == -1);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace posix_folder_test
