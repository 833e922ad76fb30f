// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/io/posix_folder.hpp>

#include <support/catch.hpp>
#include <support/forked_child.hpp>
#include <support/temporary_folder.hpp>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace folder_lock_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr const char* lock_file = "/.chunkmem-lock";

using support::temporary_folder;

/// The reason why a folder is not locked; empty: it is locked
std::string refusal(io::posix_folder& folder, int* number = nullptr)
{
  try {
    const auto held = folder.lock();
    return "";
  } catch (const io_error& failed) {
    if (number != nullptr) *number = failed.fault().number;
    return failed.what();
  }
}

}  // namespace

TEST_CASE("the lock of a folder is a file that goes with it, and that no name of the folder tells", "[io]")
{
  const temporary_folder place;
  io::posix_folder folder{place.path()};
  {
    const auto held = folder.lock();
    CHECK(std::filesystem::exists(place.path() + lock_file));
    CHECK(folder.names().empty());
  }
  CHECK(std::filesystem::is_empty(place.path()));
  std::ofstream{place.path() + lock_file} << "of a process that was killed";
  CHECK(refusal(folder).empty());
  CHECK(std::filesystem::is_empty(place.path()));
}

TEST_CASE("nobody who can merely read a folder keeps its owner from locking it", "[io]")
{
  const temporary_folder place;
  REQUIRE(::chmod(place.path().c_str(), 0755) == 0);
  io::posix_folder folder{place.path()};
  const int reader = ::open(place.path().c_str(), O_RDONLY | O_DIRECTORY);
  REQUIRE(::flock(reader, LOCK_EX | LOCK_NB) == 0);  // all that such a user can lock
  {
    const auto held = folder.lock();
    struct stat what = {};
    REQUIRE(::stat((place.path() + lock_file).c_str(), &what) == 0);
    CHECK((what.st_mode & 07777U) == 0600);
    if (::geteuid() == 0) {
      CHECK(support::result_in_child([&] {
              if (::setgid(12345) != 0 || ::setuid(12345) != 0) return 1;
              if (::open(place.path().c_str(), O_RDONLY | O_DIRECTORY) < 0) return 2;
              return ::open((place.path() + lock_file).c_str(), O_RDONLY) < 0 && errno == EACCES ? 0 : 3;
            }) == 0);
    }
  }
  ::close(reader);
}

TEST_CASE("who has the lock of a folder is told at once, also where that process is stopped", "[io]")
{
  const temporary_folder place;
  io::posix_folder folder{place.path()};
  {
    const auto held = folder.lock();
    int number = 0;
    CHECK_THAT(refusal(folder, &number), ContainsSubstring("somebody else writes into this folder") &&
                                             ContainsSubstring("process " + std::to_string(::getpid()) + " on ") &&
                                             ContainsSubstring("which runs"));
    CHECK(number == EWOULDBLOCK);
  }
  const pid_t child = support::fork_child();
  REQUIRE(child >= 0);
  if (child == 0) {
    io::posix_folder same{place.path()};
    const auto held = same.lock();
    (void)::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(status));
  int number = 0;
  CHECK_THAT(refusal(folder, &number),
             ContainsSubstring("process " + std::to_string(child) + " on ") && ContainsSubstring("which is stopped"));
  CHECK(number == EWOULDBLOCK);
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(refusal(folder).empty());
}

TEST_CASE("what a lock's file says is told in one line, and need not be what a holder writes", "[io]")
{
  const temporary_folder place;
  io::posix_folder folder{place.path()};
  const auto held = folder.lock();
  for (const std::string text :
       {"", "x", "12", "99999999999999999999999 host\n", "7 a\x1b[2Jb\rc\nchunkmem: all is well", " \n"}) {
    std::ofstream{place.path() + lock_file, std::ios::trunc} << text;
    const std::string said = refusal(folder);
    CHECK_THAT(said, ContainsSubstring("somebody else writes into this folder"));
    CHECK(said.find_first_of("\x1b\r\n") == said.npos);
    CHECK(said.find("all is well") == said.npos);
  }
}

TEST_CASE("a link or a folder with the name of the lock is passed over, and nothing is written through it", "[io]")
{
  const temporary_folder place;
  const temporary_folder other;
  std::ofstream{other.path() + "/precious"} << "kept";
  io::posix_folder folder{place.path()};
  std::filesystem::create_symlink(other.path() + "/precious", place.path() + lock_file);
  std::filesystem::create_directory(place.path() + lock_file + "-1");
  {
    const auto held = folder.lock();
    CHECK(std::filesystem::exists(place.path() + lock_file + "-2"));
    CHECK_THAT(refusal(folder), ContainsSubstring("somebody else writes into this folder"));
  }
  CHECK(std::filesystem::file_size(other.path() + "/precious") == 4);
  for (unsigned index = 2; index < 8; ++index)
    std::filesystem::create_directory(place.path() + lock_file + "-" + std::to_string(index));
  CHECK_THAT(refusal(folder), ContainsSubstring("cannot be locked") && ContainsSubstring(".chunkmem-lock-7"));
}

TEST_CASE("a file that has the lock's name as a second one is passed over, with its bytes and its mode", "[io]")
{
  const temporary_folder place;
  const temporary_folder other;
  const std::string precious = other.path() + "/precious";
  std::ofstream{precious} << "kept";
  REQUIRE(::chmod(precious.c_str(), 0644) == 0);
  std::filesystem::create_hard_link(precious, place.path() + lock_file);
  io::posix_folder folder{place.path()};
  {
    const auto held = folder.lock();
    CHECK(std::filesystem::exists(place.path() + lock_file + "-1"));
    CHECK_THAT(refusal(folder), ContainsSubstring("somebody else writes into this folder"));
  }
  struct stat what = {};
  REQUIRE(::stat(precious.c_str(), &what) == 0);
  CHECK(what.st_size == 4);
  CHECK((what.st_mode & 07777U) == 0644);
  CHECK(what.st_nlink == 2);
}

TEST_CASE("a lock that only another user can open is named with its owner", "[io]")
{
  if (::geteuid() != 0) SKIP("only root makes a file for another user");
  const temporary_folder place;
  REQUIRE(::chown(place.path().c_str(), 12345, 12345) == 0);
  std::ofstream{place.path() + lock_file} << "1 nowhere\n";
  REQUIRE(::chmod((place.path() + lock_file).c_str(), 0600) == 0);
  CHECK(support::result_in_child([&] {
          if (::setgid(12345) != 0 || ::setuid(12345) != 0) return 1;
          io::posix_folder folder{place.path()};
          int number = 0;
          const std::string said = refusal(folder, &number);
          if (said.find("it belongs to user 0 (remove it if no save of that user runs)") == said.npos) return 2;
          return number == EACCES ? 0 : 3;
        }) == 0);
}

TEST_CASE("a file of another user with the name of the lock is passed over", "[io]")
{
  if (::geteuid() != 0) SKIP("only root makes a file of another user");
  const temporary_folder place;
  REQUIRE(::chmod(place.path().c_str(), 01777) == 0);
  io::posix_folder folder{place.path()};
  std::ofstream{place.path() + lock_file} << "1 nowhere\n";
  REQUIRE(::chown((place.path() + lock_file).c_str(), 12345, 12345) == 0);
  const int theirs = ::open((place.path() + lock_file).c_str(), O_RDWR);
  REQUIRE(::flock(theirs, LOCK_EX | LOCK_NB) == 0);
  {
    const auto held = folder.lock();
    CHECK_THAT(refusal(folder), ContainsSubstring("process " + std::to_string(::getpid())));
  }
  CHECK(std::filesystem::file_size(place.path() + lock_file) == 10);
  ::close(theirs);
}

}  // namespace folder_lock_test
