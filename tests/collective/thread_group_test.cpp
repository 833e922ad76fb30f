// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/thread_group.hpp>

#include <support/catch.hpp>

namespace thread_group_test {

using namespace chunkmem;
using collective::thread_group;

TEST_CASE("a group has ranks and a deadline", "[collective]")
{
  CHECK(thread_group{3}.ranks() == 3);
  CHECK_THROWS_AS(thread_group{0}, usage_error);
  CHECK_THROWS_AS((thread_group{2, {.deadline = 0}}), config_error);
}

TEST_CASE("what ranks share outlives their group", "[collective]")
{
  const auto meeting = thread_group{2}.meeting();
  CHECK(meeting->ranks() == 2);
}

}  // namespace thread_group_test
