// SPDX-License-Identifier: Apache-2.0
#include "least_often.hpp"

#include "usual_training.hpp"

#include <conformance/eviction_policy.hpp>

using namespace chunkmem;

TEST_CASE("least_often keeps the laws of an eviction policy")
{
  conformance::eviction_policy_laws<least_often>();
}

TEST_CASE("least_often evicts what was used fewest times, and does not count a question as a use")
{
  const auto used = [](std::uint32_t chunk, std::uint64_t when) {
    eviction::candidate item{.chunk = chunk_id{chunk}};
    item.released = when;
    return item;
  };
  least_often policy;
  policy.reset(3);
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) policy.enter(used(chunk, chunk + 1));
  CHECK(policy.victim(access_index{0}) == chunk_id{0});
  policy.leave(used(0, 1));
  policy.enter(used(0, 4));
  CHECK(policy.victim(access_index{0}) == chunk_id{1});
  policy.leave(used(1, 2));
  policy.leave(used(2, 3));
  policy.enter(used(2, 3));
  policy.enter(used(1, 2));
  CHECK(policy.victim(access_index{0}) == chunk_id{1});
}

TEST_CASE("with least_often a model trains to the same bits")
{
  const trained mine = train_with<least_often>();
  CHECK(usual_training().left.difference(mine.left) == "");
  CHECK(mine.moved.evictions > 0);
}
