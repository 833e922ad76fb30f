// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/eviction/policies.hpp>

#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/paging.hpp>
#include <support/oracles/tidal_paging.hpp>

#include <algorithm>
#include <deque>

namespace fifo_test {

using namespace chunkmem;

namespace {

/// The textbook: a queue; being used again changes nothing.
template <class Loads>
std::uint32_t textbook_loads(const support::trace& used, std::uint32_t frames, Loads loads)
{
  std::deque<std::uint32_t> resident;
  std::uint32_t sum = 0;
  for (std::uint32_t now = 0; now < used.size(); ++now) {
    if (std::find(resident.begin(), resident.end(), used[now]) != resident.end()) continue;
    sum += loads(now) ? 1 : 0;
    if (resident.size() == frames) resident.pop_front();
    resident.push_back(used[now]);
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
    if (support::loads_of<eviction::fifo>(reads, chunks, frames, dice.one_in(2)) !=
        textbook_loads(reads, frames, [](std::uint32_t) { return true; }))
      FAIL("seed " << seed);
  }
}

}  // namespace

TEST_CASE("fifo keeps the laws of an eviction policy", "[eviction]")
{
  conformance::eviction_policy_laws<eviction::fifo>();
}

TEST_CASE("fifo evicts what came first, and a pin in between changes nothing", "[eviction]")
{
  eviction::fifo policy;
  policy.reset(4);
  const auto of = [](std::uint32_t chunk, std::uint64_t arrived) {
    return eviction::candidate{chunk_id{chunk}, access_index::none, 1, false, arrived, 0};
  };
  for (const auto& item : {of(2, 7), of(0, 5), of(3, 6)}) policy.enter(item);
  CHECK(policy.victim(access_index{0}) == chunk_id{0});
  policy.leave(of(0, 5));  // pinned
  CHECK(policy.victim(access_index{0}) == chunk_id{3});
  policy.enter(of(0, 5));  // and released
  CHECK(policy.victim(access_index{0}) == chunk_id{0});
  policy.leave(of(0, 5));
  policy.enter(of(0, 8));  // left the device and came back
  CHECK(policy.victim(access_index{0}) == chunk_id{3});
}

TEST_CASE("fifo is the textbook's queue on a hundred thousand random reads", "[eviction]")
{
  equals_the_textbook(100'000);
}

TEST_CASE("a manager's own decisions with fifo are those of the textbook", "[eviction]")
{
  for (std::uint64_t seed = 1; seed <= 1'000; ++seed) {
    support::dice dice{seed};
    const support::tidal_trace what = support::roll_tidal_trace(dice, false);
    if (support::engine_loads_of<eviction::fifo>(what) !=
        textbook_loads(what.used, what.frames[0], [&](std::uint32_t now) { return what.loads(now); }))
      FAIL("seed " << seed);
  }
}

}  // namespace fifo_test
