// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/replica_units.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <chunkmem/workload/transformer_costs.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/refusal.hpp>

#include "usual_node.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace step_latency_test {

using namespace chunkmem;
using namespace chunkmem::configurator;
using namespace chunkmem::literals;
using Catch::Matchers::ContainsSubstring;
using workload::transformer_shape;

namespace {

/// Equal layers, and a head that costs nearly nothing.
transformer_shape even_model(std::uint64_t layers)
{
  return {.layers = layers,
          .hidden = 1024,
          .heads = 16,
          .kv_heads = 16,
          .ffn = 4096,
          .vocabulary = 1,
          .embedding = 1024,
          .positions = 0,
          .sequence = 1024};
}

/// Nodes of one device each, with links that cost nearly nothing.
cluster even_cluster(std::uint32_t nodes)
{
  cluster whole{.name = "even", .nodes{}};
  for (std::uint32_t it = 0; it < nodes; ++it) {
    whole.nodes.push_back(support::usual_node("node " + std::to_string(it)));
    whole.nodes.back().device_updates_per_second = 1e14;
  }
  whole.links = link_matrix{nodes, {.latency = 0, .bytes_per_second = 1e14}};
  return whole;
}

/// The time of a sum or a gather is that of its bytes and latencies, and the runs of small models are short beside it.
cluster cluster_of_slow_links(std::uint32_t nodes)
{
  cluster whole = even_cluster(nodes);
  whole.links = link_matrix{nodes, {.latency = 1e-5, .bytes_per_second = 1e9}};
  return whole;
}
/// Of half an all-reduce over two replicas, on slow links.
double slow_half(double units, double size)
{
  return units * 1e-5 + size / 2 / 1e9;
}

parallel_plan on_first_devices(parallel_plan plan)
{
  plan.devices.resize(plan.ranks());
  std::iota(plan.devices.begin(), plan.devices.end(), 0U);
  return plan;
}

/// Seconds of all runs of a micro-batch on one device that has the whole model.
double alone(const transformer_shape& shape, double flops, std::uint64_t rows = 1)
{
  const workload::transformer_costs costs{shape,
                                          {.micro_batch = rows, .recomputes_layers = false, .fuses_attention = true}};
  return static_cast<double>(costs.step_flops()) / flops;
}

/// The FLOP of the runs of a part.
run_seconds flops_of(const model_part& part)
{
  cluster_node one = support::usual_node("one FLOP in a second");
  one.device_flops_per_second = 1;
  return part.computing_on(one);
}

/// The units of a whole model, as replicas have it.
struct model_units {
  model_units(const transformer_shape& shape, std::uint32_t replicas)
  {
    const auto tensors = tensors_of_parts(shape, {.replicas = replicas});
    const replica_units found = replica_units_of(tensors[0], planned_chunk(tensors, replicas), replicas);
    count = static_cast<double>(found.count);
    size = static_cast<double>(found.size.count());
  }
  double count = 0;
  double size = 0;  // [bytes]
};

}  // namespace

TEST_CASE("parts of a model have its parameters and its work, whatever the plan", "[configurator]")
{
  const transformer_shape shapes[] = {even_model(12),
                                      {.layers = 10,
                                       .hidden = 512,
                                       .heads = 8,
                                       .kv_heads = 8,
                                       .ffn = 2048,
                                       .vocabulary = 5000,
                                       .embedding = 512,
                                       .positions = 512,
                                       .sequence = 512,
                                       .ties_embedding = false}};
  for (const transformer_shape& shape : shapes)
    for (const std::uint32_t stages : {1U, 2U, 3U, 5U}) {
      CAPTURE(stages);
      const parallel_plan plan{.stages = stages, .micro_batch = 2};
      std::uint64_t parameters = 0, layers = 0;
      double flops = 0;
      for (const model_part& it : parts_of(shape, plan)) {
        CHECK(it.first_layer == layers);
        layers += it.layers;
        parameters += it.parameters;
        for (const product_runs& each : it.products)
          flops += each.flops * (each.forward + each.backward_input + each.backward_weight);
      }
      const std::uint64_t copy = shape.ties_embedding && stages > 1 ? shape.vocabulary * shape.embedding : 0;
      CHECK(layers == shape.layers);
      CHECK(parameters == workload::parameters_of(shape) + copy);
      CHECK(flops == Catch::Approx(alone(shape, 1, 2)).epsilon(1e-9));
    }
}

TEST_CASE("the rate of a product follows the logarithm of its size between those that were measured", "[configurator]")
{
  cluster_node node = support::usual_node("measured");
  CHECK(node.product_rate(1e6) == 1e14);
  node.product_curve = {{.flops = 1e6, .part = 0.2}, {.flops = 1e8, .part = 0.8}, {.flops = 1e9, .part = 1}};
  CHECK(node.product_rate(1e3) == 0.2 * 1e14);
  CHECK(node.product_rate(1e6) == 0.2 * 1e14);
  CHECK(node.product_rate(1e7) == Catch::Approx(0.5 * 1e14));
  CHECK(node.product_rate(1e8) == 0.8 * 1e14);
  CHECK(node.product_rate(1e12) == 1e14);
}

TEST_CASE("small products of a micro-batch, and of ranks that share a layer, take the time that the curve says",
          "[configurator]")
{
  const transformer_shape shape = even_model(4);
  cluster whole = even_cluster(4);
  const auto seconds = [&](std::uint64_t rows, std::uint32_t tensor) {
    parallel_plan plan{.tensor = tensor, .micro_batch = rows, .micro_batches = static_cast<std::uint32_t>(8 / rows)};
    return step_latency{whole, shape}.of(on_first_devices(plan)).runs;
  };
  const double equal = seconds(1, 1);
  CHECK(seconds(8, 1) == Catch::Approx(equal));
  CHECK(seconds(1, 4) == Catch::Approx(equal / 4).epsilon(1e-3));
  for (cluster_node& it : whole.nodes) it.product_curve = {{.flops = 1e12, .part = 0.25}, {.flops = 4e12, .part = 0.5}};
  CHECK(seconds(1, 1) == Catch::Approx(4 * equal));  // the largest product of a row has 8.6e9 FLOP
  for (cluster_node& it : whole.nodes) it.product_curve = {{.flops = 1e9, .part = 0.25}, {.flops = 4e9, .part = 1}};
  CHECK(seconds(8, 1) == Catch::Approx(equal).epsilon(1e-3));  // the smallest one of eight rows has 1.7e10 FLOP
  CHECK(seconds(1, 1) > 1.05 * equal);                         // those of one row have 2.1e9 FLOP and more
  CHECK(4 * seconds(1, 4) > 1.5 * seconds(1, 1));
}

TEST_CASE("each expert has products of its own rows", "[configurator]")
{
  transformer_shape shape = even_model(2);
  const auto flops_of_mlp = [&] {
    const std::vector<model_part> parts = parts_of(shape, {});
    double count = 0, all = 0;
    for (const product_runs& it : parts.front().products) {
      if (it.forward == 2 * std::max<double>(1, static_cast<double>(shape.experts))) count += it.forward;
      all += it.flops * it.forward;
    }
    return std::pair{count, all};
  };
  CHECK(flops_of_mlp().first == 12);  // of two layers, and not that of the logits
  shape.experts = 8;
  shape.experts_for_token = 2;
  const auto [count, all] = flops_of_mlp();
  CHECK(count == 32);
  const workload::transformer_costs costs{shape,
                                          {.micro_batch = 1, .recomputes_layers = false, .fuses_attention = true}};
  CHECK(all == Catch::Approx(static_cast<double>(costs.model().forward_flops)));
}

TEST_CASE("ranks that share layers keep what the published formula says", "[configurator]")
{
  // s b h (10 + 24 / t), with dropout and a fused attention, which keeps 4 bytes for each row of scores beside
  const transformer_shape shape = even_model(4);
  for (const std::uint32_t tensor : {1U, 2U, 8U}) {
    const parallel_plan plan{.tensor = tensor, .stages = 4, .micro_batch = 3};
    const std::uint64_t stream = 3 * shape.sequence * shape.hidden;
    const std::uint64_t statistics = 4 * 3 * shape.sequence * shape.heads;
    const std::uint64_t input = 2 * stream;  // counted with the part's input
    CHECK(parts_of(shape, plan)[1].kept == bytes{10 * stream + (24 * stream + statistics) / tensor - input});
    const parallel_plan again{.tensor = tensor, .stages = 2, .micro_batch = 3, .recomputes = true};
    CHECK(parts_of(shape, again)[0].kept == bytes{input});  // of the second of two layers
  }
}

TEST_CASE("on equal nodes a step takes as long as the closed forms say", "[configurator]")
{
  const transformer_shape shape = even_model(8);
  const cluster whole = even_cluster(8);
  const step_latency latency{whole, shape};
  const double all = alone(shape, 1e14);
  for (const std::uint32_t stages : {1U, 2U, 4U, 8U})
    for (const std::uint32_t micro_batches : {8U, 16U}) {
      CAPTURE(stages, micro_batches);
      const auto step = [&](schedule_kind schedule, std::uint32_t parts = 1) {
        return latency
            .of(on_first_devices(
                {.stages = stages, .micro_batches = micro_batches, .schedule = schedule, .parts = parts}))
            .step;
      };
      const double stage = all / stages;
      const auto equals = [](double expected) { return Catch::Approx(expected).epsilon(2e-3); };
      CHECK(step(schedule_kind::gpipe) == equals((micro_batches + stages - 1) * stage));
      CHECK(step(schedule_kind::one_f_one_b) == equals((micro_batches + stages - 1) * stage));
      CHECK(step(schedule_kind::two_versions) == equals(micro_batches * stage));
      if (stages == 4) CHECK(step(schedule_kind::interleaved, 2) == equals((micro_batches + 1.5) * stage));
    }
}

TEST_CASE("one micro-batch crosses every link once in each direction", "[configurator]")
{
  support::dice dice{5};
  transformer_shape shape = even_model(4);
  shape.ties_embedding = false;
  cluster whole = even_cluster(6);
  for (std::uint32_t from = 0; from < 6; ++from)
    for (std::uint32_t to = 0; to < 6; ++to)
      whole.links(from, to) = {1e-3 * (1 + dice.below(50)), 1e8 * (1 + dice.below(50))};
  whole.nodes[2].device_flops_per_second = 3e13;
  parallel_plan plan{.stages = 4, .devices = {5, 2, 0, 3}};
  const double size = 2.0 * static_cast<double>(shape.sequence * shape.hidden);
  double expected = 0;
  for (std::uint32_t stage = 0; stage < 4; ++stage) {
    expected += alone(shape, whole.nodes[plan.devices[stage]].device_flops_per_second) / 4;
    if (stage == 3) continue;
    expected += whole.links(plan.devices[stage], plan.devices[stage + 1]).seconds(size);
    expected += whole.links(plan.devices[stage + 1], plan.devices[stage]).seconds(size);
  }
  CHECK(step_latency{whole, shape}.of(plan).step == Catch::Approx(expected).epsilon(1e-3));
}

TEST_CASE("a step is as long as that of its slowest pipeline, which has the slowest node", "[configurator]")
{
  const transformer_shape shape = even_model(4);
  cluster whole = even_cluster(6);
  whole.nodes[2].device_flops_per_second = 3e13;
  const parallel_plan plan{.stages = 2, .replicas = 3, .micro_batches = 4, .devices = {0, 1, 4, 5, 3, 2}};
  const step_seconds found = step_latency{whole, shape}.of(plan);
  REQUIRE(found.pipelines.size() == 3);
  CHECK(found.pipelines[0] == found.pipelines[1]);
  CHECK(found.pipelines[2] > 2 * found.pipelines[0]);
  CHECK(found.step == found.pipelines[2]);
  CHECK(found.runs == Catch::Approx(4 * alone(shape, 3e13) / 2).epsilon(1e-3));
}

TEST_CASE("replicas add up the units that a sharded model makes", "[configurator]")
{
  for (const auto& [hidden, replicas] : {std::pair{64U, 2U}, {64U, 3U}, {256U, 4U}}) {
    transformer_shape shape = even_model(3);
    shape.hidden = shape.embedding = hidden;
    shape.ffn = 4 * hidden;
    shape.vocabulary = 300;
    const auto tensors = tensors_of_parts(shape, {.replicas = replicas});
    const bytes chunk = planned_chunk(tensors, replicas);
    backend::simulated memory{{.device_capacity = 1_GiB, .host_capacity = 1_GiB}};
    collective::simulated_ranks ranks{
        {.of_node = 1, .nodes = replicas, .peer_bytes_per_second = 1e9, .network_bytes_per_second = 1e9}};
    sharded_model<backend::simulated, collective::simulated_ranks> m{memory, ranks, {.chunk_bytes = chunk}};
    std::uint64_t weights = 0;
    for (const std::uint64_t elements : tensors[0]) {
      (void)m.add<bf16>({elements}, role::parameter);
      weights += elements * sizeof(bf16);
    }
    m.seal();
    bytes size{};
    for (const sharding::unit& it : m.plan().units()) size += bytes{it.elements} * sizeof(bf16);
    const replica_units found = replica_units_of(tensors[0], chunk, replicas);
    CHECK(found.count == m.units().size());
    CHECK(found.size == size);
    CHECK(found.size.count() > weights);
  }
}

TEST_CASE("sums over replicas are rings over the links that they have", "[configurator]")
{
  const transformer_shape shape = even_model(4);
  cluster whole = even_cluster(4);
  whole.links = link_matrix{4, {.latency = 1e-5, .bytes_per_second = 10e9}};
  whole.links(2, 3) = {2e-4, 1e9};
  const model_units units{shape, 4};
  const double runs = 2 * alone(shape, 1e14);
  const auto step = [&](parallel_plan plan) {
    plan.micro_batches = 2;
    return step_latency{whole, shape}.of(on_first_devices(plan)).step;
  };
  const double slow_ring = 2 * 3 * (units.count * 2e-4 + units.size / 4 / 1e9);
  CHECK(step({.replicas = 4}) == Catch::Approx(runs + slow_ring).epsilon(1e-3));
  parallel_plan other_way{.replicas = 4, .devices = {3, 2, 1, 0}};  // the slow link is not used in its direction
  other_way.micro_batches = 2;
  const double fast_ring = 2 * 3 * (units.count * 1e-5 + units.size / 4 / 10e9);
  CHECK(step_latency{whole, shape}.of(other_way).step == Catch::Approx(runs + fast_ring).epsilon(1e-3));
  // A sum in each micro-batch, under its backward run, which is shorter. Weights are gathered once, behind the update.
  const double half = slow_ring / 2;
  const model_part whole_model = parts_of(shape, {.replicas = 4}).front();
  const double input_runs = 2 * (flops_of(whole_model).forward + flops_of(whole_model).backward_input) / 1e14;
  CHECK(step({.replicas = 4, .zero = 2}) == Catch::Approx(input_runs + 2 * half + half).epsilon(1e-3));
}

TEST_CASE("divided weights are gathered once for a step, and those without room again for each run", "[configurator]")
{
  const transformer_shape shape = even_model(4);
  const cluster whole = cluster_of_slow_links(4);
  const model_units units{shape, 2};
  const double half = slow_half(units.count, units.size);
  const parallel_plan lone{.replicas = 2, .micro_batches = 3, .zero = 3, .devices = {0, 1}};
  const model_part all = parts_of(shape, lone).front();
  const double forward = flops_of(all).forward / 1e14, backward_input = flops_of(all).backward_input / 1e14;
  const auto seconds = [&](double share) {
    return step_latency{whole, shape}.of(lone, {moved_bytes{.gathered_share = share}}).step;
  };
  REQUIRE(forward < half / 10);
  const double behind = forward / units.count;  // the last unit is used when it has come
  CHECK(seconds(0) == Catch::Approx(half + behind + 2 * forward + 3 * (backward_input + half)).epsilon(1e-5));
  CHECK(step_latency{whole, shape}.of(lone).step == seconds(0));
  CHECK(seconds(0.5) == Catch::Approx(half + behind + 2 * half / 2 + 3 * (half / 2 + half)).epsilon(1e-5));
  CHECK(seconds(1) == Catch::Approx(3 * 3 * half + behind).epsilon(1e-5));
  // Copies from the host are on another link: the longer one counts.
  const bytes load{static_cast<std::uint64_t>(2 * half * whole.nodes[0].to_device_bytes_per_second)};
  const double loaded =
      step_latency{whole, shape}.of(lone, {moved_bytes{.each_run = load, .gathered_share = 0.5}}).step;
  CHECK(loaded == Catch::Approx(2 * half + behind + 2 * 2 * half + 3 * (2 * half + half)).epsilon(1e-5));
}

TEST_CASE("the first run of a batch hides gathers of divided weights but for the first unit, over fast links",
          "[configurator]")
{
  const transformer_shape shape = even_model(4);
  const model_units units{shape, 2};
  const cluster fast = even_cluster(2);
  const parallel_plan two{.replicas = 2, .micro_batches = 3, .zero = 3, .devices = {0, 1}};
  const pair_link& link = fast.links(0, 1);
  const double first = link.latency + units.size / 2 / units.count / link.bytes_per_second;
  CHECK(step_latency{fast, shape}.of(two).runs == Catch::Approx(first + 3 * alone(shape, 1e14)).epsilon(1e-5));
  double before = 0;
  for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    const double step = step_latency{fast, shape}.of(two, {moved_bytes{.gathered_share = share}}).step;
    CHECK(step >= before);  // of less room
    before = step;
  }
}

TEST_CASE("a batch of two versions has one gather of divided weights, of each part", "[configurator]")
{
  const transformer_shape shape = even_model(4);
  const cluster whole = cluster_of_slow_links(4);
  const parallel_plan flowing = on_first_devices(
      {.stages = 2, .replicas = 2, .micro_batches = 4, .schedule = schedule_kind::two_versions, .zero = 3});
  const step_latency latency{whole, shape};
  const pipeline::part_costs first_part = latency.costs(flowing).parts[0];
  CHECK(first_part.gather > 0);
  CHECK(latency.of(flowing).runs ==
        Catch::Approx(first_part.gather +
                      4 * (first_part.forward + first_part.backward_input + first_part.backward_weight))
            .epsilon(1e-2));
  CHECK(latency.of(flowing).step >= latency.of(flowing).runs);
}

TEST_CASE("the first run of each stage waits for its gather, behind the stage before", "[configurator]")
{
  const transformer_shape shape = even_model(4);
  const cluster whole = cluster_of_slow_links(4);
  const parallel_plan staged{.stages = 2, .replicas = 2, .micro_batches = 2, .zero = 3, .devices = {0, 1, 2, 3}};
  parallel_plan kept = staged;
  kept.zero = 2;
  const double more = step_latency{whole, shape}.of(staged).step - step_latency{whole, shape}.of(kept).step;
  const auto tensors = tensors_of_parts(shape, staged);
  const replica_units of_stage = replica_units_of(tensors[0], planned_chunk(tensors, 2), 2);
  const double half = slow_half(static_cast<double>(of_stage.count), static_cast<double>(of_stage.size.count()));
  CHECK(more == Catch::Approx(half).epsilon(0.05));
}

TEST_CASE("sums that ranks send to each other at once take the busiest way of a rank", "[configurator]")
{
  const transformer_shape shape = even_model(4);
  cluster whole = even_cluster(4);
  whole.links = link_matrix{4, {.latency = 1e-5, .bytes_per_second = 10e9}};
  whole.links(2, 3) = {2e-4, 1e9};
  const model_units units{shape, 4};
  const step_latency latency{whole, trained_model{shape, {.sums = sum_route::direct}}};
  // The slow link carries a quarter whatever the order of ranks, and the other two ways of its ends one each.
  const double half = units.count * 2e-4 + units.size / 4 / 1e9 + 2 * units.size / 4 / 10e9;
  for (const std::vector<std::uint32_t>& devices : {std::vector<std::uint32_t>{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}})
    CHECK(latency.of({.replicas = 4, .devices = devices}).step ==
          Catch::Approx(alone(shape, 1e14) + 2 * half).epsilon(1e-3));
  // Two ranks send each other one half, in a ring or directly.
  const parallel_plan pair{.stages = 2, .replicas = 2, .devices = {0, 1, 2, 3}};
  CHECK(latency.of(pair).step == Catch::Approx(step_latency{whole, shape}.of(pair).step).epsilon(1e-9));
}

TEST_CASE("messages of a pipeline take the time of the devices that send and receive them", "[configurator]")
{
  transformer_shape shape = even_model(4);
  shape.ties_embedding = false;
  cluster whole = even_cluster(4);
  const parallel_plan plan{.stages = 4, .devices = {0, 1, 2, 3}};
  const double before = step_latency{whole, shape}.of(plan).step;
  for (const std::uint32_t node : {1U, 3U}) {
    CAPTURE(node);
    cluster slow = whole;
    slow.nodes[node].message_work = {.seconds_per_message = 1e-3, .seconds_per_byte = 1e-9};
    // Three messages at each end of a transfer: one stage has two neighbours, the last one has one. Both directions.
    const double of_transfer = 3e-3 + 1e-9 * 2.0 * static_cast<double>(shape.sequence * shape.hidden);
    CHECK(step_latency{slow, shape}.of(plan).step - before ==
          Catch::Approx(2 * (node == 1 ? 2 : 1) * of_transfer).epsilon(1e-6));
  }
}

TEST_CASE("sums and gathers that take a device longer than their links last as long as the device", "[configurator]")
{
  const transformer_shape shape = even_model(4);
  cluster whole = even_cluster(2);
  whole.nodes[1].message_work = {.seconds_per_message = 1e-3, .seconds_per_byte = 1e-9};
  const model_units units{shape, 2};
  const double half = units.count * 4e-3 + units.size * 1e-9;  // of each unit four messages, half of it out and in
  const double compute = alone(shape, 1e14);
  const auto step_of = [&](std::uint32_t zero) {
    return step_latency{whole, shape}.of({.replicas = 2, .zero = zero, .devices = {0, 1}}).step;
  };
  CHECK(step_of(1) == Catch::Approx(compute + 2 * half).epsilon(1e-3));  // a sum, and a gather
  CHECK(step_of(2) == Catch::Approx(compute + 2 * half).epsilon(1e-3));  // the sum under a run
  CHECK(step_of(3) == Catch::Approx(compute + 2 * half).epsilon(1e-3));  // both under runs
}

TEST_CASE("copies of a tied table add their gradients up before an update", "[configurator]")
{
  transformer_shape shape = even_model(4);
  shape.vocabulary = 100'000;
  transformer_shape untied = shape;
  untied.ties_embedding = false;
  cluster whole = even_cluster(4);
  whole.links(3, 0) = {1e-3, 2e9};  // from the last stage to the first one
  const double table = 2.0 * 100'000 * 1024;
  const auto seconds = [&](const transformer_shape& of, const parallel_plan& plan) {
    return step_latency{whole, of}.of(plan).step;
  };
  const parallel_plan plan{.stages = 4, .micro_batches = 4, .devices = {0, 1, 2, 3}};
  CHECK(seconds(shape, plan) - seconds(untied, plan) == Catch::Approx(2 * (1e-3 + table / 2 / 2e9)).epsilon(1e-2));
  const auto wide = [&](const transformer_shape& of) {
    return step_latency{whole, trained_model{of, {.tied_bytes = 4}}}.of(plan).step;
  };
  CHECK(wide(shape) - wide(untied) == Catch::Approx(2 * (1e-3 + table / 2e9)).epsilon(1e-2));
  // Each of two replicas adds up the half that it updates.
  const parallel_plan replicas{.stages = 2, .replicas = 2, .micro_batches = 4, .devices = {0, 3, 1, 2}};
  CHECK(seconds(shape, replicas) - seconds(untied, replicas) ==
        Catch::Approx(2 * (1e-3 + table / 4 / 2e9)).epsilon(1e-2));
  // A V has both ends on the first stage.
  const parallel_plan folded{
      .stages = 2, .micro_batches = 4, .schedule = schedule_kind::zb_v, .parts = 2, .devices = {0, 3}};
  CHECK(seconds(shape, folded) == Catch::Approx(seconds(untied, folded)).epsilon(1e-2));
}

TEST_CASE("numbers between layers have the bytes that the trainer gives them", "[configurator]")
{
  const transformer_shape shape = even_model(4);
  const parallel_plan plan{.stages = 2};
  const std::vector<model_part> usual = parts_of(shape, plan);
  const std::vector<model_part> wide = parts_of(trained_model{shape, {.activation_bytes = 4}}, plan);
  for (std::size_t part = 0; part < usual.size(); ++part) {
    CHECK(wide[part].boundary == usual[part].boundary * 2);
    CHECK(wide[part].kept == usual[part].kept * 2);
    CHECK(wide[part].parameters == usual[part].parameters);
    CHECK(flops_of(wide[part]).forward == flops_of(usual[part]).forward);
  }
  CHECK_THROWS_WITH(parts_of(trained_model{shape, {.activation_bytes = 0}}, plan), ContainsSubstring("0 bytes"));
}

TEST_CASE("ranks that share layers add up twice for each layer and pass", "[configurator]")
{
  const transformer_shape shape = even_model(4);
  cluster whole = even_cluster(2);
  whole.links = link_matrix{2, {.latency = 1e-5, .bytes_per_second = 20e9}};
  const double size = 2.0 * static_cast<double>(shape.sequence * shape.hidden);
  const double add = 2 * (1e-5 + size / 2 / 20e9);
  const auto step = [&](bool recomputes) {
    return step_latency{whole, shape}.of(on_first_devices({.tensor = 2, .recomputes = recomputes})).step;
  };
  CHECK(step(false) == Catch::Approx(alone(shape, 2e14) + 4 * 4 * add).epsilon(1e-3));
  CHECK(step(true) > step(false) + 2 * 4 * add);
}

TEST_CASE("updates on the host take the longest of copies and updates, and hide in the slack of two versions",
          "[configurator]")
{
  const transformer_shape shape = even_model(8);
  cluster whole = even_cluster(4);
  const double parameters = static_cast<double>(workload::parameters_of(shape)) / 4;
  const auto found = [&](schedule_kind schedule, std::uint32_t micro_batches) {
    return step_latency{whole, shape}.of(
        on_first_devices({.stages = 4, .micro_batches = micro_batches, .schedule = schedule, .states_on_host = true}));
  };
  const step_seconds flush = found(schedule_kind::one_f_one_b, 8);
  CHECK(flush.updates == Catch::Approx(parameters / 2e9).epsilon(1e-2));
  CHECK(flush.step == Catch::Approx(11 * alone(shape, 1e14) / 4 + flush.updates).epsilon(1e-2));
  const step_seconds flows = found(schedule_kind::two_versions, 32);
  CHECK(flows.step == Catch::Approx(flows.runs).epsilon(1e-2));
  for (cluster_node& it : whole.nodes) it.host_updates_per_second = 1e12;
  CHECK(found(schedule_kind::one_f_one_b, 8).updates == Catch::Approx(2 * parameters / 11e9).epsilon(1e-2));
}

TEST_CASE("an update takes as much of the time of Adam as it moves of its bytes", "[configurator]")
{
  const transformer_shape shape = even_model(2);
  const cluster whole = even_cluster(1);
  for (const bool on_host : {false, true}) {
    const auto update = [&](const trainer_traits& by) {
      return step_latency{whole, {shape, by}}.of(on_first_devices({.states_on_host = on_host})).updates;
    };
    const double adam = update({});
    CHECK(update({.states = {.lists = 3}}) == Catch::Approx(36 * adam / 28));
    if (on_host) continue;  // copies of weights and gradients take longer than shorter updates
    CHECK(update({.states = {.lists = 0}}) == Catch::Approx(12 * adam / 28));
    CHECK(update({.states = {.lists = 1}}) == Catch::Approx(20 * adam / 28));
    CHECK(update({.states = {.bytes_each = 2}}) == Catch::Approx(20 * adam / 28));
  }
  CHECK_THROWS_WITH(trainer_traits{.states = {.lists = 4}}.check(), ContainsSubstring("lists up to 3"));
  CHECK_THROWS_WITH(trainer_traits{.states = {.bytes_each = 1}}.check(), ContainsSubstring("bytes_each 2 or 4"));
}

TEST_CASE("stages have the layers that the cuts of a plan give them", "[configurator]")
{
  const transformer_shape shape = even_model(8);
  const cluster whole = even_cluster(4);
  const parallel_plan plan = on_first_devices({.stages = 4, .micro_batches = 4, .cuts = {1, 3, 6}});
  const std::vector<model_part> parts = parts_of(shape, plan);
  const std::uint64_t layers[] = {1, 2, 3, 2}, firsts[] = {0, 1, 3, 6};
  for (std::size_t part = 0; part < 4; ++part) {
    CHECK(parts[part].layers == layers[part]);
    CHECK(parts[part].first_layer == firsts[part]);
    CHECK(flops_of(parts[part]).forward ==
          Catch::Approx(flops_of(parts[0]).forward * static_cast<double>(layers[part])).epsilon(1e-3));
  }
  // The stage with three layers works for 12 layers, and waits a third of three before its first run and one layer for
  // its first gradient. Behind its last run come two thirds of three layers.
  const double layer = alone(shape, 1e14) / 8;
  CHECK(step_latency{whole, shape}.of(plan).step == Catch::Approx((1 + 1 + 12 + 2) * layer).epsilon(2e-3));
  CHECK(step_latency{whole, shape}.of(on_first_devices({.stages = 4, .micro_batches = 4, .cuts = {2, 4, 6}})).step ==
        step_latency{whole, shape}.of(on_first_devices({.stages = 4, .micro_batches = 4})).step);
}

TEST_CASE("without ZeRO each replica adds up all gradients at once, and updates all weights", "[configurator]")
{
  const transformer_shape shape = even_model(4);
  cluster whole = cluster_of_slow_links(4);
  const double parameters = static_cast<double>(workload::parameters_of(shape));
  const double runs = 2 * alone(shape, 1e14);
  const auto step = [&](const trainer_traits& traits, std::uint32_t zero) {
    return step_latency{whole, trained_model{shape, traits}}
        .of(on_first_devices({.replicas = 4, .micro_batches = 2, .zero = zero}))
        .step;
  };
  for (const std::uint32_t size : {2U, 4U}) {
    const double sum = 2 * 3 * (1e-5 + size * parameters / 4 / 1e9);
    CHECK(step({.gradient_bytes = size}, 0) == Catch::Approx(runs + sum + parameters / 1e14).epsilon(1e-6));
  }
  // With ZeRO 1 gradients of 4 bytes are added up, and weights of 2 gathered.
  const model_units units{shape, 4};
  const double of_gradients = 3 * (units.count * 1e-5 + 2 * units.size / 4 / 1e9);
  const double of_weights = 3 * (units.count * 1e-5 + units.size / 4 / 1e9);
  CHECK(step({.gradient_bytes = 4}, 1) == Catch::Approx(runs + of_gradients + of_weights).epsilon(1e-4));
  for (cluster_node& it : whole.nodes) it.device_updates_per_second = 1e9;
  const double updates = step({}, 0) - step({}, 1);
  const double shorter = 2 * 3 * ((units.count - 1) * 1e-5 + (units.size - 2 * parameters) / 4 / 1e9);
  CHECK(updates == Catch::Approx(0.75 * parameters / 1e9 - shorter).epsilon(1e-4));
}

TEST_CASE("a trainer that hides sums shows those of the last layer, or the time above its backward run",
          "[configurator]")
{
  const transformer_shape shape = even_model(4);
  const auto step = [&](double rate, bool hides) {
    cluster whole = even_cluster(2);
    whole.links = link_matrix{2, {.latency = 0, .bytes_per_second = rate}};
    return step_latency{whole, trained_model{shape, {.hides_sums = hides}}}
        .of(on_first_devices({.replicas = 2, .micro_batches = 2, .zero = 0}))
        .step;
  };
  const double parameters = static_cast<double>(workload::parameters_of(shape));
  const model_part all = parts_of(shape, {.replicas = 2}).front();
  const double backward = (flops_of(all).backward_input + flops_of(all).backward_weight) / 1e14;
  for (const double sum : {backward / 10, backward * 2}) {
    const double rate = 2 * parameters / sum;  // 2 (w - 1) / w = 1 time the bytes
    const double hidden = step(rate, false) - step(rate, true);
    CHECK(hidden == Catch::Approx(std::min(sum * 3 / 4, backward)).epsilon(1e-6));
  }
}

TEST_CASE("a plan that cannot be is refused in one sentence", "[configurator]")
{
  const transformer_shape shape = even_model(8);
  const cluster whole = even_cluster(4);
  const auto refusal = [&](const parallel_plan& plan, std::optional<transformer_shape> other = {}) {
    return support::refusal<config_error>([&] { (void)step_latency{whole, other.value_or(shape)}.of(plan); });
  };
  const auto says = [](const char* words) { return ContainsSubstring(words); };
  CHECK_THAT(refusal(on_first_devices({.stages = 5})),
             says("a plan's \"tensor\" x \"stages\" x \"replicas\" is 1 x 5 x 1 ranks on 4 devices"));
  CHECK_THAT(refusal({.stages = 2, .devices = {0}}), says("\"devices\" has 1 elements for 2 ranks"));
  CHECK_THAT(refusal({.stages = 2, .devices = {1, 1}}), says("\"devices[1]\" is 1, the device of another rank"));
  CHECK_THAT(refusal({.stages = 2, .devices = {1, 9}}), says("\"devices[1]\" is 9, and there are 4 devices"));
  CHECK_THAT(refusal(on_first_devices({.stages = 0})), says("\"stages\" is 0"));
  CHECK_THAT(refusal(on_first_devices({.micro_batch = 0})), says("\"micro_batch\" is 0"));
  CHECK_THAT(refusal(on_first_devices({.tensor = 3})), says("\"tensor\" is 3, which does not divide 16 heads"));
  transformer_shape grouped = shape;
  grouped.heads = 12;
  grouped.kv_heads = 3;
  grouped.head_width = 64;
  CHECK_THAT(refusal(on_first_devices({.tensor = 2}), grouped), says("which neither divides 3 key-value heads"));
  grouped.kv_heads = 0;
  CHECK_THAT(refusal(on_first_devices({.tensor = 2}), grouped), says("kv_heads is 0"));
  CHECK_THAT(refusal(on_first_devices({.zero = 4})), says("\"zero\" is 4 (give 0, 1, 2 or 3)"));
  CHECK_THAT(refusal(on_first_devices({.stages = 4, .cuts = {2, 4}})), says("\"cuts\" has 2 elements for 4 parts"));
  CHECK_THAT(refusal(on_first_devices({.stages = 4, .cuts = {2, 2, 5}})),
             says("\"cuts[1]\" is 2, which leaves a part"));
  CHECK_THAT(refusal(on_first_devices({.stages = 4, .cuts = {0, 2, 5}})), says("\"cuts[0]\" is 0"));
  CHECK_THAT(refusal(on_first_devices({.stages = 4, .cuts = {2, 5, 8}})), says("rise, from 1 to 7"));
  const auto refused_trainer = [&](const trainer_traits& traits) {
    return support::refusal<config_error>([&] {
      (void)step_latency{whole, trained_model{shape, traits}}.of(on_first_devices({}));
    });
  };
  CHECK_THAT(refused_trainer({.weight_bytes = 3}), says("a size that none has"));
  CHECK_THAT(refused_trainer({.weight_bytes = 4}), says("a size that none has"));
  CHECK_THAT(refused_trainer({.tied_bytes = 1}), says("a size that none has"));
  CHECK_THAT(refusal(on_first_devices({.stages = 4, .micro_batches = 4, .parts = 2})),
             says("\"parts\" is 2 with the schedule 1f1b"));
  CHECK_THAT(
      refusal(on_first_devices({.stages = 4, .micro_batches = 4, .schedule = schedule_kind::interleaved, .parts = 3})),
      says("\"stages\" x \"parts\" is 12, and the model has 8 layers"));
  CHECK_THAT(refusal(on_first_devices({.stages = 4, .micro_batches = 2, .schedule = schedule_kind::two_versions})),
             says("versions of the weights"));
}

TEST_CASE("ranks beyond the heads of keys and values have copies of them", "[configurator]")
{
  const transformer_shape grouped{.style = workload::transformer_style::llama,
                                  .layers = 2,
                                  .hidden = 96,
                                  .heads = 16,
                                  .kv_heads = 2,
                                  .ffn = 200,
                                  .vocabulary = 1000,
                                  .embedding = 96,
                                  .sequence = 32,
                                  .ties_embedding = false,
                                  .head_width = 10};
  const auto tensors = [&](std::uint32_t tensor) {
    return tensors_of_parts(trained_model{grouped}, on_first_devices({.tensor = tensor})).front();
  };
  constexpr std::uint64_t of_head = 96 * 10;  // keys or values
  CHECK(std::ranges::count(tensors(1), 2 * of_head) == 4);
  for (const std::uint32_t ranks : {2U, 4U, 8U}) CHECK(std::ranges::count(tensors(ranks), of_head) == 4);
  // Copies cost work: four ranks compute as if there were four such heads.
  transformer_shape wide = grouped;
  wide.kv_heads = 4;
  const auto flops = [](const transformer_shape& of, std::uint32_t tensor) {
    return flops_of(parts_of(trained_model{of}, on_first_devices({.tensor = tensor})).front()).forward;
  };
  CHECK(flops(grouped, 4) == flops(wide, 4));
  CHECK(4 * flops(grouped, 4) > flops(grouped, 1));
  CHECK(trained_model{grouped}.has_degree(16));
  CHECK_FALSE(trained_model{grouped}.has_degree(32));
}

}  // namespace step_latency_test
