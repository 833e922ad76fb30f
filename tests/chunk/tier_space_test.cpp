// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/tier_space.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace frame_pool_test {

using namespace chunkmem;

namespace {

/// The lowest run of `count` free frames, by trying each.
frame_id lowest(const std::set<std::uint32_t>& free, std::uint32_t frames, std::uint32_t count)
{
  for (std::uint32_t first = 0; first + count <= frames; ++first) {
    std::uint32_t length = 0;
    while (length < count && free.count(first + length) != 0) ++length;
    if (length == count) return frame_id{first};
  }
  return frame_pool::none;
}

frame_id highest(const std::set<std::uint32_t>& free, std::uint32_t frames, std::uint32_t count)
{
  for (std::uint32_t first = frames; first-- > 0;) {
    std::uint32_t length = 0;
    while (length < count && free.count(first + length) != 0) ++length;
    if (length == count) return frame_id{first};
  }
  return frame_pool::none;
}

}  // namespace

TEST_CASE("a frame pool finds the windows that a set of free frames has", "[chunk]")
{
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    support::dice dice{seed};
    const std::uint32_t frames = dice.between(1, 150);
    frame_pool pool;
    pool.reset(frames);
    std::set<std::uint32_t> free;
    for (std::uint32_t frame = 0; frame < frames; ++frame) free.insert(frame);
    std::vector<std::pair<frame_id, std::uint32_t>> taken;
    for (int step = 0; step < 600; ++step) {
      const std::uint32_t count = dice.between(1, dice.one_in(4) ? 9 : 2);
      const frame_id expected = lowest(free, frames, count);
      if (pool.lowest(count) != expected) FAIL("seed " << seed << ", step " << step << ": lowest of " << count);
      if (pool.highest(count) != highest(free, frames, count))
        FAIL("seed " << seed << ", step " << step << ": highest of " << count);
      if (expected != frame_pool::none && !dice.one_in(3)) {
        if (!pool.is_free(expected, count)) FAIL("seed " << seed << ": a lowest window is not free");
        pool.take(expected, count);
        for (std::uint32_t frame = index_of(expected); frame < index_of(expected) + count; ++frame) free.erase(frame);
        taken.emplace_back(expected, count);
      } else if (!taken.empty()) {
        auto& given = dice.pick(taken);
        pool.give(given.first, given.second);
        for (std::uint32_t frame = index_of(given.first); frame < index_of(given.first) + given.second; ++frame)
          free.insert(frame);
        std::swap(given, taken.back());
        taken.pop_back();
      }
      const std::uint32_t asked = dice.below(frames);
      bool run_is_free = asked + count <= frames;
      for (std::uint32_t frame = asked; frame < asked + count; ++frame)
        run_is_free = run_is_free && free.count(frame) != 0;
      if (pool.free_count() != free.size() || pool.is_free(frame_id{asked}) != (free.count(asked) != 0) ||
          pool.is_free(frame_id{asked}, count) != run_is_free)
        FAIL("seed " << seed << ", step " << step << ", frame " << asked);
    }
  }
}

TEST_CASE("a frame pool without frames has none to give", "[chunk]")
{
  frame_pool pool;
  pool.reset(0);
  CHECK(pool.size() == 0);
  CHECK(pool.free_count() == 0);
  CHECK(pool.lowest(1) == frame_pool::none);
  CHECK(pool.lowest(3) == frame_pool::none);
  CHECK(pool.highest(1) == frame_pool::none);
  CHECK_FALSE(pool.is_free(frame_id{0}, 1));
}

TEST_CASE("a window never reaches beyond the last frame", "[chunk]")
{
  frame_pool pool;
  pool.reset(4);
  pool.take(frame_id{0}, 2);
  CHECK(pool.lowest(2) == frame_id{2});
  CHECK(pool.lowest(3) == frame_pool::none);
  CHECK_FALSE(pool.is_free(frame_id{3}, 2));
  CHECK(pool.is_free(frame_id{2}, 2));
}

TEST_CASE("pools are equal where the same frames are free", "[chunk]")
{
  frame_pool left;
  frame_pool right;
  left.reset(10);
  right.reset(10);
  CHECK(left == right);
  left.take(frame_id{3}, 2);
  CHECK_FALSE(left == right);
  right.take(frame_id{4}, 1);
  right.take(frame_id{3}, 1);
  CHECK(left == right);
}

}  // namespace frame_pool_test

namespace free_frame_order_test {

using namespace chunkmem;

namespace {

/// A free frame, and when it became free.
struct free_frame {
  std::uint32_t frame = 0;
  std::uint32_t when = 0;  ///< 0: from the beginning
  bool in_use = false;
};

/// The choice for a load, by looking at each free frame.
frame_id plain_load(std::vector<free_frame> free, std::uint32_t lease_limit)
{
  std::erase_if(free, [&](const free_frame& it) { return it.frame >= lease_limit; });
  if (free.empty()) return frame_id::none;
  return frame_id{std::ranges::min_element(free, [](const free_frame& left, const free_frame& right) {
                    return left.when != right.when ? left.when < right.when : left.frame > right.frame;
                  })->frame};
}
/// The choice for a chunk without bytes: free at once and last, then from the beginning, then the first of those that
/// an agent may still work on.
frame_id plain_claim(std::vector<free_frame> free, std::uint32_t lease_limit)
{
  std::erase_if(free, [&](const free_frame& it) { return it.frame >= lease_limit; });
  if (free.empty()) return frame_id::none;
  const auto rank = [](const free_frame& it) { return it.in_use ? 2 : it.when == 0 ? 1 : 0; };
  return frame_id{std::ranges::min_element(free, [&](const free_frame& left, const free_frame& right) {
                    if (rank(left) != rank(right)) return rank(left) < rank(right);
                    if (left.when == right.when) return left.frame > right.frame;
                    return rank(left) == 0 ? left.when > right.when : left.when < right.when;
                  })->frame};
}

}  // namespace

TEST_CASE("loads take the frame that is free the longest, chunks without bytes the one that became free last",
          "[chunk]")
{
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    support::dice dice{seed};
    const std::uint32_t frames = dice.between(1, 60);  // fewer than are passed over above a lease limit
    frame_pool pool;
    pool.reset(frames);
    std::vector<free_frame> free;
    std::vector<std::uint32_t> taken;
    for (std::uint32_t frame = 0; frame < frames; ++frame) {
      if (dice.one_in(4)) {
        pool.take(frame_id{frame}, 1);
        taken.push_back(frame);
      } else {
        free.push_back({frame});
      }
    }
    free_frame_order order;
    order.reset(pool);
    for (std::uint32_t now = 1; now <= 500; ++now) {
      const std::uint32_t lease_limit = dice.one_in(2) ? UINT32_MAX : dice.below(frames + 1);
      const frame_id load = order.for_load(pool, lease_limit);
      const frame_id claim = order.for_claim(pool, lease_limit);
      if (load != plain_load(free, lease_limit)) FAIL("seed " << seed << ", step " << now << ": load");
      if (claim != plain_claim(free, lease_limit)) FAIL("seed " << seed << ", step " << now << ": claim");
      if (load != frame_id::none && !dice.one_in(3)) {  // the order is not told
        const std::uint32_t frame = index_of(dice.one_in(2) ? load : claim);
        pool.take(frame_id{frame}, 1);
        std::erase_if(free, [&](const free_frame& it) { return it.frame == frame; });
        taken.push_back(frame);
      }
      if (taken.empty() || dice.one_in(3)) continue;
      const std::size_t which = dice.below(static_cast<std::uint32_t>(taken.size()));
      const bool in_use = dice.one_in(2);
      pool.give(frame_id{taken[which]}, 1);
      order.freed(frame_id{taken[which]}, in_use, now);
      CHECK(order.since(frame_id{taken[which]}, 1) == now);
      free.push_back({taken[which], now, in_use});
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
}

TEST_CASE("above a lease limit at most 64 frames are passed over, then the highest below it is taken", "[chunk]")
{
  frame_pool pool;
  pool.reset(200);
  free_frame_order order;
  order.reset(pool);
  CHECK(order.since(frame_id{149}, 1) == 0);
  CHECK(order.for_load(pool, 150) == frame_id{149});
  CHECK(order.for_claim(pool, 10) == frame_id{9});
  CHECK(order.for_load(pool, 0) == frame_id::none);
  CHECK(order.for_claim(pool, 0) == frame_id::none);
}

TEST_CASE("a load takes the run that is free the longest, a chunk without bytes the one that became free last",
          "[chunk]")
{
  frame_pool pool;
  pool.reset(10);
  pool.take(frame_id{0}, 10);
  free_frame_order order;
  order.reset(pool);
  CHECK(order.run(pool, UINT32_MAX, 2, true) == frame_id::none);
  const auto give = [&](std::uint32_t first, std::uint64_t now, bool in_use) {
    pool.give(frame_id{first}, 2);
    for (std::uint32_t frame = first; frame < first + 2; ++frame) order.freed(frame_id{frame}, in_use, now);
  };
  give(7, 1, false);
  CHECK(order.run(pool, UINT32_MAX, 2, true) == frame_id{7});  // no multiple of 2, and the only one
  give(4, 5, false);
  CHECK(order.run(pool, UINT32_MAX, 2, true) == frame_id{4});  // a multiple, although it is free for less long
  give(2, 3, false);
  give(0, 9, true);
  CHECK(order.run(pool, UINT32_MAX, 2, true) == frame_id{2});
  CHECK(order.run(pool, UINT32_MAX, 2, false) == frame_id{4});
  CHECK(order.run(pool, 4, 2, false) == frame_id{2});  // below a lease limit
  CHECK(order.since(frame_id{2}, 2) == 3);
  CHECK(order.since(frame_id{2}, 4) == 5);
  pool.take(frame_id{2}, 4);
  CHECK(order.run(pool, 5, 2, false) == frame_id{0});  // in use, and the only one
  CHECK(order.run(pool, 1, 2, false) == frame_id::none);
}

}  // namespace free_frame_order_test

namespace tier_space_test {

using namespace chunkmem;

namespace {

/// A tier as plain maps: the owners of frames, and the leased bytes.
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
