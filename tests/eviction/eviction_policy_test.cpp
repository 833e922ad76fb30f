// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/eviction/eviction_policy.hpp>

#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/paging.hpp>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace eviction_policy_test {

using namespace chunkmem;

namespace {

/// The functions of the concept and nothing else: evicts the candidate with the lowest id.
class lowest_id {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "lowest_id";
  void reset(std::uint32_t chunks) { is_inside_.assign(chunks, false); }
  void on_profile(const access_record&) {}
  void enter(const eviction::candidate& item) noexcept { is_inside_[index_of(item.chunk)] = true; }
  void leave(const eviction::candidate& item) noexcept { is_inside_[index_of(item.chunk)] = false; }
  chunk_id victim(access_index) const noexcept
  {
    for (std::uint32_t chunk = 0; chunk < is_inside_.size(); ++chunk)
      if (is_inside_[chunk]) return chunk_id{chunk};
    return chunk_id::none;
  }

 private:
  std::vector<bool> is_inside_;
};
static_assert(eviction_policy<lowest_id>);

struct without_victim : lowest_id {
  chunk_id victim(access_index) const = delete;
};
struct with_a_victim_that_throws : lowest_id {
  chunk_id victim(access_index) const { return chunk_id::none; }
};
struct with_a_number_for_a_victim : lowest_id {
  std::uint32_t victim(access_index) const noexcept { return 0; }
};
struct without_leave : lowest_id {
  void leave(const eviction::candidate&) = delete;
};
struct with_an_enter_that_throws : lowest_id {
  void enter(const eviction::candidate&) {}
};
struct deaf : lowest_id {
  void on_profile(const access_record&) = delete;
};
struct of_another_kind : lowest_id {
  using policy_kind = transfer_kind;
};
struct immovable : lowest_id {
  immovable(const immovable&) = delete;
};
static_assert(!eviction_policy<without_victim> && !chooses_victim<without_victim>);
static_assert(!eviction_policy<with_a_victim_that_throws> && !eviction_policy<with_a_number_for_a_victim>);
static_assert(!eviction_policy<without_leave> && !keeps_candidates<without_leave>);
static_assert(!eviction_policy<with_an_enter_that_throws>);
static_assert(!eviction_policy<deaf> && !hears_profile<deaf>);
static_assert(!eviction_policy<of_another_kind> && !eviction_policy<immovable> && !eviction_policy<int>);

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

}  // namespace eviction_policy_test
