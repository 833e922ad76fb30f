// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/tier.hpp>

#include <support/catch.hpp>

namespace tier_test {

using namespace chunkmem;

static_assert(name_of(tier::device) == "device" && name_of(tier::host) == "host");
static_assert(tier_count == 2 && all_tiers.size() == tier_count && sizeof(tier) == 1);
static_assert(is_tier(tier::device) && is_tier(tier::host) && !is_tier(no_tier) && name_of(no_tier) == "unknown");

TEST_CASE("a value for each tier is found by the tier", "[core]")
{
  per_tier<int> numbers;
  CHECK((numbers[tier::device] == 0 && numbers[tier::host] == 0));
  numbers[tier::host] = 7;
  const per_tier<int> copy = numbers;
  CHECK((copy == numbers && copy != filled_tiers(7)));
  CHECK((copy[tier::device] == 0 && copy[tier::host] == 7));
}

}  // namespace tier_test
