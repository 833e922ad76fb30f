// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/eviction/eviction_policy.hpp>

#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace eviction_policy_test {

using namespace chunkmem;

namespace {

/// No more than the concept asks for: the candidate with the lowest id goes.
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

}  // namespace

TEST_CASE("the laws of eviction hold for the least that the concept asks", "[eviction]")
{
  conformance::eviction_policy_laws<lowest_id>();
}

}  // namespace eviction_policy_test
