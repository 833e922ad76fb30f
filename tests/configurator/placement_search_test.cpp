// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/configurator/placement_search.hpp>

#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/interruption.hpp>

#include <support/catch.hpp>
#include <support/refusal.hpp>

#include "placement_rules.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace placement_search_test {

using namespace placement_test;
using namespace chunkmem::literals;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Plans whose pipelines and rings both count.
placed_transfers random_plan(std::uint32_t stages, std::uint32_t replicas, support::dice& dice)
{
  return {.stages = stages,
          .replicas = replicas,
          .boundary = bytes{dice.between(1, 32)} * 1'048'576,
          .round_trips = static_cast<double>(dice.between(1, 16)),
          .gradients = bytes{dice.between(1, 1'024)} * 1'048'576};
}

}  // namespace

TEST_CASE("every rank_placement is tried on a small cluster", "[configurator]")
{
  support::dice dice{5};
  for (const auto& [stages, replicas, nodes] : std::vector<std::array<std::uint32_t, 3>>{
           {1, 1, 1}, {1, 2, 2}, {2, 1, 3}, {2, 2, 4}, {5, 1, 5}, {1, 5, 5}, {2, 2, 6}, {3, 2, 6}, {2, 3, 7}}) {
    const link_matrix links = random_links(nodes, 5, dice);
    const placed_transfers plan = random_plan(stages, replicas, dice);
    rank_placement places = identity_placement(nodes);
    double least = seconds_of(links, plan, places);
    double most = least;
    while (std::ranges::next_permutation(places).found) {
      least = std::min(least, seconds_of(links, plan, places));
      most = std::max(most, seconds_of(links, plan, places));
    }
    const found_placements found = place_ranks(links, plan);
    CAPTURE(stages, replicas, nodes);
    CHECK(found.is_exact);
    CHECK(found.best.seconds == Catch::Approx(least).epsilon(1e-12));
    CHECK(found.worst.seconds == Catch::Approx(most).epsilon(1e-12));
    CHECK(seconds_of(links, plan, found.best.places) == Catch::Approx(least).epsilon(1e-12));
    CHECK(found.identity.places == identity_placement(nodes));
  }
}

TEST_CASE("annealing finds the optimum of 8 nodes in at least 95 of 100 clusters", "[configurator]")
{
  support::dice dice{1};
  int found = 0;
  for (int cluster = 0; cluster < 200; ++cluster) {
    const link_matrix links = random_links(8, cluster % 2 == 0 ? 1.2 : 8, dice);
    const std::uint32_t stages = std::vector<std::uint32_t>{2, 4, 8, 4}[static_cast<std::size_t>(cluster) % 4];
    const placed_transfers plan = random_plan(stages, 8 / stages, dice);
    const found_placements exact = place_ranks(links, plan);
    const found_placements annealed = place_ranks(links, plan, {.trials = 20'000, .exact_nodes = 0});
    CHECK(annealed.best.seconds >= exact.best.seconds);
    CHECK(annealed.worst.seconds <= exact.worst.seconds);
    found += annealed.best.seconds <= exact.best.seconds * (1 + 1e-12) ? 1 : 0;
  }
  CHECK(found >= 190);
}

TEST_CASE("on 64 nodes no rule finds a faster rank_placement than the search", "[configurator]")
{
  support::dice dice{2};
  for (int cluster = 0; cluster < 12; ++cluster) {
    const link_matrix links = cluster % 3 == 0 ? racks(64, dice) : random_links(64, cluster % 3 == 1 ? 1.2 : 8, dice);
    const std::uint32_t stages = std::vector<std::uint32_t>{4, 8, 16, 64}[static_cast<std::size_t>(cluster) % 4];
    const placed_transfers plan = random_plan(stages, 64 / stages, dice);
    const found_placements found = place_ranks(links, plan);
    CAPTURE(cluster, stages);
    CHECK(!found.is_exact);
    CHECK(found.best.seconds == Catch::Approx(seconds_of(links, plan, found.best.places)).epsilon(1e-12));
    CHECK(found.worst.seconds == Catch::Approx(seconds_of(links, plan, found.worst.places)).epsilon(1e-12));
    const double greedy = seconds_of(links, plan, greedy_rule(links, plan));
    const double halves = seconds_of(links, plan, bisection_rule(links, identity_placement(64)));
    for (const double other : {found.identity.seconds, greedy, halves}) CHECK(found.best.seconds <= other);
    CHECK(found.worst.seconds >= std::max({found.identity.seconds, greedy, halves}));
  }
}

TEST_CASE("the cost of a changed rank_placement is that of a new one, and a change that is taken back leaves no trace",
          "[configurator]")
{
  support::dice dice{3};
  for (const auto& [stages, replicas, nodes] :
       std::vector<std::array<std::uint32_t, 3>>{{4, 3, 12}, {4, 3, 14}, {1, 6, 6}, {6, 1, 8}}) {
    const link_matrix links = random_links(nodes, 8, dice);
    const placed_transfers plan = random_plan(stages, replicas, dice);
    placement_cost cost{links, plan, identity_placement(nodes)};
    for (int change = 0; change < 300; ++change) {
      const double before = cost.seconds();
      const std::uint32_t kind = dice.below(3);
      const std::uint32_t end = kind == 0 ? nodes : kind == 1 ? replicas : stages;
      const std::uint32_t left = dice.below(end);
      const std::uint32_t right = dice.below(end);
      const auto apply = [&] {
        if (kind == 0) cost.swap(left, right);
        if (kind == 1) cost.swap_replicas(left, right);
        if (kind == 2) cost.swap_stages(left, right);
      };
      apply();
      CHECK(cost.seconds() == Catch::Approx(seconds_of(links, plan, cost.places())).epsilon(1e-12));
      if (!dice.one_in(2)) continue;
      apply();
      CHECK(cost.seconds() == before);
    }
  }
}

TEST_CASE("a search gives the same placement again", "[configurator]")
{
  support::dice dice{4};
  const link_matrix links = random_links(16, 8, dice);
  const placed_transfers plan = random_plan(4, 4, dice);
  const placement_effort effort{.trials = 2'000};
  CHECK(place_ranks(links, plan, effort).best.places == place_ranks(links, plan, effort).best.places);
  const found_placements untried = place_ranks(links, plan, {.trials = 0});
  CHECK(untried.best.seconds <= untried.identity.seconds);
}

TEST_CASE("a search finds the same best placement without the worst one, and ends at the look at which it is stopped",
          "[configurator]")
{
  support::dice dice{6};
  const link_matrix links = random_links(16, 8, dice);
  const placed_transfers plan = random_plan(4, 4, dice);
  placement_effort effort{.trials = 6'000};
  const found_placements both = place_ranks(links, plan, effort);
  effort.finds_worst = false;
  const found_placements best = place_ranks(links, plan, effort);
  CHECK(best.best.places == both.best.places);
  CHECK(best.worst.places == best.identity.places);
  CHECK(both.worst.seconds > both.identity.seconds);
  int looks = 0;
  effort.stop = pipeline::interruption{[&] { return ++looks == 9; }};
  CHECK_THROWS_AS(place_ranks(links, plan, effort), pipeline::interrupted);
  CHECK(looks == 9);
}

TEST_CASE("links and plans that cannot be are refused with one sentence", "[configurator]")
{
  const auto refusal = [](const link_matrix& links, const placed_transfers& plan) {
    return support::refusal<config_error>([&] { (void)place_ranks(links, plan); });
  };
  CHECK_THROWS_WITH(link_matrix{0}, ContainsSubstring("a cluster of 0 nodes"));
  const link_matrix links{4};
  CHECK_THAT(refusal(links, {.stages = 5}), ContainsSubstring("5 stages and 1 replicas do not fit 4 nodes"));
  CHECK_THAT(refusal(links, {.stages = 0}), ContainsSubstring("0 stages"));
  CHECK_THAT(refusal(links, {.stages = 65'536, .replicas = 65'537}), ContainsSubstring("do not fit 4 nodes"));
  CHECK_THAT(refusal(links, {.stages = 2, .round_trips = -1}), ContainsSubstring("round trips"));
  link_matrix slow = links;
  slow(1, 2).bytes_per_second = 0;
  CHECK_THAT(refusal(slow, {.stages = 2}), ContainsSubstring("from node 1 to node 2 has a rate that is not above 0"));
  slow(1, 2) = {.latency = std::numeric_limits<double>::quiet_NaN()};
  CHECK_THAT(refusal(slow, {.stages = 2}), ContainsSubstring("has a latency that is negative or not a number"));
  slow(1, 2) = {};
  slow(3, 3) = {.latency = -1};  // to itself
  CHECK(refusal(slow, {.stages = 2}).empty());
  CHECK_THROWS_WITH((placement_cost{links, {.stages = 2}, {0, 1, 1, 2}}), ContainsSubstring("each node once"));
  CHECK_THROWS_WITH((placement_cost{links, {.stages = 2}, {0, 1}}), ContainsSubstring("each node once"));
}

}  // namespace placement_search_test
