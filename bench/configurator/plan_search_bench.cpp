// SPDX-License-Identifier: Apache-2.0
// How good are the plans that the search finds, and how long does it take?
//
// First, 20 random clusters of three to five nodes: the found plan, over the best of every plan on every order of the
// devices. Then ten fixed clusters: the found plan, over the plans that rules of other planners choose, all simulated.
// Rules whose updates wait for each batch are compared with the best plan of that kind. On three clusters of four nodes
// the plans are executed too, by ranks that sleep. Last, the time of a search for 64 and for 1,024 devices.
#include "../transfer/planning_figures.hpp"
#include "sleeping_ranks.hpp"

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/plan_search.hpp>
#include <chunkmem/configurator/plan_space.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <configurator/exhaustive_search.hpp>
#include <configurator/planner_rules.hpp>
#include <configurator/usual_node.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace chunkmem;
using namespace chunkmem::configurator;
using namespace chunkmem::literals;
using workload::transformer_shape;

/// Including the schedule that trains with older weights.
std::vector<schedule_kind> all_schedules()
{
  using enum schedule_kind;
  return {gpipe, one_f_one_b, eager, interleaved, two_versions, zb_h1, zb_h2, zb_v};
}

/// The worst ratio of 20 clusters.
double chosen_over_exhaustive()
{
  double worst = 0;
  const transformer_shape shape = exhaustive_search::shape();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    support::dice dice{seed};
    const std::uint32_t nodes = dice.between(3, 5);
    const cluster whole = exhaustive_search::roll_cluster(dice, nodes);
    const plan_space space{.rows = std::uint64_t{nodes} * 4, .schedules = all_schedules()};
    const double best = exhaustive_search::best_seconds(whole, space);
    const plan_search_result found = find_plans(whole, shape, space);
    if (found.best.empty()) {
      std::printf("cluster %2llu: nothing found, the best takes %.4f s\n", static_cast<unsigned long long>(seed), best);
      worst = std::max(worst, best < 1e300 ? 1e9 : 1.0);
      continue;
    }
    const double ratio = found.best.front().time.step / best;
    std::printf("cluster %2llu: %u nodes, %llu plans, %.4f of the best, %s\n", static_cast<unsigned long long>(seed),
                nodes, static_cast<unsigned long long>(found.plans), ratio, text_of(found.best.front().plan).c_str());
    worst = std::max(worst, ratio);
  }
  return worst;
}

transformer_shape gpt(std::uint64_t layers, std::uint64_t hidden)
{
  return {.layers = layers,
          .hidden = hidden,
          .heads = hidden / 128,
          .kv_heads = hidden / 128,
          .ffn = 4 * hidden,
          .vocabulary = 50'257,
          .embedding = hidden,
          .positions = 1'024,
          .sequence = 1'024};
}

/// Nodes of `devices` devices: 100 GB/s within a node, 12 GB/s between nodes.
cluster even_cluster(const std::string& name, std::uint32_t nodes, std::uint32_t devices)
{
  cluster whole{.name = name, .nodes{}};
  for (std::uint32_t it = 0; it < nodes; ++it) {
    whole.nodes.push_back(support::usual_node("node " + std::to_string(it), devices));
    whole.nodes.back().host_bytes = bytes{std::uint64_t{devices} << 36};
  }
  whole.links = link_matrix{nodes, {.latency = 1e-5, .bytes_per_second = 12e9}};
  for (std::uint32_t it = 0; it < nodes; ++it) whole.links(it, it) = {.latency = 3e-6, .bytes_per_second = 1e11};
  return whole;
}

/// Links between nodes that are up to `spread` times slower than the best, different in each direction.
cluster mixed_links(cluster whole, std::uint64_t seed, std::uint32_t spread)
{
  support::dice dice{seed};
  const auto nodes = static_cast<std::uint32_t>(whole.nodes.size());
  for (std::uint32_t from = 0; from < nodes; ++from)
    for (std::uint32_t to = 0; to < nodes; ++to)
      if (from != to) whole.links(from, to).bytes_per_second /= 0.01 * dice.between(100, 100 * spread);
  return whole;
}
cluster slower_node(cluster whole, std::uint32_t node, double times)
{
  whole.nodes[node].device_flops_per_second /= times;
  return whole;
}

struct stated_case {
  cluster whole;
  transformer_shape shape;
  std::uint64_t rows = 0;
};

std::vector<stated_case> stated_cases()
{
  const transformer_shape small = gpt(24, 1'024);
  const transformer_shape large = gpt(24, 2'048);
  return {{even_cluster("4 x 1, even", 4, 1), small, 32},
          {slower_node(even_cluster("4 x 1, one slow node", 4, 1), 2, 2), small, 32},
          {mixed_links(even_cluster("4 x 1, mixed links", 4, 1), 1, 8), small, 32},
          {even_cluster("2 x 4, even", 2, 4), small, 64},
          {mixed_links(even_cluster("8 x 1, mixed links", 8, 1), 2, 8), small, 64},
          {slower_node(mixed_links(even_cluster("8 x 1, mixed links, one slow node", 8, 1), 3, 4), 5, 1.5), small, 64},
          {even_cluster("4 x 4, even", 4, 4), large, 128},
          {mixed_links(even_cluster("4 x 4, mixed links", 4, 4), 4, 6), large, 128},
          {slower_node(even_cluster("4 x 4, one slow node", 4, 4), 1, 1.5), large, 128},
          {mixed_links(even_cluster("16 x 1, mixed links", 16, 1), 5, 10), large, 128}};
}

/// Whether plans fit, with a cache of the results.
class memory_of_plans {
 public:
  explicit memory_of_plans(const stated_case& of) : of_{of}, latency_{of.whole, of.shape} {}

  [[nodiscard]] bool fits(const parallel_plan& plan)
  {
    const std::string key = text_of(plan);
    if (const auto it = known_.find(key); it != known_.end()) return it->second;
    return known_[key] = find(plan);
  }
  /// Seconds with all transfers. @pre the plan fits
  [[nodiscard]] double seconds(const parallel_plan& plan) const
  {
    return latency_.of(plan, moved_by(of_.whole, plan, proof_of(plan))).step;
  }
  [[nodiscard]] const step_latency& latency() const noexcept { return latency_; }

 private:
  [[nodiscard]] bool find(const parallel_plan& plan) const
  {
    return refuse_by_leases(of_.whole, work_for(plan)).fits && proof_of(plan).fits;
  }
  [[nodiscard]] planned_work work_for(const parallel_plan& plan) const
  {
    const std::uint32_t batches = plan.schedule == schedule_kind::two_versions ? 3 : 1;
    return work_of(of_.shape, plan, latency_.typical_seconds(plan), batches);
  }
  [[nodiscard]] memory_proof proof_of(const parallel_plan& plan) const
  {
    return prove_memory(of_.whole, work_for(plan), {}, refused_stages::are_left_out);
  }

  const stated_case& of_;
  step_latency latency_;
  std::map<std::string, bool> known_;
};

struct rule_choice {
  std::string rule;
  bool updates_late = false;
  std::optional<parallel_plan> plan;
};

std::vector<rule_choice> choices(const stated_case& of, memory_of_plans& memory, bool with_tensor)
{
  const auto fits = [&](const parallel_plan& plan) { return memory.fits(plan); };
  return {{"Megatron", false, planner_rules::megatron_default(of.whole, of.shape, of.rows, fits, with_tensor)},
          {"AMP", false, planner_rules::amp_model(of.whole, of.shape, of.rows, fits, with_tensor)},
          {"Varuna", false, planner_rules::varuna(of.whole, of.shape, of.rows, fits, with_tensor)},
          {"2BW", true, planner_rules::two_bw_planner(of.whole, of.shape, of.rows, fits, with_tensor)}};
}

/// The best plan whose updates wait for each batch, and the best of all.
std::pair<parallel_plan, parallel_plan> found_for(const stated_case& of, bool with_tensor)
{
  plan_space space{.rows = of.rows, .with_tensor = with_tensor, .schedules = all_schedules()};
  const plan_search_effort effort{.threads = 2, .best = 1};
  const parallel_plan best = find_plans(of.whole, of.shape, space, effort).best.at(0).plan;
  space.schedules.clear();
  return {find_plans(of.whole, of.shape, space, effort).best.at(0).plan, best};
}

/// The largest ratio of a found plan to the plan of a rule. Prints each.
double over_rules()
{
  double worst = 0;
  for (const stated_case& of : stated_cases()) {
    memory_of_plans memory{of};
    const auto [in_turn, any] = found_for(of, true);
    std::printf("%s: %s\n", of.whole.name.c_str(), text_of(any).c_str());
    for (const rule_choice& it : choices(of, memory, true)) {
      if (!it.plan) {
        std::printf("  %-8s finds nothing that fits\n", it.rule.c_str());
        continue;
      }
      const double ours = memory.seconds(it.updates_late ? any : in_turn), theirs = memory.seconds(*it.plan);
      std::printf("  %-8s %.4f s, found %.4f s, gain %.3f; %s\n", it.rule.c_str(), theirs, ours, theirs / ours,
                  text_of(*it.plan).c_str());
      worst = std::max(worst, ours / theirs);
    }
  }
  return worst;
}

/// The same on clusters of four nodes, executed by ranks that sleep.
double executed_over_rules()
{
  double worst = 0;
  const std::vector<stated_case> all = stated_cases();
  for (const stated_case& of : {all[0], all[1], all[2]}) {
    memory_of_plans memory{of};
    const auto [in_turn, any] = found_for(of, false);
    const double seconds_in_turn = sleeping_ranks::execute(in_turn, memory.latency());
    const double seconds_of_any = sleeping_ranks::execute(any, memory.latency());
    for (const rule_choice& it : choices(of, memory, false)) {
      if (!it.plan) continue;
      const double ours = it.updates_late ? seconds_of_any : seconds_in_turn;
      const double theirs = sleeping_ranks::execute(*it.plan, memory.latency());
      std::printf("%s, executed: %-8s %.4f s, found %.4f s, gain %.3f\n", of.whole.name.c_str(), it.rule.c_str(),
                  theirs, ours, theirs / ours);
      worst = std::max(worst, ours / theirs);
    }
  }
  return worst;
}

/// The seconds of a search.
double search_time(std::uint32_t nodes, const transformer_shape& shape, std::uint64_t rows)
{
  const cluster whole = mixed_links(even_cluster("many", nodes, 8), 9, 3);
  const auto begin = std::chrono::steady_clock::now();
  const plan_search_result found =
      find_plans(whole, shape, {.rows = rows, .schedules = all_schedules()}, {.threads = 2});
  const double seconds = std::chrono::duration<double>{std::chrono::steady_clock::now() - begin}.count();
  std::printf("%u devices: %.1f s, %llu plans, %llu simulated, %llu rehearsed; %s\n", whole.ranks(), seconds,
              static_cast<unsigned long long>(found.plans), static_cast<unsigned long long>(found.simulated),
              static_cast<unsigned long long>(found.rehearsed), text_of(found.best.at(0).plan).c_str());
  return seconds;
}

}  // namespace

int main()
{
  return transfer_bench::write_figures(
      "plan_search_bench",
      {{"configurator.chosen_over_exhaustive", chosen_over_exhaustive(), "ratio", "<=", 1.02},
       {"configurator.over_best_rule_worst", over_rules(), "ratio", "<=", 1},
       {"configurator.executed_over_best_rule_worst", executed_over_rules(), "ratio", "<=", 1},
       {"configurator.search_seconds_64", search_time(8, gpt(48, 4'096), 256), "s", "<=", 60},
       {"configurator.search_seconds_1024", search_time(128, gpt(96, 8'192), 1'024), "s", "<=", 600}});
}
