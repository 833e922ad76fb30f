// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/iteration_planner.hpp>

#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <conformance/transfer_policy.hpp>
#include <support/catch.hpp>
#include <support/own_policies.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

namespace policy_retention_test {

using namespace chunkmem;

namespace {

constexpr std::uint32_t never = access_record::never;

/// Reads of chunks of one frame, one after the other, as belady serves them once and once again.
struct scan {
  scan(const std::vector<std::uint32_t>& chunks_read, std::uint32_t chunks, std::uint32_t frames) : own(chunks)
  {
    std::iota(own.begin(), own.end(), 0U);
    for (const std::uint32_t chunk : chunks_read) {
      record.make_room();
      record.release(record.append({chunk, 0, 0, entry_kind::read, false, 0}, {}));
    }
    record.finish(own, chunks);
    state.reset(std::vector<std::uint32_t>(chunks, 1), chunks);
    state.reset_tier(tier::device, bytes{frames * 256U}, 256_B, frames);
    state.reset_tier(tier::host, bytes{chunks * 256U}, 256_B, chunks);
    support::fill_on_host(state, log);
    run();
  }
  void run()
  {
    state.start_of(record);
    state.tell_policy(record);
    log.clear();
    runner.run(record, own, state, log, true);
  }
  [[nodiscard]] static std::ptrdiff_t retained(const transfer::iteration_plan& plan)
  {
    return std::ranges::count_if(plan.retained_until, [](std::uint32_t until) { return until != never; });
  }
  /// At each moment as many chunks stay as there is room for beside the one that is read.
  [[nodiscard]] bool fits(const transfer::iteration_plan& plan, std::uint32_t frames) const
  {
    for (std::uint32_t now = 0; now < record.size(); ++now) {
      std::uint32_t held = 1;
      for (std::uint32_t index = 0; index < record.size(); ++index) {
        const std::uint32_t until = plan.retained_until[index];
        if (until != never)
          held += until > index ? (index < now && now < until ? 1U : 0U) : (now > index || now < until ? 1U : 0U);
      }
      if (held > frames) return false;
    }
    return true;
  }

  access_record record;
  std::vector<std::uint32_t> own;
  chunk_cache<eviction::belady> state;
  replay<eviction::belady> runner;
  decision_log log;
};

}  // namespace

TEST_CASE("a scan by belady keeps every frame but one, wherever its last iteration left it", "[manager]")
{
  std::vector<std::uint32_t> order(9);
  std::iota(order.begin(), order.end(), 0U);
  for (std::uint32_t frames = 2; frames < 9; ++frames) {
    scan it{order, 9, frames};
    policy_retention reader;
    for (int round = 0; round < 20; ++round) {
      it.run();
      const transfer::iteration_plan& plan = reader.of(it.record, it.own, 9, it.log.moves());
      CHECK(scan::retained(plan) == frames - 1);
      CHECK(reader.saved() == frames - 1);
      CHECK(it.fits(plan, frames));
    }
  }
}

TEST_CASE("what stays inside an iteration and around its end is told apart", "[manager]")
{
  scan it{{0, 1, 0, 2, 3, 0}, 4, 2};  // 0 stays always, and the others come and go
  it.run();
  policy_retention reader;
  const transfer::iteration_plan& plan = reader.of(it.record, it.own, 4, it.log.moves());
  CHECK(plan.retained_until == std::vector<std::uint32_t>{2, never, 5, never, never, 0});
  CHECK(plan.first_use == std::vector<std::uint32_t>{0, never, never, never});
}

TEST_CASE("chunks that nothing moved stay until each of their uses", "[manager]")
{
  scan it{{0, 1, 2, 1, 0}, 3, 3};
  it.run();
  policy_retention reader;
  const transfer::iteration_plan& plan = reader.of(it.record, it.own, 3, it.log.moves());
  CHECK(scan::retained(plan) == 5);
}

TEST_CASE("what came and stays until the end makes room for one chunk that was there at the beginning", "[manager]")
{
  const scan it{{2, 4, 0, 1, 3}, 5, 4};
  using transfer::move_kind;
  const std::vector<transfer::move> moves{{.access_index = 0, .chunk = 2, .frames = 1, .kind = move_kind::load},
                                          {.access_index = 1, .chunk = 4, .frames = 2, .kind = move_kind::load},
                                          {.access_index = 3, .chunk = 0, .frames = 2, .kind = move_kind::evict},
                                          {.access_index = 4, .chunk = 1, .frames = 1, .kind = move_kind::evict},
                                          {.access_index = 4, .chunk = 3, .frames = 1, .kind = move_kind::load}};
  policy_retention reader;
  const transfer::iteration_plan& plan = reader.of(it.record, it.own, 5, moves);
  CHECK(plan.retained_until == std::vector<std::uint32_t>{never, never, 2, never, never});
  CHECK(reader.saved() == 1);
}

}  // namespace policy_retention_test

namespace iteration_planner_test {

using namespace chunkmem;

namespace {

using planner = iteration_planner<eviction::belady, transfer::lookahead>;

/// In its second setting it finds no victim while chunk 4 is there.
struct shy_belady : support::lowest_or_belady {
  [[nodiscard]] chunk_id victim(access_index now) const noexcept
  {
    return is_belady_ && inside_.contains(4) ? chunk_id::none : lowest_or_belady::victim(now);
  }
};
static_assert(tuned_eviction<shy_belady>);

/// Frames that the counted iterations of a plan copy; UINT64_MAX where it does not fit.
std::uint64_t moved_by(const conformance::demand_run& run, const transfer::iteration_plan& plan,
                       const retained_ways& ways)
{
  retained_run trial;
  trial.start(run.start.table(), plan, {}, ways);
  return trial.frames_moved(run.iteration.record, run.iteration.chunk_of_slot, long_trial).value_or(UINT64_MAX);
}

}  // namespace

TEST_CASE("a plan is good for its start and says whether it closes on itself", "[manager]")
{
  int periodic = 0;
  int open = 0;
  planner maker{transfer::lookahead{}};
  planned_iteration made;  // used again and again, as an engine does
  for (std::uint64_t seed = 1; seed <= 160; ++seed) {
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{.entries = dice.between(1, 50), .longest_chunk = dice.between(1, 3)};
    if (!conformance::roll_demand(seed, traits, dice.one_in(3), run)) continue;
    const auto before = run.start;
    maker.make(made, run.start, run.iteration.record, run.iteration.chunk_of_slot);
    REQUIRE(made.current.valid);
    REQUIRE(made.current.start.same_places(run.start.table()));
    REQUIRE(run.start.table().same_places(before.table()));
    REQUIRE(made.current.periodic == run.end.table().same_places(run.start.table()));
    (made.current.periodic ? periodic : open) += 1;
    for (std::uint32_t index = 0; index < run.iteration.record.size(); ++index) {
      const bool planned = std::any_of(made.current.actions.begin(), made.current.actions.end(),
                                       [&](const transfer::move& it) { return it.access_index == index; });
      if (run.iteration.record.entries()[index].has_actions != planned)
        FAIL("seed " << seed << ": entry " << index << " does not know its actions");
    }
    if (const std::string wrong = conformance::mistake_when_followed(run, made.current.actions); !wrong.empty())
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
  planned_iteration made;
  made.current.valid = true;
  maker.make(made, state, record, it.chunk_of_slot);
  CHECK_FALSE(made.current.valid);
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
  support::fill_on_host(state, log);
  iteration_planner<shy_belady, transfer::lookahead> maker{transfer::lookahead{}};
  planned_iteration made;
  const auto loads = [&] {
    return std::ranges::count(made.current.actions, transfer::move_kind::load, &transfer::move::kind);
  };
  maker.make(made, state, record, own);
  REQUIRE(made.current.valid);
  REQUIRE(made.variant == 1);
  CHECK(loads() == 5);

  for (const std::uint32_t index : {4U, 0U}) {  // now it starts where the chosen setting finds no victim
    state.acquire(slot_id{index}, chunk_id{index}, entry_kind::read, access_record::never, access_index{0}, log);
    state.unpin(tier::device, chunk_id{index}, false);
  }
  maker.make(made, state, record, own);
  REQUIRE(made.current.valid);
  CHECK(loads() == 7);
}

TEST_CASE("a plan writes back before its iteration ends where that copies no more", "[manager]")
{
  int kept = 0;
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    CAPTURE(seed);
    conformance::demand_run run;
    const support::iteration_traits traits{
        .entries = 8 + static_cast<std::uint32_t>(seed % 40), .host = false, .drops = false};
    if (!conformance::roll_demand(seed, traits, false, run)) continue;
    iteration_planner<eviction::belady, transfer::planned> maker{transfer::planned{}};
    planned_iteration made;
    maker.make(made, run.start, run.iteration.record, run.iteration.chunk_of_slot);
    if (!made.current.retains) continue;
    REQUIRE(made.ways.has_value());
    retained_run trial;
    const auto moved = [&](bool early) {
      trial.start(run.start.table(), made.plan, {}, {made.ways->by_age, early});
      return trial.frames_moved(run.iteration.record, run.iteration.chunk_of_slot, long_trial).value_or(UINT64_MAX);
    };
    const std::uint64_t without = moved(false);
    const std::uint64_t with = moved(true);
    REQUIRE(made.ways->writes_back_early == (with <= without));
    if (with > without) ++refused;
    if (with <= without && trial.has_written_back_early()) ++kept;
  }
  CHECK(kept > 20);
  CHECK(refused > 2);
}

TEST_CASE("stays that find no frames at once take those of a run, and the plan soon ends where it began", "[manager]")
{
  int taken = 0;
  for (std::uint64_t seed = 1; seed <= 800; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{
        .entries = dice.between(4, 60), .longest_chunk = dice.between(2, 3), .drops = false};
    if (!conformance::roll_demand(seed, traits, false, run)) continue;
    access_record& record = run.iteration.record;
    transfer::retention_request request = run.request();
    transfer::planned policy;
    const transfer::iteration_plan closed = policy.retain(request);
    request.finds_places = false;
    const transfer::iteration_plan open = policy.retain(request);
    if (closed.places.empty() || closed.moved_bytes == open.moved_bytes) continue;
    iteration_planner<eviction::belady, transfer::planned> maker{transfer::planned{}};
    planned_iteration made;
    maker.make(made, run.start, record, run.iteration.chunk_of_slot);
    const std::uint64_t at_once = moved_by(run, closed, {});
    if (made.plan.retained_until.empty()) {
      variant_trial<eviction::belady> by_policy;
      REQUIRE(by_policy.frames_moved(run.start, record, run.iteration.chunk_of_slot, made.variant, long_trial) <
              at_once);
      continue;
    }
    REQUIRE(made.ways.has_value());
    const std::uint64_t now = moved_by(run, made.plan, *made.ways);
    REQUIRE(now <= at_once);
    if (made.plan.places.empty() || made.plan.places == closed.places) continue;
    transfer::expect_plan_fits(made.plan, record, run.iteration.chunk_of_slot, run.start.chunks());
    ++taken;
    REQUIRE(now <= moved_by(run, open, {.finds_frames = true}));
    retained_run trial;
    chunk_table start = run.start.table();
    for (int plans = 1;; ++plans) {
      trial.start(start, made.plan, {}, *made.ways);
      REQUIRE(trial.run(record, run.iteration.chunk_of_slot));
      if (trial.state().table().same_places(start)) break;
      REQUIRE(plans < 2);
      start = trial.state().table();
    }
  }
  CHECK(taken > 5);
}

TEST_CASE("where a plan gives up stays, the frames of the run by age are taken if they move no more bytes", "[manager]")
{
  int taken = 0;
  int left = 0;
  for (std::uint64_t seed = 1; seed <= 800; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{
        .entries = dice.between(4, 60), .longest_chunk = dice.between(2, 3), .drops = false};
    if (!conformance::roll_demand(seed, traits, false, run)) continue;
    transfer::planned policy;
    const transfer::iteration_plan closed = policy.retain(run.request());
    if (closed.places.empty()) continue;
    const std::uint64_t frame = run.start.space(tier::device).frame_bytes();
    const std::uint64_t at_once = moved_by(run, closed, {});
    const std::uint64_t least = long_trial.counted * (closed.bound_bytes / frame);
    iteration_planner<eviction::belady, transfer::planned> maker{transfer::planned{}};
    planned_iteration made;
    maker.make(made, run.start, run.iteration.record, run.iteration.chunk_of_slot);
    if (made.plan.places.empty()) continue;
    if (closed.moved_bytes == closed.bound_bytes && at_once <= least) {
      REQUIRE(made.plan.places == closed.places);
      ++left;
    } else if (made.plan.places != closed.places) {
      const std::uint64_t now = moved_by(run, made.plan, *made.ways);
      REQUIRE(now <= at_once);
      if (now == at_once) ++taken;
    }
  }
  CHECK(left > 50);
  CHECK(taken > 5);
}

TEST_CASE("a plan that leaves frames open repeats those of its runs, and few of its records make a plan in each step",
          "[manager]")
{
  int chains = 0;
  int settled = 0;
  int settled_by_rules_alone = 0;
  for (std::uint64_t seed = 1; seed <= 800; ++seed) {
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{
        .entries = dice.between(4, 60), .longest_chunk = dice.between(2, 3), .drops = false};
    if (!conformance::roll_demand(seed, traits, false, run)) continue;
    const access_record& record = run.iteration.record;
    transfer::retention_request request = run.request();
    request.finds_places = false;
    transfer::planned policy;
    const transfer::iteration_plan open = policy.retain(request);
    if (open.retained_until.empty()) continue;
    // as iteration_planner::make does for a plan without frames
    constexpr std::uint32_t most_plans = 64;
    const auto plans_until_repeated = [&](bool repeats) {
      retained_run trial;
      chunk_table start = run.start.table();
      sequence<std::uint32_t> frames;
      for (std::uint32_t plans = 1; plans < most_plans; ++plans) {
        const bool in_frames = repeats && plans > planned_iteration::free_tries;
        trial.start(start, open, in_frames ? std::span<const std::uint32_t>{frames} : std::span<const std::uint32_t>{},
                    {.takes_given_up = plans <= planned_iteration::given_up_tries, .finds_frames = true});
        if (!trial.run(record, run.iteration.chunk_of_slot) || trial.state().table().same_places(start)) return plans;
        frames.assign(trial.frames());
        start = trial.state().table();
      }
      return most_plans;
    };
    const std::uint32_t by_rules_alone = plans_until_repeated(false);
    if (by_rules_alone <= planned_iteration::free_tries) continue;
    ++chains;
    settled += plans_until_repeated(true) < most_plans ? 1 : 0;
    settled_by_rules_alone += by_rules_alone < most_plans ? 1 : 0;
  }
  CHECK(chains > 100);
  CHECK(settled * 5 > chains * 4);
  CHECK(settled_by_rules_alone * 5 < chains);
}

TEST_CASE("plans for other starts are found again, the one left longest ago is given up first", "[manager]")
{
  const auto start = [](std::uint32_t first) {
    chunk_table made;
    made.reset(std::vector<std::uint32_t>{1}, 1);
    made[chunk_id{0}].put(tier::device, frame_id{first}, true);
    return made;
  };
  planned_iteration made;
  for (std::uint32_t index = 0; index < 9; ++index) {
    made.put_aside();
    made.current.start = start(index);
    made.current.actions.assign(index, transfer::move{});
    made.current.valid = true;
    made.current.periodic = index % 2 == 0;
  }
  CHECK_FALSE(made.recall(start(0)));  // one is followed and seven are put aside
  CHECK_FALSE(made.recall(start(8)));  // this is the one that is followed
  for (const std::uint32_t index : {3U, 1U, 7U, 3U}) {
    REQUIRE(made.recall(start(index)));
    CHECK(made.current.actions.size() == index);
    CHECK(made.current.start[chunk_id{0}].first_frame[tier::device] == frame_id{index});
    CHECK(made.current.valid);
    CHECK(made.current.periodic == (index % 2 == 0));
  }
  made.put_aside();
  made.current.start = start(9);
  made.current.valid = true;
  CHECK_FALSE(made.recall(start(2)));
  CHECK(made.recall(start(8)));
  made.forget();
  CHECK_FALSE(made.current.valid);
  CHECK_FALSE(made.recall(start(9)));
}

}  // namespace iteration_planner_test

namespace plans_by_order_test {

namespace cm = chunkmem;

namespace {

/// An order of four lists, by number.
std::array<cm::list_id, 4> order(std::uint32_t number)
{
  std::array<cm::list_id, 4> lists{cm::list_id{0}, cm::list_id{1}, cm::list_id{2}, cm::list_id{3}};
  for (; number > 0; --number) std::ranges::next_permutation(lists);
  return lists;
}

/// Marks the plan of record 0 in the current order.
void plan(cm::plans_by_order& plans, std::uint64_t number)
{
  plans.grow(1);
  plans[0].made = number;
  plans[0].current.valid = true;
}

void change(cm::plans_by_order& plans, std::uint32_t number)
{
  const auto to = order(number);
  plans.prepare(to);
  plans.change(to);
}

}  // namespace

TEST_CASE("plans come back with their order, as many orders as are kept", "[manager]")
{
  cm::plans_by_order plans;
  plan(plans, 100);
  constexpr std::uint32_t turns = cm::plans_by_order::known_orders;
  for (int round = 0; round < 3; ++round)
    for (std::uint32_t number = 0; number < turns; ++number) {
      change(plans, 20);  // on the way, without a plan
      change(plans, number);
      if (round == 0 && number > 0) {
        CHECK(plans.size() == 0);
        plan(plans, 100 + number);
      }
      REQUIRE(plans.size() == 1);
      CHECK(plans[0].made == 100 + number);
      CHECK(plans[0].current.valid);
      CHECK_FALSE(plans[0].is_marked == (round > 0 || number == 0));
      plans[0].is_marked = true;
    }
}

TEST_CASE("one order more puts out the plans that were put aside first", "[manager]")
{
  cm::plans_by_order plans;
  constexpr std::uint32_t turns = cm::plans_by_order::known_orders + 2;
  for (std::uint32_t number = 0; number < turns; ++number) {
    change(plans, number);
    plan(plans, number);
  }
  std::uint32_t kept = 0;
  for (std::uint32_t number = turns; number-- > 0;) {
    change(plans, number);
    kept += plans.size() == 1 && plans[0].made == number ? 1 : 0;
  }
  CHECK(kept == turns - 1);  // the current one, and those put aside
}

TEST_CASE("an order that stays keeps its plans", "[manager]")
{
  cm::plans_by_order plans;
  plan(plans, 5);
  change(plans, 0);  // as declared
  CHECK(plans[0].made == 5);
  change(plans, 3);
  plan(plans, 6);
  change(plans, 3);
  CHECK(plans[0].made == 6);
  CHECK_FALSE(plans[0].is_marked);
}

TEST_CASE("a record that changed has no plan in any order", "[manager]")
{
  cm::plans_by_order plans;
  for (std::uint32_t number = 0; number < 3; ++number) {
    change(plans, number);
    plan(plans, number);
    plans.grow(2);
    plans[1].current.valid = true;
  }
  plans.forget(0);
  for (std::uint32_t number = 0; number < 3; ++number) {
    change(plans, number);
    CHECK_FALSE(plans[0].current.valid);
    CHECK(plans[1].current.valid);
  }
  plans.forget_all();
  for (std::uint32_t number = 0; number < 3; ++number) {
    change(plans, number);
    CHECK_FALSE(plans[1].current.valid);
  }
}

}  // namespace plans_by_order_test
