// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/placement/placements.hpp>

#include <chunkmem/placement/memory_plan.hpp>

#include <conformance/placement_policy.hpp>
#include <support/catch.hpp>
#include <support/own_policies.hpp>
#include <support/refusal.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace host_first_test {

using namespace chunkmem;

TEST_CASE("optimizer_on_host keeps the laws of a placement", "[placement]")
{
  conformance::placement_policy_laws<placement::optimizer_on_host>();
}

TEST_CASE("optimizer_on_host keeps optimizer states on the host and all else on the device", "[placement]")
{
  constexpr placement::optimizer_on_host placement;
  static_assert(placement.preferred_tier(role::optimizer_state, 1_B) == tier::host);
  for (const role part : {role::parameter, role::gradient, role::buffer, role::activation})
    CHECK(placement.preferred_tier(part, 1_GiB) == tier::device);
  CHECK(placement.preferred_tier(role::optimizer_state, 1_GiB) == tier::host);
}

}  // namespace host_first_test

namespace device_margin_test {

using namespace chunkmem;

TEST_CASE("device_margin keeps the laws of a profiled placement", "[placement]")
{
  conformance::profiled_placement_laws<placement::device_margin>();
  conformance::profiled_placement_laws(placement::device_margin{.share = 1.0});
}

TEST_CASE("device_margin gives the first states what the peak of leases and all other chunks leave", "[placement]")
{
  const std::vector<bytes> states{300_B, 300_B, 100_B, 300_B};
  std::vector<tier> tiers(4);
  const auto on_device = [&](std::uint64_t device, std::uint64_t peak_leased, bool measured, double share) {
    placement::device_margin{.share = share}.assign({bytes{device}, 1'000_B, bytes{peak_leased}, measured, states},
                                                    tiers);
    std::size_t first = 0;
    while (first < 4 && tiers[first] == tier::device) ++first;
    // never one after one that had no room
    for (std::size_t index = first; index < 4; ++index) REQUIRE(tiers[index] == tier::host);
    return first;
  };
  CHECK(on_device(2'000, 400, true, 1.0) == 2);
  CHECK(on_device(1'999, 400, true, 1.0) == 1);
  CHECK(on_device(2'100, 400, true, 1.0) == 3);
  CHECK(on_device(2'100, 401, true, 1.0) == 2);
  CHECK(on_device(2'100, 400, true, 0.5) == 1);
  CHECK(on_device(9'000, 400, true, 1.0) == 4);
  CHECK(on_device(1'400, 400, true, 1.0) == 0);
  CHECK(on_device(500, 400, true, 1.0) == 0);
  CHECK(on_device(9'000, 0, false, 1.0) == 0);  // nothing was measured yet
}

}  // namespace device_margin_test

namespace fixed_split_test {

using namespace chunkmem;

TEST_CASE("fixed_split keeps the laws of a profiled placement", "[placement]")
{
  conformance::profiled_placement_laws<placement::fixed_split>();
  conformance::profiled_placement_laws(placement::fixed_split{.device_share = 0.5});
  conformance::profiled_placement_laws(placement::fixed_split{.device_share = 1.0});
}

TEST_CASE("fixed_split gives its share of the states to the device, whatever is measured", "[placement]")
{
  const std::vector<bytes> states{100_B, 200_B, 100_B};
  std::vector<tier> tiers(3);
  for (const bool measured : {false, true}) {
    placement::fixed_split{}.assign({5'000_B, 1'000_B, 0_B, measured, states}, tiers);
    CHECK(tiers == std::vector<tier>{tier::host, tier::host, tier::host});
    placement::fixed_split{.device_share = 0.5}.assign({5'000_B, 1'000_B, 0_B, measured, states}, tiers);
    CHECK(tiers == std::vector<tier>{tier::device, tier::host, tier::device});
    placement::fixed_split{.device_share = 1.0}.assign({5'000_B, 1'000_B, 0_B, measured, states}, tiers);
    CHECK(tiers == std::vector<tier>{tier::device, tier::device, tier::device});
  }
}

TEST_CASE("fixed_split refuses what does not lie on the device as a whole, with the bytes that it needs", "[placement]")
{
  const std::vector<bytes> states{100_B};
  std::vector<tier> tiers(1);
  const placement::fixed_split all{.device_share = 1.0};
  CHECK_NOTHROW(all.assign({1'150_B, 1'000_B, 50_B, true, states}, tiers));
  CHECK_THAT(support::refusal<config_error>([&] {
               all.assign({1'149_B, 1'000_B, 50_B, true, states}, tiers);
             }),
             Catch::Matchers::ContainsSubstring("needs 1150 B"));
}

}  // namespace fixed_split_test

namespace update_share_test {

using namespace chunkmem;

TEST_CASE("update_share keeps the laws of a profiled placement", "[placement]")
{
  for (const double share : {0.0, 0.3, 1.0})
    conformance::profiled_placement_laws(placement::update_share{.device_share = share});
}

TEST_CASE("update_share gives the first parameters to the device, to the nearest one, whatever the room", "[placement]")
{
  const std::vector<bytes> states{100_B, 200_B, 100_B};
  std::vector<tier> tiers(3);
  const auto assigned = [&](double share) {
    placement::update_share{.device_share = share}.assign({0_B, 1'000_B, 0_B, true, states}, tiers);
    return tiers;
  };
  CHECK(assigned(0.0) == std::vector<tier>{tier::host, tier::host, tier::host});
  CHECK(assigned(0.12) == std::vector<tier>{tier::host, tier::host, tier::host});
  CHECK(assigned(0.125) == std::vector<tier>{tier::device, tier::host, tier::host});
  CHECK(assigned(0.49) == std::vector<tier>{tier::device, tier::host, tier::host});
  CHECK(assigned(0.5) == std::vector<tier>{tier::device, tier::device, tier::host});
  CHECK(assigned(0.75) == std::vector<tier>{tier::device, tier::device, tier::host});
  CHECK(assigned(1.0) == std::vector<tier>{tier::device, tier::device, tier::device});
  CHECK_THROWS_AS(assigned(-0.1), usage_error);
  CHECK_THROWS_AS(assigned(1.1), usage_error);
}

TEST_CASE("update_share gives the parameters of a chunk to one place, in the order of the first ones", "[placement]")
{
  const std::vector<bytes> states(6, 100_B);
  const auto assigned = [&](double share, const std::vector<std::uint32_t>& chunks) {
    std::vector<tier> tiers(6);
    placement::update_share{.device_share = share}.assign({0_B, 0_B, 0_B, true, states, chunks}, tiers);
    std::string text;
    for (const tier it : tiers) text += it == tier::device ? 'd' : 'h';
    return text;
  };
  CHECK(assigned(0.5, {7, 8, 8, 9, 9, 9}) == "dddhhh");
  CHECK(assigned(0.33, {7, 8, 8, 9, 9, 9}) == "dhhhhh");
  CHECK(assigned(0.74, {7, 8, 8, 9, 9, 9}) == "dddhhh");
  CHECK(assigned(0.75, {7, 8, 8, 9, 9, 9}) == "dddddd");
  CHECK(assigned(0.25, {0, 1, 0, 1, 0, 1}) == "dhdhdh");  // small tensors of all layers share a chunk
  CHECK(assigned(0.24, {0, 1, 0, 1, 0, 1}) == "hhhhhh");
  CHECK(assigned(0.3, {5, 5, 5, 5, 6, 7}) == "hhhhhh");  // none behind a chunk that is too large
  CHECK(assigned(0.49, {3, 3, 3, 3, 3, 3}) == "hhhhhh");
  CHECK(assigned(0.5, {3, 3, 3, 3, 3, 3}) == "dddddd");
  CHECK(assigned(1e-12, {0, 1, 2, 3, 4, 5}) == "hhhhhh");
  CHECK(assigned(1.0, {0, 1, 0, 1, 0, 1}) == "dddddd");
}

TEST_CASE("update_share in turn spreads its share evenly over the chunks", "[placement]")
{
  for (const double share : {0.0, 0.3, 1.0})
    conformance::profiled_placement_laws(placement::update_share{.device_share = share, .in_turn = true});
  const std::vector<bytes> states(6, 100_B);
  const auto assigned = [&](double share, const std::vector<std::uint32_t>& chunks) {
    std::vector<tier> tiers(6);
    placement::update_share{.device_share = share, .in_turn = true}.assign({0_B, 0_B, 0_B, true, states, chunks},
                                                                           tiers);
    std::string text;
    for (const tier it : tiers) text += it == tier::device ? 'd' : 'h';
    return text;
  };
  CHECK(assigned(0, {}) == "hhhhhh");
  CHECK(assigned(1.0 / 3, {}) == "hhdhhd");
  CHECK(assigned(0.5, {}) == "hdhdhd");
  CHECK(assigned(0.6, {}) == "hdhddh");
  CHECK(assigned(2.0 / 3, {}) == "hddhdd");
  CHECK(assigned(1, {}) == "dddddd");
  // chunks of one, two and three parameters: each is given as a whole
  CHECK(assigned(0.5, {7, 8, 8, 9, 9, 9}) == "hhhddd");
  CHECK(assigned(2.0 / 3, {7, 8, 8, 9, 9, 9}) == "hddhhh");
  CHECK(assigned(0.5, {0, 1, 0, 1, 0, 1}) == "hdhdhd");  // their parameters stand apart, in a layout by sizes
  CHECK(assigned(2.0 / 3, {0, 1, 0, 2, 1, 0}) == "hdhddh");
  CHECK_THROWS_AS(assigned(1.1, {}), usage_error);
}

TEST_CASE("update_share without a share keeps updates on the host, where a parameter has no states", "[placement]")
{
  const std::vector<bytes> states(2);
  std::vector<tier> tiers(2);
  for (const bool in_turn : {false, true}) {
    const auto assigned = [&](double share) {
      placement::update_share{.device_share = share, .in_turn = in_turn}.assign({0_B, 0_B, 0_B, true, states}, tiers);
      return tiers;
    };
    CHECK(assigned(0) == std::vector<tier>{tier::host, tier::host});
    CHECK(assigned(1) == std::vector<tier>{tier::device, tier::device});
  }
}

TEST_CASE("a plan of memory is plain data, and its placement updates where it says", "[placement]")
{
  memory_plan plan;
  CHECK(plan == memory_plan{});
  plan.device_update_share = 0.5;
  CHECK_FALSE(plan == memory_plan{});
  const std::vector<bytes> states{100_B, 100_B};
  std::vector<tier> tiers(2);
  plan.placement().assign({1'000_B, 0_B, 0_B, true, states}, tiers);
  CHECK(tiers == std::vector<tier>{tier::device, tier::host});
  CHECK(device_use{1_B, 20_B, 300_B, 4'000_B}.sum() == 4'321_B);
  CHECK_THROWS_AS((device_use{1_B, bytes{UINT64_MAX}, 0_B, 0_B}.sum()), size_overflow);
}

}  // namespace update_share_test

namespace any_placement_test {

using namespace chunkmem;

namespace {

using any_of_all = placement::any_placement<placement::optimizer_on_host, support::device_only,
                                            placement::device_margin, placement::fixed_split>;
using any_plain = placement::any_placement<placement::optimizer_on_host, support::device_only>;
static_assert(profiled_placement<any_of_all> && placement_policy<any_plain> && !profiled_placement<any_plain>);

template <class Placement>
std::vector<tier> tiers_by(const Placement& policy, bytes device)
{
  const std::vector<bytes> states{300_B, 300_B, 100_B};
  std::vector<tier> tiers(3, no_tier);
  policy.assign({device, 1'000_B, 200_B, true, states}, tiers);
  return tiers;
}

}  // namespace

TEST_CASE("every placement that can be chosen keeps the laws", "[placement]")
{
  for (const auto name : any_of_all::names) {
    INFO(name);
    conformance::profiled_placement_laws(any_of_all{name});
  }
  for (const auto name : any_plain::names) conformance::placement_policy_laws(any_plain{name});
}

TEST_CASE("a chosen placement gives the tiers of the one it was chosen for", "[placement]")
{
  const placement::device_margin margin{.share = 1.0};
  const placement::fixed_split half{.device_share = 0.5};
  for (const bytes device : {1'000_B, 1'300_B, 1'500_B, 1'900_B, 5'000_B}) {
    CHECK(tiers_by(any_of_all{margin}, device) == tiers_by(margin, device));
    CHECK(tiers_by(any_of_all{"optimizer_on_host"}, device) == std::vector<tier>(3, tier::host));
    CHECK(tiers_by(any_of_all{"device_only"}, device) == std::vector<tier>(3, tier::device));
  }
  CHECK(tiers_by(any_of_all{half}, 5'000_B) == tiers_by(half, 5'000_B));
  CHECK_THROWS_AS(tiers_by(any_of_all{half}, 1'100_B), config_error);
  CHECK(any_of_all{"device_only"}.preferred_tier(role::optimizer_state, 1_B) == tier::device);
  CHECK(any_of_all{}.preferred_tier(role::optimizer_state, 1_B) == tier::host);
}

}  // namespace any_placement_test
