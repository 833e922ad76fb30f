// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/tier_space.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <set>
#include <utility>
#include <vector>

namespace frame_pool_test {

using namespace chunkmem;

namespace {

/// The lowest window of `count` free frames, by trying each.
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
      bool window_is_free = asked + count <= frames;
      for (std::uint32_t frame = asked; frame < asked + count; ++frame)
        window_is_free = window_is_free && free.count(frame) != 0;
      if (pool.free_count() != free.size() || pool.is_free(frame_id{asked}) != (free.count(asked) != 0) ||
          pool.is_free(frame_id{asked}, count) != window_is_free)
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
