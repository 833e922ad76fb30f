// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/stays.hpp>

#include <chunkmem/manager/replay.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <conformance/transfer_policy.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace early_loads_test {

using namespace chunkmem;
using transfer::early_load;

namespace {

/// Chunks 0 to `count` - 1 are read on the device one after the other, then the host updates them in the same order.
access_record read_and_update(std::uint32_t count)
{
  support::record_builder build;
  for (std::uint32_t index = 0; index < count; ++index) build.brief(index);
  for (std::uint32_t index = 0; index < count; ++index) build.brief(index, entry_kind::read_write_on_host);
  std::vector<std::uint32_t> own;
  for (std::uint32_t index = 0; index < count; ++index) own.push_back(index);
  return build.finish(own, count);
}

}  // namespace

TEST_CASE("what is used first comes early, as far as there is room, and what is ready first comes first", "[transfer]")
{
  const access_record record = read_and_update(6);
  const std::vector<std::uint32_t> own{0, 1, 2, 3, 4, 5};
  const std::vector<chunk> chunks(6);
  const std::vector<std::uint8_t> live(6, 1);
  transfer::planned policy;
  for (const std::uint32_t frames : {1U, 2U, 4U, 6U}) {
    const transfer::iteration_plan plan =
        policy.retain({record, own, chunks, live, bytes{512}, bytes{512} * frames, bytes{512} * 6});
    REQUIRE(plan.retained_until.size() == 12);
    // At access 1 one is used, and all that come early count; chunk 5 is updated last and left to the next iteration.
    const std::uint32_t expected = frames == 1 ? 1 : std::min(frames - 1, 5U);
    REQUIRE(plan.early.size() == expected);
    for (std::uint32_t index = 0; index < expected; ++index) {
      CHECK(plan.early[index].chunk == index);
      CHECK(plan.early[index].first_use == index);
      CHECK(plan.early[index].lease_limit == frames);
      CHECK(plan.first_use[index] == index);
    }
  }
}

TEST_CASE("early loads move no more bytes, and a plan says again which they are", "[transfer]")
{
  int early = 0;
  int runs = 0;
  transfer::planned policy;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{
        .entries = dice.between(4, 60), .drops = dice.one_in(3), .device_leases = dice.one_in(2)};
    if (!conformance::roll_demand(seed, traits, false, run)) continue;
    const transfer::iteration_plan wanted = policy.retain(run.request());
    if (wanted.retained_until.empty()) continue;
    const tier_space& device = run.start.space(tier::device);
    const std::vector<early_load> again =
        transfer::early_loads_of(run.iteration.record, run.iteration.chunk_of_slot, wanted, bytes{device.capacity()},
                                 bytes{device.frame_bytes()});
    REQUIRE(again == wanted.early);
    retained_run with;
    with.start(run.start.table(), wanted);
    const auto moved_with = with.frames_moved(run.iteration.record, run.iteration.chunk_of_slot);
    transfer::iteration_plan plain = wanted;
    plain.early.clear();
    for (const early_load& it : wanted.early) plain.first_use[it.chunk] = access_record::never;
    retained_run without;
    without.start(run.start.table(), plain);
    const auto moved_without = without.frames_moved(run.iteration.record, run.iteration.chunk_of_slot);
    if (!moved_without) continue;
    ++runs;
    early += wanted.early.empty() ? 0 : 1;
    REQUIRE(moved_with.has_value());
    if (!traits.device_leases) CHECK(*moved_with <= *moved_without);
  }
  CHECK(runs > 100);
  CHECK(early > 20);
}

}  // namespace early_loads_test
