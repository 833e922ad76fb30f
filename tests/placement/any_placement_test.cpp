// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/placement/any_placement.hpp>

#include <chunkmem/placement/device_margin.hpp>
#include <chunkmem/placement/fixed_split.hpp>
#include <chunkmem/placement/host_first.hpp>
#include <conformance/placement_policy.hpp>
#include <support/catch.hpp>
#include <support/own_policies.hpp>

#include <string>
#include <vector>

namespace any_placement_test {

using namespace chunkmem;

namespace {

using any_of_all = placement::any_placement<placement::host_first, support::device_only, placement::device_margin,
                                            placement::fixed_split>;
using any_plain = placement::any_placement<placement::host_first, support::device_only>;
static_assert(profiled_placement<any_of_all> && placement_policy<any_plain> && !profiled_placement<any_plain>);

template <class Placement>
std::vector<tier> homes_by(const Placement& policy, bytes device)
{
  const std::vector<bytes> states{300_B, 300_B, 100_B};
  std::vector<tier> homes(3, no_tier);
  policy.assign({device, 1'000_B, 200_B, true, states}, homes);
  return homes;
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

TEST_CASE("a chosen placement gives the homes of the one it was chosen for", "[placement]")
{
  const placement::device_margin margin{.share = 1.0};
  const placement::fixed_split half{.device_share = 0.5};
  for (const bytes device : {1'000_B, 1'300_B, 1'500_B, 1'900_B, 5'000_B}) {
    CHECK(homes_by(any_of_all{margin}, device) == homes_by(margin, device));
    CHECK(homes_by(any_of_all{"host_first"}, device) == std::vector<tier>(3, tier::host));
    CHECK(homes_by(any_of_all{"device_only"}, device) == std::vector<tier>(3, tier::device));
  }
  CHECK(homes_by(any_of_all{half}, 5'000_B) == homes_by(half, 5'000_B));
  CHECK_THROWS_AS(homes_by(any_of_all{half}, 1'100_B), config_error);
  CHECK(any_of_all{"device_only"}.home_of(role::optimizer_state, 1_B) == tier::device);
  CHECK(any_of_all{}.home_of(role::optimizer_state, 1_B) == tier::host);
}

}  // namespace any_placement_test
