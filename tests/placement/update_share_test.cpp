// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/placement/memory_plan.hpp>
#include <chunkmem/placement/policies.hpp>

#include <conformance/placement_policy.hpp>
#include <support/catch.hpp>

#include <vector>

namespace update_share_test {

using namespace chunkmem;

TEST_CASE("update_share keeps the laws of a profiled placement", "[placement]")
{
  for (const double share : {0.0, 0.3, 1.0})
    conformance::profiled_placement_laws(placement::update_share{.device_share = share});
}

TEST_CASE("update_share gives the first parameters to the device, as far as its share goes, whatever the room",
          "[placement]")
{
  const std::vector<bytes> states{100_B, 200_B, 100_B};
  std::vector<tier> tiers(3);
  const auto assigned = [&](double share) {
    placement::update_share{.device_share = share}.assign({0_B, 1'000_B, 0_B, true, states}, tiers);
    return tiers;
  };
  CHECK(assigned(0.0) == std::vector<tier>{tier::host, tier::host, tier::host});
  CHECK(assigned(0.74) == std::vector<tier>{tier::device, tier::host, tier::host});
  CHECK(assigned(0.75) == std::vector<tier>{tier::device, tier::device, tier::host});
  CHECK(assigned(1.0) == std::vector<tier>{tier::device, tier::device, tier::device});
  CHECK_THROWS_AS(assigned(-0.1), usage_error);
  CHECK_THROWS_AS(assigned(1.1), usage_error);
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
