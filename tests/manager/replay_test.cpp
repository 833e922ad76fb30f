// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/replay.hpp>

#include <chunkmem/eviction/policies.hpp>
#include <support/catch.hpp>
#include <support/oracles/random_iteration.hpp>

#include <algorithm>

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
