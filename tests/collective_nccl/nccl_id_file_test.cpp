// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/nccl_id_file.hpp>

#include <support/catch.hpp>
#include <support/forked_child.hpp>
#include <support/refusal.hpp>
#include <support/temporary_folder.hpp>

#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace nccl_id_file_test {

using namespace chunkmem;
using collective::nccl_id_file;

namespace {

using support::temporary_folder;

using identity = std::array<std::byte, 128>;

identity some_id()
{
  identity id{};
  id.fill(std::byte{0x61});
  return id;
}

/// The reason why an identity is refused; empty: it is accepted
std::string refusal(const std::string& path, std::uint64_t run = 0)
{
  identity other{};
  return support::refusal<config_error>([&] { (void)nccl_id_file::read(path, other, run); });
}

void write_file(const std::string& path, const std::string& text)
{
  std::ofstream{path, std::ios::binary} << text;
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
}

}  // namespace

TEST_CASE("the identity's file is its owner's alone, is never an old one, and is gone afterwards", "[collective_nccl]")
{
  const temporary_folder place;
  const std::string path = place / "id";
  const identity id = some_id();
  identity other{};
  CHECK(!nccl_id_file::read(path, other));
  {
    const nccl_id_file file{path, id};
    CHECK(std::filesystem::status(path).permissions() ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    REQUIRE(nccl_id_file::read(path, other));
    CHECK(other == id);
    CHECK_THROWS_AS((nccl_id_file{path, id}), config_error);
    std::filesystem::permissions(path, std::filesystem::perms::group_read, std::filesystem::perm_options::add);
    CHECK_THAT(refusal(path), Catch::Matchers::ContainsSubstring("others may read it"));
  }
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE("the identity of a later run stays where an earlier one ends after its file was removed", "[collective_nccl]")
{
  const temporary_folder place;
  const std::string path = place / "id";
  std::optional<nccl_id_file> earlier{std::in_place, path, some_id(), 1U};
  std::filesystem::remove(path);
  const nccl_id_file later{path, some_id(), 2};
  earlier.reset();
  identity other{};
  CHECK(nccl_id_file::read(path, other, 2));
}

TEST_CASE("what is no plain file in the place of the identity's is an error at once", "[collective_nccl]")
{
  using Catch::Matchers::ContainsSubstring;
  const temporary_folder place;
  REQUIRE(::mkfifo((place / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(refusal(place / "pipe"),
             ContainsSubstring("is no plain file"));  // and waits for nobody who writes into it
  std::filesystem::create_directory(place / "folder");
  CHECK_THAT(refusal(place / "folder"), ContainsSubstring("is no plain file"));
  const nccl_id_file file{place / "id", some_id()};
  std::filesystem::create_symlink(place / "id", place / "link");
  CHECK_THAT(refusal(place / "link"), ContainsSubstring("is a symbolic link"));
  std::filesystem::create_symlink(place / "nothing", place / "dangling");
  CHECK_THAT(refusal(place / "dangling"), ContainsSubstring("is a symbolic link"));
  std::filesystem::create_symlink(place / "loop", place / "loop");
  CHECK_THAT(refusal(place / "loop"), ContainsSubstring("loop"));
  CHECK_THAT(refusal(place / "loop/id"), ContainsSubstring("loop"));
  CHECK_THAT(refusal(place / "id/id"), ContainsSubstring("cannot be opened"));
  const int listening = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string path = place / "socket";
  REQUIRE(path.size() < sizeof name.sun_path);
  path.copy(name.sun_path, path.size());
  REQUIRE(::bind(listening, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0);
  CHECK_THAT(refusal(path), ContainsSubstring("cannot be opened"));
  ::close(listening);
}

TEST_CASE("a file of another length is no identity: a longer one never, a shorter one not yet", "[collective_nccl]")
{
  const temporary_folder place;
  for (const std::size_t size : {0U, 1U, 8U, 135U}) {
    write_file(place / "id", std::string(size, '\0'));
    CHECK(refusal(place / "id").empty());
    identity other{};
    CHECK(!nccl_id_file::read(place / "id", other));
  }
  for (const std::size_t size : {137U, 300U}) {
    write_file(place / "id", std::string(size, '\0'));
    CHECK_THAT(refusal(place / "id"), Catch::Matchers::ContainsSubstring("longer than an identity"));
  }
}

TEST_CASE("the identity of a dead run is told from that of this one by the number of the run", "[collective_nccl]")
{
  const temporary_folder place;
  const nccl_id_file left{place / "id", some_id(), 17};
  identity other{};
  CHECK(nccl_id_file::read(place / "id", other, 17));
  CHECK_THAT(refusal(place / "id", 18), Catch::Matchers::ContainsSubstring("is of another run"));
  CHECK_THAT(refusal(place / "id"), Catch::Matchers::ContainsSubstring("is of another run"));
  CHECK_THROWS_AS((nccl_id_file{place / "id", some_id(), 18}), config_error);
}

TEST_CASE("an identity of another user is refused", "[collective_nccl]")
{
  if (::geteuid() != 0) SKIP("only root makes a file of another user");
  const temporary_folder place;
  const nccl_id_file file{place / "id", some_id()};
  REQUIRE(::chown((place / "id").c_str(), 12345, 12345) == 0);
  CHECK_THAT(refusal(place / "id"), Catch::Matchers::ContainsSubstring("is another user's"));
}

TEST_CASE("a path is told in one line, and a forked child leaves the file", "[collective_nccl]")
{
  const temporary_folder place;
  const std::string path = place / "id\nchunkmem: all is well\x1b[1m";
  std::optional<nccl_id_file> file{std::in_place, path, some_id()};
  const std::string text = refusal(path, 5);
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring(R"(id\x0achunkmem: all is well\x1b[1m)"));
  CHECK(support::result_in_child([&] {
          file.reset();
          return 0;
        }) == 0);
  CHECK(std::filesystem::exists(path));
}

}  // namespace nccl_id_file_test
