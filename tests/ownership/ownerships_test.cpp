// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/ownership/ownerships.hpp>

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

namespace whole_test {

using namespace chunkmem;
using collective::operation;
using ownership::owned_chunk;
using ownership::owned_range;
using ownership::rank_world;
using ownership::whole;

namespace {

constexpr whole alone{.fetched = whole::run::alone};

}  // namespace

TEST_CASE("whole keeps the laws of an ownership, by groups and alone", "[ownership]")
{
  conformance::ownership_policy_laws<whole>();
  conformance::ownership_policy_laws<whole>(alone);
}

TEST_CASE("chunk c belongs to rank c mod W", "[ownership]")
{
  const owned_chunk chunk{chunk_id{11}, bytes{1'000}, 14};
  for (std::uint32_t rank = 0; rank < 4; ++rank)
    CHECK(whole{}.owned(chunk, rank_id{rank}, {4, 4}) == owned_range{0, rank == 3 ? 1'000U : 0U});
}

TEST_CASE("members that the last group lacks take no memory and no bytes", "[ownership]")
{
  const rank_world world{4, 4};
  const owned_chunk full{chunk_id{5}, bytes{1'024}, 14};
  const owned_chunk last{chunk_id{13}, bytes{1'024}, 14};  // of chunks 12 and 13
  CHECK(whole{}.room(full, world) == bytes{4 * 1'024});
  CHECK(whole{}.room(last, world) == bytes{2 * 1'024});
  CHECK(alone.room(last, world) == bytes{1'024});
  const ownership::collective_step step = whole{}.fetch(last, rank_id{3}, world).items[0];
  CHECK(step.first == chunk_id{12});
  CHECK(step.chunks == 2);
  CHECK(step.traffic(0).received == 1'024);
  CHECK(step.traffic(3).received == 2 * 1'024);  // owns none of both
}

TEST_CASE("all ranks receive (W-1) n for a whole chunk, and a sum that comes together alone n less a share more",
          "[ownership]")
{
  for (const std::uint32_t ranks : {1U, 2U, 3U, 8U, 64U})
    for (const std::uint64_t size : {std::uint64_t{256}, std::uint64_t{99'991}, std::uint64_t{256} * ranks * 3}) {
      CAPTURE(ranks, size);
      const rank_world world{ranks, 1};
      const owned_chunk chunk{chunk_id{ranks - 1}, bytes{size}, ranks};
      const auto all = [&](auto&& steps_of) {
        std::uint64_t received = 0;
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
          received += steps_of(rank_id{rank}).traffic(rank_id{rank}, world).received;
        return received;
      };
      const std::uint64_t run = (ranks - 1) * align_up(bytes{size}, tensor_alignment).count() + size;
      CHECK(all([&](rank_id rank) { return whole{}.fetch(chunk, rank, world); }) == (ranks - 1) * run);
      CHECK(all([&](rank_id rank) { return whole{}.reduction(chunk, rank, world); }) == (ranks - 1) * run);
      CHECK(all([&](rank_id rank) { return alone.fetch(chunk, rank, world); }) == (ranks - 1) * size);
      const std::uint64_t kept = collective::shares::of(bytes{size}, ranks).size(ranks - 1);  // by the owner
      CHECK(all([&](rank_id rank) { return alone.reduction(chunk, rank, world); }) == (ranks - 1) * size + size - kept);
    }
  CHECK(alone.reduction({chunk_id{2}, bytes{256}, 4}, rank_id{2}, {4, 4}).items[1].what == operation::receive);
  CHECK(alone.reduction({chunk_id{2}, bytes{256}, 4}, rank_id{1}, {4, 4}).items[1].what == operation::send);
}

}  // namespace whole_test
