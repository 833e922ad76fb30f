// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/rehearsal.hpp>

#include <chunkmem/eviction/policies.hpp>
#include <chunkmem/transfer/policies.hpp>
#include <support/catch.hpp>
#include <support/every_eviction.hpp>
#include <support/oracles/toy_core.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <string_view>

namespace rehearsal_test {

using namespace chunkmem;
using support::frame_bytes;

namespace {

/// The iteration runs with these frames, forty times, from each start: recorded after the filling, on a device that
/// holds all, or on one that was cleared; and with its record known on an empty device.
template <class Transfer>
bool runs(const support::every_eviction& eviction, const support::toy_core& core, const support::random_iteration& it,
          std::uint64_t device, std::uint64_t host)
{
  enum class start { filled, cleared, known };
  for (const start from : {start::filled, start::cleared, start::known}) {
    const bool recording = from != start::known;
    chunk_cache<support::every_eviction> state{eviction};
    core.shape(state, {{bytes{device * frame_bytes}, bytes{host * frame_bytes}}});
    support::cell_memory memory{it.chunk_of_slot, state.space(tier::device).frames(), state.space(tier::host).frames()};
    support::iteration_runner runner{it, state, memory};
    try {
      runner.fill(recording);
      if (recording && (from == start::cleared || !core.device_holds_all(state))) state.evict_all(memory);
      for (int pass = 0; pass < 40; ++pass) {
        const bool known = !recording || pass > 0;
        if (known && (Transfer::plans || pass == (recording ? 1 : 0))) {
          state.start_of(it.record);
          state.tell_policy(it.record);
        }
        runner.run(known);
      }
    } catch (const out_of_memory&) {
      return false;
    }
    if (!memory.mistake.empty()) FAIL(memory.mistake);
  }
  return true;
}

/// Most bytes that are pinned, or leased, at one moment of the device, by looking at every moment.
std::uint64_t most_at_once(const support::random_iteration& it, bool leases_only)
{
  std::uint64_t most = 0;
  for (std::uint32_t now = 0; now < it.record.size(); ++now) {
    std::uint64_t held = 0;
    std::vector<bool> counted(it.chunks(), false);
    for (std::uint32_t index = 0; index <= now; ++index) {
      const access_entry& entry = it.record.entries()[index];
      if (it.record.details()[index].until <= now) continue;
      if (entry.kind == entry_kind::lease_device) held += it.record.details()[index].bytes;
      if (leases_only || !is_access(entry.kind) || place_of(entry.kind) == memory_location::host) continue;
      const std::uint32_t chunk = it.chunk_of_slot[entry.slot];
      if (!counted[chunk]) held += it.frames_of_chunk[chunk] * frame_bytes;
      counted[chunk] = true;
    }
    most = std::max(most, held);
  }
  return most;
}

/// Compares with trying each capacity. @return   the least device has more than one frame
template <class Transfer>
bool smallest_is_smallest(const support::every_eviction& eviction, std::uint64_t seed)
{
  INFO("seed " << seed << ", eviction " << eviction.chosen());
  support::dice dice{seed};
  const support::iteration_traits traits{.entries = dice.between(1, 30), .longest_chunk = dice.between(1, 2)};
  const support::random_iteration it = support::roll_toy_iteration(dice, traits);
  const support::toy_core core{it.frames_of_chunk};
  const sequence<std::uint8_t> filled{std::span{it.filled}};
  std::uint64_t all = 0;
  for (const std::uint32_t frames : it.frames_of_chunk) all += frames;
  const std::uint64_t limit = 2 * all + 8;
  const std::uint64_t host = all + 1;
  rehearsal<support::every_eviction, Transfer> trial{core.frames(), eviction, it.record, filled};

  std::uint64_t expected = 1;
  while (expected <= limit && !runs<Transfer>(eviction, core, it, expected, host)) ++expected;
  REQUIRE(trial.smallest_device(bytes{host * frame_bytes}, limit) == expected);
  REQUIRE(trial.fits({{bytes{expected * frame_bytes}, bytes{host * frame_bytes}}}));
  if (expected > 1) REQUIRE_FALSE(trial.fits({{bytes{(expected - 1) * frame_bytes}, bytes{host * frame_bytes}}}));
  REQUIRE(trial.pinned_frames() == (most_at_once(it, false) + frame_bytes - 1) / frame_bytes);
  REQUIRE(most_leased(it.record, tier::device).count() == most_at_once(it, true));

  const std::uint64_t found = trial.smallest_host(bytes{expected * frame_bytes}, host);
  REQUIRE(runs<Transfer>(eviction, core, it, expected, found));
  if (found > 0) REQUIRE_FALSE(runs<Transfer>(eviction, core, it, expected, found - 1));
  return expected > 1;
}

template <class Transfer>
void smallest_is_smallest_from(std::uint64_t first_seed)
{
  constexpr int seeds = support::sanitized ? 30 : 150;
  int tight = 0;
  for (const std::string_view which : support::every_eviction::names)
    for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed)
      if (smallest_is_smallest<Transfer>(support::every_eviction{which}, seed)) ++tight;
  CHECK(tight > 2 * seeds);
}

}  // namespace

TEST_CASE("the smallest capacities are those that trying each of them finds, for every eviction on demand", "[manager]")
{
  smallest_is_smallest_from<transfer::no_prefetch>(100);
}

TEST_CASE("the smallest capacities are those that trying each of them finds, for every eviction ahead of time",
          "[manager]")
{
  smallest_is_smallest_from<transfer::lookahead>(200);
}

TEST_CASE("a step that fits nowhere gives one more than the limit", "[manager]")
{
  support::record_builder build;
  build.access(0);
  build.access(1);
  const support::toy_core core{{1, 1}};
  const access_record record = build.finish({0, 1}, 2);
  const sequence<std::uint8_t> filled{1, 1};
  rehearsal<eviction::lru, transfer::no_prefetch> trial{core.frames(), {}, record, filled};
  CHECK(trial.smallest_device(bytes{2 * frame_bytes}, 1) == 2);
  CHECK(trial.smallest_device(bytes{2 * frame_bytes}, 9) == 2);
  CHECK(trial.smallest_device(bytes{2 * frame_bytes}, 9, 5) == 5);
  CHECK(trial.pinned_frames() == 2);
}

TEST_CASE("a host capacity that was found fits also where reclaims leave off elsewhere", "[manager]")
{
  smallest_is_smallest<transfer::lookahead>(support::every_eviction{"belady"}, 9'455);
}

}  // namespace rehearsal_test
