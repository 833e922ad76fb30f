// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/ownership/policies.hpp>

#include <conformance/ownership_policy.hpp>
#include <support/catch.hpp>

#include <cstdint>

namespace sharded_test {

using namespace chunkmem;
using ownership::owned_range;
using ownership::sharded;

TEST_CASE("sharded keeps the laws of an ownership", "[ownership]")
{
  conformance::ownership_policy_laws<sharded>();
}

TEST_CASE("sharded needs no number of ranks to divide a chunk", "[ownership]")
{
  const sharded policy;
  const ownership::owned_chunk chunk{chunk_id{5}, bytes{1'000}, 9};
  CHECK(policy.owned(chunk, rank_id{1}, {3, 1}) == owned_range{512, 1'000});
  CHECK(policy.owned(chunk, rank_id{2}, {3, 1}) == owned_range{1'000, 1'000});
}

TEST_CASE("under sharded all ranks receive (W-1) n to fetch a chunk and the same to reduce it", "[ownership]")
{
  const sharded policy;
  for (std::uint32_t ranks = 1; ranks <= 64; ++ranks)
    for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{99'991}, std::uint64_t{256} * ranks * 3}) {
      CAPTURE(ranks, size);
      std::uint64_t fetched = 0;
      std::uint64_t reduced = 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const auto of = [&](const ownership::collective_steps& steps) {
          return steps.traffic(rank_id{rank}, {ranks, 1}).received;
        };
        const ownership::owned_chunk chunk{chunk_id{0}, bytes{size}, 1};
        fetched += of(policy.fetch(chunk, rank_id{rank}, {ranks, 1}));
        reduced += of(policy.reduction(chunk, rank_id{rank}, {ranks, 1}));
        if (size % (256 * ranks) == 0)
          CHECK(of(policy.fetch(chunk, rank_id{rank}, {ranks, 1})) == size / ranks * (ranks - 1));
      }
      CHECK(fetched == (ranks - 1) * size);
      CHECK(reduced == (ranks - 1) * size);
    }
}

}  // namespace sharded_test
