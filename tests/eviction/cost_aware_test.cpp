// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/eviction/policies.hpp>

#include <chunkmem/eviction/eviction_policy.hpp>
#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/paging.hpp>
#include <support/oracles/tidal_paging.hpp>

#include <limits>
#include <map>
#include <set>

namespace cost_aware_test {

using namespace chunkmem;

namespace {

constexpr std::uint32_t access_count = 100;

access_record some_record()
{
  support::record_builder build;
  for (std::uint32_t index = 0; index < access_count; ++index) build.brief(0);
  return build.finish({0}, 1);
}

eviction::candidate of(std::uint32_t chunk, access_index next, bool dirty)
{
  return {chunk_id{chunk}, next, 1, dirty};
}

/// The definition, by looking at every candidate. @return   the key that the victim should have
double least_key(const std::map<std::uint32_t, eviction::candidate>& items, std::uint32_t now, double theta)
{
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [id, it] : items) {
    const std::uint32_t next = index_of(it.next_use);
    const double distance = next > now ? next - now : next + access_count - now;
    const bool never = it.next_use == access_index::none;
    const double key = (never ? 0.0 : 1.0) + (it.dirty ? 1.0 : 0.0) - (never ? 0.0 : theta * distance / access_count);
    least = std::min(least, never ? -2.0 - (it.dirty ? 0.0 : 1.0) * 1'000'000 - 1'000'000 : key);  // these go first
  }
  return least;
}
double key_of(const eviction::candidate& it, std::uint32_t now, double theta)
{
  return least_key({{0U, it}}, now, theta);
}

}  // namespace

TEST_CASE("cost_aware keeps the laws of an eviction policy", "[eviction]")
{
  conformance::eviction_policy_laws<eviction::cost_aware>();
}

TEST_CASE("cost_aware evicts what costs least for each byte, then what is farthest", "[eviction]")
{
  eviction::cost_aware policy;
  policy.reset(10);
  policy.on_profile(some_record());
  const eviction::candidate order[] = {of(8, access_index::none, false), of(2, access_index::none, true),
                                       of(3, access_index{40}, false),   of(4, access_index{60}, false),
                                       of(5, access_index{55}, true),    of(6, access_index{51}, true)};
  for (const eviction::candidate& it : order) policy.enter(it);
  for (const eviction::candidate& it : order) {
    CHECK(policy.victim(access_index{50}) == it.chunk);
    policy.leave(it);
  }
}

TEST_CASE("theta lets distance outweigh a write-back", "[eviction]")
{
  for (const double theta : {0.0, 1.0, 1.6, 1.7, 4.0, 1e9}) {
    eviction::cost_aware policy{theta};
    policy.reset(10);
    policy.on_profile(some_record());
    policy.enter(of(1, access_index{10}, false));
    policy.enter(of(2, access_index{70}, true));  // 0.6 iterations later: worth a move if theta is more than 1 / 0.6
    CHECK(policy.victim(access_index{0}) == chunk_id{theta > 1.0 / 0.6 ? 2U : 1U});
  }
}

TEST_CASE("cost_aware takes the least key of all candidates", "[eviction]")
{
  const access_record record = some_record();
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice dice{seed};
    const double theta = dice.one_in(3) ? 0 : 100.0 / dice.between(1, 120);
    eviction::cost_aware policy{theta};
    policy.reset(30);
    policy.on_profile(record);
    std::map<std::uint32_t, eviction::candidate> items;
    std::set<std::uint32_t> used;
    for (int step = 0; step < 100; ++step) {
      const std::uint32_t id = dice.below(30);
      if (const auto found = items.find(id); found != items.end()) {
        policy.leave(found->second);
        used.erase(index_of(found->second.next_use));
        items.erase(found);
      } else {
        const std::uint32_t next = dice.below(access_count);
        const bool never = dice.one_in(8) || !used.insert(next).second;
        policy.enter(items[id] = of(id, never ? access_index::none : access_index{next}, dice.one_in(2)));
      }
      if (items.empty()) continue;
      std::uint32_t now = dice.below(access_count);
      while (used.count(now) != 0) now = dice.below(access_count);
      const eviction::candidate& victim = items.at(index_of(policy.victim(access_index{now})));
      const double wrong = key_of(victim, now, theta) - least_key(items, now, theta);
      if (wrong > 1e-9)
        FAIL("seed " << seed << ", step " << step << ": the key is " << wrong << " more than the least");
    }
  }
}

TEST_CASE("cost_aware is belady where nothing is dirty or theta is infinite", "[eviction]")
{
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    support::dice dice{seed};
    const support::tidal_trace what = support::roll_tidal_trace(dice, true);
    const eviction::cost_aware far{std::numeric_limits<double>::infinity()};
    CHECK(support::tidal_loads_of<eviction::cost_aware>(what) == support::tidal_loads_of<eviction::belady>(what));
    CHECK(support::tidal_loads_of(what, far) == support::tidal_loads_of<eviction::belady>(what));
  }
}

TEST_CASE("cost_aware without a record is lru", "[eviction]")
{
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice dice{seed};
    const std::uint32_t chunks = dice.between(1, 9);
    const std::uint32_t frames = dice.between(1, chunks);
    support::trace reads(60);
    for (std::uint32_t& chunk : reads) chunk = dice.below(chunks);
    if (support::loads_of<eviction::cost_aware>(reads, chunks, frames, false) !=
        support::loads_of<eviction::lru>(reads, chunks, frames, false))
      FAIL("seed " << seed);
  }
}

}  // namespace cost_aware_test
