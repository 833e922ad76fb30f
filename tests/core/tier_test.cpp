// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/tier.hpp>

#include <support/catch.hpp>

namespace tier_test {

using namespace chunkmem;

TEST_CASE("tiers are counted and go from the fastest to the largest, and a value can name none of them", "[core]")
{
  tier expected = tier::device;
  for (const tier where : all_tiers) {
    CHECK((where == expected && is_tier(where)));
    expected = next_tier(where);
  }
  CHECK((all_tiers.size() == tier_count && expected == no_tier && next_tier(last_tier) == no_tier));
  CHECK((!is_tier(no_tier) && name_of(no_tier) == "unknown"));
}

TEST_CASE("values of tiers are equal where each of them is", "[core]")
{
  for (const tier where : all_tiers) {
    per_tier<int> numbers = filled_tiers(7);
    CHECK(numbers == filled_tiers(7));
    numbers[where] = 9;
    CHECK(numbers != filled_tiers(7));
  }
}

}  // namespace tier_test
