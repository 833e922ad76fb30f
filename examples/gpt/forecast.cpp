// SPDX-License-Identifier: Apache-2.0
#include "forecast.hpp"

#include "../json_text.hpp"
#include "problem.hpp"

#ifdef GPT_HAS_JSON
#include "../probe_links/median.hpp"
#include "rank_on_clocks.hpp"
#include "rank_session.hpp"
#include "simulated_groups.hpp"

#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/cluster_file.hpp>
#include <chunkmem/configurator/port_flows.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/ownership/ownership_policy.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
#endif

namespace gpt {

#ifdef GPT_HAS_JSON

namespace {

using chunkmem::collective::network_costs;
using chunkmem::collective::simulated_ranks;
using chunkmem::configurator::cluster;
using probe_links::median;

/// The costs of collectives over MPI. Ranks agree on each call in ceil(log2 ranks) rounds. Then each rank sends to all
/// others at once, and their flows share ports as in plans.
[[nodiscard]] network_costs network_of(const cluster& whole)
{
  using namespace chunkmem::configurator;
  std::vector<double> latencies, of_message, of_byte;
  const auto nodes = static_cast<std::uint32_t>(whole.nodes.size());
  for (const cluster_node& it : whole.nodes) {
    of_message.push_back(it.message_work.seconds_per_message);
    of_byte.push_back(it.message_work.seconds_per_byte);
  }
  for (std::uint32_t from = 0; from < nodes; ++from)
    for (std::uint32_t to = 0; to < nodes; ++to)
      if (from != to) latencies.push_back(whole.links(from, to).latency);
  // The longest of the measured latencies is a pause of a process, and no property of a link.
  const double latency = median(latencies);
  cluster without_latency = whole;
  for (std::uint32_t from = 0; from < nodes; ++from)
    for (std::uint32_t to = 0; to < nodes; ++to) without_latency.links(from, to).latency = 0;
  const std::vector<std::uint32_t> ranks = whole.nodes_of_ranks();
  port_flows flows{without_latency};
  flows.add(ranks, sum_route::direct);
  constexpr double each = 1 << 20;  // bytes that a rank sends to each other rank
  const double moved = flows.gather_seconds(ranks, each * nodes, sum_route::direct);
  network_costs made{.of_node = 1, .nodes = nodes, .way = network_costs::route::direct};
  made.work = {.seconds_per_message = median(of_message), .seconds_per_byte = median(of_byte)};
  made.network_bytes_per_second = each * (nodes - 1) / moved;
  made.network_nanoseconds = static_cast<std::uint64_t>(latency * 1e9);
  made.start_nanoseconds = static_cast<std::uint64_t>(latency * 1e9 * std::ceil(std::log2(nodes)));
  return made;
}

[[nodiscard]] rank_rates rates_of(const cluster& whole, const options& chosen)
{
  const chunkmem::configurator::cluster_node& node = whole.nodes.front();
  constexpr double norms = 7;  // a norm reads 4 B of the 28 B of an update
  rank_rates made;
  clock_rates& own = made.own;
  own.operations_per_second.fill(chosen.computed_per_second.value_or(node.device_flops_per_second));
  own.copies.to_device.bytes_per_second = node.to_device_bytes_per_second;
  own.copies.to_host.bytes_per_second = node.to_host_bytes_per_second;
  own.copies.within_device.bytes_per_second = own.copies.within_host.bytes_per_second = node.to_device_bytes_per_second;
  own.updates = {node.host_updates_per_second, node.host_updates_per_second, norms * node.host_updates_per_second,
                 norms * node.host_updates_per_second};
  made.network = network_of(whole);
  return made;
}

[[nodiscard]] cluster cluster_of(const options& chosen)
try {
  cluster whole = chunkmem::configurator::read_cluster(chosen.forecast->string());
  const auto is_alone = [](const chunkmem::configurator::cluster_node& it) { return it.devices == 1; };
  if (whole.nodes.size() < 2 || !std::ranges::all_of(whole.nodes, is_alone))
    throw problem{"--forecast '" + chosen.forecast->string() +
                  "' is not of two nodes or more with one device each (measure with probe_links --each-rank-a-node)"};
  return whole;
} catch (const chunkmem::error& failed) {
  throw problem{std::string{"--forecast: "} + failed.what()};
}

}  // namespace

int run_forecast(const options& chosen, const training_text& text, const display& show)
{
  check_checkpoints(chosen);
  const cluster whole = cluster_of(chosen);
  const rank_rates rates = rates_of(whole, chosen);
  const rank_plan plan = rank_plan::of(chosen, rates.network.ranks());
  simulated_ranks link{rates.network};
  constexpr chunkmem::rank_id all_alike{0};
  simulated_groups gathers{rates.network, all_alike, plan.of_node, link};
  simulated_groups sums{rates.network, all_alike, plan.of_node, link};
  chunkmem::sharding::sums_apart both{gathers.groups, sums.groups};
  const auto found = timed_step_of_rank(chosen, text, rank_on_clocks{both, rates}, plan);
  if (chosen.common.json)
    std::puts(
        command_line::json_object{}.add("seconds", found.seconds).add("operations", found.operations).text().c_str());
  char line[160];
  std::snprintf(line, sizeof line, "forecast  %.6f s a step of each rank, %.6e operations in it", found.seconds,
                found.operations);
  show.line(line);
  return EXIT_SUCCESS;
}

#else

int run_forecast(const options&, const training_text&, const display&)
{
  throw problem{"--forecast needs a build with nlohmann/json.hpp (Debian: apt-get install nlohmann-json3-dev)"};
}

#endif

}  // namespace gpt
