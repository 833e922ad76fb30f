#include <chunkmem/eviction/eviction_policy.hpp>

#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>

#include <map>

namespace eviction_policy_test {

using namespace chunkmem;

namespace {

/// No more than the concept asks for: the candidate with the lowest id goes.
class lowest_id {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "lowest_id";
  void reset(std::uint32_t) { items_.clear(); }
  void on_profile(const access_record&) {}
  void enter(const eviction::candidate& item) noexcept { items_[index_of(item.chunk)] = item; }
  void leave(const eviction::candidate& item) noexcept { items_.erase(index_of(item.chunk)); }
  chunk_id victim(moment) const noexcept { return items_.empty() ? chunk_id::none : items_.begin()->second.chunk; }

 private:
  std::map<std::uint32_t, eviction::candidate> items_;
};
static_assert(eviction_policy<lowest_id>);

struct without_victim : lowest_id {
  chunk_id victim(moment) const = delete;
};
struct with_a_victim_that_throws : lowest_id {
  chunk_id victim(moment) const { return chunk_id::none; }
};
struct with_a_number_for_a_victim : lowest_id {
  std::uint32_t victim(moment) const noexcept { return 0; }
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

/// Breaks the laws: names what has left.
struct names_the_dead : lowest_id {
  void enter(const eviction::candidate& item) noexcept { last_ = item.chunk; }
  void leave(const eviction::candidate&) noexcept {}
  chunk_id victim(moment) const noexcept { return last_; }
  void reset(std::uint32_t) { last_ = chunk_id::none; }

 private:
  chunk_id last_ = chunk_id::none;
};

}  // namespace

TEST_CASE("the laws of eviction hold for the least that the concept asks", "[eviction]")
{
  conformance::eviction_policy_laws<lowest_id>();
}

TEST_CASE("the laws of eviction notice a victim that has left", "[eviction]")
{
  bool noticed = false;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    conformance::eviction_trial<names_the_dead> trial{4, 10, seed};
    for (int step = 0; step < 100; ++step) {
      trial.random_step();
      noticed = noticed || trial.mistake() != nullptr;
    }
  }
  CHECK(noticed);
}

}  // namespace eviction_policy_test
