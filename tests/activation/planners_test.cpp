// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/activation/pofo.hpp>
#include <chunkmem/activation/rotor.hpp>

#include <conformance/activation_planner.hpp>
#include <support/catch.hpp>
#include <support/convnet_problems.hpp>
#include <support/oracles/exhaustive_activations.hpp>
#include <support/oracles/random_chain.hpp>
#include <support/oracles/wide_search.hpp>
#include "equal_blocks.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace planners_test {

using namespace chunkmem;
using namespace chunkmem::activation;
using support::exhaustive;

namespace {

/// A program of few slots is as good for laws, and takes less time.
template <class Planner>
Planner quick()
{
  if constexpr (std::same_as<Planner, pofo> || std::same_as<Planner, rotor>)
    return Planner{25};
  else
    return {};
}

template <class Planner>
constexpr bool uses_all_memory = !std::same_as<Planner, swap_all> && !std::same_as<Planner, recompute_all>;

std::string letters_of(const activation_plan& plan)
{
  std::string letters;
  for (std::uint32_t block = 0; block < plan.inner_leaves.size(); ++block)
    letters += name_of(plan.action_of(block)).front();
  return letters;
}

}  // namespace

TEMPLATE_TEST_CASE("each planner keeps the laws of a planner", "[activation]", keep_all, swap_all, capacity_prefix,
                   recompute_all, karma, rotor, pofo, exhaustive, planned)
{
  conformance::activation_planner_laws(quick<TestType>(), {.count = 15, .uses_all_memory = uses_all_memory<TestType>});
}

TEMPLATE_TEST_CASE("each planner keeps the laws of a planner on many chains", "[activation][.slow]", keep_all, swap_all,
                   capacity_prefix, recompute_all, karma, rotor, pofo, exhaustive, planned)
{
  conformance::activation_planner_laws(quick<TestType>(), {.count = 400, .uses_all_memory = uses_all_memory<TestType>});
}

TEST_CASE("no two planners have one name", "[activation]")
{
  const std::set<std::string_view> names{keep_all::name,      swap_all::name,   capacity_prefix::name,
                                         recompute_all::name, karma::name,      rotor::name,
                                         pofo::name,          exhaustive::name, planned::name};
  CHECK(names.size() == 9);
}

TEST_CASE("single remedies give each block but the last their action", "[activation]")
{
  const layer_chain chain = support::equal_blocks(5);
  CHECK(letters_of(keep_all{}.plan(chain, support::budget_of(50, 1))) == "kkkkk");
  CHECK(letters_of(swap_all{}.plan(chain, support::budget_of(50, 1))) == "ssssk");
  CHECK(letters_of(recompute_all{}.plan(chain, support::budget_of(50, 1))) == "rrrrk");
  // Two blocks have to leave. A run hides the copies of a block.
  const activation_plan prefix = capacity_prefix{}.plan(chain, support::budget_of(30, 1));
  CHECK(letters_of(prefix) == "sskkk");
  CHECK(prefix.costs.seconds == 150);
  CHECK(letters_of(capacity_prefix{}.plan(chain, support::budget_of(50, 1))) == "kkkkk");
}

TEST_CASE("single remedies take the times of an independent calculation of eight networks", "[activation]")
{
  // Times over those with enough memory. The calculation does not tell to how many blocks it merged each network: one
  // number for each network fits both columns.
  struct row {
    std::uint32_t blocks = 0;
    double all_swapped = 0;
    double prefix_swapped = 0;
  };
  const std::vector<row> rows{{21, 4.78, 2.63}, {16, 4.78, 3.45}, {24, 4.01, 1.60}, {21, 4.01, 3.02},
                              {15, 1.13, 1.07}, {14, 1.17, 1.14}, {29, 9.71, 7.67}, {10, 1.14, 1.00}};
  REQUIRE(rows.size() == std::size(support::picture_trainings));
  for (std::size_t index = 0; index < rows.size(); ++index) {
    auto [chain, budget] = support::problem_of(support::picture_trainings[index]);
    for (chain_block& block : chain.blocks) {  // which the calculation does not count
      block.gradient = 0_B;
      block.reads_input = false;
    }
    const layer_chain coarse = merged(chain, equal_cuts(chain, rows[index].blocks));
    const auto times = [](const activation_plan& plan) { return plan.costs.seconds / plan.costs.unlimited_seconds; };
    CAPTURE(std::string{support::picture_trainings[index].network});
    CHECK(times(swap_all{}.plan(coarse, budget)) == Catch::Approx(rows[index].all_swapped).epsilon(0.05));
    CHECK(times(capacity_prefix{}.plan(coarse, budget)) == Catch::Approx(rows[index].prefix_swapped).epsilon(0.05));
  }
}

TEST_CASE("recomputation takes a second forward run of each block but the last", "[activation]")
{
  const activation_plan plan = recompute_all{}.plan(support::equal_blocks(5), support::budget_of(50, 1));
  CHECK(plan.costs.recomputed_seconds == 40);
  CHECK(plan.costs.seconds == 190);
  CHECK(plan.costs.moved == 0_B);
}

TEST_CASE("an exhaustive search takes no chain that it cannot finish", "[activation]")
{
  using Catch::Matchers::ContainsSubstring;
  CHECK_THROWS_AS(exhaustive{}.plan(support::equal_blocks(15), support::budget_of(50, 1)), config_error);
  CHECK_THROWS_WITH(exhaustive{}.plan(support::equal_blocks(15), support::budget_of(50, 1)),
                    ContainsSubstring("15 blocks") && ContainsSubstring("11") && ContainsSubstring("karma"));
}

TEST_CASE("an exhaustive search is never slower than a plan of other actions", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::chain_problem it = support::roll_chain(dice, {.fewest_blocks = 2, .most_blocks = 5});
    const plan_costs best = exhaustive{}.plan(it.chain, it.budget).costs;
    for (int guess = 0; guess < 20; ++guess) {
      std::vector<block_action> actions = support::roll_actions(dice, it.chain.size());
      actions.back() = block_action::keep;
      REQUIRE_FALSE(is_better(plan_of("guess", it.chain, it.budget, actions).costs, best));
    }
  }
}

TEST_CASE("the default planner keeps everything, or is no slower than karma, rotor and pofo", "[activation]")
{
  CHECK(planned{}.plan(support::equal_blocks(5), support::budget_of(50, 1)).planner == "keep_all");
  int by_rotor = 0;
  int by_karma = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    support::chain_problem it = support::roll_chain(dice, {.fewest_blocks = 3, .most_blocks = 7});
    if (dice.one_in(2)) it.budget.to_host_bytes_per_second = 1e-6;
    const activation_plan plan = planned{}.plan(it.chain, it.budget);
    REQUIRE_FALSE(is_better(karma{}.plan(it.chain, it.budget).costs, plan.costs));
    REQUIRE_FALSE(is_better(rotor{}.plan(it.chain, it.budget).costs, plan.costs));
    REQUIRE_FALSE(is_better(pofo{30}.plan(it.chain, it.budget).costs, plan.costs));
    REQUIRE_FALSE(is_better(keep_all{}.plan(it.chain, it.budget).costs, plan.costs));
    by_rotor += plan.planner == "rotor" ? 1 : 0;
    by_karma += plan.planner == "karma" ? 1 : 0;
  }
  CHECK(by_rotor > 0);
  CHECK(by_karma > 0);
}

namespace {

/// On random chains of up to six blocks.
void come_near_widest_search(std::uint32_t chains)
{
  std::vector<double> over;
  for (std::uint64_t seed = 1; over.size() < chains; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::chain_problem it =
        support::roll_chain(dice, {.fewest_blocks = 2, .most_blocks = 6, .has_all_members = !dice.one_in(3)});
    const plan_costs best = support::widest_search(it.chain, it.budget).costs;
    const plan_costs found = planned{}.plan(it.chain, it.budget).costs;
    REQUIRE(found.fits == best.fits);
    if (!best.fits) continue;
    REQUIRE(found.seconds >= best.seconds);
    REQUIRE(found.seconds <= 1.15 * best.seconds);
    over.push_back(found.seconds / best.seconds);
  }
  std::ranges::sort(over);
  CHECK(over[over.size() / 2] <= 1.02);
}

}  // namespace

TEST_CASE("the default planner comes near the best of all trees with all tensors that leave", "[activation]")
{
  come_near_widest_search(40);
}

TEST_CASE("the default planner comes near the best of all trees with all tensors that leave, on many chains",
          "[activation][.slow]")
{
  come_near_widest_search(300);
}

TEST_CASE("the default planner recomputes from inputs on the host where no tensor else has room", "[activation]")
{
  // Twelve blocks that save 100 B, of which the input of the next has 10, in room for a block and six inputs. A link
  // takes an input in the time of a run, and all else in ten.
  const chain_block one{.name = "block",
                        .forward_seconds = 10,
                        .backward_seconds = 20,
                        .saved = 100_B,
                        .boundary = 10_B,
                        .reads_input = true};
  const layer_chain chain{.blocks = std::vector<chain_block>(12, one), .input = 10_B};
  const activation_plan plan = planned{}.plan(chain, support::budget_of(170, 1));
  REQUIRE(plan.costs.fits);
  CHECK(plan.costs.recomputed_seconds <= 110);
  CHECK(plan.costs.seconds <= 12 * 30 + 110 + 10);
  CHECK(std::ranges::count(letters_of(plan), 'r') + std::ranges::count(letters_of(plan), 's') >= 10);
}

TEST_CASE("the better plan fits, is faster, moves less, and runs less again, in this order", "[activation]")
{
  const plan_costs best{.fits = true, .seconds = 1, .recomputed_seconds = 1, .moved = 1_B};
  const auto expect_worse = [&](const plan_costs& other) {
    CHECK(is_better(best, other));
    CHECK_FALSE(is_better(other, best));
  };
  CHECK_FALSE(is_better(best, best));
  expect_worse({.fits = true, .seconds = 1, .recomputed_seconds = 2, .moved = 1_B});
  expect_worse({.fits = true, .seconds = 1, .recomputed_seconds = 0, .moved = 2_B});
  expect_worse({.fits = true, .seconds = 2, .recomputed_seconds = 0, .moved = 0_B});
  expect_worse({.fits = false, .missing = 1_B});
  CHECK(is_better({.fits = false, .missing = 1_B}, {.fits = false, .missing = 2_B}));
}

TEST_CASE("a planner of merged blocks finds room where each block would keep an input", "[activation]")
{
  // Twelve outputs of 10 B, and 20 B that a block saves: 130 B. Merged to fewer blocks, fewer inputs stay.
  layer_chain chain = support::equal_blocks(12);
  for (chain_block& block : chain.blocks) {
    block.saved = 20_B;
    block.boundary = 10_B;
  }
  const activation_budget budget = support::budget_of(100, 0.001);
  CHECK_FALSE(recompute_all{}.plan(chain, budget).costs.fits);
  const activation_plan plan = plan_blocked(recompute_all{}, chain, budget);
  CHECK(plan.costs.fits);
  CHECK(plan.inner_leaves.size() == 12);
  CHECK(plan.costs.seconds < 12 * 40);
}

}  // namespace planners_test
