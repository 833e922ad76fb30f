// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/io/posix_folder.hpp>

#include <conformance/file_folder.hpp>
#include <support/catch.hpp>
#include <support/refusal.hpp>
#include <support/temporary_folder.hpp>

#include <cerrno>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

namespace foreign_files_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using conformance::detail::errno_of;
using conformance::detail::make_file;

namespace {

using support::temporary_folder;

std::string refusal(const io::posix_folder& folder, const std::string& name)
{
  return support::refusal<io_error>([&] { (void)folder.open_own(name); });
}

}  // namespace

TEST_CASE("a file that everybody may write to is foreign, others of one's own are not", "[io]")
{
  const temporary_folder place;
  io::posix_folder folder{place.path()};
  make_file(folder, "file", "x");
  for (const mode_t mode : {0600U, 0644U, 0664U, 0400U}) {
    REQUIRE(::chmod((place / "file").c_str(), mode) == 0);
    CHECK_FALSE(folder.is_foreign("file"));
    CHECK_NOTHROW(folder.open_own("file"));
  }
  REQUIRE(::chmod((place / "file").c_str(), 0666) == 0);
  CHECK(folder.is_foreign("file"));
  CHECK_THAT(refusal(folder, "file"), ContainsSubstring("file is not trusted: everybody may write to it"));
  CHECK_NOTHROW(folder.open("file"));  // for what a user names
  CHECK_FALSE(folder.is_foreign("nothing"));
  CHECK(errno_of([&] { (void)folder.open_own("nothing"); }) == ENOENT);
  REQUIRE(::symlink("file", (place / "link").c_str()) == 0);
  CHECK_FALSE(folder.is_foreign("link"));
  CHECK(errno_of([&] { (void)folder.open_own("link"); }) == ELOOP);
}

TEST_CASE("a file with a second name is foreign where others may add names to the folder, and nowhere else", "[io]")
{
  const temporary_folder place;
  const temporary_folder elsewhere;
  {
    io::posix_folder own{elsewhere.path()};
    make_file(own, "older", "x");
  }
  REQUIRE(::link((elsewhere / "older").c_str(), (place / "file").c_str()) == 0);
  for (const mode_t mode : {01777U, 0770U, 0755U, 0700U}) {
    REQUIRE(::chmod(place.path().c_str(), mode) == 0);
    const io::posix_folder folder{place.path()};
    const bool may_be_planted = (mode & 022U) != 0;
    CHECK(folder.is_foreign("file") == may_be_planted);
    if (may_be_planted)
      CHECK_THAT(refusal(folder, "file"), ContainsSubstring("file is not trusted: it has another name too"));
    else
      CHECK(refusal(folder, "file").empty());
  }
}

TEST_CASE("files of this user, of the folder's owner and of root are believed, and those of nobody else", "[io]")
{
  if (::geteuid() != 0) SKIP("only root makes a file of another user");
  const temporary_folder place;
  REQUIRE(::chown(place.path().c_str(), 2001, 2001) == 0);
  for (const mode_t mode : {01777U, 0770U, 0755U}) {
    REQUIRE(::chmod(place.path().c_str(), mode) == 0);
    io::posix_folder folder{place.path()};
    for (const uid_t owner : {0U, 2001U, 2002U}) {
      (void)folder.remove("file");
      make_file(folder, "file", "x");
      REQUIRE(::chown((place / "file").c_str(), owner, 2001) == 0);
      CHECK(folder.is_foreign("file") == (owner == 2002));
      CHECK(errno_of([&] { (void)folder.open_own("file"); }) == (owner == 2002 ? EPERM : -1));
    }
    CHECK_THAT(refusal(folder, "file"),
               ContainsSubstring(
                   "file is not trusted: it belongs to user 2002, the folder to user 2001, this process is of user 0"));
  }
}

}  // namespace foreign_files_test
