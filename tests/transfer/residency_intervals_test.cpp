// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/retention_problem.hpp>

#include <support/catch.hpp>
#include <support/oracles/retention_trace.hpp>

#include <cstdint>
#include <vector>

namespace residency_intervals_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::residency_intervals;
using transfer::use_kind;

namespace {

struct expected_interval {
  std::uint32_t use;
  std::uint32_t begin;
  std::uint32_t length;
  bool loads;
  bool writes_back;   // of its epoch
  std::size_t place;  // in its epoch
  bool operator==(const expected_interval&) const = default;
};

std::vector<expected_interval> all_of(const residency_intervals& found)
{
  std::vector<expected_interval> all;
  std::size_t which = 0;
  for (const residency_intervals::epoch& epoch : found.epochs())
    for (const std::size_t begin = which; which < epoch.end; ++which) {
      const residency_intervals::interval& it = found.intervals()[which];
      all.push_back({it.use, it.begin, it.length, it.loads, epoch.writes_back, which - begin});
    }
  return all;
}

retention_trace one_chunk(std::uint32_t access_count, bool repeats)
{
  return {{8}, {}, std::vector<std::uint64_t>(access_count, 8), repeats};
}

}  // namespace

TEST_CASE("an epoch reaches from a write to the next one, around the end of the iteration", "[transfer]")
{
  retention_trace what = one_chunk(12, true);
  what.use(0, 1, use_kind::read);
  what.use(0, 3, use_kind::update);
  what.use(0, 5, use_kind::read);
  what.use(0, 8, use_kind::overwrite);
  const residency_intervals found{what.input()};
  CHECK(found.constant_bytes() == 0);
  CHECK(all_of(found) ==
        std::vector<expected_interval>{{1, 4, 1, true, true, 0},    // update to read
                                       {2, 6, 2, false, true, 1},   // read to overwrite
                                       {3, 9, 4, true, true, 0},    // overwrite to the read of the next iteration
                                       {0, 2, 1, true, true, 1}});  // read to update
}

TEST_CASE("one shot loads what it needs first, and wants nothing after the last use", "[transfer]")
{
  retention_trace what = one_chunk(6, false);
  what.use(0, 1, use_kind::read);
  what.use(0, 4, use_kind::update);
  const residency_intervals found{what.input()};
  CHECK(found.constant_bytes() == 8);
  CHECK(all_of(found) == std::vector<expected_interval>{{0, 2, 2, true, false, 0}});
  retention_trace fresh = one_chunk(6, false);
  fresh.use(0, 1, use_kind::overwrite);
  CHECK(residency_intervals{fresh.input()}.constant_bytes() == 0);
}

TEST_CASE("a chunk that is only read is never written back", "[transfer]")
{
  retention_trace what = one_chunk(6, true);
  what.use(0, 1, use_kind::read);
  what.use(0, 4, use_kind::read);
  CHECK(all_of(residency_intervals{what.input()}) ==
        std::vector<expected_interval>{{0, 2, 2, true, false, 0}, {1, 5, 2, true, false, 1}});
}

TEST_CASE("an update on the host costs a write-back and a load, whatever stays", "[transfer]")
{
  retention_trace what = one_chunk(10, true);
  what.use(0, 0, use_kind::read);
  what.use(0, 3, use_kind::update);
  what.use(0, 5, use_kind::read);
  what.use(0, 8, use_kind::host_update);
  const residency_intervals found{what.input()};
  CHECK(found.constant_bytes() == 16);
  CHECK(all_of(found) == std::vector<expected_interval>{{1, 4, 1, true, false, 0}, {0, 1, 2, true, false, 0}});
}

TEST_CASE("a read on the host cleans a chunk and leaves it where it is", "[transfer]")
{
  retention_trace what = one_chunk(10, true);
  what.use(0, 2, use_kind::update);
  what.use(0, 4, use_kind::host_read);
  what.use(0, 6, use_kind::read);
  const residency_intervals found{what.input()};
  CHECK(found.constant_bytes() == 8);
  CHECK(all_of(found) == std::vector<expected_interval>{{0, 3, 3, true, false, 0}, {2, 7, 5, true, false, 1}});
}

TEST_CASE("dead bytes come back without a load, and leave without a write-back if they stay until they die",
          "[transfer]")
{
  for (const use_kind death : {use_kind::drop, use_kind::host_overwrite}) {
    retention_trace what = one_chunk(10, true);
    what.use(0, 2, use_kind::overwrite);
    what.use(0, 6, death);
    const residency_intervals found{what.input()};
    CHECK(found.constant_bytes() == 0);
    CHECK(all_of(found) == std::vector<expected_interval>{{0, 3, 3, false, true, 0}});
  }
  retention_trace what = one_chunk(10, true);
  what.use(0, 2, use_kind::read);  // of bytes that start at zero: it fills them
  what.use(0, 6, use_kind::drop);
  const residency_intervals found{what.input()};
  CHECK(found.constant_bytes() == 0);
  CHECK(all_of(found) == std::vector<expected_interval>{{0, 3, 3, false, true, 0}});
}

TEST_CASE("uses that overlap or touch leave no interval, and their bytes count once", "[transfer]")
{
  retention_trace what = one_chunk(12, true);
  what.use(0, 0, use_kind::read, 6);
  what.use(0, 2, use_kind::update);   // inside the first
  what.use(0, 6, use_kind::read, 2);  // touches it
  const residency_intervals found{what.input()};
  CHECK(all_of(found) == std::vector<expected_interval>{{2, 8, 4, true, true, 0}});
  CHECK(found.retained() == std::vector<std::uint8_t>{1, 0, 0});
  for (std::size_t now = 0; now < 12; ++now) CHECK(found.used_bytes()[now] == (now < 8 ? 8 : 0));
}

TEST_CASE("uses that cannot be are refused with a sentence", "[transfer]")
{
  const auto refuses = [](std::uint32_t chunk, std::uint32_t begin, std::uint32_t end) {
    retention_trace what = one_chunk(4, true);
    what.use(0, 1, use_kind::read);
    what.uses.push_back({chunk, begin, end, use_kind::read});
    try {
      const residency_intervals found{what.input()};
      return false;
    } catch (const usage_error&) {
      return true;
    }
  };
  CHECK_FALSE(refuses(0, 1, 4));
  CHECK(refuses(1, 2, 3));
  CHECK(refuses(0, 2, 2));
  CHECK(refuses(0, 2, 5));
  CHECK(refuses(0, 0, 1));
  const retention_trace empty{{0}, {}, {4}, true};
  CHECK_THROWS_AS(residency_intervals{empty.input()}, usage_error);
}

}  // namespace residency_intervals_test
