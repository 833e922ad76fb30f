// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/placement/policies.hpp>

#include <conformance/placement_policy.hpp>
#include <support/catch.hpp>

#include <string>
#include <vector>

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
  try {
    all.assign({1'149_B, 1'000_B, 50_B, true, states}, tiers);
    FAIL("it was placed");
  } catch (const config_error& refused) {
    CHECK(std::string{refused.what()}.find("needs 1150 B") != std::string::npos);
  }
}

}  // namespace fixed_split_test
