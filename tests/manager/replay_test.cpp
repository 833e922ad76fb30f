// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/replay.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/stays.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <conformance/transfer_policy.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/oracles/random_iteration.hpp>
#include <support/own_policies.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace decision_log_test {

using namespace chunkmem;
using transfer::move;
using transfer::move_kind;

namespace {

bool is(const move& it, std::uint32_t access_index, move_kind kind, std::uint32_t chunk, std::uint64_t place,
        std::uint32_t frames)
{
  return it.access_index == access_index && it.kind == kind && it.chunk == chunk && it.place == place &&
         it.frames == frames;
}

}  // namespace

TEST_CASE("a decision log writes down what was decided and when", "[manager]")
{
  decision_log log;
  const auto chunk_at = [](std::uint32_t device) {
    return chunk{.frames = 2, .first_frame = {{frame_id{device}, frame_id{9}}}};
  };
  log.at(3, 4);
  log.placed(tier::device, frame_id{7}, 2);  // follows from the load
  log.copy(chunk_id{11}, chunk_at(7), tier::host, tier::device);
  log.claimed(chunk_id{12}, chunk_at(8), tier::device);
  log.copy(chunk_id{13}, chunk_at(5), tier::device, tier::host);
  log.evicted(chunk_id{14}, chunk_at(5), tier::device);
  log.discarded(chunk_id{15}, chunk_at(6), tier::device);  // its frames become free, and no plan has to move anything
  log.vacated(tier::device, frame_id{5}, 2, true);         // follows from the eviction
  log.leased(tier::device, 1'024, 512);
  log.at(6, 7);
  log.vacated(tier::device, frame_id{2}, 3, false);
  log.vacated(tier::host, frame_id{2}, 3, false);  // nobody plans host frames
  REQUIRE(log.moves().size() == 6);
  CHECK(is(log.moves()[0], 3, move_kind::load, 11, 7, 2));
  CHECK(is(log.moves()[1], 3, move_kind::claim, 12, 8, 2));
  CHECK(is(log.moves()[2], 3, move_kind::write_back, 13, 5, 2));
  CHECK(is(log.moves()[3], 3, move_kind::evict, 14, 5, 2));
  CHECK(is(log.moves()[4], 3, move_kind::lease, UINT32_MAX, 1'024, 0));
  CHECK(is(log.moves()[5], 7, move_kind::vacate, UINT32_MAX, 2, 3));  // free from the next moment on
  log.clear();
  CHECK(log.moves().empty());
}

}  // namespace decision_log_test

namespace replay_test {

using namespace chunkmem;

namespace {

template <class Eviction>
void replay_is_the_iteration(bool profiled, bool host_leases)
{
  int ran = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    support::dice dice{seed};
    support::iteration_traits traits{.entries = dice.between(1, 50), .longest_chunk = dice.between(1, 3)};
    traits.host_leases = host_leases;
    const support::random_iteration it = support::roll_iteration(dice, traits);
    std::uint32_t all = 0;
    for (const std::uint32_t frames : it.frames_of_chunk) all += frames;
    const std::uint32_t device = dice.between(1, all + 2);
    const std::uint32_t host = dice.one_in(2) ? all + 3 : dice.between(1, all);
    auto state = support::cache_for<Eviction>(it, device, host);
    support::cell_memory memory{it.chunk_of_slot, device, host};
    support::iteration_runner runner{it, state, memory};
    try {
      runner.fill(dice.one_in(2));
      runner.run(false);
    } catch (const out_of_memory&) {
      continue;
    }
    if (profiled) {
      state.start_of(it.record);
      state.tell_policy(it.record);
    }
    auto copy = state;
    decision_log log;
    replay<Eviction> again;
    bool fits = true;
    try {
      again.run(it.record, it.chunk_of_slot, copy, log, profiled);
    } catch (const out_of_memory&) {
      fits = false;
    }
    const std::uint64_t loads = memory.loads;
    const std::uint64_t write_backs = memory.write_backs;
    bool really = true;
    try {
      runner.run(profiled);
    } catch (const out_of_memory&) {
      really = false;
    }
    if (!memory.mistake.empty()) FAIL("seed " << seed << ": " << memory.mistake);
    if (fits != really) FAIL("seed " << seed << ": the replay fits and the iteration does not, or the other way");
    if (!fits) continue;
    ++ran;
    if (!copy.table().same_places(state.table())) FAIL("seed " << seed << ": the replay ends elsewhere");
    const auto count = [&](transfer::move_kind kind) {
      return static_cast<std::uint64_t>(std::count_if(log.moves().begin(), log.moves().end(),
                                                      [&](const transfer::move& move) { return move.kind == kind; }));
    };
    if (count(transfer::move_kind::load) != memory.loads - loads ||
        count(transfer::move_kind::write_back) != memory.write_backs - write_backs)
      FAIL("seed " << seed << ": the log has other copies");
  }
  CHECK(ran > 40);
}

}  // namespace

TEST_CASE("a replay decides as the iteration itself, lru", "[manager]")
{
  replay_is_the_iteration<eviction::lru>(false, true);
}

TEST_CASE("a replay decides as the iteration itself, belady with and without a profile", "[manager]")
{
  replay_is_the_iteration<eviction::belady>(true, false);
  replay_is_the_iteration<eviction::belady>(false, true);
}

TEST_CASE("a replay says when a step does not fit", "[manager]")
{
  support::record_builder build;
  build.access(0, entry_kind::write);
  build.access(1, entry_kind::write);
  const access_record record = build.finish({0, 1}, 2);
  support::random_iteration it{{1, 1}, {0, 1}, {0, 0}, record};
  auto state = support::cache_for<eviction::lru>(it, 1, 2);
  decision_log log;
  replay<eviction::lru> again;
  CHECK_THROWS_AS(again.run(record, it.chunk_of_slot, state, log, false), out_of_memory);
}

TEST_CASE("a record settles where sixteen iterations in a row fit", "[manager]")
{
  int settled = 0;
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    support::dice dice{seed};
    const support::random_iteration it =
        support::roll_iteration(dice, {.entries = dice.between(1, 30), .longest_chunk = 2});
    std::uint32_t all = 0;
    for (const std::uint32_t frames : it.frames_of_chunk) all += frames;
    const std::uint32_t device = dice.between(1, all + 2);
    auto start = support::cache_for<eviction::belady>(it, device, all + 2);
    support::cell_memory memory{it.chunk_of_slot, device, all + 2};
    support::iteration_runner{it, start, memory}.fill(false);
    for (const bool profiled : {false, true})
      for (const bool retold : {false, true}) {
        auto state = start;
        decision_log log;
        const bool claimed =
            replay<eviction::belady>{}.settles(it.record, it.chunk_of_slot, state, log, profiled, retold);
        auto again = start;
        support::cell_memory copy = memory;
        support::iteration_runner runner{it, again, copy};
        bool fits = true;
        try {
          for (int pass = 0; pass < 16; ++pass) {
            const bool known = profiled || pass > 0;
            if (known && (retold || pass == (profiled ? 0 : 1))) {
              again.start_of(it.record);
              again.tell_policy(it.record);
            }
            runner.run(known);
          }
        } catch (const out_of_memory&) {
          fits = false;
        }
        if (claimed != fits) FAIL("seed " << seed << ": settles " << claimed << ", sixteen iterations fit " << fits);
        (fits ? settled : refused) += 1;
      }
  }
  CHECK(settled > 50);
  CHECK(refused > 50);
}

}  // namespace replay_test

namespace variant_trial_test {

using namespace chunkmem;

namespace {

/// The third setting is the first again.
struct lowest_or_belady_or_lowest : support::lowest_or_belady {
  [[nodiscard]] std::uint32_t variants() const noexcept { return 3; }
};
static_assert(tuned_eviction<lowest_or_belady_or_lowest>);

}  // namespace

TEST_CASE("the setting that moves least when the record repeats is chosen", "[manager]")
{
  support::record_builder build;  // 0 1 2 0 3 0 4 0: evicting chunk 0 first is the worst there is
  for (const std::uint32_t slot : {0U, 1U, 2U, 0U, 3U, 0U, 4U, 0U}) build.brief(slot);
  const std::vector<std::uint32_t> own{0, 1, 2, 3, 4};
  const access_record record = build.finish(own, 5);
  const support::random_iteration it{{1, 1, 1, 1, 1}, own, {1, 1, 1, 1, 1}, record};
  auto state = support::cache_for<lowest_or_belady_or_lowest>(it, 2, 5);
  decision_log log;
  support::fill_on_host(state, log);
  variant_trial<lowest_or_belady_or_lowest> trial;
  CHECK(trial.best(state, record, own) == 1);
  auto none = support::cache_for<lowest_or_belady_or_lowest>(it, 0, 5);
  CHECK(trial.best(none, record, own) == 0);  // where none fits
}

TEST_CASE("a policy without settings, or with one given, has nothing to choose from", "[manager]")
{
  CHECK(chunk_cache<eviction::belady>{}.variants() == 1);
  CHECK(chunk_cache<eviction::cost_aware>{}.variants() > 1);
  CHECK(chunk_cache<eviction::cost_aware>{eviction::cost_aware{2.0}}.variants() == 1);
}

}  // namespace variant_trial_test

namespace retained_run_test {

using namespace chunkmem;

namespace {

/// Random wishes: which chunk stays behind which use, whether there is room or not.
class wisher {
 public:
  transfer::iteration_plan roll(const support::random_iteration& it, const tier_space& device, support::dice& dice)
  {
    uses_.read(it.record, it.chunk_of_slot, it.chunks(), it.filled);
    if (!leased_.read(it.record, bytes{device.capacity()}, bytes{device.frame_bytes()})) return {};
    retained_.assign(uses_.uses().size(), 0);
    const std::uint32_t share = dice.between(1, 4);
    for (std::uint8_t& each : retained_) each = dice.one_in(share) ? 1 : 0;
    transfer::iteration_plan wanted = transfer::link_stays(uses_, retained_, leased_, it.record.size());
    for (std::uint32_t chunk = 0; chunk < it.chunks() && it.record.size() > 0; ++chunk)
      if (dice.one_in(3))
        wanted.early.push_back(
            {chunk, dice.below(it.record.size()), dice.below(it.record.size()), dice.below(device.frames() + 2)});
    for (std::uint32_t index = 0; index < it.record.size() && dice.one_in(2); ++index)  // none, some, all
      wanted.places.push_back(dice.one_in(4) ? UINT32_MAX : dice.below(device.frames() + 2));
    if (dice.one_in(2)) wanted.places.resize(it.record.size(), UINT32_MAX);
    for (std::uint32_t& each : wanted.places)
      if (each == UINT32_MAX && dice.one_in(2)) each = dice.below(device.frames());
    return wanted;
  }

 private:
  transfer::record_uses uses_;
  transfer::lease_usage leased_;
  std::vector<std::uint8_t> retained_;
};

}  // namespace

TEST_CASE("whatever a plan wishes, its run can be followed and every read finds its bytes", "[manager]")
{
  int followed = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{.entries = dice.between(1, 60), .longest_chunk = dice.between(1, 3)};
    if (!conformance::roll_demand(seed, traits, dice.one_in(3), run)) continue;
    wisher wishes;
    const transfer::iteration_plan wanted = wishes.roll(run.iteration, run.start.space(tier::device), dice);
    if (wanted.retained_until.empty()) continue;
    retained_run planned;
    planned.start(run.start.table(), wanted);
    if (!planned.run(run.iteration.record, run.iteration.chunk_of_slot)) continue;  // it wished for too much
    run.demand.assign(planned.log().moves().begin(), planned.log().moves().end());
    run.end.take_places(planned.state().table());
    for (const bool early : {false, true}) {
      conformance::moves actions;
      transfer::lookahead{}.schedule(run.input(early && planned.state().reclaims() == 0), actions);
      const std::string wrong = conformance::mistake_when_followed(run, actions);
      if (!wrong.empty()) FAIL("seed " << seed << ": " << wrong);
    }
    ++followed;
  }
  CHECK(followed > 100);
}

TEST_CASE("a run copies what its log says, once it has settled", "[manager]")
{
  support::record_builder build;  // three chunks in a ring, room for two: one stays for ever, two are loaded each time
  for (int round = 0; round < 2; ++round)
    for (std::uint32_t index = 0; index < 3; ++index) build.brief(index);
  const std::vector<std::uint32_t> own{0, 1, 2};
  const access_record record = build.finish(own, 3);
  const support::random_iteration it{{1, 1, 1}, own, {1, 1, 1}, record};
  auto state = support::cache_for<eviction::belady>(it, 2, 3);
  decision_log log;
  support::fill_on_host(state, log);
  transfer::record_uses uses;
  uses.read(record, own, 3, state.table().live());
  transfer::lease_usage leased;
  REQUIRE(leased.read(record, bytes{2 * support::frame_bytes}, bytes{support::frame_bytes}));
  const std::vector<std::uint8_t> retained{1, 0, 0, 1, 0, 0};
  retained_run planned;
  const transfer::iteration_plan one = transfer::link_stays(uses, retained, leased, record.size());
  planned.start(state.table(), one);
  CHECK(planned.frames_moved(record, own) == 8U);  // two iterations of four loads
  const std::vector<std::uint8_t> nothing{0, 0, 0, 0, 0, 0};
  const transfer::iteration_plan none = transfer::link_stays(uses, nothing, leased, record.size());
  planned.start(state.table(), none);
  CHECK(planned.frames_moved(record, own) == 12U);  // what nobody keeps leaves in the order in which it was let go of
}

TEMPLATE_TEST_CASE("a host without room for all tensors: the plan's bytes are copied, and every value is right",
                   "[manager]", chunkmem::backend::host_arena, support::adversarial)
{
  constexpr std::uint32_t tensors = 14;
  constexpr std::uint32_t elements = 128;  // a frame each
  using manager_type = chunkmem::manager<TestType, chunkmem::transfer::planned>;
  TestType memory{{.device_capacity = 8 * 512_B, .host_capacity = 9 * 512_B}};
  manager_type m{memory, {.chunk_bytes = 512_B}};
  std::vector<tensor<float>> all;
  for (std::uint32_t index = 0; index < tensors; ++index)
    all.push_back(m.template add<float>({elements}, role::buffer));
  std::vector<float> expected(tensors);
  for (std::uint32_t index = 0; index < tensors; ++index) {
    auto pin = m.acquire(all[index], access::write);
    for (float& it : pin.span()) it = expected[index] = static_cast<float>(index);
  }
  report before;
  for (int step = 0; step < 8; ++step) {
    before = m.report();
    auto scope = m.iteration();
    for (std::uint32_t index = 0; index < tensors; ++index) {
      const bool reads = index % 3 == 0;
      auto pin = m.acquire(all[index], reads ? access::read : access::read_write);
      for (const float it : pin.span()) REQUIRE(it == expected[index]);
      if (reads) continue;
      expected[index] += 1;
      for (float& it : pin.writable()) it += 1;
    }
  }
  const transfer::iteration_plan plan = m.plan();
  CHECK(std::ranges::count(plan.device_only, 1) >= 5);
  CHECK(plan.bound_bytes <= plan.moved_bytes);
  const report last = m.report().copies_since(before);
  CHECK(last.loaded.count() + last.written_back.count() == plan.moved_bytes);
  CHECK(m.report().divergences == 0);
}

TEST_CASE("a run writes back at its end what leaves before it is read again", "[manager]")
{
  support::record_builder build;
  build.brief(0, entry_kind::read_write);
  build.brief(1, entry_kind::read_write);  // stays
  build.brief(2, entry_kind::write);       // is overwritten when it comes again
  build.brief(3, entry_kind::read_write);  // is in use until the end
  const std::vector<std::uint32_t> own{0, 1, 2, 3};
  const access_record record = build.finish(own, 4);
  const support::random_iteration it{{1, 1, 1, 1}, own, {1, 1, 1, 1}, record};
  auto state = support::cache_for<eviction::belady>(it, 4, 4);
  decision_log log;
  support::fill_on_host(state, log);
  transfer::record_uses uses;
  uses.read(record, own, 4, state.table().live());
  transfer::lease_usage leased;
  REQUIRE(leased.read(record, bytes{4 * support::frame_bytes}, bytes{support::frame_bytes}));
  const std::vector<std::uint8_t> retained{0, 1, 0, 0};
  retained_run planned;
  const transfer::iteration_plan one = transfer::link_stays(uses, retained, leased, record.size());
  planned.start(state.table(), one);
  REQUIRE(planned.run(record, own));
  std::vector<std::uint32_t> written_back;
  for (const transfer::move& action : planned.log().moves())
    if (action.kind == transfer::move_kind::write_back) written_back.push_back(action.chunk);
  CHECK(written_back == std::vector<std::uint32_t>{0});
  for (const std::uint32_t index : own) CHECK(planned.state()[chunk_id{index}].has_frames(tier::device));
  std::vector<transfer::move> actions;
  transfer::lookahead{}.schedule({record, own, planned.log().moves(), 4, 4, true}, actions);
  for (const transfer::move& action : actions)
    if (action.kind == transfer::move_kind::write_back) CHECK(action.access_index == 1);  // after its last use
}

TEST_CASE("a run in planned frames settles there from any start", "[manager]")
{
  support::record_builder build;
  for (const std::uint32_t chunk : {0U, 1U, 2U}) build.brief(chunk);
  const std::vector<std::uint32_t> own{0, 1, 2};
  const access_record record = build.finish(own, 3);
  const support::random_iteration it{{1, 2, 1}, own, {1, 1, 1}, record};
  transfer::record_uses uses;
  uses.read(record, own, 3, it.filled);
  transfer::lease_usage leased;
  REQUIRE(leased.read(record, bytes{4 * support::frame_bytes}, bytes{support::frame_bytes}));
  const std::vector<std::uint8_t> retained{1, 1, 1};  // all stay for ever
  transfer::iteration_plan wanted = transfer::link_stays(uses, retained, leased, record.size());
  wanted.places = {3, 0, 2};
  std::vector<std::uint32_t> order{0, 1, 2};
  do {
    auto state = support::cache_for<eviction::belady>(it, 4, 4);
    decision_log log;
    for (const std::uint32_t index : order) {
      state.acquire(slot_id{index}, chunk_id{index}, entry_kind::write_on_host, access_record::never, access_index{0},
                    log);
      state.unpin(tier::host, chunk_id{index}, true);
      state.acquire(slot_id{index}, chunk_id{index}, entry_kind::read, access_record::never, access_index{0}, log);
      state.unpin(tier::device, chunk_id{index}, false);
    }
    retained_run planned;
    planned.start(state.table(), wanted);
    REQUIRE(planned.run(record, own));
    for (const std::uint32_t index : own)
      CHECK(planned.state()[chunk_id{index}].first_frame[tier::device] == frame_id{wanted.places[index]});
    CHECK(planned.frames_moved(record, own) == 0U);
  } while (std::ranges::next_permutation(order).found);
}

TEST_CASE("a run that does not fit moves nothing", "[manager]")
{
  support::record_builder build;
  build.access(0, entry_kind::write);
  build.access(1, entry_kind::write);
  const std::vector<std::uint32_t> own{0, 1};
  const access_record record = build.finish(own, 2);
  const support::random_iteration it{{1, 1}, own, {0, 0}, record};
  retained_run planned;
  const std::vector<std::uint32_t> never(2, access_record::never);
  transfer::iteration_plan wanted;
  wanted.retained_until = wanted.first_use = wanted.lease_limits = never;
  planned.start(support::cache_for<eviction::belady>(it, 1, 2).table(), wanted);
  CHECK_FALSE(planned.frames_moved(record, own).has_value());
}

}  // namespace retained_run_test
