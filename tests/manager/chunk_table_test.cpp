// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/chunk_table.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace chunk_table_test {

namespace cm = chunkmem;

namespace {

cm::chunk_table table_of(std::vector<std::uint32_t> frames)
{
  cm::chunk_table table;
  table.reset(frames, 8);
  table.space(cm::tier::device).reset(cm::bytes{4 * 256}, cm::bytes{256}, 4);
  table.space(cm::tier::host).reset(cm::bytes{6 * 256}, cm::bytes{256}, 6);
  return table;
}

}  // namespace

TEST_CASE("a table of chunks starts empty, with the windows it was given", "[manager]")
{
  const cm::chunk_table table = table_of({1, 3, 2});
  REQUIRE(table.chunks() == 3);
  CHECK((table.has(cm::chunk_id{2}) && !table.has(cm::chunk_id{3}) && !table.has(cm::tier_space::leased_frame)));
  CHECK(table[cm::chunk_id{1}].frames == 3);
  for (const cm::chunk_id each : table.chunk_ids()) {
    CHECK_FALSE(table[each].has_frames(cm::tier::device));
    CHECK(table[each].live == 0);
  }
  for (const cm::slot_id slot : cm::ids<cm::slot_id>(8)) CHECK_FALSE(table.is_live(slot));
}

TEST_CASE("a copy may leave when no pin and no byte is lost with it", "[manager]")
{
  cm::chunk_table table = table_of({1});
  CHECK(table.may_leave(cm::tier::device, cm::chunk_id{0}));
  table[cm::chunk_id{0}].pins[cm::tier::device] = 1;
  CHECK_FALSE(table.may_leave(cm::tier::device, cm::chunk_id{0}));
  table[cm::chunk_id{0}].pins[cm::tier::device] = 0;

  table[cm::chunk_id{0}].put(cm::tier::host, cm::frame_id{0}, true);
  CHECK_FALSE(table.may_leave(cm::tier::host, cm::chunk_id{0}));  // the only copy
  table[cm::chunk_id{0}].put(cm::tier::device, cm::frame_id{2}, true);
  CHECK(table.may_leave(cm::tier::host, cm::chunk_id{0}));  // the device has it too
  table[cm::chunk_id{0}].pins[cm::tier::host] = 1;
  CHECK_FALSE(table.may_leave(cm::tier::host, cm::chunk_id{0}));
  table[cm::chunk_id{0}].pins[cm::tier::host] = 0;
  table[cm::chunk_id{0}].take_away(cm::tier::device);
  table[cm::chunk_id{0}].set_valid(cm::tier::host, false);
  CHECK(table.may_leave(cm::tier::host, cm::chunk_id{0}));  // a host copy without bytes
}

TEST_CASE("a shortage counts pinned chunks and leases, and cannot wrap", "[manager]")
{
  cm::chunk_table table = table_of({1, 2});
  table[cm::chunk_id{1}].put(cm::tier::device, cm::frame_id{0}, true);
  table[cm::chunk_id{1}].pins[cm::tier::device] = 3;
  table.space(cm::tier::device).take_lease(512, 256);
  const cm::memory_shortage it = table.shortage(cm::tier::device, 1024);
  CHECK(it.where == cm::tier::device);
  CHECK(it.capacity == 1024);
  CHECK(it.pinned == 2 * 256 + 256);
  CHECK(it.needed == it.pinned + 1024);
  CHECK(table.shortage(cm::tier::device, UINT64_MAX - 1).needed == UINT64_MAX);
  CHECK(table.shortage(cm::tier::host, 1).pinned == 0);
}

TEST_CASE("a gathered chunk is not what the host is short of", "[manager]")
{
  cm::chunk_table table = table_of({1, 2, 1});
  for (const std::uint32_t index : {0U, 1U}) {
    table[cm::chunk_id{index}].set_valid(cm::tier::host, true);
    table[cm::chunk_id{index}].live = 1;
    table[cm::chunk_id{index}].pins[cm::tier::host] = 1;
  }
  table[cm::chunk_id{0}].first_frame[cm::tier::host] = cm::frame_id{0};
  table[cm::chunk_id{1}].first_frame[cm::tier::host] = cm::chunk::elsewhere;
  CHECK(table.shortage(cm::tier::host, 256).pinned == 256);
  table[cm::chunk_id{1}].put(cm::tier::device, cm::frame_id{2}, true);
  table[cm::chunk_id{1}].pins[cm::tier::device] = 1;
  CHECK(table.shortage(cm::tier::device, 256).pinned == 2 * 256);  // there it is like any other
}

TEST_CASE("two tables have the same places whatever their next uses are", "[manager]")
{
  cm::chunk_table left = table_of({1, 1});
  cm::chunk_table right = table_of({1, 1});
  left[cm::chunk_id{0}].next_use = 7;
  CHECK(left.same_places(right));
  left[cm::chunk_id{0}].pins[cm::tier::device] = 1;
  CHECK_FALSE(left.same_places(right));
  left[cm::chunk_id{0}].pins[cm::tier::device] = 0;
  right.space(cm::tier::host).place(cm::chunk_id{1}, cm::frame_id{2}, 1);
  CHECK_FALSE(left.same_places(right));
  right.space(cm::tier::host).vacate(cm::frame_id{2}, 1);
  CHECK(left.same_places(right));
  right.set_live(cm::slot_id{5}, true);
  CHECK_FALSE(left.same_places(right));
  right.exchange_live(cm::slot_id{5}, cm::slot_id{6});
  CHECK((!right.is_live(cm::slot_id{5}) && right.is_live(cm::slot_id{6})));
}

}  // namespace chunk_table_test

namespace candidate_set_test {

using namespace chunkmem;

namespace {

/// A policy that records its calls and notices calls that break the laws.
class attentive {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "attentive";
  void reset(std::uint32_t) { items.clear(); }
  void on_profile(const access_record&)
  {
    if (!items.empty()) broken() = "a profile while there are candidates";
    ++profiles();
  }
  void enter(const eviction::candidate& item) noexcept
  {
    if (!items.emplace(index_of(item.chunk), item).second) broken() = "entered twice";
    order().push_back(index_of(item.chunk));
  }
  void leave(const eviction::candidate& item) noexcept
  {
    const auto found = items.find(index_of(item.chunk));
    if (found == items.end())
      broken() = "left without having entered";
    else if (found->second.next_use != item.next_use)
      broken() = "left with another key";
    else
      items.erase(found);
  }
  chunk_id victim(access_index) noexcept
  {
    last() = items;
    return items.empty() ? chunk_id::none : items.begin()->second.chunk;
  }

  // The set keeps the policy to itself: what it heard is read here.
  static std::string& broken()
  {
    static std::string text;
    return text;
  }
  static int& profiles()
  {
    static int count = 0;
    return count;
  }
  static std::map<std::uint32_t, eviction::candidate>& last()
  {
    static std::map<std::uint32_t, eviction::candidate> seen;
    return seen;
  }
  static std::vector<std::uint32_t>& order()
  {
    static std::vector<std::uint32_t> ids;
    return ids;
  }

 private:
  std::map<std::uint32_t, eviction::candidate> items;
};

/// The expected content of the policy: chunks on the device without pins, with their current keys.
bool heard_of(const std::vector<chunk>& chunks)
{
  std::size_t candidates = 0;
  for (std::uint32_t index = 0; index < chunks.size(); ++index) {
    const chunk& it = chunks[index];
    if (!it.has_frames(tier::device) || it.pins[tier::device] > 0) continue;
    ++candidates;
    const auto found = attentive::last().find(index);
    if (found == attentive::last().end()) return false;
    const eviction::candidate& item = found->second;
    if (index_of(item.next_use) != it.next_use || item.frames != it.frames || item.dirty == it.is_valid(tier::host))
      return false;
  }
  return attentive::last().size() == candidates;
}

}  // namespace

TEST_CASE("a policy that is asked has heard of every chunk as it is", "[manager]")
{
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    support::dice dice{seed};
    attentive::broken().clear();
    std::vector<chunk> chunks(dice.between(1, 12));
    candidate_set<attentive> set{attentive{}};
    set.reset(static_cast<std::uint32_t>(chunks.size()));
    for (int step = 0; step < 300; ++step) {
      const std::uint32_t index = dice.below(static_cast<std::uint32_t>(chunks.size()));
      chunk& it = chunks[index];
      switch (dice.below(7)) {
        case 0:
          it.has_frames(tier::device) ? it.take_away(tier::device) : it.put(tier::device, frame_id{index}, true);
          set.touch(chunk_id{index}, it);
          break;
        case 1:
          ++it.pins[tier::device];
          set.touch(chunk_id{index}, it);
          break;
        case 2:
          it.pins[tier::device] = 0;
          set.unpinned(chunk_id{index}, it);
          break;
        case 3:
          it.next_use = dice.below(50) + 50 * index;
          set.touch(chunk_id{index}, it);
          break;
        case 4:
          it.set_valid(tier::host, !it.is_valid(tier::host));
          set.touch(chunk_id{index}, it);
          break;
        case 5:
          if (!dice.one_in(10)) break;
          set.silence();
          if (set.is_telling()) FAIL("seed " << seed << ": tells although it is silenced");
          set.tell(access_record{}, chunks);
          break;
        default:
          (void)set.victim(access_index{0}, chunks);
          if (!heard_of(chunks)) FAIL("seed " << seed << ", step " << step << ": the policy knows something else");
      }
      if (!attentive::broken().empty()) FAIL("seed " << seed << ", step " << step << ": " << attentive::broken());
    }
  }
}

TEST_CASE("a policy hears of chunks in the order in which they were let go of", "[manager]")
{
  std::vector<chunk> chunks(5);
  candidate_set<attentive> set{attentive{}};
  set.reset(5);
  for (std::uint32_t index = 0; index < 5; ++index) {
    chunks[index].put(tier::device, frame_id{index}, true);
    set.touch(chunk_id{index}, chunks[index]);
  }
  for (const std::uint32_t index : {3u, 0u, 4u, 0u, 1u}) set.unpinned(chunk_id{index}, chunks[index]);
  attentive::order().clear();
  (void)set.victim(access_index{0}, chunks);
  CHECK(attentive::order() == std::vector<std::uint32_t>{2, 3, 4, 0, 1});
  attentive::order().clear();
  (void)set.victim(access_index{0}, chunks);
  CHECK(attentive::order().empty());  // nothing happened
  set.tell(access_record{}, chunks);
  (void)set.victim(access_index{0}, chunks);
  CHECK(attentive::order() == std::vector<std::uint32_t>{2, 3, 4, 0, 1});
}

}  // namespace candidate_set_test

namespace frame_reclaim_test {

namespace cm = chunkmem;

namespace {

/// Chunks and a host of `frames` frames. The test plays the cache: it places chunks and gives frames up.
struct host_tier {
  host_tier(std::vector<std::uint32_t> frames_of_chunk, std::uint32_t frames)
  {
    table.reset(frames_of_chunk, 16);
    table.space(cm::tier::host).reset(cm::bytes{frames * std::uint64_t{256}}, cm::bytes{256}, frames);
  }

  cm::chunk& operator[](std::uint32_t index) { return table[cm::chunk_id{index}]; }

  /// The chunk gets frames, and a copy of its bytes or none. @return   false where there is no room
  bool place(std::uint32_t index, bool valid)
  {
    const cm::chunk_id id{index};
    const cm::frame_id first = reclaim.find_frames(table, id, [this](cm::chunk_id victim) { leave(victim); });
    if (first == cm::frame_pool::none) return false;
    table.space(cm::tier::host).place(id, first, table[id].frames);
    table[id].put(cm::tier::host, first, valid);
    return true;
  }

  void leave(cm::chunk_id id)
  {
    ++reclaims;
    table.space(cm::tier::host).vacate(table[id].first_frame[cm::tier::host], table[id].frames);
    table[id].take_away(cm::tier::host);
  }

  cm::chunk_table table;
  cm::frame_reclaim reclaim{cm::tier::host};
  int reclaims = 0;
};

}  // namespace

TEST_CASE("what a plan wants on the device alone gives up its window first, whatever is in it", "[manager]")
{
  for (const bool windows : {false, true}) {
    const std::uint32_t frames = windows ? 2 : 1;
    host_tier it{std::vector<std::uint32_t>(4, frames), 3 * frames};
    for (std::uint32_t index = 0; index < 3; ++index) {
      REQUIRE(it.place(index, index == 2));
      it[index].put(cm::tier::device, cm::frame_id{index * frames}, true);
    }
    it[2].keep_on_device(true);
    REQUIRE(it.place(3, true));
    CHECK(it[2].first_frame[cm::tier::host] ==
          cm::chunk::nowhere);  // though its copy is good, and those of 0 and 1 are not
    CHECK(it[0].first_frame[cm::tier::host] != cm::chunk::nowhere);
    CHECK(it[1].first_frame[cm::tier::host] != cm::chunk::nowhere);
  }
}

TEST_CASE("single frames come from the bottom of the host and windows from the top", "[manager]")
{
  host_tier it{{1, 2, 1, 2}, 6};
  for (std::uint32_t index = 0; index < 4; ++index) REQUIRE(it.place(index, true));
  CHECK(it[0].first_frame[cm::tier::host] == cm::frame_id{0});
  CHECK(it[2].first_frame[cm::tier::host] == cm::frame_id{1});
  CHECK(it[1].first_frame[cm::tier::host] == cm::frame_id{4});
  CHECK(it[3].first_frame[cm::tier::host] == cm::frame_id{2});
  CHECK(it.reclaims == 0);
}

TEST_CASE("a host copy without bytes is given up before a copy that the device also has", "[manager]")
{
  host_tier it{{1, 1, 1}, 2};
  REQUIRE(it.place(0, true));
  it[0].put(cm::tier::device, cm::frame_id{3}, true);
  REQUIRE(it.place(1, false));
  REQUIRE(it.place(2, true));
  CHECK(it[2].first_frame[cm::tier::host] == cm::frame_id{1});
  CHECK(it[1].first_frame[cm::tier::host] == cm::chunk::nowhere);
  CHECK(it[0].is_valid(cm::tier::host));
  CHECK(it.reclaims == 1);
  REQUIRE(it.place(1, true));  // now the copy of what the device has must go: its chunk lives on the device alone
  CHECK(it[0].first_frame[cm::tier::host] == cm::chunk::nowhere);
  CHECK_FALSE(it[0].is_valid(cm::tier::host));
}

TEST_CASE("a window is taken where the least is given up, and nothing is where none can be had", "[manager]")
{
  host_tier it{{1, 1, 1, 1, 2}, 4};
  for (std::uint32_t index = 0; index < 4; ++index) REQUIRE(it.place(index, true));
  it[0].put(cm::tier::device, cm::frame_id{5}, true);  // a copy
  it[3].set_valid(cm::tier::host, false);
  CHECK_FALSE(it.place(4, true));  // frames 0 and 3 may leave, but are no neighbours
  CHECK(it[0].first_frame[cm::tier::host] == cm::frame_id{0});
  CHECK(it[3].first_frame[cm::tier::host] == cm::frame_id{3});
  it[2].set_valid(cm::tier::host, false);
  REQUIRE(it.place(4, true));
  CHECK(it[4].first_frame[cm::tier::host] == cm::frame_id{2});
  CHECK(it[0].first_frame[cm::tier::host] == cm::frame_id{0});
}

TEST_CASE("what is pinned on the host stays there", "[manager]")
{
  host_tier it{{1, 1}, 1};
  REQUIRE(it.place(0, false));
  it[0].pins[cm::tier::host] = 1;
  CHECK_FALSE(it.place(1, true));
  it[0].pins[cm::tier::host] = 0;
  REQUIRE(it.place(1, true));
  CHECK(it[1].first_frame[cm::tier::host] == cm::frame_id{0});
}

TEST_CASE("a gathered chunk has no frames on the host to give up", "[manager]")
{
  for (const bool device_only : {false, true})
    for (const std::uint32_t frames : {1U, 2U}) {
      host_tier it{std::vector<std::uint32_t>(3, frames), frames};
      it[0].first_frame[cm::tier::host] = cm::chunk::elsewhere;
      it[0].set_valid(cm::tier::host, true);
      it[0].live = 1;
      it[0].put(cm::tier::device, cm::frame_id{4}, true);
      it[0].keep_on_device(device_only);
      REQUIRE(it.place(1, true));
      CHECK_FALSE(it.place(2, true));  // 1 has the only copy of its bytes
      it[1].put(cm::tier::device, cm::frame_id{6}, true);
      REQUIRE(it.place(2, true));
      CHECK(it.reclaims == 1);
      CHECK(it[1].first_frame[cm::tier::host] == cm::chunk::nowhere);
      CHECK((it[0].first_frame[cm::tier::host] == cm::chunk::elsewhere && it[0].is_valid(cm::tier::host)));
      it[2].pins[cm::tier::host] = 1;
      CHECK_FALSE(it.place(1, true));  // nor where it is all that could leave
      CHECK((it[0].first_frame[cm::tier::host] == cm::chunk::elsewhere && it[0].is_valid(cm::tier::host)));
    }
}

}  // namespace frame_reclaim_test
