#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/placement/placement_policy.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace conformance {

/// The laws of placement_policy: the answer is device or host and depends on the arguments alone.
template <chunkmem::placement_policy Placement>
void placement_policy_laws(const Placement& placement = {})
{
  using namespace chunkmem;
  const Placement copy = placement;
  for (int round = 0; round < 2; ++round)
    for (std::size_t part = 0; part < role_count; ++part)
      for (const bytes size : {bytes{0}, bytes{1}, 1_MiB, bytes{UINT64_MAX}}) {
        const auto which = static_cast<role>(part);
        INFO(name_of(which) << " of " << size.count() << " B");
        const tier home = placement.home_of(which, size);
        CHECK((home == tier::device || home == tier::host));
        CHECK(placement.home_of(which, size) == home);
        CHECK(copy.home_of(which, size) == home);
      }
}

/// The laws of profiled_placement: homes for everyone, the same for the same outlook, and never fewer on a larger device.
/// An outlook that the placement refuses is one that it refuses every time, and on every smaller device.
template <chunkmem::profiled_placement Placement>
void profiled_placement_laws(const Placement& placement = {})
{
  using namespace chunkmem;
  placement_policy_laws(placement);
  const auto homes_of = [](const Placement& policy, const placement::outlook& now) {
    std::vector<tier> homes(now.states.size(), tier::disk);
    try {
      policy.assign(now, homes);
    } catch (const config_error&) {
      homes.clear();
    }
    return homes;
  };
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    support::dice dice{seed};
    std::vector<bytes> states(dice.between(1, 20));
    for (bytes& each : states) each = bytes{dice.below(1'000)};
    placement::outlook now{bytes{0}, bytes{dice.below(5'000)}, bytes{dice.below(3'000)}, dice.one_in(2), states};
    const Placement copy = placement;
    std::vector<tier> smaller;
    for (std::uint64_t device = 0; device < 20'000; device += 1 + dice.below(900)) {
      now.device = bytes{device};
      const std::vector<tier> homes = homes_of(placement, now);
      REQUIRE(homes_of(copy, now) == homes);
      REQUIRE(homes.size() >= smaller.size());  // no homes at all: refused
      for (std::size_t at = 0; at < homes.size(); ++at) {
        REQUIRE((homes[at] == tier::device || homes[at] == tier::host));
        if (!smaller.empty() && smaller[at] == tier::device) REQUIRE(homes[at] == tier::device);
      }
      smaller = homes;
    }
  }
}

}  // namespace conformance
