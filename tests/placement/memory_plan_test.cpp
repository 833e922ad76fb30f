// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/placement/memory_plan.hpp>

#include <support/catch.hpp>

#include <vector>

namespace memory_plan_test {

using namespace chunkmem;

TEST_CASE("a plan of memory is plain data, and its placement updates where it says", "[placement]")
{
  memory_plan plan;
  CHECK(plan == memory_plan{});
  plan.device_update_share = 0.5;
  CHECK_FALSE(plan == memory_plan{});
  const std::vector<bytes> states{100_B, 100_B};
  std::vector<tier> homes(2);
  plan.placement().assign({1'000_B, 0_B, 0_B, true, states}, homes);
  CHECK(homes == std::vector<tier>{tier::device, tier::host});
  CHECK(device_use{1_B, 20_B, 300_B, 4'000_B}.sum() == 4'321_B);
  CHECK_THROWS_AS((device_use{1_B, bytes{UINT64_MAX}, 0_B, 0_B}.sum()), size_overflow);
}

}  // namespace memory_plan_test
