// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"
#include "pictures.hpp"

#include "../../gpt/problem.hpp"

#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

namespace out_of_core_input_test {

namespace {

using namespace out_of_core;
using Catch::Matchers::ContainsSubstring;

/// A file that is removed at the end of its test.
class written_file {
 public:
  explicit written_file(const std::string& text)
      : path_{std::filesystem::temp_directory_path() / ("out_of_core_" + std::to_string(++count()) + ".csv")}
  {
    std::ofstream{path_} << text;
  }
  written_file(const written_file&) = delete;
  ~written_file() { std::filesystem::remove(path_); }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  static int& count()
  {
    static int files = 0;
    return files;
  }
  std::filesystem::path path_;
};

/// 64 equal numbers and a digit.
std::string line(const std::string& number, const std::string& digit)
{
  std::string text;
  for (int each = 0; each < 64; ++each) text += number + ',';
  return text + digit + '\n';
}
std::string lines(int count)
{
  std::string text;
  for (int each = 0; each < count; ++each) text += line(std::to_string(each % 17), std::to_string(each % 10));
  return text;
}

options parsed(std::initializer_list<const char*> words)
{
  const std::vector<const char*> all{words};
  return parse_options(static_cast<int>(all.size()), all.data());
}

}  // namespace

TEST_CASE("pictures are read from lines of 65 numbers, and every fifth is held out", "[out_of_core]")
{
  const written_file file{lines(50)};
  const picture_set set = read_pictures(file.path());
  CHECK(set.training.size() == 40);
  CHECK(set.held_out.size() == 10);
  CHECK(set.training.picture(0).front() == -1.0F);
  CHECK(set.held_out.labels == std::vector<std::uint8_t>{4, 9, 4, 9, 4, 9, 4, 9, 4, 9});
  CHECK(set.training.picture(13).back() == 1.0F);  // line 17, with 16 everywhere
}

TEST_CASE("a file that is no list of pictures is refused with the line", "[out_of_core]")
{
  const auto refused = [](const std::string& text, const char* why) {
    const written_file file{text};
    CHECK_THROWS_WITH(read_pictures(file.path()), ContainsSubstring(why));
  };
  refused("", "has 0 pictures");
  refused(lines(49), "has 49 pictures, and at least 50 are needed");
  refused(lines(3) + line("17", "1"), "has a line 4");
  refused(lines(2) + line("1", "10"), "has a line 3");
  refused(line("-1", "1"), "has a line 1");
  refused(line("1", "1,1"), "has a line 1");
  refused(line("1", ""), "has a line 1");
  refused(line("1", "1 "), "has a line 1");
  refused("1,2,3\n", "has a line 1");
  CHECK_THROWS_WITH(read_pictures("no/such/file"), ContainsSubstring("cannot be read"));
}

TEST_CASE("drawn pictures are the same each time, and show all digits on both sides", "[out_of_core]")
{
  const picture_set set = drawn_pictures();
  CHECK(set.training.numbers == drawn_pictures().training.numbers);
  for (std::uint8_t digit = 0; digit < classes; ++digit) {
    CHECK(std::ranges::count(set.training.labels, digit) == 80);
    CHECK(std::ranges::count(set.held_out.labels, digit) == 20);
  }
}

TEST_CASE("a wrong command line is refused in one sentence", "[out_of_core]")
{
  const options chosen = parsed({"--steps", "7", "--planner", "rotor", "--device", "1MiB", "--verify"});
  CHECK(chosen.steps == 7);
  CHECK(chosen.planner == planner_choice::rotor);
  CHECK(chosen.device->count() == 1U << 20U);
  CHECK(chosen.verify);
  CHECK_THROWS_WITH(parsed({"--steps", "0"}), "--steps '0' is not a whole number from 1 to 1000000");
  CHECK_THROWS_WITH(parsed({"--planner", "best"}),
                    "--planner 'best' is not planned, karma, rotor, recompute_all, swap_all or keep_all");
  CHECK_THROWS_WITH(parsed({"--device", "12"}), ContainsSubstring("has no unit"));
  CHECK_THROWS_WITH(parsed({"--planner="}), ContainsSubstring("empty value"));
}

}  // namespace out_of_core_input_test
