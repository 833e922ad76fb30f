// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/split_rule.hpp>

#include <support/catch.hpp>

#include <cmath>
#include <limits>
#include <vector>

namespace split_rule_test {

using namespace chunkmem;
using optimizer::measured_split_rank;
using optimizer::split_rule;
using optimizer::split_stage;

namespace {

constexpr double limitless = std::numeric_limits<double>::max();

/// 12 B of states, 2 B of gradient and value each.
measured_split_rank rank_of(double host, double device, double up, double down, double seconds)
{
  return {{host, device, up, down}, {12, 2, 2, 28}, seconds};
}

/// The share that is held, where steps take `seconds(share)` by the rates of one rank.
template <class Seconds>
double held(const measured_split_rank& rates, Seconds seconds, split_rule rule = split_rule{})
{
  while (!rule.is_held()) {
    measured_split_rank now = rates;
    now.seconds = seconds(rule.now().device_share);
    rule.end_stage({&now, 1});
  }
  return rule.now().device_share;
}

}  // namespace

TEST_CASE("a search for a split tries the host, the device, the share of the rates, and a share on both sides",
          "[optimizer]")
{
  // The host takes 1 - x seconds for a parameter, the link up 2 + 10 x of 4 bytes per second: equal at 1/7.
  const auto mine = [](double seconds) { return rank_of(1, limitless, 4, limitless, seconds); };
  split_rule rule;
  CHECK(rule.now().stage == split_stage::all_on_host);
  CHECK(rule.now().device_share == 0);
  const auto end = [&](double seconds) {
    const measured_split_rank one = mine(seconds);
    rule.end_stage({&one, 1});
    return rule.now().device_share;
  };
  CHECK(end(4) == 1);
  CHECK(rule.now().stage == split_stage::all_on_device);
  CHECK(std::abs(end(6) - 1.0 / 7) < 1e-12);
  CHECK(rule.now().stage == split_stage::mixed);
  CHECK(std::abs(end(3.5) - 4.0 / 7) < 1e-12);
  CHECK(std::abs(end(3.0) - 0.5 / 7) < 1e-12);
  CHECK(std::abs(end(3.7) - 4.0 / 7) < 1e-12);  // the fastest of the three
  CHECK(rule.is_held());
  CHECK(rule.now().tried.size() == 5);
  CHECK(rule.now().tried[1].seconds == 6);
  CHECK_THROWS_AS(end(1), usage_error);
}

TEST_CASE("a mixed share that gains too little is not held, but the faster extreme", "[optimizer]")
{
  const measured_split_rank rates = rank_of(1, limitless, 4, limitless, 0);
  const auto where_mixed_takes = [](double mixed, double host, double device) {
    return [=](double share) { return share == 0 ? host : share == 1 ? device : mixed; };
  };
  CHECK(held(rates, where_mixed_takes(0.979, 1, 2)) > 0.1);
  CHECK(held(rates, where_mixed_takes(0.981, 1, 2)) == 0);
  CHECK(held(rates, where_mixed_takes(3, 2, 1)) == 1);
  CHECK(held(rates, where_mixed_takes(0.96, 1, 2), split_rule{0.05}) == 0);
  CHECK_THROWS_AS(split_rule{-0.1}, usage_error);
  CHECK_THROWS_AS(split_rule{1.1}, usage_error);
}

TEST_CASE("a search for a split ends with the extremes where the rates promise nothing", "[optimizer]")
{
  std::vector<double> tried;
  const auto never_mixed = [&](double share) {
    tried.push_back(share);
    return 1 + share;
  };
  // The host is never the limit: the link is busier with every parameter that is streamed.
  CHECK(held(rank_of(limitless, limitless, 4, 4, 0), never_mixed) == 0);
  CHECK(tried == std::vector<double>{0, 1});
}

TEST_CASE("a rank whose device has no room for updates keeps those of all ranks on the host", "[optimizer]")
{
  split_rule rule;
  std::vector<measured_split_rank> ranks(3, rank_of(1, 1, 1, 1, 1));
  ranks[1].has_room = false;
  rule.end_stage(ranks);
  CHECK(rule.is_held());
  CHECK(rule.now().device_share == 0);
}

TEST_CASE("the slowest rank decides what a split of all ranks takes", "[optimizer]")
{
  // By itself the first rank takes 1/7; the second one has a host of half the speed: 2 (1 - x) = (2 + 10 x) / 4.
  split_rule rule;
  std::vector<measured_split_rank> ranks{rank_of(1, limitless, 4, limitless, 1),
                                         rank_of(0.5, limitless, 4, limitless, 2)};
  rule.end_stage(ranks);
  rule.end_stage(ranks);
  CHECK(rule.now().tried[0].seconds == 2);
  CHECK(std::abs(rule.now().device_share - 1.0 / 3) < 1e-12);
  CHECK_THROWS_AS(rule.end_stage({}), usage_error);
}

}  // namespace split_rule_test
