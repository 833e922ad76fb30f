// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/placement/policies.hpp>

#include <conformance/placement_policy.hpp>
#include <support/catch.hpp>

namespace host_first_test {

using namespace chunkmem;

TEST_CASE("host_first keeps the laws of a placement", "[placement]")
{
  conformance::placement_policy_laws<placement::host_first>();
}

TEST_CASE("host_first keeps optimizer states on the host and all else on the device", "[placement]")
{
  constexpr placement::host_first placement;
  static_assert(placement.preferred_tier(role::optimizer_state, 1_B) == tier::host);
  for (const role part : {role::parameter, role::gradient, role::buffer, role::activation})
    CHECK(placement.preferred_tier(part, 1_GiB) == tier::device);
  CHECK(placement.preferred_tier(role::optimizer_state, 1_GiB) == tier::host);
}

}  // namespace host_first_test
