// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/eviction/policies.hpp>

#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>

namespace list_order_test {

using namespace chunkmem;

TEST_CASE("list_order keeps the laws of an eviction policy", "[eviction]")
{
  conformance::eviction_policy_laws<eviction::list_order>();
}

TEST_CASE("list_order evicts the lowest id, whatever was used when", "[eviction]")
{
  eviction::list_order policy;
  policy.reset(6);
  const auto of = [](std::uint32_t chunk) {
    return eviction::candidate{chunk_id{chunk}, access_index{9 - chunk}, 1, chunk == 1};
  };
  for (const std::uint32_t chunk : {4U, 1U, 5U, 3U}) policy.enter(of(chunk));
  CHECK(policy.victim(access_index{0}) == chunk_id{1});
  policy.leave(of(1));
  CHECK(policy.victim(access_index{7}) == chunk_id{3});
  policy.enter(of(1));
  CHECK(policy.victim(access_index{0}) == chunk_id{1});
}

}  // namespace list_order_test
