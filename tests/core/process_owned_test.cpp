// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/process_owned.hpp>

#include <support/catch.hpp>
#include <support/forked_child.hpp>

#include <condition_variable>
#include <optional>
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

}  // namespace process_owned_test
