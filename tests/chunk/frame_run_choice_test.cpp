// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/tier_space.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <vector>

namespace frame_run_choice_test {

using namespace chunkmem;

namespace {

/// A run of frames that one chunk holds, and what each of them costs.
struct tenant {
  std::uint32_t first;
  std::uint32_t frames;
  std::uint32_t price;
};
struct room {
  tier_space space;
  std::vector<tenant> tenants;
};

/// Random chunks of one to three frames at random prices, some of which must stay, with leases between them.
room random_room(support::dice& dice, std::uint32_t frames)
{
  room made;
  made.space.reset(bytes{std::uint64_t{frames} * 256}, bytes{256}, frames);
  for (std::uint32_t frame = 0; frame < frames;) {
    const std::uint32_t length = std::min(dice.between(1, 3), frames - frame);
    const std::uint32_t what = dice.below(10);
    if (what < 6) {
      made.space.place(chunk_id{static_cast<std::uint32_t>(made.tenants.size())}, frame_id{frame}, length);
      made.tenants.push_back({frame, length, dice.one_in(4) ? impossible_run : dice.between(1, 4)});
    } else if (what == 6) {
      made.space.take_lease(std::uint64_t{frame} * 256, 256);
    }
    frame += length;
  }
  return made;
}

/// The first of the cheapest runs for which `allowed(first)` holds, by trying each.
template <class Allowed>
frame_id cheapest(const room& it, std::uint32_t count, Allowed allowed)
{
  frame_id best = frame_pool::none;
  std::uint64_t least = UINT64_MAX;
  for (std::uint32_t first = 0; first + count <= it.space.frames(); ++first) {
    if (!allowed(first)) continue;
    std::uint64_t cost = 0;
    for (std::uint32_t frame = first; frame < first + count; ++frame) {
      const chunk_id occupant = it.space.occupant(frame_id{frame});
      if (occupant == tier_space::free_frame) continue;
      const bool retained =
          occupant == tier_space::leased_frame || it.tenants[index_of(occupant)].price == impossible_run;
      cost += retained ? std::uint64_t{1} << 40 : it.tenants[index_of(occupant)].price;
    }
    if (cost >= std::uint64_t{1} << 40 || cost >= least) continue;
    least = cost;
    best = frame_id{first};
  }
  return best;
}

}  // namespace

TEST_CASE("the cheapest run of frames is the one that trying all of them finds", "[chunk]")
{
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 4'000; ++seed) {
    support::dice dice{seed};
    const room it = random_room(dice, dice.between(1, 16));
    const std::uint32_t count = dice.between(1, 5);
    const std::uint32_t begin = dice.below(6);
    const std::uint32_t end = begin + dice.below(16);
    const auto price = [&](chunk_id occupant) { return it.tenants[index_of(occupant)].price; };
    const auto between = [&](std::uint32_t first) { return first >= begin && first < end; };
    if (cheapest_frame_run(it.space, count, frame_id{begin}, frame_id{end}, price) != cheapest(it, count, between))
      FAIL("seed " << seed << ": in a range");
    if (it.tenants.empty()) continue;
    const tenant& victim = it.tenants[dice.below(static_cast<std::uint32_t>(it.tenants.size()))];
    const auto meets = [&](std::uint32_t first) {
      return first < victim.first + victim.frames && victim.first < first + count;
    };
    const frame_id expected = cheapest(it, count, meets);
    found += expected != frame_pool::none ? 1 : 0;
    const frame_id chosen = cheapest_frame_run_around(it.space, count, frame_id{victim.first}, victim.frames, price);
    if (chosen != expected)
      FAIL("seed " << seed << ": chose " << index_of(chosen) << ", expected " << index_of(expected));
  }
  CHECK(found > 500);
}

TEST_CASE("a run longer than the tier does not exist", "[chunk]")
{
  tier_space space;
  space.reset(bytes{512}, bytes{256}, 2);
  space.place(chunk_id{0}, frame_id{0}, 1);
  const auto cheap = [](chunk_id) { return 1U; };
  CHECK(cheapest_frame_run_around(space, 3, frame_id{0}, 1, cheap) == frame_pool::none);
  CHECK(cheapest_frame_run_around(space, 2, frame_id{0}, 1, cheap) == frame_id{0});
}

}  // namespace frame_run_choice_test
