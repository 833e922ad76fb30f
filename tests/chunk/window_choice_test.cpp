#include <chunkmem/chunk/window_choice.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <vector>

using namespace chunkmem;

namespace {

struct room {
  tier_space space;
  std::vector<chunk> chunks;
  std::vector<bool> may_leave;
};

/// Random chunks of one to three frames, some of which must stay, with leases between them.
room random_room(support::dice& dice, std::uint32_t frames)
{
  room made;
  made.space.reset(bytes{std::uint64_t{frames} * 256}, bytes{256}, frames);
  for (std::uint32_t frame = 0; frame < frames;) {
    const std::uint32_t length = std::min(dice.between(1, 3), frames - frame);
    const std::uint32_t what = dice.below(10);
    if (what < 6) {
      const auto id = static_cast<std::uint32_t>(made.chunks.size());
      made.space.place(id, frame, length);
      made.chunks.push_back({.frames = length, .device = frame});
      made.may_leave.push_back(!dice.one_in(4));
    } else if (what == 6) {
      made.space.take_lease(std::uint64_t{frame} * 256, 256);
    }
    frame += length;
  }
  return made;
}

/// Price of a window as the header words it, or -1 where it holds something that must stay.
int price(const room& it, std::uint32_t first, std::uint32_t count)
{
  int occupied = 0;
  for (std::uint32_t frame = first; frame < first + count; ++frame) {
    const std::uint32_t who = it.space.occupant(frame);
    if (who == tier_space::leased_frame || (who != tier_space::free_frame && !it.may_leave[who])) return -1;
    occupied += who != tier_space::free_frame ? 1 : 0;
  }
  return occupied;
}

std::uint32_t cheapest(const room& it, std::uint32_t count, const chunk& victim, bool with_victim)
{
  std::uint32_t best = frame_pool::none;
  int least = 1'000;
  for (std::uint32_t first = 0; first + count <= it.space.frames(); ++first) {
    const bool meets = first < victim.device + victim.frames && victim.device < first + count;
    if (with_victim && !meets) continue;
    const int cost = price(it, first, count);
    if (cost < 0 || cost >= least) continue;
    least = cost;
    best = first;
  }
  return best;
}

}  // namespace

TEST_CASE("the cheapest window is the one that trying all of them finds", "[chunk]")
{
  int found = 0;
  int without_victim = 0;
  for (std::uint64_t seed = 1; seed <= 3'000; ++seed) {
    support::dice dice{seed};
    const room it = random_room(dice, dice.between(1, 16));
    std::vector<std::uint32_t> victims;
    for (std::uint32_t id = 0; id < it.chunks.size(); ++id)
      if (it.may_leave[id]) victims.push_back(id);
    if (victims.empty()) continue;
    const chunk& victim = it.chunks[dice.pick(victims)];
    const std::uint32_t count = dice.between(1, 5);
    std::uint32_t expected = cheapest(it, count, victim, true);
    if (expected == frame_pool::none) {
      expected = cheapest(it, count, victim, false);
      without_victim += expected != frame_pool::none ? 1 : 0;
    }
    found += expected != frame_pool::none ? 1 : 0;
    const std::uint32_t chosen =
        choose_window(it.space, count, victim, [&](std::uint32_t who) { return bool{it.may_leave[who]}; });
    if (chosen != expected) FAIL("seed " << seed << ": chose " << chosen << ", expected " << expected);
  }
  CHECK(found > 500);
  CHECK(without_victim > 10);
}

TEST_CASE("a window longer than the tier does not exist", "[chunk]")
{
  tier_space space;
  space.reset(bytes{512}, bytes{256}, 2);
  space.place(0, 0, 1);
  const chunk victim{.frames = 1, .device = 0};
  const auto anyone = [](std::uint32_t) { return true; };
  CHECK(choose_window(space, 3, victim, anyone) == frame_pool::none);
  CHECK(choose_window(space, 2, victim, anyone) == 0);
}
