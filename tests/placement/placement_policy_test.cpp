// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/placement/placement_policy.hpp>

#include <conformance/placement_policy.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <span>

namespace placement_policy_test {

using namespace chunkmem;

namespace {

/// The functions of the concept and nothing else; with a setting.
struct large_on_host {
  using policy_kind = placement_kind;
  static constexpr std::string_view name = "large_on_host";
  bytes limit = 1_KiB;
  tier preferred_tier(role, bytes size) const { return size > limit ? tier::host : tier::device; }
};
static_assert(placement_policy<large_on_host> && !profiled_placement<large_on_host>);

/// The same with the functions of the refinement and nothing else.
struct every_second_on_device : large_on_host {
  void assign(const placement::outlook&, std::span<tier> tiers) const
  {
    for (std::size_t index = 0; index < tiers.size(); ++index)
      tiers[index] = index % 2 == 0 ? tier::host : tier::device;
  }
};
static_assert(profiled_placement<every_second_on_device>);

struct without_preferred_tier : large_on_host {
  tier preferred_tier(role, bytes) const = delete;
};
struct with_a_preferred_tier_that_changes : large_on_host {
  tier preferred_tier(role, bytes) { return tier::host; }
};
struct of_another_kind : large_on_host {
  using policy_kind = layout_kind;
};
static_assert(!placement_policy<without_preferred_tier> && !placement_policy<with_a_preferred_tier_that_changes> &&
              !placement_policy<of_another_kind>);

}  // namespace

TEST_CASE("a placement that decides by what was measured needs one function more", "[placement]")
{
  conformance::profiled_placement_laws<every_second_on_device>();
}

TEST_CASE("a placement may look at the size and have settings", "[placement]")
{
  conformance::placement_policy_laws<large_on_host>();
  conformance::placement_policy_laws(large_on_host{.limit = 2_MiB});
}

}  // namespace placement_policy_test
