// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/eviction/policies.hpp>

#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>
#include <support/oracles/record_builder.hpp>

#include <cstdint>
#include <vector>

namespace by_retention_test {

using namespace chunkmem;

TEST_CASE("by_retention keeps the laws of an eviction policy", "[eviction]")
{
  conformance::eviction_policy_laws<eviction::by_retention>();
}

TEST_CASE("what a plan gives up leaves in the order in which it was let go of, and before all that stays", "[eviction]")
{
  support::record_builder build;
  for (std::uint32_t index = 0; index < 6; ++index) build.brief(index);
  const access_record record = build.finish({0, 1, 2, 3, 4, 5}, 6);
  eviction::by_retention policy;
  policy.reset(6);
  policy.on_profile(record);
  const auto of = [](std::uint32_t chunk, access_index next, std::uint64_t released) {
    return eviction::candidate{chunk_id{chunk}, next, 1, false, released, released};
  };
  const std::vector<eviction::candidate> all = {of(0, access_index{3}, 1), of(1, access_index::none, 2),
                                                of(2, access_index{5}, 3), of(3, access_index::none, 4)};
  for (const auto& it : all) policy.enter(it);
  std::vector<std::uint32_t> order;
  for (chunk_id next = policy.victim(access_index{0}); next != chunk_id::none; next = policy.victim(access_index{0})) {
    order.push_back(index_of(next));
    CHECK(policy.gives_up(all[index_of(next)]) == (index_of(next) % 2 == 1));
    policy.leave(all[index_of(next)]);
  }
  CHECK(order == std::vector<std::uint32_t>{1, 3, 2, 0});  // what stays: farthest next use first
}

TEST_CASE("borders are those of the plan, and none beyond it", "[eviction]")
{
  eviction::by_retention policy;
  CHECK(policy.border(access_index{0}) == eviction::by_retention::no_border);
  const std::vector<std::uint32_t> borders{4, 7};
  policy.place_below(borders);
  CHECK(policy.border(access_index{1}) == 7);
  CHECK(policy.border(access_index{2}) == eviction::by_retention::no_border);
}

TEST_CASE("places are those of the plan, and none beyond it", "[eviction]")
{
  eviction::by_retention policy;
  CHECK_FALSE(policy.has_places());
  CHECK(policy.place(access_index{0}) == frame_id::none);
  const std::vector<std::uint32_t> places{4, index_of(frame_id::none)};
  policy.settle_in(places);
  CHECK(policy.has_places());
  CHECK(policy.place(access_index{0}) == frame_id{4});
  CHECK(policy.place(access_index{1}) == frame_id::none);
  CHECK(policy.place(access_index{2}) == frame_id::none);
}

}  // namespace by_retention_test
