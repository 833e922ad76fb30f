// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/kept_intervals.hpp>

#include <support/catch.hpp>
#include <support/oracles/retention_trace.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kept_intervals_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::kept_intervals;
using transfer::retention_problem;

namespace {

bool covers(const retention_problem::interval& it, std::size_t row)
{
  return it.wraps ? row >= it.first || row < it.last : row >= it.first && row < it.last;
}

std::uint64_t moved_by_definition(const retention_problem& problem, std::span<const std::uint8_t> kept)
{
  std::uint64_t bytes = 0;
  for (const auto& epoch : problem.epochs()) {
    bool any_dropped = false;
    for (std::uint32_t which = epoch.begin; which < epoch.end; ++which) {
      any_dropped = any_dropped || kept[which] == 0;
      bytes += kept[which] == 0 && problem.intervals()[which].loads ? epoch.size : 0;
    }
    bytes += any_dropped && epoch.writes_back ? epoch.size : 0;
  }
  return bytes;
}

std::vector<std::int64_t> room_by_definition(const retention_problem& problem, std::span<const std::uint8_t> kept)
{
  std::vector<std::int64_t> room(problem.room().begin(), problem.room().end());
  for (std::size_t which = 0; which < kept.size(); ++which)
    for (std::size_t row = 0; row < room.size(); ++row)
      if (kept[which] != 0 && covers(problem.intervals()[which], row))
        room[row] -= static_cast<std::int64_t>(problem.epochs()[problem.intervals()[which].epoch].size);
  return room;
}

}  // namespace

TEST_CASE("a choice knows its bytes and its room after every change", "[transfer]")
{
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_large_trace(random, 12, 24, 48, 0.3);
    const retention_problem problem{what.input()};
    if (problem.intervals().empty()) continue;
    kept_intervals choice{problem};
    for (int step = 0; step < 60; ++step) {
      const std::uint32_t which = random.below(static_cast<std::uint32_t>(problem.intervals().size()));
      const std::vector<std::int64_t> room = room_by_definition(problem, choice.all());
      std::int64_t least = INT64_MAX;
      for (std::size_t row = 0; row < room.size(); ++row)
        if (covers(problem.intervals()[which], row)) least = std::min(least, room[row]);
      REQUIRE(choice.room_over(which) == least);
      const std::uint64_t before = choice.moved_bytes();
      if (choice.is_kept(which)) {
        const std::uint64_t loss = choice.loss(which);
        choice.drop(which);
        REQUIRE(choice.moved_bytes() == before + loss);
      } else if (choice.fits(which)) {
        const std::uint64_t saving = choice.saving(which);
        choice.keep(which);
        REQUIRE(choice.moved_bytes() == before - saving);
      } else {
        REQUIRE(least < static_cast<std::int64_t>(choice.size_of(which)));
        ++refused;
      }
      REQUIRE(choice.moved_bytes() == moved_by_definition(problem, choice.all()));
    }
  }
  CHECK(refused > 300);
}

TEST_CASE("an epoch is kept as a whole or not at all, and what saves nothing is let go", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_large_trace(random, 12, 24, 48, 0.3);
    const retention_problem problem{what.input()};
    kept_intervals choice{problem};
    for (std::uint32_t index = 0; index < problem.epochs().size(); ++index) {
      const sequence<std::uint8_t> before = choice.all();
      const auto& epoch = problem.epochs()[index];
      const bool kept = choice.keep_epoch(index);
      CHECK((choice.dropped_of(index) == 0) == kept);
      if (!kept) CHECK(choice.all() == before);
      for (std::uint32_t which = epoch.begin; which < epoch.end; ++which) CHECK(choice.is_kept(which) == kept);
    }
    std::vector<std::uint32_t> order;
    for (std::uint32_t which = 0; which < problem.intervals().size(); ++which) order.push_back(which);
    choice.fill(order);
    for (const std::uint32_t which : order) {
      if (choice.is_kept(which)) continue;
      CHECK((choice.saving(which) == 0 || !choice.fits(which)));
    }
    CHECK(std::ranges::all_of(room_by_definition(problem, choice.all()), [](std::int64_t free) { return free >= 0; }));
  }
}

}  // namespace kept_intervals_test
