// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/iteration_planner.hpp>

#include <chunkmem/eviction/policies.hpp>
#include <chunkmem/transfer/policies.hpp>
#include <conformance/transfer_policy.hpp>
#include <support/catch.hpp>

#include <algorithm>

namespace iteration_planner_test {

using namespace chunkmem;

namespace {

using planner = iteration_planner<eviction::belady, transfer::lookahead>;

/// Its first setting evicts the lowest chunk; the second is belady, but finds no victim while chunk 4 is there.
class shy_belady : public eviction::belady {
 public:
  static constexpr std::string_view name = "shy_belady";
  [[nodiscard]] std::uint32_t variants() const noexcept { return 2; }
  void choose(std::uint32_t variant) noexcept { shy_ = variant == 1; }
  void reset(std::uint32_t chunks)
  {
    belady::reset(chunks);
    inside_.reset(chunks);
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
  [[nodiscard]] chunk_id victim(access_index now) const noexcept
  {
    if (!shy_) return inside_.first_from(0) == index_set::none ? chunk_id::none : chunk_id{inside_.first_from(0)};
    return inside_.contains(4) ? chunk_id::none : belady::victim(now);
  }

 private:
  index_set inside_;
  bool shy_ = false;
};
static_assert(tuned_eviction<shy_belady>);

}  // namespace

TEST_CASE("a plan is good for its start and says whether it closes on itself", "[manager]")
{
  int periodic = 0;
  int open = 0;
  planner maker{transfer::lookahead{}};
  iteration_plan plan;  // used again and again, as an engine does
  for (std::uint64_t seed = 1; seed <= 160; ++seed) {
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{.entries = dice.between(1, 50), .longest_chunk = dice.between(1, 3)};
    if (!conformance::roll_demand(seed, traits, dice.one_in(3), run)) continue;
    const auto before = run.start;
    maker.make(plan, run.start, run.iteration.record, run.iteration.chunk_of_slot);
    REQUIRE(plan.valid);
    REQUIRE(plan.start.same_places(run.start.table()));
    REQUIRE(run.start.table().same_places(before.table()));
    REQUIRE(plan.periodic == run.end.table().same_places(run.start.table()));
    (plan.periodic ? periodic : open) += 1;
    for (std::uint32_t index = 0; index < run.iteration.record.size(); ++index) {
      const bool planned = std::any_of(plan.actions.begin(), plan.actions.end(),
                                       [&](const transfer::move& it) { return it.access_index == index; });
      if (run.iteration.record.entries()[index].has_actions != planned)
        FAIL("seed " << seed << ": entry " << index << " does not know its actions");
    }
    if (const std::string wrong = conformance::mistake_when_followed(run, plan.actions); !wrong.empty())
      FAIL("seed " << seed << ": " << wrong);
  }
  CHECK(periodic > 5);
  CHECK(open > 5);
}

TEST_CASE("an iteration that does not fit has no plan", "[manager]")
{
  support::record_builder build;
  build.access(0, entry_kind::write);
  build.access(1, entry_kind::write);
  access_record record = build.finish({0, 1}, 2);
  const support::random_iteration it{{1, 1}, {0, 1}, {0, 0}, record};
  const auto state = support::cache_for<eviction::belady>(it, 1, 2);
  planner maker{transfer::lookahead{}};
  iteration_plan plan;
  plan.valid = true;
  maker.make(plan, state, record, it.chunk_of_slot);
  CHECK_FALSE(plan.valid);
}

TEST_CASE("a plan goes back to the first setting of its policy where the chosen one does not fit", "[manager]")
{
  support::record_builder build;  // evicting chunk 0 first is the worst there is
  for (const std::uint32_t slot : {0U, 1U, 2U, 0U, 3U, 0U, 1U, 0U}) build.brief(slot);
  const std::vector<std::uint32_t> own{0, 1, 2, 3, 4};
  access_record record = build.finish(own, 5);
  const support::random_iteration it{{1, 1, 1, 1, 1}, own, {1, 1, 1, 1, 1}, record};
  auto state = support::cache_for<shy_belady>(it, 2, 5);
  decision_log log;
  for (std::uint32_t index = 0; index < 5; ++index) {
    state.acquire(slot_id{index}, chunk_id{index}, entry_kind::write_on_host, access_record::never, access_index{0},
                  log);
    state.unpin(tier::host, chunk_id{index}, true);
  }
  iteration_planner<shy_belady, transfer::lookahead> maker{transfer::lookahead{}};
  iteration_plan plan;
  const auto loads = [&] { return std::ranges::count(plan.actions, transfer::move_kind::load, &transfer::move::kind); };
  maker.make(plan, state, record, own);
  REQUIRE(plan.valid);
  REQUIRE(plan.variant == 1);
  CHECK(loads() == 5);

  for (const std::uint32_t index : {4U, 0U}) {  // now it starts where the chosen setting finds no victim
    state.acquire(slot_id{index}, chunk_id{index}, entry_kind::read, access_record::never, access_index{0}, log);
    state.unpin(tier::device, chunk_id{index}, false);
  }
  maker.make(plan, state, record, own);
  REQUIRE(plan.valid);
  CHECK(loads() == 7);
}

TEST_CASE("plans for other starts are found again, the one left longest ago is given up first", "[manager]")
{
  const auto start = [](std::uint32_t first) {
    chunk_table made;
    made.reset(std::vector<std::uint32_t>{1}, 1);
    made[chunk_id{0}].put(tier::device, frame_id{first}, true);
    return made;
  };
  iteration_plan plan;
  for (std::uint32_t index = 0; index < 9; ++index) {
    plan.put_aside();
    plan.start = start(index);
    plan.actions.assign(index, transfer::move{});
    plan.valid = true;
    plan.periodic = index % 2 == 0;
  }
  CHECK_FALSE(plan.recall(start(0)));  // one is followed and seven are put aside
  CHECK_FALSE(plan.recall(start(8)));  // this is the one that is followed
  for (const std::uint32_t index : {3U, 1U, 7U, 3U}) {
    REQUIRE(plan.recall(start(index)));
    CHECK(plan.actions.size() == index);
    CHECK(plan.start[chunk_id{0}].first_frame[tier::device] == frame_id{index});
    CHECK(plan.valid);
    CHECK(plan.periodic == (index % 2 == 0));
  }
  plan.put_aside();
  plan.start = start(9);
  plan.valid = true;
  CHECK_FALSE(plan.recall(start(2)));
  CHECK(plan.recall(start(8)));
  plan.forget();
  CHECK_FALSE(plan.valid);
  CHECK_FALSE(plan.recall(start(9)));
}

}  // namespace iteration_planner_test
