// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/ownership/policies.hpp>

#include <conformance/ownership_policy.hpp>
#include <support/catch.hpp>

#include <cstdint>

namespace hierarchical_test {

using namespace chunkmem;
using ownership::hierarchical;
using ownership::owned_range;
using ownership::rank_world;

TEST_CASE("hierarchical keeps the laws of an ownership", "[ownership]")
{
  conformance::ownership_policy_laws<hierarchical>();
}

TEST_CASE("every node has a copy under hierarchical, and only sums leave it", "[ownership]")
{
  const hierarchical policy;
  const rank_world world{6, 3};
  const ownership::owned_chunk chunk{chunk_id{1}, bytes{1'000}, 2};
  CHECK(policy.owned(chunk, rank_id{1}, world) == owned_range{512, 1'000});
  CHECK(policy.owned(chunk, rank_id{4}, world) == owned_range{512, 1'000});
  CHECK(policy.fetch(chunk, rank_id{4}, world).count == 1);
  CHECK(policy.fetch(chunk, rank_id{4}, world).items[0].among == ownership::process_group::node);
  CHECK(policy.reduction(chunk, rank_id{4}, world).count == 2);
  CHECK(policy.reduction(chunk, rank_id{4}, world).items[1].begin == 512);
  CHECK(policy.reduction(chunk, rank_id{4}, {6, 6}).count == 1);  // one node: sharded
}

TEST_CASE("under hierarchical a rank receives n (d-1)/d to fetch, and 2 (n/d) (N-1)/N more to reduce", "[ownership]")
{
  const hierarchical policy;
  for (const std::uint32_t of_node : {1U, 2U, 8U})
    for (const std::uint32_t nodes : {1U, 3U, 4U}) {
      CAPTURE(of_node, nodes);
      const rank_world world{of_node * nodes, of_node};
      const std::uint64_t size = std::uint64_t{256} * world.ranks * 5;
      const std::uint64_t inside = size / of_node * (of_node - 1);
      const std::uint64_t across = 2 * (size / world.ranks) * (nodes - 1);
      for (std::uint32_t rank = 0; rank < world.ranks; ++rank) {
        const ownership::owned_chunk chunk{chunk_id{0}, bytes{size}, 1};
        CHECK(policy.fetch(chunk, rank_id{rank}, world).traffic(rank_id{rank}, world).received == inside);
        CHECK(policy.reduction(chunk, rank_id{rank}, world).traffic(rank_id{rank}, world).received == inside + across);
      }
    }
}

}  // namespace hierarchical_test
