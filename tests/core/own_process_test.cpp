// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/own_process.hpp>

#include <support/catch.hpp>
#include <support/forked_child.hpp>

#include <condition_variable>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace process_owned_test {

using namespace chunkmem;

namespace {

struct counted {
  explicit counted(int& count) : count_{&count} {}
  counted(const counted&) = delete;
  ~counted() { ++*count_; }

 private:
  int* count_;
};

}  // namespace

TEST_CASE("a value that a process owns is used like the value, and destroyed with it", "[core]")
{
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<process_owned<int>>);
  process_owned<std::vector<int>> list(3U, 7);
  CHECK(list->size() == 3);
  CHECK(list[2] == 7);
  list[1] = 5;
  CHECK((*list)[1] == 5);
  CHECK(list.is_owner());
  CHECK_NOTHROW(list.expect_owner("a list"));
  CHECK_NOTHROW(process_owned<std::condition_variable>{});
  int ended = 0;
  {
    const process_owned<counted> one{ended};
  }
  CHECK(ended == 1);
}

TEST_CASE("a forked child leaves the value as it is", "[core]")
{
  int ended = 0;
  std::optional<process_owned<counted>> one{std::in_place, ended};
  CHECK(support::result_in_child([&] {
          if (one->is_owner()) return 1;
          one.reset();
          if (ended != 0) return 2;
          {
            const process_owned<counted> own{ended};
          }
          return ended == 1 ? 0 : 3;
        }) == 0);
  one.reset();
  CHECK(ended == 1);
}

TEST_CASE("an object knows the process that made it from a forked child", "[core]")
{
  const own_process here;
  CHECK(here.is_here());
  CHECK_NOTHROW(here.expect_here("a thing"));
  CHECK(support::result_in_child([&] {
          const own_process child;
          return here.is_here() || !child.is_here() ? 1 : 0;
        }) == 0);
}

TEST_CASE("what is used in a forked child is told with both processes", "[core]")
{
  const own_process here;
  const std::string parent = std::to_string(::getpid());
  CHECK(support::result_in_child([&] {
          try {
            here.expect_here("a thing");
          } catch (const usage_error& failed) {
            const std::string text = failed.what();
            const bool tells = text.find("a thing was used in a forked child: made in process " + parent +
                                         ", used in process " + std::to_string(::getpid())) != text.npos;
            return tells ? 0 : 1;
          }
          return 2;
        }) == 0);
}

}  // namespace process_owned_test
