// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/ready_updates.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace ready_updates_test {

using namespace chunkmem::planner;

namespace {

/// When the last use is over, if each takes `use` and follows its update and the use before it.
std::uint64_t end_of(const std::vector<awaited_update>& updates, const std::vector<std::uint32_t>& order,
                     std::uint64_t use)
{
  std::vector<std::uint64_t> done(updates.size());
  std::uint64_t now = 0;
  for (const std::uint32_t index : order)
    done[index] = now = std::max(now, updates[index].arrives) + updates[index].nanoseconds;
  std::uint64_t end = 0;
  for (const std::uint64_t each : done) end = std::max(end, each) + use;
  return end;
}

}  // namespace

TEST_CASE("an order of updates is at most the longest update above the best of all orders", "[planner]")
{
  support::dice dice{21};
  int best = 0;
  constexpr int rounds = 1'000;
  for (int round = 0; round < rounds; ++round) {
    std::vector<awaited_update> updates(dice.between(1, 6));
    std::uint64_t longest = 0;
    for (awaited_update& it : updates) {
      it = {dice.below(30), dice.between(1, 9)};
      longest = std::max(longest, it.nanoseconds);
    }
    const std::uint64_t use = dice.below(6);
    const update_sequence found = order_updates(updates);
    std::vector<std::uint32_t> order(updates.size());
    std::iota(order.begin(), order.end(), 0U);
    std::uint64_t least = UINT64_MAX;
    do least = std::min(least, end_of(updates, order, use));
    while (std::ranges::next_permutation(order).found);
    const std::uint64_t reached = end_of(updates, found.order, use);
    REQUIRE(reached >= least);  // it is an order of all of them
    REQUIRE(reached <= least + longest);
    best += reached == least ? 1 : 0;
    REQUIRE(std::is_sorted(found.order.begin() + static_cast<std::ptrdiff_t>(found.at_once), found.order.end()));
    if (found.at_once > 0) REQUIRE(found.order[found.at_once - 1] > found.order[found.at_once]);
  }
  CHECK(best >= rounds * 8 / 10);
}

TEST_CASE(
    "gradients that come last use first are updated as they come where the host is fast, and wait where it is slow",
    "[planner]")
{
  std::vector<awaited_update> updates;
  for (std::uint64_t index = 0; index < 5; ++index) updates.push_back({100 - 10 * index, 1});
  const update_sequence fast = order_updates(updates);
  CHECK(fast.order == std::vector<std::uint32_t>{4, 3, 2, 1, 0});
  CHECK(fast.at_once == 4);
  for (awaited_update& it : updates) it.nanoseconds = 1'000;
  const update_sequence slow = order_updates(updates);
  CHECK(slow.order == std::vector<std::uint32_t>{4, 0, 1, 2, 3});
  CHECK(slow.at_once == 1);
}

TEST_CASE("groups whose updates the device does are not among those at once", "[planner]")
{
  // Forward 0, 1, 2; backward 2, 1, 0.
  std::vector<act> acts;
  for (const std::uint32_t group : {0U, 1U, 2U}) acts.push_back({.id = group, .nanoseconds = 10});
  for (const std::uint32_t group : {2U, 1U, 0U})
    acts.push_back({.id = group, .nanoseconds = 10, .finishes_gradient = true});
  const std::vector<std::uint64_t> all{5, 5, 5};
  const std::vector<std::uint64_t> copies{1, 1, 1};
  CHECK(groups_at_once(acts, all, copies) == std::vector<std::uint32_t>{2, 1});
  const std::vector<std::uint64_t> some{5, 0, 5};
  CHECK(groups_at_once(acts, some, copies) == std::vector<std::uint32_t>{2});
  CHECK(groups_at_once(acts, all, std::vector<std::uint64_t>{100, 100, 100}) == std::vector<std::uint32_t>{2, 1});
  CHECK(groups_at_once(acts, all, std::vector<std::uint64_t>{1, 1, 1'000}) == std::vector<std::uint32_t>{2});
}

}  // namespace ready_updates_test
