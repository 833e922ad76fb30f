// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/retention_shorten.hpp>

#include <chunkmem/transfer/price_ascent.hpp>
#include <chunkmem/transfer/retention_candidates.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/retention_trace.hpp>

#include <cstdint>
#include <vector>

namespace retention_shorten_test {

using namespace chunkmem;
using support::dice;
using support::retention_trace;
using transfer::kept_gaps;
using transfer::retention_problem;
using transfer::use_kind;

namespace {

/// Bytes that stay at each moment.
std::vector<std::uint64_t> staying(const kept_gaps& choice)
{
  const retention_problem& problem = choice.problem();
  std::vector<std::uint64_t> all(problem.moments(), 0);
  for (std::uint32_t which = 0; which < problem.gaps().size(); ++which)
    for (std::uint32_t step = 0; choice.is_kept(which) && step < problem.gaps()[which].length; ++step)
      all[(problem.gaps()[which].begin + step) % problem.moments()] += choice.size_of(which);
  return all;
}

}  // namespace

TEST_CASE("shorter gaps move no more bytes, and take no more room at any moment", "[transfer]")
{
  int shorter = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    INFO("seed " << seed);
    dice random{seed};
    const retention_trace trace =
        support::roll_small_trace(random, {random.one_in(2), random.one_in(2), random.one_in(2)});
    const retention_problem problem{trace.input()};
    kept_gaps choice{problem};
    std::vector<std::uint32_t> gaps;
    for (std::uint32_t which = 0; which < problem.gaps().size(); ++which) gaps.push_back(which);
    for (std::size_t at = gaps.size(); at > 1; --at)
      std::swap(gaps[at - 1], gaps[random.below(static_cast<std::uint32_t>(at))]);
    choice.fill(gaps);
    const std::uint64_t moved = choice.moved_bytes();
    const std::vector<std::uint64_t> before = staying(choice);
    shorten(choice);
    CHECK(choice.moved_bytes() <= moved);
    const std::vector<std::uint64_t> after = staying(choice);
    bool less = false;
    for (std::size_t at = 0; at < after.size(); ++at) {
      REQUIRE(after[at] <= before[at]);
      less = less || after[at] < before[at];
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
  for (std::uint32_t at = 0; at < 20; ++at) trace.use(at < 10 ? at : 19 - at, at, use_kind::read);
  const retention_problem problem{trace.input()};
  kept_gaps choice{problem};
  std::vector<std::uint32_t> longest_first;
  for (std::uint32_t which = 0; which < problem.gaps().size(); ++which) longest_first.push_back(which);
  std::ranges::sort(longest_first, [&](std::uint32_t left, std::uint32_t right) {
    return problem.gaps()[left].length > problem.gaps()[right].length;
  });
  choice.fill(longest_first);
  const std::uint64_t moved = choice.moved_bytes();
  shorten(choice);
  CHECK(choice.moved_bytes() == moved);
  for (std::uint32_t which = 0; which < problem.gaps().size(); ++which) {
    const std::uint32_t first = problem.gaps()[which].begin - 1;  // the use before the gap
    const std::uint32_t chunk = first < 10 ? first : 19 - first;
    INFO("chunk " << chunk << " behind moment " << first);
    CHECK(choice.is_kept(which) == (first < 10 ? chunk >= 6 : chunk <= 3));
  }
}

}  // namespace retention_shorten_test
