// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/eviction/policies.hpp>

#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/paging.hpp>
#include <support/oracles/tidal_paging.hpp>

#include <algorithm>
#include <list>

namespace lru_test {

using namespace chunkmem;

namespace {

/// The textbook: a list with the chunk used last at its end.
template <class Loads>
std::uint32_t textbook_loads(const support::trace& used, std::uint32_t frames, Loads loads)
{
  std::list<std::uint32_t> resident;
  std::uint32_t sum = 0;
  for (std::uint32_t now = 0; now < used.size(); ++now) {
    const std::uint32_t chunk = used[now];
    const auto found = std::find(resident.begin(), resident.end(), chunk);
    if (found != resident.end()) {
      resident.erase(found);
    } else {
      sum += loads(now) ? 1 : 0;
      if (resident.size() == frames) resident.pop_front();
    }
    resident.push_back(chunk);
  }
  return sum;
}

void equals_the_textbook(std::uint64_t traces)
{
  for (std::uint64_t seed = 1; seed <= traces; ++seed) {
    support::dice dice{seed};
    const std::uint32_t chunks = dice.between(1, 8);
    const std::uint32_t frames = dice.between(1, 5);
    support::trace reads(dice.below(24));
    for (std::uint32_t& chunk : reads) chunk = dice.below(chunks);
    const bool profiled = dice.one_in(2);  // a profile makes no difference
    if (support::loads_of<eviction::lru>(reads, chunks, frames, profiled) !=
        textbook_loads(reads, frames, [](std::uint32_t) { return true; }))
      FAIL("seed " << seed);
  }
}

}  // namespace

TEST_CASE("lru keeps the laws of an eviction policy", "[eviction]")
{
  conformance::eviction_policy_laws<eviction::lru>();
}

TEST_CASE("lru evicts the chunk untouched longest", "[eviction]")
{
  eviction::lru policy;
  policy.reset(4);
  const auto of = [](std::uint32_t chunk) {
    return eviction::candidate{chunk_id{chunk}, access_index::none, 1, false};
  };
  for (const std::uint32_t chunk : {2u, 0u, 3u}) policy.enter(of(chunk));
  CHECK(policy.victim(access_index{0}) == chunk_id{2});
  policy.leave(of(2));  // pinned
  CHECK(policy.victim(access_index{0}) == chunk_id{0});
  policy.enter(of(2));  // and released: used last
  policy.leave(of(0));
  CHECK(policy.victim(access_index{0}) == chunk_id{3});
  policy.leave(of(3));
  CHECK(policy.victim(access_index{0}) == chunk_id{2});
}

TEST_CASE("lru is the textbook's list on a hundred thousand random reads", "[eviction]")
{
  equals_the_textbook(100'000);
}

TEST_CASE("a manager's own decisions with lru are those of the textbook", "[eviction]")
{
  for (std::uint64_t seed = 1; seed <= 1'000; ++seed) {
    support::dice dice{seed};
    const support::tidal_trace what = support::roll_tidal_trace(dice, false);
    if (support::engine_loads_of<eviction::lru>(what) !=
        textbook_loads(what.used, what.frames[0], [&](std::uint32_t now) { return what.loads(now); }))
      FAIL("seed " << seed);
  }
}

TEST_CASE("lru puts back in their places what it named for a window", "[eviction]")
{
  eviction::lru policy;
  policy.reset(6);
  const auto of = [](std::uint32_t chunk) {
    return eviction::candidate{chunk_id{chunk}, access_index::none, 1, false, 0, 10 + chunk};
  };
  for (const std::uint32_t chunk : {0U, 1U, 2U, 3U, 4U}) policy.enter(of(chunk));
  for (const std::uint32_t chunk : {0U, 1U, 2U}) policy.leave(of(chunk));
  for (const std::uint32_t chunk : {2U, 1U, 0U}) policy.enter(of(chunk));
  policy.leave(of(3));
  policy.enter(of(3));  // in the middle
  for (const std::uint32_t chunk : {0U, 1U, 2U, 3U, 4U}) {
    CHECK(policy.victim(access_index{0}) == chunk_id{chunk});
    policy.leave(of(chunk));
  }
}

}  // namespace lru_test
