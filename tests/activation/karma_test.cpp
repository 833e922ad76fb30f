// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/planners.hpp>

#include <support/catch.hpp>
#include <support/convnet_problems.hpp>
#include <support/oracles/exhaustive_activations.hpp>
#include <support/oracles/random_chain.hpp>
#include "equal_blocks.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

namespace karma_test {

using namespace chunkmem;
using namespace chunkmem::activation;
using support::exhaustive;

namespace {

/// A letter for each block.
std::string letters_of(const activation_plan& plan)
{
  std::string letters;
  for (std::uint32_t block = 0; block < plan.inner_leaves.size(); ++block)
    letters += name_of(plan.action_of(block)).front();
  return letters;
}

struct comparison {
  std::uint32_t tried = 0;
  std::uint32_t equal = 0;
  std::uint32_t better = 0;  ///< merged blocks have plans that single blocks have not
  std::uint32_t tight = 0;   ///< the best plan is slower than a step with enough memory
  double worst = 1;          ///< seconds over those of the best plan
};

/// Compares karma with every plan of random chains until `chains` of them fit. Some chains are too large for any plan.
comparison compare(std::uint32_t chains, const support::chain_traits& traits)
{
  comparison all;
  for (std::uint64_t seed = 1; all.tried < chains; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const support::chain_problem it = support::roll_chain(dice, traits);
    const activation_plan best = exhaustive{}.plan(it.chain, it.budget);
    if (!best.costs.fits) continue;
    const activation_plan found = karma{}.plan(it.chain, it.budget);
    REQUIRE(found.costs.fits);
    ++all.tried;
    all.equal += found.costs.seconds == best.costs.seconds ? 1 : 0;
    all.better += found.costs.seconds < best.costs.seconds ? 1 : 0;
    all.tight += best.costs.seconds > best.costs.unlimited_seconds ? 1 : 0;
    all.worst = std::max(all.worst, found.costs.seconds / best.costs.seconds);
  }
  return all;
}

/// On chains of more blocks than karma leaves unmerged.
void come_near_exhaustive(std::uint32_t chains, const support::chain_traits& traits)
{
  const comparison found = compare(chains, traits);
  CAPTURE(found.equal, found.better, found.worst);
  CHECK(found.equal + found.better >= chains * 9 / 10);
  CHECK(found.worst < 1.05);
  CHECK(found.tight > chains / 2);
}

/// The plan of each single remedy, with the same merges.
void beat_single_remedies(const support::picture_training& training, const karma& planner)
{
  CAPTURE(training.network, training.pictures);
  const auto [chain, budget] = support::problem_of(training);
  const activation_plan found = planner.plan(chain, budget);
  REQUIRE(found.costs.fits == (training.network != "VGG16"));  // its first blocks need more than the device
  if (found.costs.fits) CHECK(found.costs.seconds >= found.costs.bound_seconds * (1 - 1e-12));
  const auto compare = [&](const auto& other) {
    const activation_plan single = plan_blocked(other, chain, budget);
    CAPTURE(single.planner);
    CHECK_FALSE(is_better(single.costs, found.costs));
  };
  compare(swap_all{});
  compare(capacity_prefix{});
  compare(recompute_all{});
}

}  // namespace

TEST_CASE("karma finds the best of all plans of three hundred random chains up to seven blocks", "[activation]")
{
  for (const bool has_all_members : {false, true}) {
    const comparison found = compare(150, {.fewest_blocks = 2, .most_blocks = 7, .has_all_members = has_all_members});
    CHECK(found.equal == found.tried);
    CHECK(found.tight > found.tried / 2);
  }
}

TEST_CASE("karma finds nearly always the best of all plans of eight blocks", "[activation]")
{
  come_near_exhaustive(10, {.fewest_blocks = 8, .most_blocks = 8, .has_all_members = true});
}

TEST_CASE("karma finds nearly always the best of all plans of eight or nine blocks", "[activation][.slow]")
{
  come_near_exhaustive(100, {.fewest_blocks = 8, .most_blocks = 9, .has_all_members = false});
  come_near_exhaustive(100, {.fewest_blocks = 8, .most_blocks = 9, .has_all_members = true});
}

TEST_CASE("karma is never slower than a single remedy on the networks of the literature", "[activation]")
{
  for (const support::picture_training& training : support::picture_trainings)
    if (training.network != "PreAct-ResNet-1001") beat_single_remedies(training, karma{{1, 100, 100}});
}

TEST_CASE("karma with all its effort is never slower than a single remedy, on a thousand layers too",
          "[activation][.slow]")
{
  for (const support::picture_training& training : support::picture_trainings) beat_single_remedies(training, karma{});
}

TEST_CASE("karma keeps everything where everything has room", "[activation]")
{
  const activation_plan plan = karma{}.plan(support::equal_blocks(6), support::budget_of(60, 0.001));
  CHECK(letters_of(plan) == "kkkkkk");
  CHECK(plan.costs.seconds == 180);
}

TEST_CASE("karma swaps over a fast link, recomputes beside a slow one, and does both in between", "[activation]")
{
  // A forward run hides 10 B over a link of 1 B/s.
  activation_plan plan = karma{}.plan(support::equal_blocks(6), support::budget_of(30, 1));
  CHECK(letters_of(plan) == "ssskkk");
  CHECK(plan.costs.seconds == 180);
  // Three kept blocks, and the input of a fourth: 31 B. So four blocks run again.
  plan = karma{}.plan(support::equal_blocks(6), support::budget_of(30, 0.001));
  CHECK(letters_of(plan) == "rrrrkk");
  CHECK(plan.costs.seconds == 220);
  // Two runs take 20 s again. Their time and the runs of the last block hide the 10 B that leave and return.
  plan = karma{}.plan(support::equal_blocks(6), support::budget_of(35, 0.25));
  CHECK(letters_of(plan) == "srrkkk");
  CHECK(plan.costs.seconds == 200);
}

TEST_CASE("karma plans a single block, and two", "[activation]")
{
  CHECK(karma{}.plan(support::equal_blocks(1), support::budget_of(10, 1)).costs.seconds == 30);
  CHECK(karma{}.plan(support::equal_blocks(1), support::budget_of(9, 1)).costs.missing == 1_B);
  CHECK(letters_of(karma{}.plan(support::equal_blocks(2), support::budget_of(20, 1))) == "kk");
  CHECK(karma{}.plan(support::equal_blocks(2), support::budget_of(11, 1)).costs.fits);
}

}  // namespace karma_test
