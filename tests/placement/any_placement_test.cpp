// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/placement/policies.hpp>

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
    CHECK(tiers_by(any_of_all{"host_first"}, device) == std::vector<tier>(3, tier::host));
    CHECK(tiers_by(any_of_all{"device_only"}, device) == std::vector<tier>(3, tier::device));
  }
  CHECK(tiers_by(any_of_all{half}, 5'000_B) == tiers_by(half, 5'000_B));
  CHECK_THROWS_AS(tiers_by(any_of_all{half}, 1'100_B), config_error);
  CHECK(any_of_all{"device_only"}.preferred_tier(role::optimizer_state, 1_B) == tier::device);
  CHECK(any_of_all{}.preferred_tier(role::optimizer_state, 1_B) == tier::host);
}

}  // namespace any_placement_test
