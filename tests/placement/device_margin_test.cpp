// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/placement/policies.hpp>

#include <conformance/placement_policy.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <vector>

namespace device_margin_test {

using namespace chunkmem;

TEST_CASE("device_margin keeps the laws of a profiled placement", "[placement]")
{
  conformance::profiled_placement_laws<placement::device_margin>();
  conformance::profiled_placement_laws(placement::device_margin{.share = 1.0});
}

TEST_CASE("device_margin gives the first states what the tide and all other chunks leave", "[placement]")
{
  const std::vector<bytes> states{300_B, 300_B, 100_B, 300_B};
  std::vector<tier> tiers(4);
  const auto on_device = [&](std::uint64_t device, std::uint64_t tide, bool measured, double share) {
    placement::device_margin{.share = share}.assign({bytes{device}, 1'000_B, bytes{tide}, measured, states}, tiers);
    std::size_t first = 0;
    while (first < 4 && tiers[first] == tier::device) ++first;
    // never one after one that had no room
    for (std::size_t index = first; index < 4; ++index) REQUIRE(tiers[index] == tier::host);
    return first;
  };
  CHECK(on_device(2'000, 400, true, 1.0) == 2);
  CHECK(on_device(1'999, 400, true, 1.0) == 1);
  CHECK(on_device(2'100, 400, true, 1.0) == 3);
  CHECK(on_device(2'100, 401, true, 1.0) == 2);
  CHECK(on_device(2'100, 400, true, 0.5) == 1);
  CHECK(on_device(9'000, 400, true, 1.0) == 4);
  CHECK(on_device(1'400, 400, true, 1.0) == 0);
  CHECK(on_device(500, 400, true, 1.0) == 0);
  CHECK(on_device(9'000, 0, false, 1.0) == 0);  // nothing was measured yet
}

}  // namespace device_margin_test
