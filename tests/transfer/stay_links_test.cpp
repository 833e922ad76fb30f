// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/stays.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/random_iteration.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace stay_links_test {

using namespace chunkmem;
using namespace chunkmem::literals;

namespace {

/// The frames that a chunk may use which comes with this stretch: walked access by access index until it leaves.
std::uint32_t walked_border(const transfer::record_uses& record, std::uint32_t from,
                            const std::vector<std::uint8_t>& retained, const transfer::lease_tide& tide,
                            std::uint32_t access_count)
{
  std::uint32_t least = UINT32_MAX;
  std::uint32_t index = from;
  for (std::size_t hops = 0; hops <= record.stretches().size(); ++hops) {
    const transfer::held_stretch& it = record.stretches()[index];
    const bool goes_on = retained[it.last] != 0;
    const std::uint32_t next = record.stretches()[it.next].begin;
    const std::uint32_t end = !goes_on ? it.end : next > it.begin ? next : next + access_count;
    for (std::uint32_t now = it.begin; now < end; ++now) least = std::min(least, tide.dry_frames(now % access_count));
    if (!goes_on) return least;
    index = it.next;
  }
  return least;
}

}  // namespace

TEST_CASE("next uses and borders are those of the stays", "[transfer]")
{
  std::uint64_t kept = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const auto it = support::roll_iteration(dice, {.entries = dice.between(1, 50)});
    transfer::record_uses record;
    record.read(it.record, it.chunk_of_slot, it.chunks(), it.filled);
    transfer::lease_tide tide;
    REQUIRE(tide.read(it.record, 64_KiB, 512_B));
    std::vector<std::uint8_t> retained(record.uses().size());
    for (std::uint8_t& each : retained) each = dice.one_in(2) ? 1 : 0;
    transfer::stay_links links;
    const transfer::retention answer = links.link(record, retained, tide, it.record.size());
    for (std::uint32_t index = 0; index < record.stretches().size(); ++index) {
      const transfer::held_stretch& stretch = record.stretches()[index];
      const bool stay = retained[stretch.last] != 0;
      const std::uint32_t next = stay ? record.stretches()[stretch.next].begin : access_record::never;
      for (std::uint32_t use = 0; use < record.uses().size(); ++use)
        if (record.stretch_of_use()[use] == index) REQUIRE(answer.retained_until[record.uses()[use].begin] == next);
      if (record.last_of_chunk()[stretch.chunk] == index) REQUIRE(answer.first_use[stretch.chunk] == next);
      REQUIRE(answer.borders[stretch.begin] == walked_border(record, index, retained, tide, it.record.size()));
      kept += stay ? 1 : 0;
    }
  }
  CHECK(kept > 1'000);
}

}  // namespace stay_links_test
