// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/ownership/policies.hpp>

#include <conformance/ownership_policy.hpp>
#include <support/catch.hpp>

#include <cstdint>

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
