// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/iteration_planner.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace plans_by_order_test {

namespace cm = chunkmem;

namespace {

/// An order of four lists, by number.
std::array<cm::list_id, 4> order(std::uint32_t number)
{
  std::array<cm::list_id, 4> lists{cm::list_id{0}, cm::list_id{1}, cm::list_id{2}, cm::list_id{3}};
  for (; number > 0; --number) std::ranges::next_permutation(lists);
  return lists;
}

/// Marks the plan of record 0 in the current order.
void plan(cm::plans_by_order& plans, std::uint64_t number)
{
  plans.grow(1);
  plans[0].made = number;
  plans[0].valid = true;
}

void change(cm::plans_by_order& plans, std::uint32_t number)
{
  const auto to = order(number);
  plans.prepare(to);
  plans.change(to);
}

}  // namespace

TEST_CASE("plans come back with their order, as many orders as are kept", "[manager]")
{
  cm::plans_by_order plans;
  plan(plans, 100);
  constexpr std::uint32_t turns = cm::plans_by_order::known_orders;
  for (int round = 0; round < 3; ++round)
    for (std::uint32_t number = 0; number < turns; ++number) {
      change(plans, 20);  // on the way, without a plan
      change(plans, number);
      if (round == 0 && number > 0) {
        CHECK(plans.size() == 0);
        plan(plans, 100 + number);
      }
      REQUIRE(plans.size() == 1);
      CHECK(plans[0].made == 100 + number);
      CHECK(plans[0].valid);
      CHECK_FALSE(plans[0].is_marked == (round > 0 || number == 0));
      plans[0].is_marked = true;
    }
}

TEST_CASE("one order more puts out the plans that were put aside first", "[manager]")
{
  cm::plans_by_order plans;
  constexpr std::uint32_t turns = cm::plans_by_order::known_orders + 2;
  for (std::uint32_t number = 0; number < turns; ++number) {
    change(plans, number);
    plan(plans, number);
  }
  std::uint32_t kept = 0;
  for (std::uint32_t number = turns; number-- > 0;) {
    change(plans, number);
    kept += plans.size() == 1 && plans[0].made == number ? 1 : 0;
  }
  CHECK(kept == turns - 1);  // the current one, and those put aside
}

TEST_CASE("an order that stays keeps its plans", "[manager]")
{
  cm::plans_by_order plans;
  plan(plans, 5);
  change(plans, 0);  // as declared
  CHECK(plans[0].made == 5);
  change(plans, 3);
  plan(plans, 6);
  change(plans, 3);
  CHECK(plans[0].made == 6);
  CHECK_FALSE(plans[0].is_marked);
}

TEST_CASE("a record that changed has no plan in any order", "[manager]")
{
  cm::plans_by_order plans;
  for (std::uint32_t number = 0; number < 3; ++number) {
    change(plans, number);
    plan(plans, number);
    plans.grow(2);
    plans[1].valid = true;
  }
  plans.forget(0);
  for (std::uint32_t number = 0; number < 3; ++number) {
    change(plans, number);
    CHECK_FALSE(plans[0].valid);
    CHECK(plans[1].valid);
  }
  plans.forget_all();
  for (std::uint32_t number = 0; number < 3; ++number) {
    change(plans, number);
    CHECK_FALSE(plans[1].valid);
  }
}

}  // namespace plans_by_order_test
