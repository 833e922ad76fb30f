// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/tier_space.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace tier_space_test {

using namespace chunkmem;

namespace {

/// A tier as plain maps: who holds which frames, and which bytes are leased.
struct model {
  std::uint64_t frame;
  std::uint64_t capacity;
  std::uint32_t frames;
  std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> chunks;  // id -> first, count
  std::map<std::uint64_t, std::uint64_t> leases;                            // begin -> size

  bool touched_by_lease(std::uint32_t index) const
  {
    return std::any_of(leases.begin(), leases.end(), [&](const auto& lease) {
      return lease.first < (index + 1) * frame && index * frame < lease.first + lease.second;
    });
  }
  chunk_id occupant(std::uint32_t index) const
  {
    for (const auto& [id, place] : chunks)
      if (index >= place.first && index < place.first + place.second) return chunk_id{id};
    return touched_by_lease(index) ? tier_space::leased_frame : tier_space::free_frame;
  }
  template <class MayUse>
  bool can_lease(std::uint64_t begin, std::uint64_t size, MayUse may_use) const
  {
    if (begin + size > capacity) return false;
    for (const auto& [taken, length] : leases)
      if (taken < begin + size && begin < taken + length) return false;
    for (std::uint32_t index = 0; index < frames; ++index)
      if (index * frame < begin + size && begin < (index + 1) * frame)
        if (const chunk_id occupied_by = occupant(index);
            occupied_by < tier_space::leased_frame && !may_use(frame_id{index}))
          return false;
    return true;
  }
  template <class MayUse>
  std::uint64_t highest_lease(std::uint64_t size, MayUse may_use) const
  {
    for (std::uint64_t begin = capacity / 256 * 256 + 256; begin >= 256;) {
      begin -= 256;
      if (can_lease(begin, size, may_use)) return begin;
    }
    return tier_space::no_place;
  }
  std::uint64_t in_use() const
  {
    std::uint64_t total = 0;
    for (const auto& [id, place] : chunks) total += place.second * frame;
    for (const auto& [begin, size] : leases) total += size;
    return total;
  }
};

bool agree(const tier_space& space, const model& model)
{
  for (std::uint32_t index = 0; index < model.frames; ++index)
    if (space.occupant(frame_id{index}) != model.occupant(index) ||
        space.pool().is_free(frame_id{index}) != (model.occupant(index) == tier_space::free_frame))
      return false;
  return space.in_use() == model.in_use() && space.in_use() <= space.capacity();
}

void compare(std::uint64_t seed)
{
  support::dice dice{seed};
  model model{256 * std::uint64_t{dice.between(1, 5)}, 0, dice.below(14), {}, {}};
  model.capacity = model.frames * model.frame + 256 * std::uint64_t{dice.below(9)};
  tier_space space;
  space.reset(bytes{model.capacity + dice.below(256)}, bytes{model.frame}, model.frames);
  std::uint64_t peak = 0;
  std::uint32_t next_chunk = 0;
  for (int step = 0; step < 400; ++step) {
    INFO("seed " << seed << ", step " << step);
    const std::uint32_t what = dice.below(10);
    if (what < 3) {
      const std::uint32_t count = dice.between(1, 2);
      if (const frame_id first = space.pool().lowest(count); first != frame_pool::none) {
        space.place(chunk_id{next_chunk}, first, count);
        model.chunks[next_chunk++] = {index_of(first), count};
      }
    } else if (what < 5 && !model.chunks.empty()) {
      const auto gone = std::next(model.chunks.begin(), dice.below(static_cast<std::uint32_t>(model.chunks.size())));
      space.vacate(frame_id{gone->second.first}, gone->second.second);
      model.chunks.erase(gone);
    } else if (what < 8) {
      const std::uint64_t size = 256 * std::uint64_t{dice.between(1, dice.one_in(4) ? 12 : 3)};
      const std::uint32_t allowed = dice.below(3);  // a rule that says yes to some occupied frames
      const auto may_use = [&](frame_id frame) { return allowed != 0 && (allowed == 1 || index_of(frame) % 2 == 0); };
      const std::uint64_t begin = space.find_lease(size, may_use);
      if (begin != model.highest_lease(size, may_use)) FAIL("found " << begin << " for a lease of " << size);
      const auto nobody = [](frame_id) { return false; };
      const std::uint64_t asked = 256 * std::uint64_t{dice.below(20)};
      if (space.can_lease_at(asked, size) != model.can_lease(asked, size, nobody))
        FAIL("can lease " << size << " at " << asked);
      if (begin != tier_space::no_place && model.can_lease(begin, size, nobody)) {
        space.take_lease(begin, size);
        model.leases[begin] = size;
      }
    } else if (!model.leases.empty()) {
      const auto ended = std::next(model.leases.begin(), dice.below(static_cast<std::uint32_t>(model.leases.size())));
      const auto [begin, size] = *ended;
      model.leases.erase(ended);
      std::vector<std::uint32_t> freed;
      std::vector<std::uint32_t> expected;
      space.give_lease(begin, size, [&](frame_id frame) { freed.push_back(index_of(frame)); });
      for (std::uint32_t index = 0; index < model.frames; ++index)
        if (index * model.frame < begin + size && begin < (index + 1) * model.frame && !model.touched_by_lease(index))
          expected.push_back(index);
      if (freed != expected) FAIL("the wrong frames were freed");
    }
    peak = std::max(peak, model.in_use());
    if (!agree(space, model)) FAIL("frames differ");
    if (space.peak() != peak) FAIL("peak is " << space.peak() << ", expected " << peak);
  }
}

}  // namespace

TEST_CASE("a tier keeps chunks and leases apart as plain maps do", "[chunk]")
{
  for (std::uint64_t seed = 1; seed <= 60; ++seed) compare(seed);
}

TEST_CASE("a lease takes the top and the rest behind the last frame", "[chunk]")
{
  tier_space space;
  space.reset(bytes{4 * 1'024 + 700}, bytes{1'024}, 4);
  const auto nobody = [](frame_id) { return false; };
  CHECK(space.capacity() == 4 * 1'024 + 512);
  CHECK(space.find_lease(512, nobody) == 4'096);
  space.take_lease(4'096, 512);
  CHECK(space.pool().free_count() == 4);  // no frame was touched
  CHECK(space.find_lease(256, nobody) == 4'096 - 256);
  space.take_lease(4'096 - 256, 256);
  CHECK(space.occupant(frame_id{3}) == tier_space::leased_frame);
  CHECK(space.find_lease(4'096, nobody) == tier_space::no_place);
  CHECK(space.find_lease(UINT64_MAX, nobody) == tier_space::no_place);
}

TEST_CASE("tiers have the same places where chunks and leases lie alike", "[chunk]")
{
  tier_space left;
  tier_space right;
  for (tier_space* each : {&left, &right}) each->reset(bytes{2'048}, bytes{512}, 4);
  CHECK(left.same_places(right));
  left.place(chunk_id{1}, frame_id{0}, 2);
  CHECK_FALSE(left.same_places(right));
  right.place(chunk_id{2}, frame_id{0}, 2);
  CHECK_FALSE(left.same_places(right));
  right.vacate(frame_id{0}, 2);
  right.place(chunk_id{1}, frame_id{0}, 2);
  CHECK(left.same_places(right));
  left.take_lease(1'536, 256);
  right.take_lease(1'536, 512);
  CHECK_FALSE(left.same_places(right));
}

TEST_CASE("a tier that is reset is empty again", "[chunk]")
{
  tier_space space;
  space.reset(bytes{2'048}, bytes{512}, 4);
  space.place(chunk_id{1}, frame_id{0}, 2);
  space.take_lease(1'536, 512);
  CHECK(space.in_use() == 1'536);
  CHECK(space.leased() == 512);
  space.reset(bytes{1'024}, bytes{512}, 2);
  CHECK((space.in_use() == 0 && space.leased() == 0 && space.peak() == 0 && space.frames() == 2));
  CHECK(space.pool().free_count() == 2);
}

TEST_CASE("live leases are visited from the bottom, with their sizes", "[chunk]")
{
  chunkmem::tier_space space;
  space.reset(chunkmem::bytes{4'096}, chunkmem::bytes{1'024}, 4);
  const auto visited = [&] {
    std::vector<std::uint64_t> numbers;
    space.for_leases([&](std::uint64_t begin, std::uint64_t size) { numbers.insert(numbers.end(), {begin, size}); });
    return numbers;
  };
  CHECK(visited().empty());
  space.take_lease(3'072, 1'024);
  space.take_lease(256, 512);
  CHECK(visited() == std::vector<std::uint64_t>{256, 512, 3'072, 1'024});
  space.give_lease(256, 512, [](frame_id) {});
  CHECK(visited() == std::vector<std::uint64_t>{3'072, 1'024});
}

}  // namespace tier_space_test
