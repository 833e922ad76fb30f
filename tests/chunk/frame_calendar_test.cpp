// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/stays.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

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
  [[nodiscard]] frame_id lowest(span_of_time when, std::uint32_t count, std::uint32_t border) const
  {
    for (std::uint32_t first = 0; first + count <= border; ++first)
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

TEST_CASE("a calendar of frames says what a table of all accesses and frames says", "[chunk]")
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
      const std::uint32_t border = dice.one_in(2) ? frames : dice.below(frames + 1);
      const frame_id first = calendar.lowest(when, count, border);
      if (first != plain.lowest(when, count, border)) FAIL("seed " << seed << ", step " << step << ": lowest");
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

TEST_CASE("a window may go around the end of the iteration and last for all of it", "[chunk]")
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
