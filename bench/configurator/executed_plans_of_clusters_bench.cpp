// SPDX-License-Identifier: Apache-2.0
// How far is an executed step of a plan from the time that the configurator predicts, on links that differ in every
// direction? Does the prediction order plans correctly? How often does the search for places find the best one?
//
// Ranks are threads. Runs, transfers, sums, gathers and updates sleep for the time of the cluster, so two cores are
// enough. A stage's gather before the first run of a batch, and its sum after the last one, begin when all replicas
// have arrived. With two versions, sums and updates overlap the runs. Fifty random plans on random clusters of up to
// eight nodes, or the number in the argument. Then the search for the places of eight ranks, on 200 random clusters.
#include "../transfer/planning_figures.hpp"
#include "sleeping_ranks.hpp"

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/placement_search.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <configurator/placement_rules.hpp>
#include <configurator/usual_node.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace chunkmem;
using namespace chunkmem::configurator;
using namespace chunkmem::literals;
using sleeping_ranks::execute;

/// Nodes that differ in speed, and links that differ pair by pair and in each direction.
cluster roll_cluster(support::dice& dice, std::uint32_t nodes)
{
  cluster whole{.name = "rolled", .nodes{}};
  for (std::uint32_t it = 0; it < nodes; ++it) {
    whole.nodes.push_back(support::usual_node("node " + std::to_string(it)));
    whole.nodes.back().device_flops_per_second = 4e12 * dice.between(70, 130) / 100.0;
  }
  whole.links = link_matrix{nodes};
  for (std::uint32_t from = 0; from < nodes; ++from)
    for (std::uint32_t to = 0; to < nodes; ++to)
      whole.links(from, to) = {.latency = 1e-4 * dice.between(1, 10), .bytes_per_second = 4e7 * dice.between(4, 60)};
  return whole;
}

parallel_plan roll_plan(support::dice& dice, std::uint32_t nodes)
{
  constexpr schedule_kind kinds[] = {schedule_kind::gpipe,       schedule_kind::one_f_one_b,  schedule_kind::eager,
                                     schedule_kind::interleaved, schedule_kind::two_versions, schedule_kind::zb_h1,
                                     schedule_kind::zb_h2,       schedule_kind::zb_v};
  parallel_plan plan;
  plan.stages = dice.between(2, 4);
  plan.replicas = dice.between(1, nodes / plan.stages);
  plan.micro_batches = plan.stages * dice.between(1, 2);
  plan.schedule = kinds[dice.below(8)];
  plan.parts = plan.schedule == schedule_kind::interleaved || plan.schedule == schedule_kind::zb_v ? 2 : 1;
  plan.recomputes = dice.one_in(4);
  plan.states_on_host = dice.one_in(2);
  plan.devices.resize(nodes);
  std::iota(plan.devices.begin(), plan.devices.end(), 0U);
  for (std::uint32_t it = nodes; it > 1; --it) std::swap(plan.devices[it - 1], plan.devices[dice.below(it)]);
  plan.devices.resize(plan.ranks());
  plan.zero = dice.between(1, 3);
  return plan;
}

struct comparison {
  std::vector<double> said;
  std::vector<double> found;

  [[nodiscard]] double worst_error_percent() const
  {
    double worst = 0;
    for (std::size_t it = 0; it < said.size(); ++it) worst = std::max(worst, std::abs(said[it] / found[it] - 1));
    return 100 * worst;
  }
  /// The rank correlation, without ties.
  [[nodiscard]] double spearman() const
  {
    const auto ranks_of = [](const std::vector<double>& values) {
      std::vector<std::size_t> order(values.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::ranges::sort(order, {}, [&](std::size_t it) { return values[it]; });
      std::vector<double> ranks(values.size());
      for (std::size_t it = 0; it < order.size(); ++it) ranks[order[it]] = static_cast<double>(it);
      return ranks;
    };
    const std::vector<double> left = ranks_of(said), right = ranks_of(found);
    double squares = 0;
    for (std::size_t it = 0; it < left.size(); ++it) squares += (left[it] - right[it]) * (left[it] - right[it]);
    const auto count = static_cast<double>(left.size());
    return 1 - 6 * squares / (count * (count * count - 1));
  }
};

comparison compare_random_plans(std::uint64_t count)
{
  const workload::transformer_shape shape{.layers = 8,
                                          .hidden = 1024,
                                          .heads = 16,
                                          .kv_heads = 16,
                                          .ffn = 4096,
                                          .vocabulary = 1000,
                                          .embedding = 1024,
                                          .positions = 0,
                                          .sequence = 512};
  comparison all;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    support::dice dice{seed};
    const std::uint32_t nodes = dice.between(4, 8);
    const cluster whole = roll_cluster(dice, nodes);
    const parallel_plan plan = roll_plan(dice, nodes);
    const step_latency latency{whole, shape};
    all.said.push_back(latency.of(plan).step);
    all.found.push_back(execute(plan, latency));
    std::printf(
        "%-12s %u stages x %u replicas, ZeRO %u, %2u micro-batches%s%s: said %.4f s, executed %.4f s, ratio %.3f\n",
        std::string{name_of(plan.schedule)}.c_str(), plan.stages, plan.replicas, plan.zero, plan.micro_batches,
        plan.recomputes ? ", recompute" : "", plan.states_on_host ? ", states on the host" : "", all.said.back(),
        all.found.back(), all.said.back() / all.found.back());
  }
  return all;
}

/// Of 200 random clusters of eight nodes, the percentage for which the search finds the best place of each rank.
double percent_of_best_places()
{
  support::dice dice{1};
  int found = 0;
  for (int it = 0; it < 200; ++it) {
    const link_matrix links = placement_test::random_links(8, it % 2 == 0 ? 1.2 : 8, dice);
    const std::uint32_t stages = std::vector<std::uint32_t>{2, 4, 8, 4}[static_cast<std::size_t>(it) % 4];
    const placed_transfers plan{.stages = stages,
                                .replicas = 8 / stages,
                                .boundary = bytes{dice.between(1, 32)} * 1'048'576,
                                .round_trips = static_cast<double>(dice.between(1, 16)),
                                .gradients = bytes{dice.between(1, 1'024)} * 1'048'576};
    const double best = place_ranks(links, plan).best.seconds;
    const double annealed = place_ranks(links, plan, {.trials = 20'000, .exact_nodes = 0}).best.seconds;
    found += annealed <= best * (1 + 1e-12) ? 1 : 0;
  }
  return found / 2.0;
}

}  // namespace

int main(int count, char** arguments)
{
  const comparison found = compare_random_plans(count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 50);
  return transfer_bench::write_figures(
      "executed_plans_of_clusters_bench",
      {{"configurator.latency_error_percent_worst", found.worst_error_percent(), "%", "<=", 10},
       {"configurator.latency_spearman", found.spearman(), "correlation", ">=", 0.97},
       {"configurator.placement_optimum_percent", percent_of_best_places(), "%", ">=", 95}});
}
