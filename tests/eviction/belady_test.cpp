// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/eviction/policies.hpp>

#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/paging.hpp>
#include <support/oracles/tidal_paging.hpp>

#include <cstdlib>
#include <fstream>
#include <string>

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

TEST_CASE("belady reaches the fewest loads of reads, updates and overwrites, in constant room and in the tide",
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
  if (const char* const folder = std::getenv("CHUNKMEM_FIGURES"); folder != nullptr)
    std::ofstream{std::string{folder} + "/test_eviction.json"}
        << R"([{"name": "eviction.belady_loads_over_optimum", "value": )"
        << static_cast<double>(loads) / static_cast<double>(fewest)
        << R"(, "unit": "", "relation": "==", "bound": 1, "command": "build/bench/bin/test_eviction"}])" << '\n';
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
