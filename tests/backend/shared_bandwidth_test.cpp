// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/simulated.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <random>
#include <vector>

namespace shared_bandwidth_test {

using namespace chunkmem;
using backend::shared_bandwidth;

namespace {

constexpr double one_byte_each_nanosecond = 1e9;

/// The same, one nanosecond after the other.
class tick_by_tick {
 public:
  std::uint64_t serve(std::uint64_t begin, std::uint64_t nanoseconds, std::uint64_t size)
  {
    const std::uint64_t lasts = nanoseconds < size ? size : nanoseconds;
    if (size == 0) return begin + lasts;
    const double wanted = static_cast<double>(size) / static_cast<double>(lasts);
    std::uint64_t now = begin;
    for (double left = static_cast<double>(lasts); left > 0; ++now) {
      if (now >= unused_.size()) unused_.resize(now + 1, 1.0);
      const double pace = unused_[now] < wanted ? unused_[now] / wanted : 1.0;
      unused_[now] -= wanted * pace;
      left -= pace;
    }
    return now;
  }

 private:
  std::vector<double> unused_;
};

}  // namespace

TEST_CASE("works that fit beside each other last what they last alone", "[backend]")
{
  shared_bandwidth memory{one_byte_each_nanosecond};
  CHECK(memory.serve(0, 100, bytes{50}) == 100);
  CHECK(memory.serve(0, 100, bytes{25}) == 100);
  CHECK(memory.serve(20, 40, bytes{10}) == 60);
}

TEST_CASE("what comes later gets what is left until there is more", "[backend]")
{
  shared_bandwidth memory{one_byte_each_nanosecond};
  CHECK(memory.serve(0, 100, bytes{75}) == 100);
  CHECK(memory.serve(0, 100, bytes{50}) == 150);   // a quarter until 100, which is half its pace, then all of it
  CHECK(memory.serve(0, 10, bytes{10}) == 120);    // nothing until 100, a half until 120
  CHECK(memory.serve(110, 10, bytes{10}) == 140);  // nothing until 120, a half until 140
}

TEST_CASE("what starts before something given earlier finds the rate unused until then", "[backend]")
{
  shared_bandwidth memory{one_byte_each_nanosecond};
  CHECK(memory.serve(1'000, 100, bytes{100}) == 1'100);
  CHECK(memory.serve(500, 100, bytes{100}) == 600);
  CHECK(memory.serve(950, 100, bytes{100}) == 1'150);  // 50 before the first one, 50 after it
}

TEST_CASE("a work never lasts less than its bytes at the whole rate", "[backend]")
{
  shared_bandwidth memory{2e9};
  CHECK(memory.serve(7, 10, bytes{2'000}) == 1'007);
  CHECK(memory.serve(0, 0, bytes{1}) == 1);
  CHECK(memory.serve(5, 3, bytes{0}) == 8);
}

TEST_CASE("shares of any works are those of a count by nanoseconds", "[backend]")
{
  std::mt19937 random{11};
  const auto roll = [&](std::uint64_t below) { return random() % below; };
  for (int round = 0; round < 200; ++round) {
    shared_bandwidth memory{one_byte_each_nanosecond};
    tick_by_tick oracle;
    for (int work = 0; work < 30; ++work) {
      const std::uint64_t begin = roll(200);
      const std::uint64_t share = std::uint64_t{1} << roll(3);  // halves and quarters: all numbers are exact
      const std::uint64_t lasts = 4 * (1 + roll(8));
      CAPTURE(round, work, begin, share, lasts);
      REQUIRE(memory.serve(begin, lasts, bytes{lasts / share}) == oracle.serve(begin, lasts, lasts / share));
    }
  }
}

TEST_CASE("whatever is asked for, the rate is never exceeded, and what is over is forgotten", "[backend]")
{
  std::mt19937 random{3};
  const auto roll = [&](std::uint64_t below) { return random() % below; };
  constexpr double rate = 37e9;
  shared_bandwidth memory{rate};
  std::uint64_t taken = 0;
  std::uint64_t last = 0;
  std::size_t most = 0;
  for (int work = 0; work < 100'000; ++work) {
    const std::uint64_t now = static_cast<std::uint64_t>(work) * 700;
    const std::uint64_t lasts = roll(2'000);
    const std::uint64_t size = roll(50'000);
    memory.forget_before(now);
    const std::uint64_t begin = now + roll(500);
    const std::uint64_t end = memory.serve(begin, lasts, bytes{size});
    REQUIRE(end >= begin + lasts);
    taken += size;
    last = end < last ? last : end;
    REQUIRE(static_cast<double>(last) * rate / 1e9 >= 0.999999 * static_cast<double>(taken));
    most = memory.changes() < most ? most : memory.changes();
  }
  CHECK(most < 1'000);
  CHECK(static_cast<double>(last) * rate / 1e9 < 1.1 * static_cast<double>(taken) + rate);  // and it is used
}

TEST_CASE("what ends after centuries never ends", "[backend]")
{
  shared_bandwidth memory{1e-9};
  CHECK(memory.serve(0, 1, bytes{UINT64_MAX}) == UINT64_MAX);
  CHECK(memory.serve(UINT64_MAX - 1, 5, bytes{0}) == UINT64_MAX);
  CHECK(memory.serve(UINT64_MAX - 1, 5, bytes{1}) == UINT64_MAX);
}

}  // namespace shared_bandwidth_test
