// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/chunk_table.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <map>
#include <string>
#include <vector>

namespace candidate_set_test {

using namespace chunkmem;

namespace {

/// A policy that keeps what it was told and notices calls that break the laws.
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

/// What the policy should have: chunks on the device without pins, with their keys of now.
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
          set.let_go(chunk_id{index}, it);
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
  for (const std::uint32_t index : {3u, 0u, 4u, 0u, 1u}) set.let_go(chunk_id{index}, chunks[index]);
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
