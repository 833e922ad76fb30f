// SPDX-License-Identifier: Apache-2.0
// The least time of a step: by hand, against a scan of all shares, and below the best of all plans.
#include <chunkmem/activation/activation_planner.hpp>

#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>
#include <support/oracles/exhaustive_activations.hpp>
#include <support/oracles/random_chain.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace activation_bound_test {

using namespace chunkmem;
using namespace chunkmem::activation;
using support::exhaustive;

namespace {

/// Two blocks of 10 B: one takes 4 s again, the other one 1 s.
layer_chain two_blocks()
{
  return {.blocks = {{.name = "slow", .forward_seconds = 4, .backward_seconds = 6, .saved = 10_B, .boundary = 2_B},
                     {.name = "fast", .forward_seconds = 1, .backward_seconds = 2, .saved = 10_B, .boundary = 2_B}}};
}

activation_budget budget_of(std::uint64_t device, double to_host, double to_device)
{
  return {.device = bytes{device}, .to_host_bytes_per_second = to_host, .to_device_bytes_per_second = to_device};
}

/// Seconds of the cheapest `wanted` bytes run again, byte by byte.
double again(const layer_chain& chain, const activation_budget& budget, double wanted)
{
  std::vector<std::pair<double, double>> blocks;  // seconds of a byte, and bytes
  for (const chain_block& block : chain.blocks) {
    const double size =
        static_cast<double>(budget.in_frames(block.boundary)) + static_cast<double>(budget.in_frames(block.inner()));
    if (size > 0) blocks.emplace_back(block.again_seconds() / size, size);
  }
  std::ranges::sort(blocks);
  double seconds = 0;
  for (const auto& [seconds_of_byte, size] : blocks) {
    const double part = std::min(size, wanted);
    seconds += part * seconds_of_byte;
    wanted -= part;
  }
  return seconds;
}

/// The bound's formula at one share.
double at(const layer_chain& chain, const activation_budget& budget, double excess, double made_again)
{
  const double swapped = excess - made_again;
  return std::max(chain.forward_seconds(), swapped / budget.to_host_bytes_per_second) +
         std::max(chain.backward_seconds() + again(chain, budget, made_again),
                  swapped / budget.to_device_bytes_per_second);
}

/// Bytes that are not on the device when the forward pass ends.
double excess_of(const layer_chain& chain, const activation_budget& budget)
{
  std::uint64_t all = budget.in_frames(chain.blocks.back().carried);
  for (const chain_block& block : chain.blocks)
    all += budget.in_frames(block.boundary) + budget.in_frames(block.inner());
  return static_cast<double>(all) - static_cast<double>(std::min(all, budget.device.count()));
}

double least_of_scan(const layer_chain& chain, const activation_budget& budget, int steps)
{
  const double excess = excess_of(chain, budget);
  double most = 0;
  for (const chain_block& block : chain.blocks)
    most += static_cast<double>(budget.in_frames(block.boundary) + budget.in_frames(block.inner()));
  most = std::min(most, excess);
  double least = std::numeric_limits<double>::infinity();
  for (int step = 0; step <= steps; ++step) least = std::min(least, at(chain, budget, excess, most * step / steps));
  return least;
}

}  // namespace

TEST_CASE("a step with enough memory is bounded by its runs", "[activation]")
{
  const bound_parts bound = activation_bound(two_blocks(), budget_of(20, 1, 1));
  CHECK(bound.forward_seconds == 5);
  CHECK(bound.backward_seconds == 8);
  CHECK(bound.seconds() == 13);
  CHECK(bound.swapped_bytes == 0);
  CHECK(bound.recomputed_seconds == 0);
}

TEST_CASE("a bound swaps what the runs hide, and recomputes the cheapest of the rest", "[activation]")
{
  // 8 B too many. Links hide 5 B of the forward pass and 8 B of the backward pass. 3 B of the fast block take 0.3 s.
  bound_parts bound = activation_bound(two_blocks(), budget_of(12, 1, 1));
  CHECK(bound.recomputed_seconds == Catch::Approx(0.3));
  CHECK(bound.swapped_bytes == Catch::Approx(5));
  CHECK(bound.seconds() == Catch::Approx(13.3));
  // A link that moves next to nothing: 8 B again.
  bound = activation_bound(two_blocks(), budget_of(12, 1e-9, 1e-9));
  CHECK(bound.seconds() == Catch::Approx(13.8));
  CHECK(bound.swapped_bytes == Catch::Approx(0).margin(1e-6));
  // 15 B too many: 10 B of the fast block, 5 B of the slow one.
  CHECK(activation_bound(two_blocks(), budget_of(5, 1e-9, 1e-9)).seconds() == Catch::Approx(13 + 1 + 2));
  // Links that hide all 8 B.
  CHECK(activation_bound(two_blocks(), budget_of(12, 1.6, 1)).seconds() == 13);
  // Loads at 0.5 B/s: 8 + 0.1 y = (8 - y) / 0.5, so y = 8 / 2.1.
  CHECK(activation_bound(two_blocks(), budget_of(12, 100, 0.5)).seconds() == Catch::Approx(13 + 0.8 / 2.1));
}

TEST_CASE("frames and the carried tensors of the last block count for a bound, working memory does not", "[activation]")
{
  layer_chain chain = two_blocks();
  activation_budget budget = budget_of(12, 1e-9, 1e-9);
  budget.frame = 5_B;  // 10 and 5 of each block; 18 too many, 15 of them in 1 s
  CHECK(activation_bound(chain, budget).seconds() == Catch::Approx(13 + 1 + 4 * 3 / 15.0));
  chain.blocks[0].carried = 100_B;
  chain.blocks[1].forward_working = chain.blocks[1].backward_working = 100_B;
  CHECK(activation_bound(chain, budget).seconds() == Catch::Approx(13 + 1 + 4 * 3 / 15.0));
  budget.frame = 1_B;
  chain.blocks[1].carried = 2_B;
  CHECK(activation_bound(chain, budget).seconds() == Catch::Approx(14));
}

TEST_CASE("bounds are the least of a scan over all shares", "[activation]")
{
  constexpr int steps = 500;
  int mixed = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    support::chain_problem it = support::roll_chain(dice, {.most_blocks = 8});
    it.budget.device = bytes{dice.below(static_cast<std::uint32_t>(it.chain.saved().count()) + 10)};
    const bound_parts bound = activation_bound(it.chain, it.budget);
    const double excess = excess_of(it.chain, it.budget);
    const double scanned = least_of_scan(it.chain, it.budget, steps);
    REQUIRE(bound.seconds() <= scanned * (1 + 1e-12));
    REQUIRE(bound.swapped_bytes >= 0);
    REQUIRE(at(it.chain, it.budget, excess, excess - bound.swapped_bytes) == Catch::Approx(bound.seconds()));
    REQUIRE(again(it.chain, it.budget, excess - bound.swapped_bytes) == Catch::Approx(bound.recomputed_seconds));
    mixed += bound.recomputed_seconds > 0 && bound.swapped_bytes > 0 ? 1 : 0;
  }
  CHECK(mixed > 100);
}

namespace {

void stay_below_all_plans(std::uint64_t seeds)
{
  int reached = 0;
  int fit = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::chain_problem it =
        support::roll_chain(dice, {.fewest_blocks = 2, .most_blocks = 6, .has_all_members = dice.one_in(2)});
    const activation_plan best = exhaustive{}.plan(it.chain, it.budget);
    if (!best.costs.fits) continue;
    ++fit;
    const double bound = activation_bound(it.chain, it.budget).seconds();
    REQUIRE(bound == best.costs.bound_seconds);
    REQUIRE(bound <= best.costs.seconds * (1 + 1e-12));
    reached += best.costs.seconds <= bound * 1.001 ? 1 : 0;
  }
  CHECK(fit > static_cast<int>(seeds) / 3);
  CHECK(reached > static_cast<int>(seeds) / 20);
}

}  // namespace

TEST_CASE("no plan of a random chain is faster than its bound, and some plans are as fast", "[activation]")
{
  stay_below_all_plans(150);
}

TEST_CASE("no plan of many random chains is faster than its bound", "[activation][.slow]")
{
  stay_below_all_plans(5'000);
}

TEST_CASE("memory and links never raise a bound", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    support::chain_problem it = support::roll_chain(dice);
    double before = activation_bound(it.chain, it.budget).seconds();
    for (int change = 0; change < 4; ++change) {
      if (change == 0) it.budget.device += bytes{dice.below(20)};
      if (change == 1) it.budget.to_host_bytes_per_second *= 1.5;
      if (change == 2) it.budget.to_device_bytes_per_second *= 1.5;
      if (change == 3) it.budget.device += it.chain.saved() * 100;
      const double after = activation_bound(it.chain, it.budget).seconds();
      REQUIRE(after <= before * (1 + 1e-12));
      before = after;
    }
    REQUIRE(before == it.chain.unlimited_seconds());
  }
}

TEST_CASE("a budget or a chain that cannot be has no bound", "[activation]")
{
  using Catch::Matchers::ContainsSubstring;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  CHECK_THROWS_AS(activation_bound({}, budget_of(1, 1, 1)), config_error);
  for (const double bad : {0.0, -1.0, nan, infinity}) {
    CHECK_THROWS_WITH(activation_bound(two_blocks(), budget_of(1, bad, 1)), ContainsSubstring("to_host_bytes_per_"));
    CHECK_THROWS_WITH(activation_bound(two_blocks(), budget_of(1, 1, bad)), ContainsSubstring("to_device_bytes_per_"));
  }
  activation_budget budget = budget_of(1, 1, 1);
  budget.seconds_per_copy = nan;
  CHECK_THROWS_WITH(activation_bound(two_blocks(), budget), ContainsSubstring("seconds_per_copy"));
  budget = budget_of(1, 1, 1);
  budget.frame = 0_B;
  CHECK_THROWS_WITH(activation_bound(two_blocks(), budget), ContainsSubstring("frame"));
}

}  // namespace activation_bound_test
