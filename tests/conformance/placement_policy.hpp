#pragma once

#include <chunkmem/placement/placement_policy.hpp>
#include <support/catch.hpp>

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

}  // namespace conformance
