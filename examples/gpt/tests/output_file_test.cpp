// SPDX-License-Identifier: Apache-2.0
#include "../../output_file.hpp"

#include <support/catch.hpp>

#include <filesystem>
#include <string>
#include <system_error>

#include <stdlib.h>

namespace output_file_test {
namespace {

namespace fs = std::filesystem;
using command_line::place_of;

/// A folder of its own, in which the process works until the end of the test.
class working_folder {
 public:
  working_folder() : before_{fs::current_path()}, path_{(fs::temp_directory_path() / "chunkmem_XXXXXX").string()}
  {
    REQUIRE(::mkdtemp(path_.data()) != nullptr);
    fs::current_path(path_);
  }
  working_folder(const working_folder&) = delete;
  ~working_folder()
  {
    std::error_code ignored;
    fs::current_path(before_, ignored);
    fs::remove_all(path_, ignored);
  }

 private:
  fs::path before_;
  std::string path_;
};

}  // namespace

TEST_CASE("all names of a folder have one place, before it is made and after", "[gpt]")
{
  const working_folder here;
  const fs::path place = fs::canonical(".") / "new";
  fs::create_directory("old");
  fs::create_directory_symlink("old", "link");
  for (int made = 0; made < 2; ++made) {
    for (const char* const name : {"new", "./new", "new/", "old/../new", "link/../new/."}) {
      INFO(name << (made == 0 ? ", not made" : ", made"));
      CHECK(place_of(name) == place);
    }
    CHECK(place_of(fs::current_path() / "new/") == place);
    CHECK(place_of("link") == place_of("old"));
    CHECK(place_of("link/new") == fs::canonical(".") / "old/new");
    CHECK(place_of("newer") != place);
    fs::create_directory("new");
  }
}

}  // namespace output_file_test
