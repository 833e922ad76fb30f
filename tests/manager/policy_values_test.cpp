// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/basic_manager.hpp>

#include <support/catch.hpp>

namespace policy_values_test {

using namespace chunkmem;

namespace {

struct window {
  int size = 64;
};
struct rate {
  int value = 1;
};
struct strict {
  explicit strict(int given) : value{given} {}
  int value;
};

static_assert(is_one_of<int, char, int> && !is_one_of<int, char, long> && !is_one_of<int>);

}  // namespace

TEST_CASE("a policy has the value that was given, whatever the order, or its default", "[manager]")
{
  CHECK(policy_value<window>().size == 64);
  CHECK(policy_value<window>(rate{3}).size == 64);
  CHECK(policy_value<window>(window{8}, rate{3}).size == 8);
  CHECK(policy_value<window>(rate{3}, window{8}).size == 8);
  CHECK(policy_value<rate>(rate{3}, window{8}).value == 3);
  CHECK(policy_value<strict>(rate{3}, strict{5}).value == 5);  // has no default, and needs none
}

}  // namespace policy_values_test
