// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/port_flows.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <support/catch.hpp>

#include "usual_node.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace port_flows_test {

using namespace chunkmem;
using namespace chunkmem::configurator;

namespace {

/// Nodes of four devices: 1 GB/s between two nodes, 8 GB/s between two devices of one.
cluster nodes_of_four(std::uint32_t nodes, double port)
{
  cluster whole{.name = "of four", .nodes{}};
  for (std::uint32_t it = 0; it < nodes; ++it) {
    whole.nodes.push_back(support::usual_node("usual", 4));
    whole.nodes.back().device_updates_per_second = 1e14;
    whole.nodes.back().port_out_bytes_per_second = whole.nodes.back().port_in_bytes_per_second = port;
  }
  whole.links = link_matrix{nodes, {.latency = 1e-5, .bytes_per_second = 1e9}};
  for (std::uint32_t it = 0; it < nodes; ++it) whole.links(it, it) = {.latency = 1e-6, .bytes_per_second = 8e9};
  return whole;
}

workload::transformer_shape small_model(std::uint64_t layers)
{
  return {.layers = layers,
          .hidden = 1024,
          .heads = 16,
          .kv_heads = 16,
          .ffn = 4096,
          .vocabulary = 1,
          .embedding = 1024,
          .positions = 0,
          .sequence = 1024,
          .ties_embedding = false};
}

/// Ranks numbered by layer share, then replica, then stage.
parallel_plan replicas_near(parallel_plan plan)
{
  for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
    for (std::uint32_t stage = 0; stage < plan.stages; ++stage)
      for (std::uint32_t member = 0; member < plan.tensor; ++member)
        plan.devices.push_back((stage * plan.replicas + replica) * plan.tensor + member);
  return plan;
}

}  // namespace

TEST_CASE("a lone flow has all of its link, and others share ports and buses", "[configurator]")
{
  cluster whole = nodes_of_four(3, 2e9);
  port_flows flows{whole};
  const auto rate = [&](std::uint32_t from, std::uint32_t to) { return flows.part_of(from, to).bytes_per_second; };
  flows.add(0, 1);
  CHECK(rate(0, 1) == 1e9);  // of the link
  flows.add(0, 2);
  CHECK(rate(0, 1) == 1e9);
  flows.add(0, 1);
  flows.add(0, 1);
  CHECK(rate(0, 1) == 0.5e9);  // four leave node 0
  CHECK(rate(0, 2) == 0.5e9);
  CHECK(rate(2, 1) == 2e9 / 3);  // three come to node 1
  CHECK(rate(1, 0) == 1e9);      // the other way is free
  CHECK(flows.part_of(0, 1).latency == 1e-5);
  flows.add(1, 1);
  flows.add(1, 1);
  CHECK(rate(1, 1) == 8e9);
  whole.nodes[1].inner_links = link_sharing::shared;
  CHECK(rate(1, 1) == 4e9);
  for (cluster_node& it : whole.nodes) it.port_out_bytes_per_second = it.port_in_bytes_per_second = 0;
  CHECK(rate(0, 1) == 1e9);  // as a node without ports says
}

TEST_CASE("ranks that send to each other at once share the port that is slow, and a ring crosses it once",
          "[configurator]")
{
  cluster whole = nodes_of_four(4, 1e9);
  for (cluster_node& it : whole.nodes) it.devices = 1;
  const std::vector<std::uint32_t> ranks = whole.nodes_of_ranks();
  const auto seconds = [&](sum_route route, std::span<const std::uint32_t> of) {
    port_flows flows{whole};
    flows.add(of, route);
    return flows.gather_seconds(of, static_cast<double>(of.size()) * 1e6, route);
  };
  CHECK(seconds(sum_route::direct, ranks) == Catch::Approx(1e-5 + 3 * 1e-3));
  CHECK(seconds(sum_route::ring, ranks) == Catch::Approx(3 * (1e-5 + 1e-3)));
  whole.nodes[2].port_out_bytes_per_second = 0.2e9;
  CHECK(seconds(sum_route::direct, ranks) == Catch::Approx(1e-5 + 3 * 5e-3));  // all that leaves node 2
  CHECK(seconds(sum_route::ring, ranks) == Catch::Approx(3 * (1e-5 + 5e-3)));
  const std::vector<std::uint32_t> two_and_two{0, 0, 1, 1};  // two ranks of a node send over its port at a time
  CHECK(seconds(sum_route::direct, two_and_two) == Catch::Approx(1e-5 + 2 * 2e-3 + 1e-3 / 8));
  CHECK(seconds(sum_route::direct, std::vector<std::uint32_t>{3}) == 0);
}

TEST_CASE("a ring over all devices crosses each port once, and one for each member of a share shares it",
          "[configurator]")
{
  const workload::transformer_shape shape = small_model(4);
  const auto sums = [&](const parallel_plan& plan, double port) {
    const cluster whole = nodes_of_four(4, port);
    return step_latency{whole, shape}.of(replicas_near(plan)).sums;
  };
  const auto expected = [&](const parallel_plan& plan, double rate) {
    const double size = 2.0 * static_cast<double>(parts_of(shape, plan).front().parameters);
    return 2 * (plan.replicas - 1) * (1e-5 + size / plan.replicas / rate);
  };
  const parallel_plan lone{.replicas = 16, .zero = 0};
  CHECK(sums(lone, 1e9) == Catch::Approx(expected(lone, 1e9)));
  for (const std::uint32_t tensor : {2U, 4U}) {
    const parallel_plan shared{.tensor = tensor, .replicas = 16 / tensor, .zero = 0};
    CHECK(sums(shared, 1e9) == Catch::Approx(expected(shared, 1e9 / tensor)));
    CHECK(sums(shared, 0) == Catch::Approx(expected(shared, 1e9)));
  }
  // A stage on each node: its ring never leaves the node.
  const parallel_plan inside{.stages = 4, .replicas = 4, .zero = 0};
  const double size = 2.0 * static_cast<double>(parts_of(shape, inside).back().parameters);
  CHECK(sums(inside, 1e9) == Catch::Approx(2 * 3 * (1e-6 + size / 4 / 8e9)));
}

TEST_CASE("replicas share the port between two stages, and an all-to-all sum the port of its node", "[configurator]")
{
  const workload::transformer_shape shape = small_model(2);
  const auto step = [&](std::uint32_t replicas, double port) {
    const cluster whole = nodes_of_four(2, port);
    parallel_plan plan{.stages = 2, .replicas = replicas, .zero = 0};
    for (std::uint32_t replica = 0; replica < replicas; ++replica)
      for (const std::uint32_t node : {0U, 1U}) plan.devices.push_back(node * 4 + replica);
    return step_latency{whole, shape}.costs(plan).link(0, 1).bytes_per_second;
  };
  CHECK(step(1, 1e9) == 1e9);
  CHECK(step(4, 1e9) == 0.25e9);
  CHECK(step(4, 0) == 1e9);
  // Eight devices that send to each other at once: four flows leave a node at a time, and each device sends four
  // eighths over the port and three inside.
  cluster whole = nodes_of_four(2, 1e9);
  const parallel_plan plan = replicas_near({.replicas = 8, .zero = 0});
  const double size = 2.0 * static_cast<double>(parts_of(shape, plan).front().parameters);
  const step_latency direct{whole, trained_model{shape, {.sums = sum_route::direct}}};
  CHECK(direct.of(plan).sums == Catch::Approx(2 * (1e-5 + size / 8 * (4 / 0.25e9 + 3 / 8e9))));
}

}  // namespace port_flows_test
