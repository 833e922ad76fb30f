// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/tier_space.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace free_frame_order_test {

using namespace chunkmem;

namespace {

/// A free frame, and when it became free.
struct free_frame {
  std::uint32_t frame = 0;
  std::uint32_t when = 0;  ///< 0: from the beginning
  bool is_written_back = false;
};

/// The choice for a load, by looking at each free frame.
frame_id plain_load(std::vector<free_frame> free, std::uint32_t border)
{
  std::erase_if(free, [&](const free_frame& it) { return it.frame >= border; });
  if (free.empty()) return frame_id::none;
  return frame_id{std::ranges::min_element(free, [](const free_frame& left, const free_frame& right) {
                    return left.when != right.when ? left.when < right.when : left.frame > right.frame;
                  })->frame};
}
/// The choice for a chunk without bytes: free at once and last, then from the beginning, then written back first.
frame_id plain_claim(std::vector<free_frame> free, std::uint32_t border)
{
  std::erase_if(free, [&](const free_frame& it) { return it.frame >= border; });
  if (free.empty()) return frame_id::none;
  const auto rank = [](const free_frame& it) { return it.is_written_back ? 2 : it.when == 0 ? 1 : 0; };
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
    const std::uint32_t frames = dice.between(1, 60);  // fewer than are passed over above a border
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
      const std::uint32_t border = dice.one_in(2) ? UINT32_MAX : dice.below(frames + 1);
      const frame_id load = order.for_load(pool, border);
      const frame_id claim = order.for_claim(pool, border);
      if (load != plain_load(free, border)) FAIL("seed " << seed << ", step " << now << ": load");
      if (claim != plain_claim(free, border)) FAIL("seed " << seed << ", step " << now << ": claim");
      if (load != frame_id::none && !dice.one_in(3)) {  // the order is not told
        const std::uint32_t frame = index_of(dice.one_in(2) ? load : claim);
        pool.take(frame_id{frame}, 1);
        std::erase_if(free, [&](const free_frame& it) { return it.frame == frame; });
        taken.push_back(frame);
      }
      if (taken.empty() || dice.one_in(3)) continue;
      const std::size_t which = dice.below(static_cast<std::uint32_t>(taken.size()));
      const bool is_written_back = dice.one_in(2);
      pool.give(frame_id{taken[which]}, 1);
      order.freed(frame_id{taken[which]}, is_written_back);
      free.push_back({taken[which], now, is_written_back});
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
}

TEST_CASE("above a border at most 64 frames are passed over, then the highest below it is taken", "[chunk]")
{
  frame_pool pool;
  pool.reset(200);
  free_frame_order order;
  order.reset(pool);
  CHECK(order.for_load(pool, 150) == frame_id{149});
  CHECK(order.for_claim(pool, 10) == frame_id{9});
  CHECK(order.for_load(pool, 0) == frame_id::none);
  CHECK(order.for_claim(pool, 0) == frame_id::none);
}

}  // namespace free_frame_order_test
