// SPDX-License-Identifier: Apache-2.0
#include <step_bound/critical_path.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace critical_path_test {

using namespace chunkmem;
using step_bound::chain_kind;
using step_bound::chain_link;
using step_bound::compute_clock;
using step_bound::critical_path;
using step_bound::work_piece;
using support::dice;

namespace {

/// Starts of the accesses of many iterations when each is pushed back by all pieces of one machine between any two
/// accesses, computed one after the other from the definition. @return   the time of one iteration in the end [ns]
double pushed_back(const compute_clock& clock, const std::vector<work_piece>& pieces)
{
  constexpr std::int64_t rounds = 40;
  const std::int64_t access_count = clock.access_count();
  std::vector<double> start(static_cast<std::size_t>(rounds * access_count), 0);
  for (std::int64_t to = 1; to < rounds * access_count; ++to) {
    double& it = start[static_cast<std::size_t>(to)];
    it = start[static_cast<std::size_t>(to - 1)] + clock.at(to) - clock.at(to - 1);
    for (std::int64_t from = std::max<std::int64_t>(0, to - 2 * access_count); from < to; ++from) {
      double all = 0;
      double ready = 1e300;
      double due = -1e300;
      for (const work_piece& piece : pieces)
        for (std::int64_t round = -2; round < rounds + 2; ++round) {
          const double shift = static_cast<double>(round) * clock.whole();
          if (piece.from + round * access_count < from || piece.to + round * access_count > to) continue;
          all += piece.nanoseconds;
          ready = std::min(ready, piece.ready + shift);
          due = std::max(due, piece.due + shift);
        }
      if (all > 0)
        it =
            std::max(it, start[static_cast<std::size_t>(from)] + (ready - clock.at(from)) + all + (clock.at(to) - due));
    }
  }
  const auto last = static_cast<std::size_t>((rounds - 1) * access_count);
  const auto before = static_cast<std::size_t>((rounds - 13) * access_count);
  return (start[last] - start[before]) / 12;  // chains of 1, 2, 3, 4 and 6 iterations come out even
}

std::vector<std::uint32_t> every_access_index(const compute_clock& clock)
{
  std::vector<std::uint32_t> all(static_cast<std::size_t>(clock.access_count()));
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

}  // namespace

TEST_CASE("the longest chain is as long as an iteration that is pushed back again and again", "[step_bound]")
{
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    dice random{seed};
    std::vector<std::uint64_t> nanoseconds;
    for (std::uint32_t index = random.between(1, 6); index > 0; --index) nanoseconds.push_back(random.below(10));
    const compute_clock clock{nanoseconds};
    std::vector<work_piece> pieces;
    for (std::uint32_t index = random.between(1, 4); index > 0; --index) {
      work_piece it;
      it.nanoseconds = random.between(1, 30);
      const std::int64_t to = random.below(static_cast<std::uint32_t>(nanoseconds.size()));
      clock.follow(it, to - random.between(1, static_cast<std::uint32_t>(nanoseconds.size())), random.below(5));
      clock.precede(it, to, random.below(5));
      pieces.push_back(it);
    }
    critical_path chains{clock, every_access_index(clock)};
    chains.add_queue(pieces, chain_kind::loads);
    std::vector<chain_link> chain;
    const double found = chains.longest(clock.whole(), chain);
    const double expected = pushed_back(clock, pieces);
    CHECK(found == Catch::Approx(expected));
    double sum = 0;
    std::int64_t steps = 0;
    for (const chain_link& it : chain) {
      sum += it.nanoseconds;
      steps += it.to - it.from;
    }
    if (!chain.empty())
      CHECK(sum / (static_cast<double>(steps) / static_cast<double>(nanoseconds.size())) == Catch::Approx(found));
    CHECK(chain.empty() == (found == Catch::Approx(clock.whole())));

    // Fewer accesses: never more.
    std::vector<std::uint32_t> some{0};
    for (std::uint32_t index = 1; index < nanoseconds.size(); ++index)
      if (random.one_in(2)) some.push_back(index);
    critical_path fewer{clock, some};
    fewer.add_queue(pieces, chain_kind::loads);
    CHECK(fewer.longest(clock.whole(), chain) <= found * (1 + 1e-6));
  }
}

TEST_CASE("room holds up what would come before it, and what would leave behind it", "[step_bound]")
{
  const std::vector<std::uint64_t> nanoseconds{10, 10};
  const compute_clock clock{nanoseconds};
  std::vector<chain_link> chain;
  // Both accesses and what the room does not hold; over two iterations it holds no more than over one.
  const auto longest_of = [](double room) { return std::max({20.0, 20 + 100 - room, (20 + 200 - room) / 2}); };
  work_piece load;  // 100 for access 1
  load.nanoseconds = 100;
  clock.precede(load, 1, 0);
  clock.follow(load, -1, 0);
  for (const double room : {0.0, 30.0, 100.0}) {
    critical_path chains{clock, {0, 1}};
    chains.add_room(std::vector{load}, std::vector{room, room});
    CHECK(chains.longest(20, chain) == Catch::Approx(longest_of(room)));
  }
  work_piece save;  // 100 behind access 0, leaves before access 1
  save.nanoseconds = 100;
  clock.follow(save, 0, 0);
  save.leaves = 1;
  for (const double room : {0.0, 30.0, 100.0}) {
    critical_path chains{clock, {0, 1}};
    chains.add_leaving(std::vector{save}, std::vector{room, room});
    CHECK(chains.longest(20, chain) == Catch::Approx(longest_of(room)));
  }
}

}  // namespace critical_path_test
