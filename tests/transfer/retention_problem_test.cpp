// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/retention_problem.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/played_retention.hpp>
#include <support/oracles/retention_trace.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace room_tree_test {

using chunkmem::transfer::room_tree;

TEST_CASE("a room tree adds and finds what a plain row does", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice random{seed};
    std::vector<std::int64_t> plain(random.between(1, 40));
    for (std::int64_t& it : plain) it = random.below(100);
    room_tree tree{plain};
    for (int step = 0; step < 60; ++step) {
      const std::size_t size = plain.size();
      const std::size_t begin = random.below(static_cast<std::uint32_t>(size) + 1);
      const std::size_t end = begin + random.below(static_cast<std::uint32_t>(size - begin) + 1);
      const auto first = plain.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = plain.begin() + static_cast<std::ptrdiff_t>(end);
      const std::int64_t value = static_cast<std::int64_t>(random.below(21)) - 10;
      tree.add(begin, end, value);
      std::for_each(first, last, [&](std::int64_t& it) { it += value; });
      const std::size_t from = random.below(static_cast<std::uint32_t>(size));
      const std::size_t to = from + 1 + random.below(static_cast<std::uint32_t>(size - from));
      const auto least = std::min_element(plain.begin() + static_cast<std::ptrdiff_t>(from),
                                          plain.begin() + static_cast<std::ptrdiff_t>(to));
      if (tree.least(from, to) != *least)
        FAIL("seed " << seed << ", step " << step << ": " << tree.least(from, to) << " for " << *least);
    }
  }
}

TEST_CASE("no numbers have an endless room", "[transfer]")
{
  const room_tree none{{}};
  CHECK(none.least(0, 0) == room_tree::endless);
  const std::vector<std::int64_t> one{3};
  CHECK(room_tree{one}.least(0, 0) == room_tree::endless);
  CHECK(room_tree{one}.least(0, 1) == 3);
}

}  // namespace room_tree_test

namespace retention_problem_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::retention_problem;
using transfer::use_kind;

namespace {

/// The fewest bytes over all subsets of the intervals that are left, by definition.
std::uint64_t fewest(const retention_problem& problem)
{
  const auto intervals = problem.intervals();
  std::uint64_t best = UINT64_MAX;
  for (std::uint32_t kept = 0; kept < (1U << intervals.size()); ++kept) {
    std::vector<std::int64_t> room(problem.room().begin(), problem.room().end());
    std::uint64_t bytes = problem.constant_bytes();
    for (const auto& epoch : problem.epochs()) {
      bool any_dropped = false;
      for (std::uint32_t which = epoch.begin; which < epoch.end; ++which) {
        const auto& it = intervals[which];
        if ((kept >> which & 1U) == 0) {
          any_dropped = true;
          bytes += it.loads ? epoch.size : 0;
          continue;
        }
        for (std::uint32_t row = 0; row < room.size(); ++row)
          if (it.wraps ? row >= it.first || row < it.last : row >= it.first && row < it.last)
            room[row] -= static_cast<std::int64_t>(epoch.size);
      }
      bytes += any_dropped && epoch.writes_back ? epoch.size : 0;
    }
    if (std::ranges::all_of(room, [](std::int64_t free) { return free >= 0; })) best = std::min(best, bytes);
  }
  return best;
}

}  // namespace

TEST_CASE("what is taken out of a problem had no choice", "[transfer]")
{
  std::size_t rows = 0;
  std::size_t access_count = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, seed % 3 != 0, seed % 5 == 0});
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    rows += problem.room().size();
    access_count += problem.access_count();
    if (problem.intervals().size() > 14) continue;
    const std::uint64_t best = support::fewest_moved_bytes{input}();
    if (fewest(problem) != best) FAIL("seed " << seed << ": " << fewest(problem) << " for " << best);
    for (const auto& it : problem.intervals())
      if (problem.epochs()[it.epoch].size % problem.unit_bytes() != 0) FAIL("seed " << seed << ": unit");
  }
  CHECK(rows < access_count / 2);  // most accesses say nothing
}

TEST_CASE("the unit of a problem is the largest that divides all its sizes", "[transfer]")
{
  std::size_t with_choices = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    support::dice random{seed};
    retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, seed % 3 != 0, seed % 5 == 0});
    for (std::uint64_t& size : what.chunk_bytes) size *= 12;
    for (std::uint64_t& room : what.device_bytes) room *= 12;
    const retention_problem problem{what.input()};
    std::uint64_t unit = 0;
    for (const retention_problem::epoch& it : problem.epochs()) unit = std::gcd(unit, it.size);
    if (problem.unit_bytes() != unit) FAIL("seed " << seed << ": " << problem.unit_bytes() << " for " << unit);
    with_choices += unit >= 12 ? 1U : 0U;
  }
  CHECK(with_choices > 30);
}

TEST_CASE("the bytes of any choice are those of a walk over all uses", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, seed % 4 < 2, seed % 3 == 0});
    const transfer::retention_input input = what.input();
    const transfer::residency_intervals found{input};
    auto retained = found.retained();
    for (const auto& it : found.intervals()) retained[it.use] = random.one_in(2) ? 1 : 0;
    REQUIRE(transfer::moved_bytes(input, retained) == support::played_retention{input, retained}.moved_bytes());
  }
}

TEST_CASE("rows are the moments that can bind", "[transfer]")
{
  retention_trace what{{4, 4, 4}, {}, std::vector<std::uint64_t>(12, 8), true};
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) what.use(chunk, chunk, use_kind::read);
  const retention_problem problem{what.input()};
  // Accesses 3 to 11 hold all three intervals over 8 bytes: one of them says it. While a chunk is used the others have
  // 4 bytes left.
  CHECK(std::vector<std::uint32_t>(problem.access_index_of_row().begin(), problem.access_index_of_row().end()) ==
        std::vector<std::uint32_t>{0, 1, 2, 3});
  CHECK(std::vector<std::int64_t>(problem.room().begin(), problem.room().end()) ==
        std::vector<std::int64_t>{4, 4, 4, 8});
  what.device_bytes.assign(12, 12);
  const retention_problem roomy{what.input()};
  CHECK(roomy.intervals().empty());
  CHECK(roomy.retained() == std::vector<std::uint8_t>{1, 1, 1});
  CHECK(roomy.constant_bytes() == 0);
}

TEST_CASE("an interval that is larger than its room leaves, with the write-back of its epoch", "[transfer]")
{
  retention_trace what{{6, 3}, {}, {9, 9, 5, 9, 9, 9}, true};
  what.use(0, 0, use_kind::update);
  what.use(1, 1, use_kind::read);
  what.use(0, 4, use_kind::read);
  const retention_problem problem{what.input()};
  CHECK(problem.constant_bytes() == 12);  // chunk 0 is written back before access 2, and loaded at 4
  CHECK(problem.retained()[0] == 0);
}

TEST_CASE("what does not fit is refused with the bytes that it needs", "[transfer]")
{
  retention_trace what{{6, 5}, {}, {20, 10, 20}, true};
  what.use(0, 0, use_kind::read, 3);
  what.use(1, 1, use_kind::read);
  try {
    const retention_problem problem{what.input()};
    FAIL("it fits");
  } catch (const out_of_memory& error) {
    CHECK(error.shortage().where == tier::device);
    CHECK(error.shortage().needed == 11);
    CHECK(error.shortage().capacity == 10);
  }
  what.device_bytes[1] = 11;
  CHECK_NOTHROW(retention_problem{what.input()});
}

TEST_CASE("where the host has no room for every host copy, the chunks are named that could do without", "[transfer]")
{
  retention_trace what{{6, 5, 3, 2, 4}, {}, {14, 20, 20, 20, 20, 20, 20, 20}, true};
  what.use(0, 0, use_kind::read);  // larger than what is free at accesses 1 and 2
  what.use(1, 1, use_kind::update);
  what.use(3, 1, use_kind::overwrite);
  what.use(2, 2, use_kind::read, 6);  // never leaves
  what.use(2, 2, use_kind::host_read);
  what.use(3, 3, use_kind::drop);
  what.device_bytes[2] = 8;
  transfer::retention_input input = what.input();
  std::vector<std::uint64_t> host(8, 20);
  input.host_bytes = host;
  CHECK(retention_problem{input}.host_copies().empty());
  host[3] = 19;
  const retention_problem problem{input};
  std::vector<std::uint32_t> chunks;
  for (const auto& it : problem.host_copies()) chunks.push_back(it.chunk);
  CHECK(chunks == std::vector<std::uint32_t>{1, 3});  // 4 is never used: it lies on the host
  CHECK(problem.host_copy_bytes() == 7);
  CHECK(problem.host_copy_room() == 6);
  for (const auto& it : problem.host_copies())
    for (std::uint32_t index = it.begin; index < it.end; ++index) CHECK(problem.epochs()[index].size == it.size);
  host[3] = 12;
  CHECK_THROWS_AS(retention_problem{input}, out_of_memory);
}

TEST_CASE("a host without room for the host copies that nothing can do without is refused with their bytes",
          "[transfer]")
{
  retention_trace what{{6, 5}, {}, {20, 20}, false};
  what.use(0, 0, use_kind::read);
  transfer::retention_input input = what.input();
  const std::vector<std::uint64_t> enough{11, 12};
  input.host_bytes = enough;
  CHECK_NOTHROW(retention_problem{input});
  const std::vector<std::uint64_t> short_host{12, 10};
  input.host_bytes = short_host;
  try {
    const retention_problem problem{input};
    FAIL("it fits");
  } catch (const out_of_memory& error) {
    CHECK(error.shortage().where == tier::host);
    CHECK(error.shortage().needed == 11);
    CHECK(error.shortage().capacity == 10);
  }
}

}  // namespace retention_problem_test
