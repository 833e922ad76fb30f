// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/eviction/eviction_policy.hpp>

#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/paging.hpp>

#include <tuple>
#include <utility>

namespace scanning_test {

using namespace chunkmem;

namespace {

struct clean_first {
  static constexpr std::string_view name = "clean_first";
  static auto key(const eviction::candidate& item) { return std::pair{item.dirty, item.frames}; }
};
struct farthest_next_use {
  static constexpr std::string_view name = "farthest_next_use";
  static std::uint32_t key(const eviction::candidate& item) { return ~index_of(item.next_use); }
};
struct always_equal {
  static constexpr std::string_view name = "always_equal";
  static int key(const eviction::candidate&) { return 0; }
};
struct without_key {
  static constexpr std::string_view name = "without_key";
};
static_assert(eviction_policy<eviction::scanning<clean_first>> &&
              eviction::scanning<clean_first>::name == "clean_first");
static_assert(eviction::scanned_rule<always_equal> && !eviction::scanned_rule<without_key>);

}  // namespace

TEST_CASE("any scanned rule keeps the laws of an eviction policy", "[eviction]")
{
  conformance::eviction_policy_laws<eviction::scanning<clean_first>>();
  conformance::eviction_policy_laws<eviction::scanning<farthest_next_use>>();
  conformance::eviction_policy_laws<eviction::scanning<always_equal>>();
}

TEST_CASE("the smallest key goes and equal keys go by the lower id", "[eviction]")
{
  eviction::scanning<clean_first> policy;
  policy.reset(8);
  policy.enter({chunk_id{5}, access_index::none, 2, false});
  policy.enter({chunk_id{1}, access_index::none, 1, true});
  CHECK(policy.victim(access_index{0}) == chunk_id{5});
  policy.enter({chunk_id{6}, access_index::none, 1, false});
  CHECK(policy.victim(access_index{0}) == chunk_id{6});
  policy.enter({chunk_id{2}, access_index::none, 1, false});
  CHECK(policy.victim(access_index{0}) == chunk_id{2});
}

TEST_CASE("a scanned rule can see dirtiness, frames and next use", "[eviction]")
{
  // a one-shot trace: farthest next use is optimal, ends come first
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice dice{seed};
    const std::uint32_t chunks = dice.between(2, 5);
    support::trace reads(10);
    for (std::uint32_t& chunk : reads) chunk = dice.below(chunks);
    const std::uint32_t frames = dice.between(1, chunks);
    const std::uint32_t scanned = support::loads_of<eviction::scanning<farthest_next_use>>(reads, chunks, frames, true);
    if (scanned < support::fewest_loads{reads, frames}()) FAIL("seed " << seed << ": fewer loads than possible");
  }
}

}  // namespace scanning_test
