// SPDX-License-Identifier: Apache-2.0
// Does a search of a minute find plans as good as those that people make by hand?
//
// 70b: Llama-2-70B on 4 x 8 A100 of 40 GB and on 8 x 8 A100 of 80 GB. Two threads search for 60 seconds. The hand plans
// have stated degrees; of each the best micro-batch, place of states, recompute and ZeRO are taken, in the order of
// devices, by the same clock and the same rehearsals.
// 454b: a model of 454 billion parameters on 4 x 8 A100 of 80 GB. Does the search find a plan that fits?
// clusters: ten clusters made by a seed. The plan of twenty seconds, over the best plan of a coarse grid.
// 4090: GPT-3 XL on two RTX 4090 and an RTX 3090 with 1 GbE. The plan that is found, over the best one of the two 4090.
//
// Seconds of a search are processor time of both threads, halved: other programs on the machine take none of it.
// hand_plans_bench [PART...]   the parts with these names; all where none is named
#include "../transfer/planning_figures.hpp"
#include "dgx_nodes.hpp"

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/plan_search.hpp>
#include <chunkmem/configurator/plan_space.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/rank_places.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/interruption.hpp>
#include <chunkmem/workload/named_transformers.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace chunkmem;
using namespace chunkmem::configurator;
using namespace chunkmem::literals;
using configurator_bench::dgx;

constexpr double nothing_fits = std::numeric_limits<double>::infinity();

constexpr unsigned threads = 2;

/// Processor time of this process, for each of the threads of a search.
double seconds_so_far()
{
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC / threads;
}

/// The clock of the search, without its order: the time of a plan with all that it moves.
class judge {
 public:
  judge(const cluster& whole, const trained_model& model) : whole_{whole}, model_{model} {}

  /// No placement of the plan takes less.
  [[nodiscard]] double least_seconds(const parallel_plan& plan) const
  {
    return bound_.of(plan, parts_of(model_, plan));
  }
  /// Infinite where the plan does not fit, cannot be, or takes `enough` or more.
  [[nodiscard]] double seconds_of(const parallel_plan& plan, double enough) const
  {
    try {
      if (!bound_.memory_of(plan, parts_of(model_, plan)).fits) return nothing_fits;
      if (least_seconds(plan) >= enough || latency_.of(plan).step >= enough) return nothing_fits;
      const planned_work work = work_of(model_, with_few_micro_batches(plan, model_), latency_.typical_seconds(plan));
      if (!refuse_by_leases(whole_, work).fits) return nothing_fits;
      const memory_proof proof = prove_memory(whole_, work, {}, refused_stages::are_left_out);
      return proof.fits ? latency_.of(plan, moved_by(whole_, plan, proof)).step : nothing_fits;
    } catch (const config_error&) {
      return nothing_fits;
    }
  }

 private:
  const cluster& whole_;
  const trained_model& model_;
  step_latency latency_{whole_, model_};
  free_bound bound_{whole_, model_.trainer};
};

struct hand_plan {
  std::uint32_t tensor = 1;
  std::uint32_t stages = 1;
  bool recomputes = false;
  bool states_on_host = false;
};

/// The best micro-batch and ZeRO of a plan by hand, optionally with recompute and states on the host.
double best_by_hand(const cluster& whole, const trained_model& model, std::uint64_t rows, const hand_plan& given)
{
  const judge clock{whole, model};
  parallel_plan plan{.tensor = given.tensor, .stages = given.stages, .devices = identity_placement(whole.ranks())};
  plan.replicas = whole.ranks() / plan.tensor / plan.stages;
  double best = nothing_fits;
  std::string words = "nothing that fits";
  for (plan.micro_batch = 1; plan.micro_batch <= 8; plan.micro_batch *= 2)
    for (const bool recomputes : {false, true})
      for (const bool on_host : {false, true})
        for (plan.zero = 1; plan.zero <= (plan.replicas > 1 ? 2U : 1U); ++plan.zero) {
          if (recomputes < given.recomputes || on_host < given.states_on_host) continue;
          if (rows % (plan.replicas * plan.micro_batch) != 0) continue;
          plan.micro_batches = static_cast<std::uint32_t>(rows / plan.replicas / plan.micro_batch);
          plan.recomputes = recomputes;
          plan.states_on_host = on_host;
          const double seconds = clock.seconds_of(plan, best);
          if (seconds >= best) continue;
          best = seconds;
          words = text_of(plan);
        }
  std::printf("  by hand  %9.4g s  %s\n", best, words.c_str());
  return best;
}

plan_search_result search_for(const cluster& whole, const trained_model& model, const plan_space& space, double seconds)
{
  const double begin = seconds_so_far();
  const pipeline::interruption stop{[=] { return seconds_so_far() - begin > seconds; }};
  plan_search_result found = find_plans(whole, model, space, {.threads = threads, .best = 3, .stop = stop});
  std::printf("  %.1f s: %llu plans, %llu simulated, %llu rehearsed, no plan below %.4g s\n", seconds_so_far() - begin,
              static_cast<unsigned long long>(found.plans), static_cast<unsigned long long>(found.simulated),
              static_cast<unsigned long long>(found.rehearsed), found.bound);
  if (!found.best.empty())
    std::printf("  found    %9.4g s  %s\n", found.best.front().time.step, text_of(found.best.front().plan).c_str());
  std::fflush(stdout);
  return found;
}

struct searched {
  double over_hand = 0;
  double over_bound = 0;
};

searched against_hand_plans(const cluster& whole, const trained_model& model, std::uint64_t rows)
{
  std::printf("%zu nodes, devices of %llu GiB, %llu rows\n", whole.nodes.size(),
              static_cast<unsigned long long>(whole.nodes[0].device_bytes.count() >> 30U),
              static_cast<unsigned long long>(rows));
  const plan_search_result found = search_for(whole, model, {.rows = rows, .schedules = {}}, 60);
  double hand = nothing_fits;
  for (const hand_plan& it : {hand_plan{.tensor = 8, .stages = 4, .recomputes = true},
                              {.tensor = 1, .stages = 16, .recomputes = true, .states_on_host = true},
                              {.tensor = 4, .stages = 8},
                              {.tensor = 1, .stages = 32}})
    hand = std::min(hand, best_by_hand(whole, model, rows, it));
  if (found.best.empty()) return {nothing_fits, nothing_fits};
  const double best = found.best.front().time.step;
  return {best / hand, best / found.bound};
}

/// Nodes of one or two devices, whose speeds, memories and links differ.
cluster roll_cluster(support::dice& dice)
{
  cluster whole = dgx(dice.between(2, 4), 40_GiB);
  std::uint32_t number = 0;
  for (cluster_node& it : whole.nodes) {
    it.kind = "node " + std::to_string(number++);
    it.devices = dice.between(1, 2);
    it.device_flops_per_second *= dice.between(60, 100) / 100.0;
    it.device_bytes = bytes{std::uint64_t{dice.between(6, 30)} << 30};
  }
  const auto nodes = static_cast<std::uint32_t>(whole.nodes.size());
  for (std::uint32_t from = 0; from < nodes; ++from)
    for (std::uint32_t to = 0; to < nodes; ++to)
      if (from != to) whole.links(from, to).bytes_per_second = 1e9 * dice.between(1, 20);
  return whole;
}

/// The best of every plan on all devices in their order, with the schedules 1f1b and zb-h1.
double best_of_grid(const cluster& whole, const trained_model& model, std::uint64_t rows)
{
  const judge clock{whole, model};
  const plan_space space{
      .rows = rows, .most_parts = 1, .schedules = {schedule_kind::one_f_one_b, schedule_kind::zb_h1}};
  std::vector<std::pair<double, parallel_plan>> all;
  for (const plan_family& family : families_of(space, model.shape, whole.ranks()))
    for (parallel_plan plan : family.plans) {
      plan.devices = identity_placement(whole.ranks());
      all.emplace_back(clock.least_seconds(plan), plan);
    }
  std::ranges::sort(all, {}, &std::pair<double, parallel_plan>::first);  // good ones first: the others end early
  double best = nothing_fits;
  for (const auto& [least, plan] : all) best = std::min(best, clock.seconds_of(plan, best));
  return best;
}

double over_coarse_grid()
{
  const trained_model model{workload::shape_of("PatrickStar", "GPT2_4B")};
  double worst = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    support::dice dice{seed};
    const cluster whole = roll_cluster(dice);
    const std::uint64_t rows = std::uint64_t{whole.ranks()} * 8;
    std::printf("cluster %llu: %u devices\n", static_cast<unsigned long long>(seed), whole.ranks());
    const plan_search_result found = search_for(whole, model, {.rows = rows, .schedules = {}}, 20);
    const double grid = best_of_grid(whole, model, rows);
    std::printf("  the grid %9.4g s\n", grid);
    if (grid == nothing_fits) continue;
    worst = std::max(worst, found.best.empty() ? nothing_fits : found.best.front().time.step / grid);
  }
  return worst;
}

/// Two nodes: two devices of the speed of an RTX 4090, and one of an RTX 3090.
double with_slow_device_over_without()
{
  cluster whole = dgx(2, 24_GiB);
  whole.name = "2 x 4090, 3090";
  for (cluster_node& it : whole.nodes) it.host_bytes = 64_GiB;
  whole.nodes[0].kind = "4090";
  whole.nodes[0].devices = 2;
  whole.nodes[0].device_flops_per_second = 7.4e13;
  whole.nodes[1].kind = "3090";
  whole.nodes[1].devices = 1;
  whole.nodes[1].device_flops_per_second = 3.2e13;
  whole.links = link_matrix{2, {.latency = 5e-5, .bytes_per_second = 1.17e8}};
  for (std::uint32_t it = 0; it < 2; ++it) whole.links(it, it) = {.latency = 1e-5, .bytes_per_second = 1.2e10};
  const trained_model model{workload::transformer_shape{.layers = 24,
                                                        .hidden = 2'048,
                                                        .heads = 16,
                                                        .kv_heads = 16,
                                                        .ffn = 8'192,
                                                        .vocabulary = 50'257,
                                                        .embedding = 2'048,
                                                        .positions = 2'048,
                                                        .sequence = 2'048}};
  const auto best = [&] { return search_for(whole, model, {.rows = 48, .schedules = {}}, 20).best.at(0).time.step; };
  std::printf("two RTX 4090 and an RTX 3090\n");
  const double with = best();
  whole.nodes.resize(1);
  const pair_link inner = whole.links(0, 0);
  whole.links = link_matrix{1, inner};
  return with / best();
}

}  // namespace

int main(int count, char** arguments)
{
  const std::vector<std::string_view> named(arguments + 1, arguments + count);
  const auto is_wanted = [&](std::string_view part) {
    return named.empty() || std::ranges::find(named, part) != named.end();
  };
  std::vector<transfer_bench::figure> figures;
  if (is_wanted("70b")) {
    const trained_model llama{workload::shape_of("Gemini LLaMA", "70b")};
    const searched small = against_hand_plans(dgx(4, 40_GiB), llama, 64);
    const searched large = against_hand_plans(dgx(8, 80_GiB), llama, 128);
    figures.push_back(
        {"plan.search_70b_over_best_hand_plan", std::max(small.over_hand, large.over_hand), "ratio", "<=", 1.05});
    figures.push_back({"plan.search_70b_over_bound", std::max(small.over_bound, large.over_bound), "ratio", "<=", 1.3});
  }
  if (is_wanted("454b")) {
    std::printf("454 billion parameters\n");
    const trained_model huge{workload::shape_of("PatrickStar", "454B")};
    const bool fits = !search_for(dgx(4, 80_GiB), huge, {.rows = 64, .schedules = {}}, 60).best.empty();
    figures.push_back({"plan.search_454b_fits", fits ? 1.0 : 0.0, "plans", "==", 1});
  }
  if (is_wanted("clusters"))
    figures.push_back({"plan.search_over_coarse_grid_worst", over_coarse_grid(), "ratio", "<=", 1.05});
  if (is_wanted("4090"))
    figures.push_back({"plan.search_with_slow_device_over_without", with_slow_device_over_without(), "ratio", "<=", 1});
  return transfer_bench::write_figures("hand_plans_bench", figures);
}
