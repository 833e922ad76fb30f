// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/record_uses.hpp>

#include <chunkmem/transfer/retention_problem.hpp>

#include <support/catch.hpp>
#include <support/oracles/random_iteration.hpp>
#include <support/oracles/record_builder.hpp>
#include <support/oracles/retention_trace.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace record_uses_test {

using namespace chunkmem;
using transfer::record_uses;
using transfer::use_kind;

TEST_CASE("reads, updates and overwrites take room on the device, and nothing else does", "[transfer]")
{
  for (const use_kind kind : {use_kind::read, use_kind::update, use_kind::overwrite, use_kind::host_read,
                              use_kind::host_update, use_kind::host_overwrite, use_kind::drop}) {
    support::retention_trace what{{7}, {}, {9, 9, 9}, true};
    what.use(0, 1, kind);
    const transfer::residency_intervals found{what.input()};
    const std::uint64_t expected =
        kind == use_kind::read || kind == use_kind::update || kind == use_kind::overwrite ? 7 : 0;
    CHECK(transfer::is_on_device(kind) == (expected > 0));
    CHECK(found.used_bytes()[0] == 0);
    CHECK(found.used_bytes()[1] == expected);
    CHECK(found.used_bytes()[2] == 0);
  }
}

namespace {

/// By access index: is the chunk pinned on the device?  Counted pin by pin.
std::vector<std::uint8_t> pinned(const access_record& record, const std::vector<std::uint32_t>& chunk_of_slot,
                                 std::uint32_t chunk)
{
  std::vector<std::uint8_t> held(record.size(), 0);
  for (std::uint32_t index = 0; index < record.size(); ++index) {
    const access_entry& entry = record.entries()[index];
    if (entry.slot == access_record::never || entry.kind == entry_kind::drop || chunk_of_slot[entry.slot] != chunk)
      continue;
    if (place_of(entry.kind) == memory_location::host) continue;
    for (std::uint32_t now = index; now < std::min(record.details()[index].until, record.size()); ++now) held[now] = 1;
  }
  return held;
}

std::uint32_t stretch_before(const record_uses& found, std::uint32_t use)
{
  const std::uint32_t chunk = found.uses()[use].chunk;
  std::uint32_t before = record_uses::none;
  std::uint32_t last = record_uses::none;
  for (std::uint32_t index = 0; index < found.stretches().size(); ++index) {
    if (found.stretches()[index].chunk != chunk) continue;
    last = index;
    if (found.stretches()[index].begin <= found.uses()[use].begin) before = index;
  }
  return before != record_uses::none ? before : last;
}

}  // namespace

TEST_CASE("stretches are the moments at which pins hold a chunk, in a ring for each chunk", "[transfer]")
{
  record_uses found;
  std::uint64_t stretches = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const auto it = support::roll_iteration(dice, {.entries = dice.between(1, 60), .longest_chunk = 2});
    found.read(it.record, it.chunk_of_slot, it.chunks(), it.filled);
    for (std::uint32_t chunk = 0; chunk < it.chunks(); ++chunk) {
      std::vector<std::uint8_t> held(it.record.size(), 0);
      std::vector<std::uint32_t> mine;
      for (std::uint32_t index = 0; index < found.stretches().size(); ++index) {
        const transfer::held_stretch& stretch = found.stretches()[index];
        if (stretch.chunk != chunk) continue;
        REQUIRE(found.uses()[stretch.last].end == stretch.end);
        for (std::uint32_t now = stretch.begin; now < stretch.end; ++now) held[now] += 1;
        mine.push_back(index);
      }
      REQUIRE(held == pinned(it.record, it.chunk_of_slot, chunk));  // none twice
      REQUIRE(found.last_of_chunk()[chunk] == (mine.empty() ? record_uses::none : mine.back()));
      for (std::size_t index = 0; index < mine.size(); ++index)
        REQUIRE(found.stretches()[mine[index]].next == mine[(index + 1) % mine.size()]);
      stretches += mine.size();
    }
    for (std::uint32_t use = 0; use < found.uses().size(); ++use) {
      const std::uint32_t index = found.stretch_of_use()[use];
      if (!is_on_device(found.uses()[use].kind)) {
        REQUIRE(index == stretch_before(found, use));
        continue;
      }
      REQUIRE(index != record_uses::none);
      REQUIRE(found.stretches()[index].begin <= found.uses()[use].begin);
      REQUIRE(found.uses()[use].end <= found.stretches()[index].end);
    }
  }
  CHECK(stretches > 5'000);
}

TEST_CASE("what a use needs follows from what is alive in its chunk", "[transfer]")
{
  support::record_builder build;
  // slot 1 of the same chunk holds nothing yet: all that is live is overwritten
  build.brief(0, entry_kind::write);
  build.brief(1, entry_kind::write);  // but now slot 0 does
  build.brief(0, entry_kind::read);
  build.brief(1, entry_kind::read_write_on_host);
  build.drop(0);  // slot 1 lives on: no use
  build.drop(1);
  const std::vector<std::uint32_t> chunk_of_slot{0, 0};
  record_uses found;
  found.read(build.finish(chunk_of_slot, 1), chunk_of_slot, 1, std::vector<std::uint8_t>{0, 0});
  std::vector<use_kind> kinds;
  for (const transfer::retention_use& it : found.uses()) kinds.push_back(it.kind);
  CHECK(kinds == std::vector<use_kind>{use_kind::overwrite, use_kind::update, use_kind::read, use_kind::host_update,
                                       use_kind::drop});
  CHECK(found.uses().back().begin == 5);
  REQUIRE(found.stretches().size() == 1);  // one follows the other without an interval
  CHECK(found.stretches()[0].end == 3);
}

TEST_CASE("bytes that an iteration leaves are there when the next one begins", "[transfer]")
{
  support::record_builder build;
  build.brief(0, entry_kind::read);
  build.brief(0, entry_kind::write_on_host);
  const std::vector<std::uint32_t> own{0};
  record_uses found;
  found.read(build.finish(own, 1), own, 1, std::vector<std::uint8_t>{1});
  REQUIRE(found.uses().size() == 2);
  CHECK(found.uses()[0].kind == use_kind::read);
  CHECK(found.uses()[1].kind == use_kind::host_overwrite);
}

}  // namespace record_uses_test
