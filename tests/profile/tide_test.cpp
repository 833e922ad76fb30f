// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/profile/access_record.hpp>

#include <support/catch.hpp>
#include <support/oracles/record_builder.hpp>

#include <utility>
#include <vector>

namespace tide_test {

using namespace chunkmem;

TEST_CASE("the highest tide is the most that was leased at once in that tier", "[profile]")
{
  support::record_builder build;
  CHECK(most_leased(build.finish({0}, 1), tier::device) == 0_B);
  const auto first = build.lease(entry_kind::lease_device, 300);
  const auto host = build.lease(entry_kind::lease_host, 5'000);
  build.brief(0);
  build.release(first);
  const auto second = build.lease(entry_kind::lease_device, 200);
  const auto third = build.lease(entry_kind::lease_device, 150);
  build.release(second);
  build.release(host);
  (void)build.lease(entry_kind::lease_device, 120);
  build.release(third);
  const access_record record = build.finish({0}, 1);
  CHECK(most_leased(record, tier::device) == 350_B);
  CHECK(most_leased(record, tier::host) == 5'000_B);
}

TEST_CASE("a walk through a record sees each release where it happened", "[profile]")
{
  support::record_builder build;
  const auto outer = build.access(0);
  build.brief(1);
  build.release(outer);
  (void)build.access(2);  // kept beyond the end
  const access_record record = build.finish({0, 1, 2}, 3);
  std::vector<std::pair<std::uint32_t, bool>> seen;
  visit_in_order(record, [&](std::uint32_t index, bool begins) { seen.emplace_back(index, begins); });
  CHECK(seen == std::vector<std::pair<std::uint32_t, bool>>{{0, true}, {1, true}, {1, false}, {0, false}, {2, true}});
}

}  // namespace tide_test
