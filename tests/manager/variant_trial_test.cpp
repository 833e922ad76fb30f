// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/replay.hpp>

#include <chunkmem/eviction/policies.hpp>
#include <support/catch.hpp>
#include <support/oracles/random_iteration.hpp>

namespace variant_trial_test {

using namespace chunkmem;

namespace {

/// Two policies in one: its second setting evicts what is used next, the third is the first again.
class nearest_or_farthest : public eviction::belady {
 public:
  static constexpr std::string_view name = "nearest_or_farthest";
  [[nodiscard]] std::uint32_t variants() const noexcept { return 3; }
  void choose(std::uint32_t variant) noexcept { nearest_ = variant != 1; }
  [[nodiscard]] chunk_id victim(access_index now) const noexcept
  {
    return nearest_ ? belady::victim(access_index{index_of(now) + 1}) == chunk_id::none ? chunk_id::none : lowest()
                    : belady::victim(now);
  }
  void enter(const eviction::candidate& item) noexcept
  {
    belady::enter(item);
    inside_.insert(index_of(item.chunk));
  }
  void leave(const eviction::candidate& item) noexcept
  {
    belady::leave(item);
    inside_.erase(index_of(item.chunk));
  }
  void reset(std::uint32_t chunks)
  {
    belady::reset(chunks);
    inside_.reset(chunks);
  }

 private:
  [[nodiscard]] chunk_id lowest() const noexcept { return chunk_id{inside_.first_from(0)}; }
  index_set inside_;
  bool nearest_ = true;
};
static_assert(tuned_eviction<nearest_or_farthest>);

}  // namespace

TEST_CASE("the setting that moves least when the record repeats is chosen", "[manager]")
{
  support::record_builder build;  // 0 1 2 0 3 0 4 0: evicting chunk 0 first is the worst there is
  for (const std::uint32_t slot : {0U, 1U, 2U, 0U, 3U, 0U, 4U, 0U}) build.brief(slot);
  const std::vector<std::uint32_t> own{0, 1, 2, 3, 4};
  const access_record record = build.finish(own, 5);
  const support::random_iteration it{{1, 1, 1, 1, 1}, own, {1, 1, 1, 1, 1}, record};
  auto state = support::cache_for<nearest_or_farthest>(it, 2, 5);
  decision_log log;
  for (std::uint32_t index = 0; index < 5; ++index) {
    state.acquire(slot_id{index}, chunk_id{index}, entry_kind::write_on_host, access_record::never, access_index{0},
                  log);
    state.unpin(tier::host, chunk_id{index}, true);
  }
  variant_trial<nearest_or_farthest> trial;
  CHECK(trial.best(state, record, own) == 1);
  auto none = support::cache_for<nearest_or_farthest>(it, 0, 5);
  CHECK(trial.best(none, record, own) == 0);  // where none fits
}

TEST_CASE("a policy without settings, or with one given, has nothing to choose from", "[manager]")
{
  CHECK(chunk_cache<eviction::belady>{}.variants() == 1);
  CHECK(chunk_cache<eviction::cost_aware>{}.variants() > 1);
  CHECK(chunk_cache<eviction::cost_aware>{eviction::cost_aware{2.0}}.variants() == 1);
}

}  // namespace variant_trial_test
