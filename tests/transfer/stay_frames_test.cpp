// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/stays.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/random_iteration.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace stay_frames_test {

using namespace chunkmem;
using transfer::stay_frames;

namespace {

/// One iteration with the frames of a device, and what stays behind which use.
struct setting {
  support::random_iteration iteration;
  std::vector<chunk> chunks;
  transfer::record_uses uses;
  transfer::lease_tide tide;
  sequence<std::uint8_t> retained;

  setting(support::random_iteration it, std::uint32_t frames) : iteration{std::move(it)}
  {
    for (const std::uint32_t length : iteration.frames_of_chunk) {
      chunks.emplace_back();
      chunks.back().frames = length;
    }
    uses.read(iteration.record, iteration.chunk_of_slot, iteration.chunks(), iteration.filled);
    fits = tide.read(iteration.record, bytes{frames * support::frame_bytes}, bytes{support::frame_bytes});
    retained.assign(uses.uses().size(), 0);
  }
  bool fits = false;
};

/// Who lies where at which access: the chunk, by access and frame.
class occupancy {
 public:
  static constexpr std::uint32_t nobody = UINT32_MAX;

  occupancy(std::uint32_t accesses, std::uint32_t frames) : who_(accesses, std::vector(frames, nobody)) {}
  /// @return   the frames are there, dry and nobody else's
  bool take(std::uint32_t chunk, std::uint32_t now, std::uint32_t first, std::uint32_t count,
            const transfer::lease_tide& tide)
  {
    now %= static_cast<std::uint32_t>(who_.size());
    for (std::uint32_t frame = first; frame < first + count; ++frame) {
      if (frame >= tide.dry_frames(now)) return false;
      std::uint32_t& mine = who_[now][frame];
      if (mine != nobody && mine != chunk) return false;
      mine = chunk;
    }
    return true;
  }

 private:
  std::vector<std::vector<std::uint32_t>> who_;
};

/// Walks all stays access by access. @return   what is wrong, or nothing
const char* mistake_in(const setting& it, std::span<const std::uint32_t> places, occupancy& all)
{
  const auto stretches = it.uses.stretches();
  for (std::uint32_t use = 0; use < it.uses.uses().size(); ++use) {
    const transfer::retention_use& what = it.uses.uses()[use];
    if (!transfer::is_on_device(what.kind)) {
      if (places[what.begin] != stay_frames::none) return "a use on the host has frames of the device";
      continue;
    }
    if (places[what.begin] != places[stretches[it.uses.stretch_of_use()[use]].begin])
      return "a chunk changes its frames while it is held";
  }
  for (const transfer::held_stretch& stretch : stretches) {
    const std::uint32_t first = places[stretch.begin];
    const transfer::held_stretch& next = stretches[stretch.next];
    const bool stays = it.retained[stretch.last] != 0;
    if (stays && places[next.begin] != first) return "a chunk changes its frames while it stays";
    if (first == stay_frames::none) continue;
    std::uint32_t end = stretch.end;
    if (stays) end = next.begin > stretch.begin ? next.begin : next.begin + it.tide.accesses();
    for (std::uint32_t now = stretch.begin; now < end; ++now)
      if (!all.take(stretch.chunk, now, first, it.chunks[stretch.chunk].frames, it.tide))
        return "frames are another chunk's, or a lease's";
  }
  return nullptr;
}

}  // namespace

TEST_CASE("no two chunks and no lease lie in one frame, and a chunk stays in its frames", "[transfer]")
{
  stay_frames frames;  // used again and again
  int whole = 0;
  int cut = 0;
  int without = 0;
  int early_kept = 0;
  int early_refused = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::iteration_traits traits{.entries = dice.between(1, 60), .longest_chunk = dice.between(2, 3)};
    setting it{support::roll_iteration(dice, traits), dice.between(3, 16)};
    if (!it.fits || it.iteration.record.empty()) continue;
    const std::uint32_t share = dice.between(1, 4);
    for (std::uint8_t& each : it.retained) each = dice.one_in(share) ? 1 : 0;
    const sequence<std::uint8_t> wanted = it.retained;
    const auto places = frames.choose(it.uses, it.retained, it.tide, it.chunks);
    const bool has_windows =
        std::ranges::any_of(it.uses.stretches(), [&](const auto& held) { return it.chunks[held.chunk].frames > 1; });
    REQUIRE(places.empty() != has_windows);
    REQUIRE(frames.is_cut() == (it.retained != wanted));
    if (places.empty()) continue;
    for (std::size_t use = 0; use < wanted.size(); ++use) REQUIRE(it.retained[use] <= wanted[use]);
    occupancy all{it.tide.accesses(), it.tide.frames()};
    if (const char* const wrong = mistake_in(it, places, all)) FAIL("seed " << seed << ": " << wrong);
    cut += frames.is_cut() ? 1 : 0;
    const bool leaves_out = std::ranges::any_of(
        it.uses.stretches(), [&](const auto& held) { return places[held.begin] == stay_frames::none; });
    (leaves_out ? without : whole) += 1;

    std::vector<transfer::early_load> early;
    for (const transfer::held_stretch& held : it.uses.stretches())
      if (it.retained[it.uses.stretches()[it.uses.last_of_chunk()[held.chunk]].last] == 0 && dice.one_in(2) &&
          std::ranges::none_of(early, [&](const auto& other) { return other.chunk == held.chunk; }))
        early.push_back({held.chunk, 0, held.begin, dice.one_in(3) ? dice.below(4) : it.tide.frames()});
    const std::vector<std::uint32_t> before{places.begin(), places.end()};
    const auto kept = frames.keep_possible(early, it.chunks);
    REQUIRE(std::ranges::equal(before, places));
    for (const transfer::early_load& load : kept) {
      REQUIRE(before[load.first_use] + it.chunks[load.chunk].frames <= load.border);
      occupancy dry{it.tide.accesses(), it.tide.frames()};
      for (std::uint32_t now = it.tide.accesses() - 1; now < it.tide.accesses() + load.first_use; ++now)
        if (dry.take(load.chunk, now, before[load.first_use], it.chunks[load.chunk].frames, it.tide) &&
            !all.take(load.chunk, now, before[load.first_use], it.chunks[load.chunk].frames, it.tide))
          FAIL("seed " << seed << ": an early load lies in frames of another chunk");
    }
    early_kept += static_cast<int>(kept.size());
    early_refused += static_cast<int>(early.size() - kept.size());
  }
  CHECK(whole > 100);
  CHECK(cut > 50);
  CHECK(without > 20);
  CHECK(early_kept > 20);
  CHECK(early_refused > 20);
}

TEST_CASE("frames that fit by their number fit side by side: the longest stay takes the lowest", "[transfer]")
{
  // Three chunks of one frame stay for different times, so that on demand two frames that are free lie apart when the
  // chunk of two frames comes.
  support::record_builder build;
  for (const std::uint32_t chunk : {0U, 1U, 2U, 0U, 3U, 1U}) build.brief(chunk);
  support::random_iteration made{{1, 1, 1, 2}, {0, 1, 2, 3}, {1, 1, 1, 1}, {}};
  made.record = build.finish(made.chunk_of_slot, 4);
  setting it{made, 3};
  REQUIRE(it.fits);
  it.retained[1] = 1;  // chunk 1 from its first use to its second one, beside all others
  it.retained[0] = 1;  // chunk 0 until its second use, beside chunks 1 and 2
  stay_frames frames;
  const auto places = frames.choose(it.uses, it.retained, it.tide, it.chunks);
  CHECK_FALSE(frames.is_cut());
  REQUIRE(places.size() == 6);
  CHECK((places[1] == 0 && places[5] == 0));
  CHECK((places[0] == places[3] && places[0] != 0));
  CHECK(places[4] == 1);

  it.retained.assign(it.retained.size(), 1);  // five frames in three: gaps have to go
  REQUIRE(frames.choose(it.uses, it.retained, it.tide, it.chunks).size() == 6);
  CHECK(frames.is_cut());
}

TEST_CASE("chunks of one frame, and iterations that are too large, have no planned frames", "[transfer]")
{
  support::record_builder build;
  for (const std::uint32_t chunk : {0U, 1U}) build.brief(chunk);
  support::random_iteration made{{1, 1}, {0, 1}, {1, 1}, {}};
  made.record = build.finish(made.chunk_of_slot, 2);
  stay_frames frames;
  setting single{made, 3};
  CHECK(frames.choose(single.uses, single.retained, single.tide, single.chunks).empty());
  made.frames_of_chunk[1] = 2;
  setting window{made, 3};
  CHECK(frames.choose(window.uses, window.retained, window.tide, window.chunks).size() == 2);
  for (int index = 0; index < 4'096; ++index) build.brief(1);
  made.record = build.finish(made.chunk_of_slot, 2);
  setting large{made, 1U << 15};
  CHECK(frames.choose(large.uses, large.retained, large.tide, large.chunks).empty());
}

}  // namespace stay_frames_test
