// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/ownership/ownership_policy.hpp>

#include <conformance/ownership_policy.hpp>
#include <support/catch.hpp>

#include <string_view>

namespace ownership_policy_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using collective::operation;
using collective::ring_traffic;
using collective::shares;
using ownership::collective_step;
using ownership::collective_steps;
using ownership::owned_chunk;
using ownership::owned_range;
using ownership::process_group;
using ownership::rank_world;

TEST_CASE("ranks of a node follow each other, and process groups number them from 0", "[ownership]")
{
  const rank_world world{12, 4};
  world.check();
  CHECK(world.nodes() == 3);
  CHECK(world.size_of(process_group::all) == 12);
  CHECK(world.size_of(process_group::node) == 4);
  CHECK(world.size_of(process_group::across) == 3);
  CHECK(world.place_in(process_group::all, rank_id{9}) == 9);
  CHECK(world.place_in(process_group::node, rank_id{9}) == 1);
  CHECK(world.place_in(process_group::across, rank_id{9}) == 2);
}

TEST_CASE("ranks that do not fill their nodes are refused with both numbers", "[ownership]")
{
  CHECK_THROWS_AS((rank_world{10, 4}.check()), config_error);
  CHECK_THROWS_WITH((rank_world{10, 4}.check()), ContainsSubstring("10 ranks with 4 of each node"));
  CHECK_THROWS_AS((rank_world{0, 4}.check()), config_error);
  CHECK_THROWS_AS((rank_world{4, 0}.check()), config_error);
}

TEST_CASE("a step knows what each place of its process group sends and receives", "[ownership]")
{
  const shares parts = shares::of(bytes{1'000}, 4);  // 256, 256, 256, 232
  collective_step step{.parts = parts, .root = 1};
  const auto moved = [&](operation what, std::uint32_t place) {
    step.what = what;
    return step.traffic(place);
  };
  CHECK(moved(operation::all_gather, 3) == ring_traffic{744, 768});
  CHECK(moved(operation::reduce_scatter, 3) == ring_traffic{768, 744});
  CHECK(moved(operation::all_reduce, 3) == ring_traffic{1'512, 1'512});
  CHECK(moved(operation::broadcast, 1) == ring_traffic{1'000, 0});
  CHECK(moved(operation::broadcast, 0) == ring_traffic{0, 1'000});
  CHECK(moved(operation::send, 3) == ring_traffic{232, 0});
  CHECK(moved(operation::receive, 1) == ring_traffic{0, 744});
  CHECK(moved(operation::barrier, 1) == ring_traffic{0, 0});
}

TEST_CASE("steps add up, each for the rank's place in its process group", "[ownership]")
{
  const rank_world world{4, 2};
  const collective_steps steps{{collective_step{.among = process_group::node, .parts = shares::of(bytes{512 + 100}, 2)},
                                collective_step{.among = process_group::across, .parts = shares::of(bytes{300}, 2)}},
                               2};
  // place 0 of its node, 1 of its process group across
  CHECK(steps.traffic(rank_id{2}, world) == ring_traffic{512 + 44, 100 + 256});
  CHECK(steps.traffic(rank_id{1}, world) == ring_traffic{100 + 256, 512 + 44});
  CHECK(collective_steps{}.traffic(rank_id{1}, world) == ring_traffic{});
  CHECK(steps.end() - steps.begin() == 2);
}

namespace {

/// Every rank has all: no fetch, and sums over everybody. Plain data parallelism.
struct replicated {
  using policy_kind = ownership_kind;
  static constexpr std::string_view name = "replicated";

  owned_range owned(const owned_chunk& chunk, rank_id, const rank_world&) const { return {0, chunk.size.count()}; }
  collective_steps fetch(const owned_chunk&, rank_id, const rank_world&) const { return {}; }
  collective_steps reduction(const owned_chunk& chunk, rank_id, const rank_world& world) const
  {
    return {{{{.what = collective::operation::all_reduce,
               .first = chunk.id,
               .parts = collective::shares::of(chunk.size, world.ranks)}}},
            1};
  }
  bytes room(const owned_chunk& chunk, const rank_world&) const { return chunk.size; }
};
static_assert(ownership_policy<replicated>);

struct without_room : replicated {
  void room() const {}
};
struct of_another_kind : replicated {
  using policy_kind = eviction_kind;
};
static_assert(owns_ranges<without_room> && !names_steps<without_room> && !ownership_policy<without_room>);
static_assert(!ownership_policy<of_another_kind>);

}  // namespace

TEST_CASE("an ownership of a stranger keeps the laws, and its copies are as many as ranks", "[ownership]")
{
  conformance::ownership_policy_laws<replicated>();
}

TEST_CASE("an ownership is told chunks and ranks that compare", "[ownership]")
{
  CHECK(owned_chunk{} == owned_chunk{chunk_id{0}, bytes{0}, 1});
  CHECK(owned_range{} == owned_range{0, 0});
}

}  // namespace ownership_policy_test
