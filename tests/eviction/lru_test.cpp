#include <chunkmem/eviction/lru.hpp>

#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/paging.hpp>

#include <algorithm>
#include <list>

using namespace chunkmem;

namespace {

/// The textbook: a list with the chunk used last at its end.
std::uint32_t textbook_loads(const support::trace& reads, std::uint32_t frames)
{
  std::list<std::uint32_t> resident;
  std::uint32_t loads = 0;
  for (const std::uint32_t chunk : reads) {
    const auto found = std::find(resident.begin(), resident.end(), chunk);
    if (found != resident.end()) {
      resident.erase(found);
    } else {
      ++loads;
      if (resident.size() == frames) resident.pop_front();
    }
    resident.push_back(chunk);
  }
  return loads;
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
  const auto of = [](std::uint32_t chunk) { return eviction::candidate{chunk_id{chunk}, moment::none, 1, false}; };
  for (const std::uint32_t chunk : {2u, 0u, 3u}) policy.enter(of(chunk));
  CHECK(policy.victim(moment{0}) == chunk_id{2});
  policy.leave(of(2));  // pinned
  CHECK(policy.victim(moment{0}) == chunk_id{0});
  policy.enter(of(2));  // and released: used last
  policy.leave(of(0));
  CHECK(policy.victim(moment{0}) == chunk_id{3});
  policy.leave(of(3));
  CHECK(policy.victim(moment{0}) == chunk_id{2});
}

TEST_CASE("lru is the textbook's list on random reads", "[eviction]")
{
  for (std::uint64_t seed = 1; seed <= 10'000; ++seed) {
    support::dice dice{seed};
    const std::uint32_t chunks = dice.between(1, 8);
    const std::uint32_t frames = dice.between(1, 5);
    support::trace reads(dice.below(24));
    for (std::uint32_t& chunk : reads) chunk = dice.below(chunks);
    const bool profiled = dice.one_in(2);  // a profile makes no difference
    if (support::loads_of<eviction::lru>(reads, chunks, frames, profiled) != textbook_loads(reads, frames)) FAIL("seed " << seed);
  }
}
