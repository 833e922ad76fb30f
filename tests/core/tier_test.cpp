// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/tier.hpp>

#include <support/catch.hpp>

namespace tier_test {

using namespace chunkmem;

static_assert(name_of(tier::device) == "device" && name_of(tier::host) == "host" && name_of(tier::disk) == "disk");
static_assert(tier_count == 3 && sizeof(tier) == 1);

TEST_CASE("a value for each tier is found by the tier", "[core]")
{
  per_tier<int> numbers;
  CHECK((numbers[tier::device] == 0 && numbers[tier::host] == 0 && numbers[tier::disk] == 0));
  numbers[tier::host] = 7;
  numbers[tier::disk] = 9;
  const per_tier<int> copy = numbers;
  CHECK((copy[tier::device] == 0 && copy[tier::host] == 7 && copy[tier::disk] == 9));
}

}  // namespace tier_test
