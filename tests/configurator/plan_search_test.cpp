// SPDX-License-Identifier: Apache-2.0
// The search for plans, against every plan on every order of the devices.
#include <chunkmem/configurator/free_bound.hpp>
#include <chunkmem/configurator/least_memory.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/plan_search.hpp>
#include <chunkmem/configurator/plan_space.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/rank_places.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/interruption.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include "exhaustive_search.hpp"
#include "usual_node.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace plan_search_test {

using namespace chunkmem;
using namespace chunkmem::configurator;
using namespace chunkmem::literals;

namespace {

plan_space small_space()
{
  return {.rows = 16, .schedules = {schedule_kind::one_f_one_b, schedule_kind::two_versions, schedule_kind::zb_h1}};
}

/// @return   nothing where there is no such schedule
std::optional<double> seconds_of(const step_latency& latency, const parallel_plan& plan)
{
  try {
    return latency.of(plan).step;
  } catch (const config_error&) {
    return std::nullopt;
  }
}

}  // namespace

TEST_CASE("the plan that is found is as fast as the best of all plans on all orders of devices", "[configurator]")
{
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    support::dice dice{seed};
    const cluster whole = exhaustive_search::roll_cluster(dice, 4);
    const workload::transformer_shape shape = exhaustive_search::shape();
    const plan_search_result found = find_plans(whole, shape, small_space());
    CAPTURE(seed);
    REQUIRE_FALSE(found.best.empty());
    CHECK(found.is_whole);
    CHECK(found.best.front().time.step <= 1.02 * exhaustive_search::best_seconds(whole, small_space()));
  }
}

TEST_CASE("threads find the same plans", "[configurator]")
{
  const workload::transformer_shape shape = exhaustive_search::shape();
  for (const std::uint32_t nodes : {4U, 6U, 8U}) {
    support::dice dice{7};
    const cluster whole = exhaustive_search::roll_cluster(dice, nodes);
    const plan_space space{.rows = std::uint64_t{nodes} * 2,
                           .schedules = {schedule_kind::one_f_one_b, schedule_kind::zb_h1}};
    const auto plans = [&](unsigned threads) {
      std::vector<std::pair<parallel_plan, double>> all;
      const plan_search_result found = find_plans(whole, shape, space, {.threads = threads, .best = 5});
      REQUIRE(found.is_whole);
      for (const found_plan& it : found.best) all.emplace_back(it.plan, it.time.step);
      return all;
    };
    const auto alone = plans(1);
    CAPTURE(nodes);
    CHECK(alone.size() == 5);
    CHECK(plans(2) == alone);
    CHECK(plans(4) == alone);
  }
}

TEST_CASE("a plan that lacks room on the fastest places of its family is found on places of its own",
          "[configurator][.slow]")
{
  support::dice dice{5};
  cluster whole = exhaustive_search::roll_cluster(dice, 8);
  for (cluster_node& it : whole.nodes) it.device_bytes = bytes{it.device_bytes.count() / 10};
  const workload::transformer_shape shape = exhaustive_search::shape();
  const plan_space space{.rows = 16, .with_tensor = false, .schedules = {schedule_kind::one_f_one_b}};
  const found_plan best = find_plans(whole, shape, space, {.best = 1}).best.at(0);
  CHECK(best.plan.stages == 8);  // on the places of families, five devices are the fastest
  CHECK(find_plans(whole, shape, space, {.threads = 2, .best = 1}).best.at(0).plan == best.plan);
}

TEST_CASE("plans that are found fit, in the order of their times, and every other plan has a reason", "[configurator]")
{
  support::dice dice{11};
  const cluster whole = exhaustive_search::roll_cluster(dice, 4);
  const workload::transformer_shape shape = exhaustive_search::shape();
  const plan_search_result found = find_plans(whole, shape, small_space());
  std::uint64_t rejected = 0;
  for (const rejected_plans& it : found.rejected) {
    CHECK_FALSE(it.why.empty());
    CHECK_FALSE(it.example.empty());
    rejected += it.count;
  }
  CHECK(rejected + found.best.size() == found.plans);
  CHECK(std::ranges::is_sorted(found.best, {}, [](const found_plan& it) { return it.time.step; }));
  for (const found_plan& it : found.best) {
    CHECK(it.memory.fits);
    CHECK(it.bound <= it.time.step * (1 + 1e-9));
    CHECK(it.plan.rows() == 16);
  }
}

TEST_CASE("the bound of a plan and its schedule put parts on the same stages", "[configurator]")
{
  for (std::size_t kind = 0; kind < schedule_kinds; ++kind) {
    parallel_plan plan{.stages = 4, .micro_batches = 8};
    plan.schedule = static_cast<schedule_kind>(kind);
    plan.parts = plan.schedule == schedule_kind::interleaved || plan.schedule == schedule_kind::zb_v ? 2 : 1;
    CAPTURE(name_of(plan.schedule));
    CHECK(owners_of(plan) == schedule_of(plan, {.forward = 1, .backward_input = 1, .backward_weight = 1}).owners);
  }
}

TEST_CASE("a group of ranks on two nodes has the slowest of its links", "[configurator]")
{
  support::dice dice{2};
  cluster whole = exhaustive_search::roll_cluster(dice, 4);
  for (cluster_node& it : whole.nodes) {
    it = whole.nodes.front();
    it.devices = 2;
  }
  whole.links = link_matrix{4, {.latency = 1e-6, .bytes_per_second = 1e10}};
  whole.links(1, 3).bytes_per_second = 1e8;  // between the second halves of both groups
  const workload::transformer_shape shape = exhaustive_search::shape();
  const parallel_plan plan{.tensor = 4, .stages = 2, .micro_batches = 4};
  CHECK(group_places{whole, plan, parts_of(shape, plan)}.promising({}).size() == 2);
  whole.links(1, 3).bytes_per_second = 1e10;
  CHECK(group_places{whole, plan, parts_of(shape, plan)}.promising({}).size() == 1);
}

TEST_CASE("no plan with all that it moves is faster than its free bound", "[configurator]")
{
  support::dice dice{5};
  const workload::transformer_shape shape = exhaustive_search::shape();
  int fit = 0, move = 0, without_room = 0;
  for (int round = 0; round < 4; ++round) {
    cluster whole = exhaustive_search::roll_cluster(dice, 8);
    if (round % 2 == 1)
      for (cluster_node& it : whole.nodes) it.device_bytes = bytes{it.device_bytes.count() / 16};
    if (round > 1)  // products of one row and layer have 1e9 to 4e9 FLOP
      for (cluster_node& it : whole.nodes)
        it.product_curve = {{.flops = 5e8, .part = dice.between(20, 90) / 100.0}, {.flops = 2e10, .part = 1}};
    const step_latency latency{whole, shape};
    const free_bound bound{whole};
    for (const plan_family& family : families_of({.rows = 32, .schedules = {}}, shape, 8)) {
      parallel_plan plan = family.plans[dice.below(static_cast<std::uint32_t>(family.plans.size()))];
      plan.devices.resize(8);
      std::iota(plan.devices.begin(), plan.devices.end(), 0U);
      for (std::uint32_t it = 8; it > 1; --it) std::swap(plan.devices[it - 1], plan.devices[dice.below(it)]);
      CAPTURE(text_of(plan));
      const std::vector<model_part> parts = parts_of(shape, plan);
      if (!seconds_of(latency, plan)) continue;
      const memory_proof proof = prove_memory(whole, work_of(shape, plan, latency.typical_seconds(plan)));
      if (!bound.memory_of(plan, parts).fits) {
        CHECK_FALSE(proof.fits);
        ++without_room;
      }
      if (!proof.fits) continue;
      const std::vector<moved_bytes> moved = moved_by(whole, plan, proof);
      CHECK(bound.of(plan, parts) <= latency.of(plan, moved).step * (1 + 1e-9));
      ++fit;
      move += moved.front() == moved_bytes{} ? 0 : 1;
    }
  }
  CHECK(fit > 20);
  CHECK(move > 5);
  CHECK(without_room > 5);
}

TEST_CASE("a plan of zb-v likely fits where the activations of 1F1B have room", "[configurator]")
{
  const workload::transformer_shape shape = exhaustive_search::shape();
  parallel_plan plan{.stages = 4, .micro_batches = 16, .schedule = schedule_kind::zb_v, .parts = 2};
  plan.devices = {0, 1, 2, 3};
  const std::vector<model_part> parts = parts_of(shape, plan);
  bytes usual{};
  for (const least_memory& it : least_memory_of(plan, parts)) {
    usual = std::max(usual, it.usual_leases);
    CHECK(it.leases < it.usual_leases);
  }
  support::dice dice{1};
  cluster whole = exhaustive_search::roll_cluster(dice, 4);
  for (const bytes less : {bytes{}, bytes{1}}) {
    for (cluster_node& it : whole.nodes) it.device_bytes = usual - less;
    CHECK(free_bound{whole}.likely_fits(plan, parts) == (less == bytes{}));
    CHECK(free_bound{whole}.memory_of(plan, parts).fits);
  }
  plan.schedule = schedule_kind::interleaved;
  for (const least_memory& it : least_memory_of(plan, parts)) CHECK(it.leases == it.usual_leases);
}

TEST_CASE("a search that is stopped gives the best so far", "[configurator]")
{
  support::dice dice{3};
  const cluster whole = exhaustive_search::roll_cluster(dice, 8);
  const workload::transformer_shape shape = exhaustive_search::shape();
  const plan_search_result none =
      find_plans(whole, shape, small_space(), {.stop = pipeline::interruption{[] { return true; }}});
  CHECK_FALSE(none.is_whole);
  CHECK(none.best.empty());
  CHECK(none.simulated == 0);
}

TEST_CASE("a search ends at the look at which it is stopped, within a simulation too", "[configurator]")
{
  support::dice dice{3};
  const cluster whole = exhaustive_search::roll_cluster(dice, 4);
  const workload::transformer_shape shape = exhaustive_search::shape();
  for (const int stops_at : {40, 400, 4'000}) {
    int looks = 0;
    const pipeline::interruption stop{[&] { return ++looks >= stops_at; }};
    const plan_search_result found = find_plans(whole, shape, small_space(), {.stop = stop});
    CHECK_FALSE(found.is_whole);
    CHECK(looks <= stops_at + 1);
    CHECK(std::ranges::any_of(
        found.rejected, [](const rejected_plans& it) { return it.why == "not looked at: the search was stopped"; }));
  }
}

TEST_CASE("no plan takes less than the bound of a search, which a whole search reaches", "[configurator]")
{
  support::dice dice{13};
  const cluster whole = exhaustive_search::roll_cluster(dice, 4);
  const workload::transformer_shape shape = exhaustive_search::shape();
  const plan_search_result all = find_plans(whole, shape, small_space());
  const double best = all.best.front().time.step;
  CHECK(all.bound == best);
  double before = 0;
  for (const std::uint64_t simulations : {1U, 8U, 64U}) {
    const plan_search_result some = find_plans(whole, shape, small_space(), {.simulations = simulations});
    CHECK(some.simulated == simulations);
    CHECK_FALSE(some.is_whole);
    CHECK(some.bound <= best * (1 + 1e-9));
    CHECK(some.bound >= before * (1 - 1e-9));
    before = some.bound;
  }
}

TEST_CASE("a few simulations find a plan that is nearly as fast as the best", "[configurator][.slow]")
{
  support::dice dice{21};
  const cluster whole = exhaustive_search::roll_cluster(dice, 8);
  const workload::transformer_shape shape = exhaustive_search::shape();
  const plan_search_result some = find_plans(whole, shape, small_space(), {.simulations = 16});
  REQUIRE_FALSE(some.best.empty());
  CHECK(some.best.front().time.step <= 1.25 * find_plans(whole, shape, small_space()).best.front().time.step);
}

TEST_CASE("a slow device on a slow link is left idle", "[configurator]")
{
  cluster whole{.name = "two and one", .nodes{}};
  whole.nodes = {support::usual_node("fast", 2), support::usual_node("slow", 1)};
  whole.nodes[1].device_flops_per_second /= 3;
  whole.links = link_matrix{2, {.latency = 5e-5, .bytes_per_second = 1.2e8}};
  whole.links(0, 0) = {.latency = 1e-5, .bytes_per_second = 1.2e10};
  const workload::transformer_shape shape = exhaustive_search::shape();
  const plan_search_result found = find_plans(whole, shape, {.rows = 24, .schedules = {}}, {.best = 1});
  std::vector<std::uint32_t> devices = found.best.at(0).plan.devices;
  std::ranges::sort(devices);
  CHECK(devices == std::vector<std::uint32_t>{0, 1});
  whole.nodes[1] = whole.nodes[0];
  whole.nodes[1].kind = "one fast";
  whole.nodes[1].devices = 1;
  whole.links(0, 1) = whole.links(1, 0) = whole.links(0, 0);
  CHECK(find_plans(whole, shape, {.rows = 24, .schedules = {}}, {.best = 1}).best.at(0).plan.ranks() == 3);
}

TEST_CASE("slow nodes leave first, and of equal nodes a power of two stays", "[configurator]")
{
  using numbers = std::vector<std::uint32_t>;
  support::dice dice{1};
  cluster small = exhaustive_search::roll_cluster(dice, 3);
  small.nodes[0].device_flops_per_second = 1e13;
  small.nodes[1].device_flops_per_second = 3e13;
  small.nodes[2].device_flops_per_second = 2e13;
  CHECK(device_choices(small) == std::vector<numbers>{{0, 1, 2}, {1, 2}, {1}});
  cluster large = exhaustive_search::roll_cluster(dice, 6);
  for (cluster_node& it : large.nodes) {
    it = support::usual_node("fast", 2);
    it.device_flops_per_second = 2e14;
  }
  large.nodes[0] = support::usual_node("slow", 2);
  const std::vector<numbers> choices = device_choices(large);
  REQUIRE(choices.size() == 5);
  CHECK(choices[0].size() == 12);
  CHECK(choices[1] == numbers{2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(choices[2] == numbers{2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(choices[4] == numbers{2, 3});
}

TEST_CASE("the slowest places are slower than all that a search tries, by the same clock", "[configurator]")
{
  support::dice dice{17};
  for (const std::uint32_t nodes : {3U, 6U}) {
    const cluster whole = exhaustive_search::roll_cluster(dice, nodes);
    const workload::transformer_shape shape = exhaustive_search::shape();
    const step_latency latency{whole, shape};
    const auto seconds = [&](const parallel_plan& it) { return latency.of(it).step; };
    parallel_plan plan{.stages = nodes, .micro_batches = 8, .devices = identity_placement(nodes)};
    const group_places places{whole, plan, parts_of(shape, plan)};
    const double worst = slowest_places(places, plan, 100, seconds);
    double seen = 0;
    do seen = std::max(seen, seconds(plan));
    while (std::ranges::next_permutation(plan.devices).found);
    CHECK(worst <= seen);
    CHECK(worst >= (nodes <= all_tried ? 1 : 0.98) * seen);
  }
}

TEST_CASE("a search for the slowest places ends at the look at which it is stopped, with the slowest so far",
          "[configurator]")
{
  support::dice dice{17};
  const cluster whole = exhaustive_search::roll_cluster(dice, 8);
  const workload::transformer_shape shape = exhaustive_search::shape();
  const parallel_plan plan{.stages = 8, .micro_batches = 8, .devices = identity_placement(8)};
  const group_places places{whole, plan, parts_of(shape, plan)};
  const step_latency latency{whole, shape};
  for (const int stops_at : {1, 2, 20, 200}) {
    int looks = 0, simulated = 0;
    double slowest = 0;
    const pipeline::interruption stop{[&] { return ++looks >= stops_at; }};
    const auto seconds = [&](const parallel_plan& it) {
      ++simulated;
      const double found = latency.of(it).step;
      slowest = std::max(slowest, found);
      return found;
    };
    if (stops_at == 1) {
      CHECK_THROWS_AS(slowest_places(places, plan, 200, seconds, stop), pipeline::interrupted);
      CHECK(simulated == 0);
      continue;
    }
    const double found =
        slowest_places(places, plan, 200, seconds, stop);  // a comparison may read its right side first
    CHECK(found == slowest);
    CHECK(looks == stops_at);
    CHECK(simulated <= stops_at);
  }
}

TEST_CASE("the bytes of a plan are exact unless chunks come and go in more micro-batches than can be rehearsed",
          "[configurator]")
{
  support::dice dice{2};
  cluster whole = exhaustive_search::roll_cluster(dice, 1);
  const workload::transformer_shape shape = exhaustive_search::shape();
  const std::uint32_t most = most_rehearsed(shape, {});
  const auto is_exact = [&](std::uint64_t rows, bytes device) {
    REQUIRE(with_few_micro_batches({.micro_batches = static_cast<std::uint32_t>(rows)}, shape).micro_batches < rows);
    whole.nodes[0].device_bytes = device;
    const plan_search_result found = find_plans(whole, shape, {.rows = rows, .schedules = {}}, {.best = 1});
    REQUIRE(found.best.at(0).plan.micro_batches == rows);
    return found.best.at(0).has_exact_memory;
  };
  REQUIRE(most < 2'003);
  CHECK(is_exact(2'003, 8_GiB));
  CHECK_FALSE(is_exact(2'003, 1_GiB));
  CHECK(is_exact(499, 1_GiB));
}

TEST_CASE("a device that is too small is told with the bytes that are missing", "[configurator]")
{
  support::dice dice{3};
  cluster whole = exhaustive_search::roll_cluster(dice, 4);
  for (cluster_node& it : whole.nodes) it.device_bytes = bytes{std::uint64_t{32} << 20};
  const workload::transformer_shape shape = exhaustive_search::shape();
  const plan_search_result found = find_plans(whole, shape, small_space());
  CHECK(found.best.empty());
  const auto memory = std::ranges::find(found.rejected, "too little memory on the device", &rejected_plans::why);
  REQUIRE(memory != found.rejected.end());
  CHECK_THAT(memory->example, Catch::Matchers::ContainsSubstring("33554432 B"));
}

TEST_CASE("plans without ranks that share layers are asked for by a flag", "[configurator]")
{
  const workload::transformer_shape shape = exhaustive_search::shape();
  for (const plan_family& it : families_of({.rows = 16, .with_tensor = false, .schedules = {}}, shape, 8))
    CHECK(it.plans.front().tensor == 1);
  CHECK(std::ranges::any_of(families_of({.rows = 16, .schedules = {}}, shape, 8),
                            [](const plan_family& it) { return it.plans.front().tensor == 4; }));
}

TEST_CASE("plans with ZeRO 0 are asked for by a flag", "[configurator]")
{
  const workload::transformer_shape shape = exhaustive_search::shape();
  const auto least = [&](bool with_zero_0) {
    std::uint32_t zero = 3;
    for (const plan_family& family : families_of({.rows = 16, .with_zero_0 = with_zero_0, .schedules = {}}, shape, 8))
      for (const parallel_plan& plan : family.plans) {
        zero = std::min(zero, plan.zero);
        CHECK((plan.zero > 0 || plan.replicas > 1));
      }
    return zero;
  };
  CHECK(least(false) == 1);
  CHECK(least(true) == 0);
}

TEST_CASE("a batch or a number of devices that nothing divides is refused", "[configurator]")
{
  using Catch::Matchers::ContainsSubstring;
  const workload::transformer_shape shape = exhaustive_search::shape();
  CHECK_THROWS_WITH(families_of({.rows = 0, .schedules = {}}, shape, 8), ContainsSubstring("a batch of 0 rows"));
  CHECK_THROWS_WITH(families_of({.rows = 16, .schedules = {}}, shape, 13),
                    ContainsSubstring("no plan divides 16 rows, 8 layers and 4 heads over 13 devices"));
}

TEST_CASE("whole units stay in the bytes that a device has above the smallest", "[configurator]")
{
  support::dice dice{1};
  cluster whole = exhaustive_search::roll_cluster(dice, 2);
  for (cluster_node& it : whole.nodes) it.device_bytes = 1_GiB;
  const parallel_plan plan{.replicas = 2, .zero = 3, .devices = {0, 1}};
  constexpr bytes room = 1_GiB;
  const auto moved = [&](bytes smallest, bytes gathered, bytes everything) {
    memory_proof proof;
    proof.stages.push_back({.gathered = gathered, .smallest_device = smallest, .everything = everything});
    return moved_by(whole, plan, proof).front();
  };
  CHECK(moved(room - 8_MiB, 8_MiB, room) == moved_bytes{});
  CHECK(moved(room - 8_MiB, 8_MiB, room + 2_MiB) == moved_bytes{.each_run = 2_MiB});
  CHECK(moved(room - 2_MiB, 8_MiB, room + 6_MiB) == moved_bytes{.gathered_share = 0.75});
  CHECK(moved(room, 8_MiB, room + 11_MiB) == moved_bytes{.each_run = 3_MiB, .gathered_share = 1});
}

}  // namespace plan_search_test
