// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/eviction/evictions.hpp>

#include <chunkmem/eviction/eviction_policy.hpp>

#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/paging.hpp>
#include <support/oracles/record_builder.hpp>
#include <support/oracles/tidal_paging.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <type_traits>
#include <vector>

namespace textbook {

using namespace chunkmem;

namespace {

/// The textbook: lru is a list with the chunk used last at its end, fifo a queue in which a use changes nothing.
template <class Policy, class Loads>
std::uint32_t loads_of(const support::trace& used, std::uint32_t frames, Loads loads)
{
  std::deque<std::uint32_t> resident;
  std::uint32_t sum = 0;
  for (std::uint32_t now = 0; now < used.size(); ++now) {
    const auto found = std::find(resident.begin(), resident.end(), used[now]);
    if (found == resident.end()) {
      sum += loads(now) ? 1 : 0;
      if (resident.size() == frames) resident.pop_front();
    } else if (std::is_same_v<Policy, eviction::lru>) {
      resident.erase(found);
    } else {
      continue;
    }
    resident.push_back(used[now]);
  }
  return sum;
}

template <class Policy>
void equals_on_random_reads()
{
  for (std::uint64_t seed = 1; seed <= (support::sanitized ? 10'000U : 100'000U); ++seed) {
    support::dice dice{seed};
    const std::uint32_t chunks = dice.between(1, 8);
    const std::uint32_t frames = dice.between(1, 5);
    support::trace reads(dice.below(24));
    for (std::uint32_t& chunk : reads) chunk = dice.below(chunks);
    const bool profiled = dice.one_in(2);  // a profile makes no difference
    if (support::loads_of<Policy>(reads, chunks, frames, profiled) !=
        loads_of<Policy>(reads, frames, [](std::uint32_t) { return true; }))
      FAIL("seed " << seed);
  }
}

template <class Policy>
void equals_in_a_manager()
{
  for (std::uint64_t seed = 1; seed <= 1'000; ++seed) {
    support::dice dice{seed};
    const support::tidal_trace what = support::roll_tidal_trace(dice, false);
    if (support::engine_loads_of<Policy>(what) !=
        loads_of<Policy>(what.used, what.frames[0], [&](std::uint32_t now) { return what.loads(now); }))
      FAIL("seed " << seed);
  }
}

}  // namespace

}  // namespace textbook

namespace lru_test {

using namespace chunkmem;

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
  textbook::equals_on_random_reads<eviction::lru>();
}

TEST_CASE("a manager's own decisions with lru are those of the textbook", "[eviction]")
{
  textbook::equals_in_a_manager<eviction::lru>();
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

namespace fifo_test {

using namespace chunkmem;

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
  textbook::equals_on_random_reads<eviction::fifo>();
}

TEST_CASE("a manager's own decisions with fifo are those of the textbook", "[eviction]")
{
  textbook::equals_in_a_manager<eviction::fifo>();
}

}  // namespace fifo_test

namespace list_order_test {

using namespace chunkmem;

TEST_CASE("list_order keeps the laws of an eviction policy", "[eviction]")
{
  conformance::eviction_policy_laws<eviction::list_order>();
}

TEST_CASE("list_order evicts the lowest id, whatever was used when", "[eviction]")
{
  eviction::list_order policy;
  policy.reset(6);
  const auto of = [](std::uint32_t chunk) {
    return eviction::candidate{chunk_id{chunk}, access_index{9 - chunk}, 1, chunk == 1};
  };
  for (const std::uint32_t chunk : {4U, 1U, 5U, 3U}) policy.enter(of(chunk));
  CHECK(policy.victim(access_index{0}) == chunk_id{1});
  policy.leave(of(1));
  CHECK(policy.victim(access_index{7}) == chunk_id{3});
  policy.enter(of(1));
  CHECK(policy.victim(access_index{0}) == chunk_id{1});
}

}  // namespace list_order_test

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

namespace belady_test {

using namespace chunkmem;

namespace {

support::trace random_reads(support::dice& dice, std::uint32_t chunks, std::uint32_t size)
{
  support::trace reads(size);
  for (std::uint32_t& chunk : reads) chunk = dice.below(chunks);
  return reads;
}

eviction::candidate of(std::uint32_t chunk, access_index next)
{
  return {chunk_id{chunk}, next, 1, false};
}

}  // namespace

TEST_CASE("belady keeps the laws of an eviction policy", "[eviction]")
{
  conformance::eviction_policy_laws<eviction::belady>();
}

TEST_CASE(
    "belady reaches the fewest loads of reads, updates and overwrites, in constant room and in the peak of leases",
    "[eviction]")
{
  std::uint64_t loads = 0;
  std::uint64_t fewest = 0;
  int tight = 0;
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
    support::dice dice{seed};
    const bool tidal = seed % 2 == 0;
    const support::tidal_trace what = support::roll_tidal_trace(dice, tidal);
    const std::uint32_t best = support::fewest_tidal_loads{what}();
    const std::uint32_t bare = support::tidal_loads_of<eviction::belady>(what);
    if (bare != best) FAIL("seed " << seed << ": " << bare << " loads, " << best << " are possible");
    const std::uint32_t made = tidal ? bare : support::engine_loads_of<eviction::belady>(what);
    if (made != best) FAIL("seed " << seed << ": a manager makes " << made << " loads, " << best << " are possible");
    loads += made;
    fewest += best;
    tight += support::tidal_loads_of<eviction::lru>(what) > best ? 1 : 0;
  }
  CHECK(tight > 200);  // the traces are hard enough
  support::write_figures(
      "test_eviction", "build/bench/bin/test_eviction",
      {{"eviction.belady_loads_over_optimum", static_cast<double>(loads) / static_cast<double>(fewest), "", "==", 1}});
}

TEST_CASE("belady without a record is lru", "[eviction]")
{
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    support::dice dice{seed};
    const std::uint32_t chunks = dice.between(1, 9);
    const std::uint32_t frames = dice.between(1, chunks);
    const support::trace reads = random_reads(dice, chunks, 60);
    if (support::loads_of<eviction::belady>(reads, chunks, frames, false) !=
        support::loads_of<eviction::lru>(reads, chunks, frames, false))
      FAIL("seed " << seed);
  }
}

TEST_CASE("belady evicts what the record never touches first and then what is farthest", "[eviction]")
{
  support::record_builder build;
  for (int index = 0; index < 100; ++index) build.brief(0);
  eviction::belady policy;
  policy.reset(10);
  policy.on_profile(build.finish({0}, 10));
  policy.enter(of(1, access_index{60}));
  policy.enter(of(2, access_index{90}));
  policy.enter(of(3, access_index{10}));  // next iteration, seen from access 50
  policy.enter(of(4, access_index{5}));
  CHECK(policy.victim(access_index{50}) == chunk_id{3});
  CHECK(policy.victim(access_index{10}) == chunk_id{4});
  CHECK(policy.victim(access_index{11}) == chunk_id{3});
  CHECK(policy.victim(access_index{0}) == chunk_id{2});
  CHECK(policy.victim(access_index{99}) == chunk_id{2});
  policy.enter(of(9, access_index::none));
  policy.enter(of(7, access_index::none));
  CHECK(policy.victim(access_index{50}) == chunk_id{7});
  policy.leave(of(7, access_index::none));
  CHECK(policy.victim(access_index{50}) == chunk_id{9});
}

TEST_CASE("belady forgets a profile when it is reset", "[eviction]")
{
  support::record_builder build;
  build.brief(0);
  build.brief(1);
  eviction::belady policy;
  policy.reset(2);
  policy.on_profile(build.finish({0, 1}, 2));
  policy.reset(2);
  policy.enter(of(1, access_index{0}));
  policy.enter(of(0, access_index{1}));
  CHECK(policy.victim(access_index{0}) == chunk_id{1});  // the older one, whatever the accesses say
  policy.leave(of(1, access_index{0}));
  policy.leave(of(0, access_index{1}));
  policy.on_profile(access_record{});  // an empty record: next uses are unknown
  policy.enter(of(1, access_index::none));
  policy.enter(of(0, access_index::none));
  CHECK(policy.victim(access_index{0}) == chunk_id{1});
}

}  // namespace belady_test

namespace by_retention_test {

using namespace chunkmem;

TEST_CASE("by_retention keeps the laws of an eviction policy", "[eviction]")
{
  conformance::eviction_policy_laws<eviction::by_retention>();
}

TEST_CASE("what a plan gives up leaves in the order in which it was let go of, and before all that stays", "[eviction]")
{
  support::record_builder build;
  for (std::uint32_t index = 0; index < 6; ++index) build.brief(index);
  const access_record record = build.finish({0, 1, 2, 3, 4, 5}, 6);
  eviction::by_retention policy;
  policy.reset(6);
  policy.on_profile(record);
  const auto of = [](std::uint32_t chunk, access_index next, std::uint64_t released) {
    return eviction::candidate{chunk_id{chunk}, next, 1, false, released, released};
  };
  const std::vector<eviction::candidate> all = {of(0, access_index{3}, 1), of(1, access_index::none, 2),
                                                of(2, access_index{5}, 3), of(3, access_index::none, 4)};
  for (const auto& it : all) policy.enter(it);
  std::vector<std::uint32_t> order;
  for (chunk_id next = policy.victim(access_index{0}); next != chunk_id::none; next = policy.victim(access_index{0})) {
    order.push_back(index_of(next));
    CHECK(policy.gives_up(all[index_of(next)]) == (index_of(next) % 2 == 1));
    policy.leave(all[index_of(next)]);
  }
  CHECK(order == std::vector<std::uint32_t>{1, 3, 2, 0});  // what stays: farthest next use first
}

TEST_CASE("lease limits are those of the plan, and none beyond it", "[eviction]")
{
  eviction::by_retention policy;
  CHECK(policy.lease_limit(access_index{0}) == eviction::by_retention::no_lease_limit);
  const std::vector<std::uint32_t> lease_limits{4, 7};
  policy.place_below(lease_limits);
  CHECK(policy.lease_limit(access_index{1}) == 7);
  CHECK(policy.lease_limit(access_index{2}) == eviction::by_retention::no_lease_limit);
}

TEST_CASE("places are those of the plan, and none beyond it", "[eviction]")
{
  eviction::by_retention policy;
  CHECK_FALSE(policy.has_places());
  CHECK(policy.place(access_index{0}) == frame_id::none);
  const std::vector<std::uint32_t> places{4, index_of(frame_id::none)};
  policy.settle_in(places);
  CHECK(policy.has_places());
  CHECK(policy.place(access_index{0}) == frame_id{4});
  CHECK(policy.place(access_index{1}) == frame_id::none);
  CHECK(policy.place(access_index{2}) == frame_id::none);
}

}  // namespace by_retention_test

namespace any_eviction_test {

using namespace chunkmem;
using any = eviction::any_eviction<eviction::belady, eviction::lru, eviction::list_order, eviction::cost_aware>;

static_assert(eviction_policy<any>);

TEST_CASE("any_eviction keeps the laws of an eviction policy", "[eviction]")
{
  conformance::eviction_policy_laws<any>();
  conformance::eviction_policy_laws<eviction::any_eviction<eviction::lru>>();
}

TEST_CASE("any_eviction decides as the policy that was chosen by name or given with its settings", "[eviction]")
{
  CHECK(any{}.chosen() == "belady");
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice dice{seed};
    const support::tidal_trace what = support::roll_tidal_trace(dice, true);
    CHECK(support::tidal_loads_of(what, any{}) == support::tidal_loads_of<eviction::belady>(what));
    CHECK(support::tidal_loads_of(what, any{"lru"}) == support::tidal_loads_of<eviction::lru>(what));
    CHECK(support::tidal_loads_of(what, any{"list_order"}) == support::tidal_loads_of<eviction::list_order>(what));
    CHECK(support::tidal_loads_of(what, any{eviction::cost_aware{0.5}}) ==
          support::tidal_loads_of(what, eviction::cost_aware{0.5}));
  }
  CHECK_THROWS_AS(any{"mru"}, config_error);
}

}  // namespace any_eviction_test
