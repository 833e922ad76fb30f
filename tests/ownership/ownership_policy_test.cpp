// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/ownership/ownership_policy.hpp>

#include <conformance/ownership_policy.hpp>
#include <support/catch.hpp>

#include <string_view>

namespace ownership_policy_test {

using namespace chunkmem;
using ownership::collective_steps;
using ownership::owned_chunk;
using ownership::owned_range;
using ownership::rank_world;

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
