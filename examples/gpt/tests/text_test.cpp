// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include "problem.hpp"

#include <support/catch.hpp>

#include <fstream>

#include <unistd.h>

namespace text_test {

namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

/// A folder of its own, gone at the end.
struct scratch_folder {
  fs::path path = fs::temp_directory_path() / ("chunkmem_text_test_" + std::to_string(getpid()));

  scratch_folder() { fs::create_directories(path); }
  ~scratch_folder() { fs::remove_all(path); }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;

  void write(const char* name, const std::string& content) const { std::ofstream{path / name} << content; }
};

std::string refusal(const fs::path& where)
{
  try {
    (void)gpt::read_text(where);
  } catch (const gpt::problem& refused) {
    return refused.what();
  }
  return {};
}

std::string whole(const gpt::training_text& text)
{
  std::string all{text.training().begin(), text.training().end()};
  return all.append(text.held_out().begin(), text.held_out().end());
}

}  // namespace

TEST_CASE("a file is split into nine tenths and one", "[gpt]")
{
  const scratch_folder folder;
  folder.write("a", std::string(99, 'a').append("b"));
  const gpt::training_text text = gpt::read_text(folder.path / "a");
  CHECK(text.training().size() == 90);
  CHECK(text.held_out().size() == 10);
  CHECK(text.held_out().back() == 'b');
  CHECK(text.hash() == 0x2885cdac2e5a9860u);
}

TEST_CASE("a folder is its files by name, each real file once", "[gpt]")
{
  const scratch_folder folder;
  folder.write("b", "two");
  folder.write("a", "one");
  fs::create_symlink("b", folder.path / "0");  // first by name, but it is b
  fs::create_symlink("nowhere", folder.path / "dangling");
  fs::create_directory(folder.path / "inner");
  CHECK(whole(gpt::read_text(folder.path)) == "twoone");
}

TEST_CASE("a text that cannot be used is refused in one sentence", "[gpt]")
{
  const scratch_folder folder;
  folder.write("empty", "");
  CHECK_THAT(refusal(folder.path / "absent"), ContainsSubstring("does not exist"));
  CHECK_THAT(refusal(folder.path / "empty"), ContainsSubstring("is empty"));
  CHECK_THAT(refusal(folder.path), ContainsSubstring("is empty"));
  CHECK_THAT(refusal("/dev/null"), ContainsSubstring("neither a regular file nor a folder"));
  fs::remove(folder.path / "empty");
  CHECK_THAT(refusal(folder.path), ContainsSubstring("no file that can be read"));
}

TEST_CASE("a file without permission is refused", "[gpt]")
{
  if (geteuid() == 0) SKIP("the superuser may read every file");
  const scratch_folder folder;
  folder.write("secret", "text");
  fs::permissions(folder.path / "secret", fs::perms::none);
  CHECK_THAT(refusal(folder.path / "secret"), ContainsSubstring("cannot be read"));
}

TEST_CASE("a text that is too short says how much it needs", "[gpt]")
{
  const gpt::training_text text{"short", std::string(100, 'x')};
  CHECK_NOTHROW(text.expects_windows_of(9));
  CHECK_THROWS_WITH(text.expects_windows_of(10), ContainsSubstring("100 bytes") && ContainsSubstring("needs 110"));
}

TEST_CASE("the default text is there", "[gpt]")
{
  CHECK(gpt::default_text().size() > 0);
}

}  // namespace text_test
