// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/stays.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/random_iteration.hpp>
#include <support/oracles/record_builder.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace lease_usage_test {

using namespace chunkmem;
using namespace chunkmem::literals;

TEST_CASE("lease usage counts the frames below the leases of a moment", "[transfer]")
{
  support::record_builder build;
  const std::uint32_t all = build.lease(entry_kind::lease_device, 2048);  // access 0: two of eight frames
  const std::uint32_t more = build.lease(entry_kind::lease_device, 256);  // access 1: a part of a third
  build.release(all);
  // access 2: the third alone, but it is the lowest
  build.brief(0);
  build.release(more);
  build.brief(0);  // access 3: none
  transfer::lease_usage leased;
  REQUIRE(leased.read(build.finish({0}, 1), 8_KiB, 1_KiB));
  CHECK(leased.frames_below_leases(0) == 6);
  CHECK(leased.frames_below_leases(1) == 5);
  CHECK(leased.frames_below_leases(2) == 5);
  CHECK(leased.frames_below_leases(3) == 8);
  CHECK(leased.least_below_leases(0, 1) == 6);
  CHECK(leased.least_below_leases(3, 1) == 6);  // around the end
  CHECK(leased.least_below_leases(3, 3) == 5);  // all the way
}

TEST_CASE("leases that do not fit are told", "[transfer]")
{
  support::record_builder build;
  build.lease(entry_kind::lease_device, 4096);
  build.lease(entry_kind::lease_device, 4352);
  transfer::lease_usage leased;
  CHECK_FALSE(leased.read(build.finish({}, 0), 8_KiB, 1_KiB));
  CHECK(leased.read(build.finish({}, 0), 16_KiB, 1_KiB));
}

TEST_CASE("the least of a stretch is that of its moments", "[transfer]")
{
  support::dice dice{7};
  for (int round = 0; round < 100; ++round) {
    support::record_builder build;
    std::vector<std::uint32_t> open;
    for (std::uint32_t index = dice.between(2, 40); index > 0; --index) {
      while (!open.empty() && dice.one_in(2)) {
        std::swap(dice.pick(open), open.back());
        build.release(open.back());
        open.pop_back();
      }
      if (dice.one_in(2))
        open.push_back(build.lease(entry_kind::lease_device, 256 * std::uint64_t{dice.between(1, 9)}));
      else
        build.brief(0);
    }
    const access_record record = build.finish({0}, 1);
    transfer::lease_usage leased;
    REQUIRE(leased.read(record, 256_KiB, 1_KiB));
    const std::uint32_t begin = dice.below(record.size());
    const std::uint32_t end = dice.below(record.size());
    std::uint32_t least = UINT32_MAX;
    for (std::uint32_t now = begin; least == UINT32_MAX || now != end; now = (now + 1) % record.size())
      least = std::min(least, leased.frames_below_leases(now));
    REQUIRE(leased.least_below_leases(begin, end) == least);
  }
}

}  // namespace lease_usage_test

namespace frame_calendar_test {

using namespace chunkmem;
using span_of_time = frame_calendar::span_of_time;

namespace {

/// A bit for each access and frame.
class plain_calendar {
 public:
  plain_calendar(std::uint32_t accesses, std::uint32_t frames) : taken_(accesses, std::vector<bool>(frames, false)) {}

  [[nodiscard]] bool is_free(span_of_time when, std::uint32_t first, std::uint32_t count) const
  {
    for (std::uint32_t step = 0; step < when.length; ++step)
      for (std::uint32_t frame = first; frame < first + count; ++frame)
        if (taken_[(when.begin + step) % taken_.size()][frame]) return false;
    return true;
  }
  [[nodiscard]] frame_id lowest(span_of_time when, std::uint32_t count, std::uint32_t lease_limit) const
  {
    for (std::uint32_t first = 0; first + count <= lease_limit; ++first)
      if (is_free(when, first, count)) return frame_id{first};
    return frame_id::none;
  }
  void take(span_of_time when, std::uint32_t first, std::uint32_t count)
  {
    for (std::uint32_t step = 0; step < when.length; ++step)
      for (std::uint32_t frame = first; frame < first + count; ++frame)
        taken_[(when.begin + step) % taken_.size()][frame] = true;
  }

 private:
  std::vector<std::vector<bool>> taken_;
};

}  // namespace

TEST_CASE("a calendar of frames says what a table of all accesses and frames says", "[transfer]")
{
  int found = 0;
  int full = 0;
  frame_calendar calendar;  // used again and again
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    support::dice dice{seed};
    const std::uint32_t accesses = dice.between(1, dice.one_in(4) ? 5 : 90);
    const std::uint32_t frames = dice.between(1, dice.one_in(3) ? 200 : 20);
    calendar.reset(accesses, frames);
    plain_calendar plain{accesses, frames};
    for (int step = 0; step < 150; ++step) {
      const std::uint32_t longest = dice.one_in(3) ? accesses : 1 + accesses / 8;
      const span_of_time when{dice.below(accesses), dice.between(1, longest)};
      const std::uint32_t count = dice.between(1, std::min(frames, 4U));
      const std::uint32_t lease_limit = dice.one_in(2) ? frames : dice.below(frames + 1);
      const frame_id first = calendar.lowest(when, count, lease_limit);
      if (first != plain.lowest(when, count, lease_limit)) FAIL("seed " << seed << ", step " << step << ": lowest");
      const std::uint32_t other = dice.below(frames - count + 1);
      const bool is_free = plain.is_free(when, other, count);
      if (calendar.is_free(when, frame_id{other}, count) != is_free) FAIL("seed " << seed << ", step " << step);
      (first != frame_id::none ? found : full) += 1;
      if (is_free && dice.one_in(3)) {
        calendar.take(when, frame_id{other}, count);
        plain.take(when, other, count);
      } else if (first != frame_id::none) {
        calendar.take(when, first, count);
        plain.take(when, index_of(first), count);
      }
    }
  }
  CHECK(found > 1'000);
  CHECK(full > 1'000);
}

TEST_CASE("a window may go around the end of the iteration and last for all of it", "[transfer]")
{
  frame_calendar calendar;
  calendar.reset(10, 70);
  CHECK(calendar.lowest({9, 2}, 2, 70) == frame_id{0});
  calendar.take({9, 2}, frame_id{0}, 66);
  CHECK(calendar.is_free({1, 8}, frame_id{0}, 70));
  CHECK_FALSE(calendar.is_free({0, 1}, frame_id{65}, 1));
  CHECK(calendar.lowest({0, 1}, 4, 70) == frame_id{66});
  CHECK(calendar.lowest({0, 1}, 4, 69) == frame_id::none);
  CHECK(calendar.lowest({3, 10}, 1, 70) == frame_id{66});
  CHECK(calendar.lowest({3, 10}, 5, 70) == frame_id::none);
  CHECK(frame_calendar::memory_bits(10, 70) == 4 * 16 * 128);
}

}  // namespace frame_calendar_test

namespace stay_frames_test {

using namespace chunkmem;
using transfer::stay_frames;

namespace {

/// One iteration with the frames of a device, and what stays behind which use.
struct setting {
  support::random_iteration iteration;
  std::vector<chunk> chunks;
  transfer::record_uses uses;
  transfer::lease_usage leased;
  sequence<std::uint8_t> retained;

  setting(support::random_iteration it, std::uint32_t frames) : iteration{std::move(it)}
  {
    for (const std::uint32_t length : iteration.frames_of_chunk) {
      chunks.emplace_back();
      chunks.back().frames = length;
    }
    uses.read(iteration.record, iteration.chunk_of_slot, iteration.chunks(), iteration.filled);
    fits = leased.read(iteration.record, bytes{frames * support::frame_bytes}, bytes{support::frame_bytes});
    retained.assign(uses.uses().size(), 0);
  }
  bool fits = false;
};

/// The chunk in each frame at each access.
class occupancy {
 public:
  static constexpr std::uint32_t nobody = UINT32_MAX;

  occupancy(std::uint32_t accesses, std::uint32_t frames) : who_(accesses, std::vector(frames, nobody)) {}
  /// @return   the frames exist, are under no lease, and hold no other chunk
  bool take(std::uint32_t chunk, std::uint32_t now, std::uint32_t first, std::uint32_t count,
            const transfer::lease_usage& leased)
  {
    now %= static_cast<std::uint32_t>(who_.size());
    for (std::uint32_t frame = first; frame < first + count; ++frame) {
      if (frame >= leased.frames_below_leases(now)) return false;
      std::uint32_t& mine = who_[now][frame];
      if (mine != nobody && mine != chunk) return false;
      mine = chunk;
    }
    return true;
  }

 private:
  std::vector<std::vector<std::uint32_t>> who_;
};

/// Walks all stays access by access. @return   the mistake, or nothing
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
    if (stays) end = next.begin > stretch.begin ? next.begin : next.begin + it.leased.accesses();
    for (std::uint32_t now = stretch.begin; now < end; ++now)
      if (!all.take(stretch.chunk, now, first, it.chunks[stretch.chunk].frames, it.leased))
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
    const auto places = frames.choose(it.uses, it.retained, it.leased, it.chunks);
    const bool has_windows =
        std::ranges::any_of(it.uses.stretches(), [&](const auto& held) { return it.chunks[held.chunk].frames > 1; });
    REQUIRE(places.empty() != has_windows);
    REQUIRE(frames.is_cut() == (it.retained != wanted));
    if (places.empty()) continue;
    for (std::size_t use = 0; use < wanted.size(); ++use) REQUIRE(it.retained[use] <= wanted[use]);
    occupancy all{it.leased.accesses(), it.leased.frames()};
    if (const char* const wrong = mistake_in(it, places, all)) FAIL("seed " << seed << ": " << wrong);
    cut += frames.is_cut() ? 1 : 0;
    const bool leaves_out = std::ranges::any_of(
        it.uses.stretches(), [&](const auto& held) { return places[held.begin] == stay_frames::none; });
    (leaves_out ? without : whole) += 1;

    std::vector<transfer::early_load> early;
    for (const transfer::held_stretch& held : it.uses.stretches())
      if (it.retained[it.uses.stretches()[it.uses.last_of_chunk()[held.chunk]].last] == 0 && dice.one_in(2) &&
          std::ranges::none_of(early, [&](const auto& other) { return other.chunk == held.chunk; }))
        early.push_back({held.chunk, 0, held.begin, dice.one_in(3) ? dice.below(4) : it.leased.frames()});
    const std::vector<std::uint32_t> before{places.begin(), places.end()};
    const auto kept = frames.keep_possible(early, it.chunks);
    REQUIRE(std::ranges::equal(before, places));
    for (const transfer::early_load& load : kept) {
      REQUIRE(before[load.first_use] + it.chunks[load.chunk].frames <= load.lease_limit);
      occupancy dry{it.leased.accesses(), it.leased.frames()};
      for (std::uint32_t now = it.leased.accesses() - 1; now < it.leased.accesses() + load.first_use; ++now)
        if (dry.take(load.chunk, now, before[load.first_use], it.chunks[load.chunk].frames, it.leased) &&
            !all.take(load.chunk, now, before[load.first_use], it.chunks[load.chunk].frames, it.leased))
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
  const auto places = frames.choose(it.uses, it.retained, it.leased, it.chunks);
  CHECK_FALSE(frames.is_cut());
  REQUIRE(places.size() == 6);
  CHECK((places[1] == 0 && places[5] == 0));
  CHECK((places[0] == places[3] && places[0] != 0));
  CHECK(places[4] == 1);

  it.retained.assign(it.retained.size(), 1);  // five frames in three: gaps have to go
  REQUIRE(frames.choose(it.uses, it.retained, it.leased, it.chunks).size() == 6);
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
  CHECK(frames.choose(single.uses, single.retained, single.leased, single.chunks).empty());
  made.frames_of_chunk[1] = 2;
  setting window{made, 3};
  CHECK(frames.choose(window.uses, window.retained, window.leased, window.chunks).size() == 2);
  for (int index = 0; index < 4'096; ++index) build.brief(1);
  made.record = build.finish(made.chunk_of_slot, 2);
  setting large{made, 1U << 15};
  CHECK(frames.choose(large.uses, large.retained, large.leased, large.chunks).empty());
}

}  // namespace stay_frames_test

namespace link_stays_test {

using namespace chunkmem;
using namespace chunkmem::literals;

namespace {

/// The frames that a chunk may use which comes with this stretch: walked access by access index until it leaves.
std::uint32_t walked_border(const transfer::record_uses& record, std::uint32_t from,
                            const std::vector<std::uint8_t>& retained, const transfer::lease_usage& leased,
                            std::uint32_t access_count)
{
  std::uint32_t least = UINT32_MAX;
  std::uint32_t index = from;
  for (std::size_t hops = 0; hops <= record.stretches().size(); ++hops) {
    const transfer::held_stretch& it = record.stretches()[index];
    const bool goes_on = retained[it.last] != 0;
    const std::uint32_t next = record.stretches()[it.next].begin;
    const std::uint32_t end = !goes_on ? it.end : next > it.begin ? next : next + access_count;
    for (std::uint32_t now = it.begin; now < end; ++now)
      least = std::min(least, leased.frames_below_leases(now % access_count));
    if (!goes_on) return least;
    index = it.next;
  }
  return least;
}

}  // namespace

TEST_CASE("next uses and lease limits are those of the stays", "[transfer]")
{
  std::uint64_t kept = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const auto it = support::roll_iteration(dice, {.entries = dice.between(1, 50)});
    transfer::record_uses record;
    record.read(it.record, it.chunk_of_slot, it.chunks(), it.filled);
    transfer::lease_usage leased;
    REQUIRE(leased.read(it.record, 64_KiB, 512_B));
    std::vector<std::uint8_t> retained(record.uses().size());
    for (std::uint8_t& each : retained) each = dice.one_in(2) ? 1 : 0;
    const transfer::iteration_plan answer = transfer::link_stays(record, retained, leased, it.record.size());
    for (std::uint32_t index = 0; index < record.stretches().size(); ++index) {
      const transfer::held_stretch& stretch = record.stretches()[index];
      const bool stay = retained[stretch.last] != 0;
      const std::uint32_t next = stay ? record.stretches()[stretch.next].begin : access_record::never;
      for (std::uint32_t use = 0; use < record.uses().size(); ++use)
        if (record.stretch_of_use()[use] == index) REQUIRE(answer.retained_until[record.uses()[use].begin] == next);
      if (record.last_of_chunk()[stretch.chunk] == index) REQUIRE(answer.first_use[stretch.chunk] == next);
      REQUIRE(answer.lease_limits[stretch.begin] == walked_border(record, index, retained, leased, it.record.size()));
      kept += stay ? 1 : 0;
    }
  }
  CHECK(kept > 1'000);
}

}  // namespace link_stays_test
