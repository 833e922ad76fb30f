// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/local_search.hpp>

#include <chunkmem/transfer/kept_intervals.hpp>
#include <chunkmem/transfer/lagrangian_dual.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/retention_trace.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace local_search_test {

using namespace chunkmem;
using support::dice;
using support::retention_trace;
using transfer::kept_intervals;
using transfer::retention_candidates;
using transfer::retention_problem;
using transfer::retention_sweep;
using transfer::row_prices;
using transfer::ruin_and_recreate;
using transfer::use_kind;

namespace {

row_prices even(const retention_problem& problem)
{
  row_prices price{problem.room().size()};
  price.set(std::vector<double>(problem.room().size(), 1));
  return price;
}

/// Bytes of a sweep, all of whose intervals have to fit.
std::uint64_t moved_by(const retention_problem& problem, std::span<const std::uint8_t> retained)
{
  kept_intervals choice{problem};
  for (std::uint32_t which = 0; which < retained.size(); ++which) {
    if (retained[which] == 0) continue;
    REQUIRE(choice.fits(which));
    choice.keep(which);
  }
  return problem.constant_bytes() + choice.moved_bytes();
}

}  // namespace

TEST_CASE("good prices bring the candidates close to the optimum, and never below it", "[transfer]")
{
  int equal = 0;
  int rolled = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, seed % 4 < 2, false});
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    transfer::dual_ascent ascent{problem};
    retention_candidates candidates{problem};
    std::uint64_t before = candidates.best().moved_bytes();
    for (const double width : {1.0, 0.1, 0.01}) {
      ascent.climb(width, 40);
      candidates.greedy(ascent.reached());
      candidates.sweep(ascent.reached(), 1);
      CHECK(candidates.best().moved_bytes() <= before);
      before = candidates.best().moved_bytes();
    }
    const std::uint64_t best = support::fewest_moved_bytes{input}();
    CHECK(problem.constant_bytes() + before >= best);
    equal += problem.constant_bytes() + before == best ? 1 : 0;
    ++rolled;
  }
  CHECK(equal >= rolled * 90 / 100);
}

TEST_CASE("the best candidate gives way to one that moves less, and to no other", "[transfer]")
{
  support::dice random{1};
  const retention_trace what = support::roll_large_trace(random, 20, 30, 60, 0.3);
  const retention_problem problem{what.input()};
  retention_candidates candidates{problem};
  kept_intervals choice{problem};
  CHECK_FALSE(candidates.offer(choice));
  std::uint32_t which = 0;
  while (choice.saving(which) == 0) ++which;
  choice.keep(which);
  CHECK(candidates.offer(choice));
  CHECK_FALSE(candidates.offer(choice));
  CHECK(candidates.best().is_kept(which));
}

TEST_CASE("a sweep by distance alone is Belady's rule: optimal for reads of one size in one shot", "[transfer]")
{
  int hard = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice random{seed};
    retention_trace what = support::roll_small_trace(random, {false, false, false});
    for (auto& it : what.uses) it.kind = transfer::use_kind::read;
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    retention_sweep sweep{problem};
    const std::uint64_t moved = moved_by(problem, sweep(even(problem), 0));
    if (moved != support::fewest_moved_bytes{input}()) FAIL("seed " << seed << ": " << moved << " B");
    hard += problem.room().empty() ? 0 : 1;
  }
  CHECK(hard > 100);
}

TEST_CASE("what stays of a sweep fits together, around the end too", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice random{seed};
    const retention_trace what = seed % 2 == 0 ? support::roll_large_trace(random, 20, 30, 90, 0.2)
                                               : support::roll_small_trace(random, {true, true, seed % 3 == 0});
    const retention_problem problem{what.input()};
    retention_sweep sweep{problem};
    for (const double weight : {0.0, 3.0, 1000.0}) moved_by(problem, sweep(even(problem), weight));
  }
}

TEST_CASE("where cost comes first, a dirty chunk outlives a clean one that is wanted sooner", "[transfer]")
{
  using transfer::use_kind;
  retention_trace what{{1, 1, 1}, {}, std::vector<std::uint64_t>(9, 2), false};
  what.use(0, 0, use_kind::update);
  what.use(1, 1, use_kind::read);
  what.use(2, 3, use_kind::read);
  what.use(1, 5, use_kind::read);
  what.use(0, 8, use_kind::read);
  const retention_problem problem{what.input()};
  REQUIRE(problem.intervals().size() == 2);  // of chunk 0, then of chunk 1
  retention_sweep sweep{problem};
  CHECK(sweep(even(problem), 0) == std::vector<std::uint8_t>{0, 1});
  CHECK(sweep(even(problem), 100) == std::vector<std::uint8_t>{1, 0});
}

namespace {

/// Bytes that stay at each access.
std::vector<std::uint64_t> staying(const kept_intervals& choice)
{
  const retention_problem& problem = choice.problem();
  std::vector<std::uint64_t> all(problem.access_count(), 0);
  for (std::uint32_t which = 0; which < problem.intervals().size(); ++which)
    for (std::uint32_t step = 0; choice.is_kept(which) && step < problem.intervals()[which].length; ++step)
      all[(problem.intervals()[which].begin + step) % problem.access_count()] += choice.size_of(which);
  return all;
}

/// Keeps the longest intervals that fit together.
void keep_longest(kept_intervals& choice)
{
  const auto intervals = choice.problem().intervals();
  std::vector<std::uint32_t> longest_first;
  for (std::uint32_t which = 0; which < intervals.size(); ++which) longest_first.push_back(which);
  std::ranges::sort(longest_first, [&](std::uint32_t left, std::uint32_t right) {
    return intervals[left].length > intervals[right].length;
  });
  choice.fill(longest_first);
}

}  // namespace

TEST_CASE("ruin and recreate improves a bad choice, never moves more, and leaves what fits", "[transfer]")
{
  int better = 0;
  int equal = 0;
  int rolled = 0;
  for (std::uint64_t seed = 1; seed <= 900; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, true, false});
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    if (problem.intervals().size() < 2) continue;
    const row_prices none{problem.room().size()};
    kept_intervals choice{problem};
    for (std::uint32_t which = 0; which < problem.intervals().size(); ++which)  // badly: in the order of chunks
      if (choice.fits(which)) choice.keep(which);
    const std::uint64_t before = choice.moved_bytes();
    ruin_and_recreate{problem, none}.improve(choice, 500);
    const std::uint64_t best = support::fewest_moved_bytes{input}();
    CHECK(choice.moved_bytes() <= before);
    CHECK(problem.constant_bytes() + choice.moved_bytes() >= best);
    for (std::uint32_t which = 0; which < problem.intervals().size(); ++which) CHECK(choice.room_over(which) >= 0);
    better += choice.moved_bytes() < before ? 1 : 0;
    equal += problem.constant_bytes() + choice.moved_bytes() == best ? 1 : 0;
    ++rolled;
  }
  CHECK(better > 5);
  CHECK(equal >= rolled * 99 / 100);
}

TEST_CASE("no attempts change nothing, and the same attempts end the same way", "[transfer]")
{
  support::dice random{4};
  const retention_trace what = support::roll_large_trace(random, 60, 60, 200, 0.3);
  const retention_problem problem{what.input()};
  const row_prices none{problem.room().size()};
  kept_intervals choice{problem};
  ruin_and_recreate{problem, none}.improve(choice, 0);
  CHECK(choice.moved_bytes() == kept_intervals{problem}.moved_bytes());
  kept_intervals again{problem};
  ruin_and_recreate{problem, none}.improve(choice, 200);
  ruin_and_recreate{problem, none}.improve(again, 200);
  CHECK(choice.all() == again.all());
  CHECK(choice.moved_bytes() < kept_intervals{problem}.moved_bytes());
}

TEST_CASE("a search that ends with the first choice that moves few enough bytes finds the choice of a whole search",
          "[transfer]")
{
  int ended = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, true, false});
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    const row_prices none{problem.room().size()};
    const std::uint64_t best = support::fewest_moved_bytes{input}() - problem.constant_bytes();
    kept_intervals whole{problem};
    kept_intervals short_one{problem};
    ruin_and_recreate{problem, none}.improve(whole, 500);
    ruin_and_recreate{problem, none}.improve(short_one, 500, best);
    CHECK(short_one.all() == whole.all());
    ended += whole.moved_bytes() == best ? 1 : 0;
    // One that moves few enough bytes stays as it is.
    kept_intervals nothing{problem};
    ruin_and_recreate{problem, none}.improve(nothing, 500, nothing.moved_bytes());
    CHECK(nothing.all() == kept_intervals{problem}.all());
  }
  CHECK(ended > 50);
}

TEST_CASE("shorter intervals move no more bytes, and take no more room at any moment", "[transfer]")
{
  int shorter = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    INFO("seed " << seed);
    dice random{seed};
    const retention_trace trace =
        support::roll_small_trace(random, {random.one_in(2), random.one_in(2), random.one_in(2)});
    const retention_problem problem{trace.input()};
    kept_intervals choice{problem};
    std::vector<std::uint32_t> intervals;
    for (std::uint32_t which = 0; which < problem.intervals().size(); ++which) intervals.push_back(which);
    for (std::size_t index = intervals.size(); index > 1; --index)
      std::swap(intervals[index - 1], intervals[random.below(static_cast<std::uint32_t>(index))]);
    choice.fill(intervals);
    const std::uint64_t moved = choice.moved_bytes();
    const std::vector<std::uint64_t> before = staying(choice);
    shorten(choice);
    CHECK(choice.moved_bytes() <= moved);
    const std::vector<std::uint64_t> after = staying(choice);
    bool less = false;
    for (std::size_t index = 0; index < after.size(); ++index) {
      REQUIRE(after[index] <= before[index]);
      less = less || after[index] < before[index];
    }
    shorter += less ? 1 : 0;
  }
  CHECK(shorter > 20);
}

TEST_CASE("in a step forward and back the last layers stay, and around its end the first ones", "[transfer]")
{
  // Ten chunks are read forward and back; there is room for three beside the one that is read.
  retention_trace trace;
  trace.chunk_bytes.assign(10, 5);
  trace.device_bytes.assign(20, 20);
  for (std::uint32_t index = 0; index < 20; ++index) trace.use(index < 10 ? index : 19 - index, index, use_kind::read);
  const retention_problem problem{trace.input()};
  kept_intervals choice{problem};
  keep_longest(choice);
  const std::uint64_t moved = choice.moved_bytes();
  shorten(choice);
  CHECK(choice.moved_bytes() == moved);
  for (std::uint32_t which = 0; which < problem.intervals().size(); ++which) {
    const std::uint32_t first = problem.intervals()[which].begin - 1;  // the use before the interval
    const std::uint32_t chunk = first < 10 ? first : 19 - first;
    INFO("chunk " << chunk << " behind access " << first);
    CHECK(choice.is_kept(which) == (first < 10 ? chunk >= 6 : chunk <= 3));
  }
}

TEST_CASE("where chunks are dropped some time after their last use, the last layers stay too", "[transfer]")
{
  // Thirty chunks are written forward, read back, and dropped after the next read; there is room for eight.
  constexpr std::uint32_t chunks = 30;
  retention_trace trace;
  trace.chunk_bytes.assign(chunks, 5);
  trace.device_bytes.assign(3 * chunks + 1, 8 * 5);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) trace.use(chunk, chunk, use_kind::overwrite);
  for (std::uint32_t back = 0; back < chunks; ++back) {
    trace.use(chunks - 1 - back, chunks + 2 * back, use_kind::read);
    if (back > 0) trace.use(chunks - back, chunks + 2 * back + 1, use_kind::drop);
  }
  trace.use(0, 3 * chunks, use_kind::drop);
  const retention_problem problem{trace.input()};
  kept_intervals choice{problem};
  keep_longest(choice);
  const std::uint64_t moved = choice.moved_bytes();
  shorten(choice);
  CHECK(choice.moved_bytes() <= moved);
  std::uint32_t earliest = chunks;  // of the chunks that stay between forward and back
  std::uint32_t staying = 0;
  for (std::uint32_t which = 0; which < problem.intervals().size(); ++which) {
    const std::uint32_t written = problem.intervals()[which].begin - 1;
    if (!choice.is_kept(which) || written >= chunks) continue;
    earliest = std::min(earliest, written);
    ++staying;
  }
  CHECK(staying >= 5);
  CHECK(earliest + staying >= chunks - 2);
}

namespace {

/// Accesses between the uses of the chunk that is loaded again soonest, or UINT32_MAX.
std::uint32_t shortest_loaded(const kept_intervals& choice)
{
  std::uint32_t shortest = UINT32_MAX;
  for (std::uint32_t which = 0; which < choice.problem().intervals().size(); ++which)
    if (const auto& it = choice.problem().intervals()[which]; it.loads && !choice.is_kept(which))
      shortest = std::min(shortest, it.length);
  return shortest;
}

}  // namespace

TEST_CASE("delayed loads move no more bytes, fit, and never come sooner", "[transfer]")
{
  int later = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    INFO("seed " << seed);
    dice random{seed};
    const retention_trace trace =
        support::roll_small_trace(random, {random.one_in(2), random.one_in(2), random.one_in(2)});
    const retention_problem problem{trace.input()};
    kept_intervals choice{problem};
    keep_longest(choice);
    const std::uint64_t moved = choice.moved_bytes();
    const std::uint32_t before = shortest_loaded(choice);
    delay_loads(choice);
    REQUIRE(choice.moved_bytes() <= moved);
    REQUIRE(moved_by(problem, choice.all()) == problem.constant_bytes() + choice.moved_bytes());
    const std::uint32_t after = shortest_loaded(choice);
    REQUIRE(after >= before);
    later += after > before ? 1 : 0;
  }
  CHECK(later > 20);
}

TEST_CASE("where chunks are written once and read often, delayed loads look at few intervals", "[transfer]")
{
  // As weights in a step of many micro-batches: an epoch has an interval for each pass.
  constexpr std::uint32_t chunks = 20, passes = 200;
  retention_trace trace;
  trace.chunk_bytes.assign(chunks, 4);
  trace.device_bytes.assign(std::size_t{chunks} * passes, 4 * chunks / 3);
  for (std::uint32_t pass = 0; pass < passes; ++pass)
    for (std::uint32_t at = 0; at < chunks; ++at)
      trace.use(pass % 2 == 0 ? at : chunks - 1 - at, pass * chunks + at,
                pass == 0 ? use_kind::update : use_kind::read);
  const retention_problem problem{trace.input()};
  kept_intervals choice{problem};
  keep_longest(choice);
  const std::uint64_t moved = choice.moved_bytes();
  CHECK(delay_loads(choice) < 66 * problem.intervals().size());
  CHECK(choice.moved_bytes() <= moved);
}

TEST_CASE("at the turn of a step a weight of the first layer leaves, and none of a last layer", "[transfer]")
{
  // Six weights are made one after the other, read forward, and read back; behind the forward pass there is room for
  // five.
  constexpr std::uint32_t weights = 6;
  retention_trace trace;
  trace.chunk_bytes.assign(weights, 5);
  trace.device_bytes.assign(2 * weights, 40);
  trace.device_bytes.resize(3 * weights, 25);
  for (std::uint32_t weight = 0; weight < weights; ++weight) trace.use(weight, weight, use_kind::overwrite);
  for (std::uint32_t weight = 0; weight < weights; ++weight) trace.use(weight, weights + weight, use_kind::read);
  for (std::uint32_t back = 0; back < weights; ++back)
    trace.use(weights - 1 - back, 2 * weights + back, use_kind::read);
  const retention_problem problem{trace.input()};
  const auto weight_of = [&](std::uint32_t which) { return trace.uses[problem.intervals()[which].use].chunk; };
  const auto is_turn = [&](std::uint32_t which) {
    return problem.intervals()[which].loads && problem.intervals()[which].begin > weights;
  };
  kept_intervals choice{problem};
  for (std::uint32_t which = 0; which < problem.intervals().size(); ++which)
    if (weight_of(which) < 4 || (problem.intervals()[which].loads && !is_turn(which))) choice.keep(which);
  const std::uint64_t moved = choice.moved_bytes();
  delay_loads(choice);
  CHECK(choice.moved_bytes() == moved);
  for (std::uint32_t which = 0; which < problem.intervals().size(); ++which) {
    INFO("weight " << weight_of(which));
    if (is_turn(which)) CHECK(choice.is_kept(which) == (weight_of(which) != 0));
  }
}

}  // namespace local_search_test
