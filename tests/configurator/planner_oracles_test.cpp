// SPDX-License-Identifier: Apache-2.0
// Rules of published planners, against numbers that those planners printed.
#include "planner_rules.hpp"

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <support/catch.hpp>

#include "usual_node.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

namespace planner_oracles_test {

using namespace planner_rules;
using namespace chunkmem::literals;

namespace {

// ---- AMP's results ----

using first_layers = std::span<const int>;  // of each stage, and the number of layers at the end

// clang-format off
constexpr int whole[] = {0, 30}, halves[] = {0, 15, 30}, early_halves[] = {0, 14, 30};
constexpr int quarters[] = {0, 9, 15, 21, 30}, early_quarters[] = {0, 8, 14, 20, 30};
constexpr int eighths[] = {0, 5, 9, 12, 15, 18, 21, 24, 30}, early_eighths[] = {0, 5, 8, 11, 14, 17, 20, 23, 30};
constexpr int sixteenths[] = {0, 4, 6, 8, 10, 12, 14, 16, 17, 18, 19, 20, 21, 22, 23, 25, 30};
constexpr int late_sixteenths[] = {0, 4, 6, 8, 10, 12, 14, 16, 18, 19, 20, 21, 22, 23, 24, 25, 30};
// clang-format on

struct amp_row {
  std::uint32_t tensor;
  std::uint32_t replicas;
  std::uint32_t stages;
  std::uint32_t micro_batch;
  first_layers cut;
  double seconds;  ///< that AMP predicted
};

// Printed by AMP (github.com/DachengLi1/AMP, results/homogeneous_results.txt) for 16 equal devices and 32 rows. Two
// rows are left out: no other row has their degree of tensor parallelism and their cut, so nothing predicts them.
// clang-format off
constexpr amp_row amp_rows[] = {
    {1, 16, 1, 1, whole, 1.2443}, {1, 16, 1, 2, whole, 1.2443},
    {1, 8, 2, 1, halves, 1.2665}, {1, 8, 2, 2, halves, 1.4714}, {1, 8, 2, 4, early_halves, 1.8671},
    {1, 4, 4, 1, quarters, 1.2841}, {1, 4, 4, 2, quarters, 1.5896}, {1, 4, 4, 4, quarters, 2.2007},
    {1, 4, 4, 8, early_quarters, 3.4107},
    {1, 2, 8, 2, eighths, 1.7268}, {1, 2, 8, 4, eighths, 2.4337}, {1, 2, 8, 8, eighths, 3.8475},
    {1, 2, 8, 16, early_eighths, 6.6750},
    {1, 1, 16, 1, sixteenths, 1.4857}, {1, 1, 16, 2, sixteenths, 1.8702}, {1, 1, 16, 4, sixteenths, 2.6392},
    {1, 1, 16, 8, sixteenths, 4.1772}, {1, 1, 16, 32, late_sixteenths, 13.4050},
    {2, 8, 1, 1, whole, 1.9607}, {2, 8, 1, 2, whole, 1.9607}, {2, 8, 1, 4, whole, 1.9607},
    {2, 4, 2, 1, early_halves, 2.0835}, {2, 4, 2, 2, early_halves, 2.3040}, {2, 4, 2, 4, early_halves, 2.7449},
    {2, 4, 2, 8, early_halves, 3.6268},
    {2, 2, 4, 1, early_quarters, 2.1796}, {2, 2, 4, 2, early_quarters, 2.5090},
    {2, 2, 4, 4, early_quarters, 3.1677}, {2, 2, 4, 8, early_quarters, 4.4852},
    {2, 2, 4, 16, early_quarters, 7.1201},
    {2, 1, 8, 1, early_eighths, 2.2933}, {2, 1, 8, 2, early_eighths, 2.6788}, {2, 1, 8, 4, early_eighths, 3.4498},
    {2, 1, 8, 8, early_eighths, 4.9918}, {2, 1, 8, 16, early_eighths, 8.0757}, {2, 1, 8, 32, early_eighths, 14.2435},
    {4, 4, 1, 1, whole, 3.3700}, {4, 4, 1, 2, whole, 3.3700}, {4, 4, 1, 4, whole, 3.3700}, {4, 4, 1, 8, whole, 3.3700},
    {4, 2, 2, 1, early_halves, 3.5421}, {4, 2, 2, 2, early_halves, 3.7468}, {4, 2, 2, 4, early_halves, 4.1563},
    {4, 2, 2, 8, early_halves, 4.9751}, {4, 2, 2, 16, early_halves, 6.6128},
    {4, 1, 4, 1, early_quarters, 3.7026}, {4, 1, 4, 2, early_quarters, 4.0091}, {4, 1, 4, 4, early_quarters, 4.6220},
    {4, 1, 4, 8, early_quarters, 5.8479}, {4, 1, 4, 16, early_quarters, 8.2996},
    {4, 1, 4, 32, early_quarters, 13.2031}};
// clang-format on

constexpr double amp_rate = 50e9 / 32;  // numbers per second, within nodes and between them
constexpr double amp_hidden = 1024, amp_sequence = 1024, amp_vocabulary = 52'256;

/// Numbers that each rank of the largest stage adds up. Layers 2 to 25 are blocks, and 0 and 28 the two uses of the
/// table of tokens. A stage with both has one table.
double largest_stage(const amp_row& row)
{
  double largest = 0;
  for (std::size_t stage = 0; stage + 1 < row.cut.size(); ++stage) {
    const int first = row.cut[stage], end = row.cut[stage + 1];
    const int blocks = std::max(0, std::min(end, 26) - std::max(first, 2));
    const double table = first == 0 || end == 30 ? amp_hidden * amp_vocabulary : 0;
    largest = std::max(largest, blocks * 12 * amp_hidden * amp_hidden + table);
  }
  return largest / row.tensor;
}

/// The terms that need no profile.
amp_terms terms_of(const amp_row& row)
{
  const double boundary = row.micro_batch * amp_sequence * amp_hidden;
  return {.micro_batches = 32.0 / (row.replicas * row.micro_batch),
          .transfers = (row.stages - 1) * boundary / amp_rate,
          .sums = ring_factor(row.replicas) * largest_stage(row) / amp_rate};
}

// ---- Plans ----

cluster equal_nodes(std::uint32_t nodes, std::uint32_t devices, const pair_link& outer)
{
  cluster made{.name = "equal", .nodes{}};
  for (std::uint32_t node = 0; node < nodes; ++node) made.nodes.push_back(support::usual_node("usual", devices));
  made.links = link_matrix{nodes, outer};
  for (std::uint32_t node = 0; node < nodes; ++node)
    made.links(node, node) = {.latency = 5e-6, .bytes_per_second = 100e9};
  return made;
}

/// Nodes of four and of two devices, of two speeds.
cluster unequal_nodes()
{
  cluster made = equal_nodes(3, 4, {.latency = 1e-5, .bytes_per_second = 10e9});
  made.nodes[1] = support::usual_node("small", 2);
  made.nodes[1].device_flops_per_second = 4e13;
  made.links(0, 1).bytes_per_second = 2e9;
  return made;
}

transformer_shape model(std::uint64_t layers, std::uint64_t hidden)
{
  return {.layers = layers,
          .hidden = hidden,
          .heads = 16,
          .kv_heads = 16,
          .ffn = 4 * hidden,
          .vocabulary = 50'000,
          .embedding = hidden,
          .positions = 1'024,
          .sequence = 1'024};
}

/// Weights, gradients and states as 16 bytes of a parameter, and the activations of micro-batches in flight.
memory_verdict fits_in(bytes device_bytes, const transformer_shape& shape)
{
  return [device_bytes, shape](const parallel_plan& plan) {
    std::uint32_t stage = 0;
    for (const model_part& part : parts_of(shape, plan)) {
      const double of_states = plan.states_on_host ? 0 : 12.0 / plan.replicas;
      const double in_flight = std::min(plan.stages - stage, plan.micro_batches);
      const double kept = static_cast<double>((part.kept + part.boundary).count());
      const double all = static_cast<double>(part.parameters) * (4 + of_states) + in_flight * kept +
                         static_cast<double>(part.working.count());
      if (all > static_cast<double>(device_bytes.count())) return false;
      ++stage;
    }
    return true;
  };
}

using planner = std::optional<parallel_plan> (*)(const cluster&, const transformer_shape&, std::uint64_t,
                                                 const memory_verdict&, bool);
constexpr std::pair<const char*, planner> planners[] = {{"megatron_default", megatron_default},
                                                        {"amp_model", amp_model},
                                                        {"varuna", varuna},
                                                        {"two_bw_planner", two_bw_planner}};

bool fits_always(const parallel_plan&)
{
  return true;
}

}  // namespace

TEST_CASE("the first planner of PipeDream-2BW takes 4 replicas of 16 stages", "[configurator]")
{
  const block_model model{.blocks = 24, .seconds = 0.010, .parameters = 12.6e6, .activations = 50e6, .output = 4e6};
  const std::optional<block_plan> chosen = first_two_bw_planner(model, 64, 16e9);
  REQUIRE(chosen);
  CHECK(chosen->replicas == 4);
  CHECK(chosen->stages == 16);
  CHECK(chosen->memory == Catch::Approx(3.301e9).epsilon(1e-4));
  CHECK(chosen->seconds == Catch::Approx(0.0025).epsilon(1e-12));
  CHECK_FALSE(first_two_bw_planner(model, 64, 3e9));
}

TEST_CASE("AMP's formula ties AMP's predictions together", "[configurator]")
{
  // AMP's profiles of layers are binary files, and are not used here. The formula is linear in two of their sums: the
  // time of all layers, and that of the slowest stage of a cut. One row each gives a sum. All other rows follow.
  std::map<std::uint32_t, double> all_layers;  // of a row of a batch, by degree of tensor parallelism
  for (const amp_row& row : amp_rows) {
    const amp_terms known = terms_of(row);
    if (row.micro_batch == 32) all_layers[row.tensor] = (row.seconds - amp_seconds(known)) / row.micro_batch;
  }
  REQUIRE(all_layers.size() == 3);
  std::map<std::pair<std::uint32_t, const int*>, double> slowest_stages;  // of a row of a batch
  std::size_t predicted = 0;
  for (const amp_row& row : amp_rows) {
    CAPTURE(row.tensor, row.replicas, row.stages, row.micro_batch);
    amp_terms terms = terms_of(row);
    terms.all_stages = row.micro_batch * all_layers[row.tensor];
    double& slowest = slowest_stages[{row.tensor, row.cut.data()}];
    if (row.stages == 1) slowest = all_layers[row.tensor];
    if (row.micro_batch == 32) continue;
    if (slowest == 0 && terms.micro_batches > 1) {
      slowest = (row.seconds - amp_seconds(terms)) / (terms.micro_batches - 1) / row.micro_batch;
      CHECK(slowest > all_layers[row.tensor] / row.stages);
      continue;
    }
    terms.slowest_stage = row.micro_batch * slowest;
    CHECK(std::abs(amp_seconds(terms) - row.seconds) < 1.5e-4);  // AMP printed four digits of all numbers used
    ++predicted;
  }
  CHECK(predicted == std::size(amp_rows) - 3 - 9);
}

TEST_CASE("every rule gives a plan that can be, for all rows of the batch", "[configurator]")
{
  const pair_link usual{.latency = 1e-5, .bytes_per_second = 10e9};
  const std::pair<cluster, std::uint64_t> cases[] = {{equal_nodes(1, 1, usual), 8},
                                                     {equal_nodes(4, 4, usual), 64},
                                                     {equal_nodes(8, 1, usual), 24},
                                                     {equal_nodes(2, 8, usual), 33},
                                                     {unequal_nodes(), 48}};
  for (const auto& [nodes, rows] : cases)
    for (const transformer_shape& shape : {model(12, 768), model(10, 2'048)})
      for (const auto& [name, rule] : planners)
        for (const bool with_tensor : {true, false}) {
          CAPTURE(name, nodes.ranks(), rows, shape.layers, with_tensor);
          const memory_verdict fits = fits_in(12_GiB, shape);
          const std::optional<parallel_plan> plan = rule(nodes, shape, rows, fits, with_tensor);
          REQUIRE(plan);
          CHECK_NOTHROW(plan->check(shape, nodes.ranks()));
          CHECK_NOTHROW(schedule_of(*plan, {}, 2));
          CHECK(plan->rows() == rows);
          CHECK(fits(*plan));
          if (!with_tensor) CHECK(plan->tensor == 1);
          CHECK_FALSE(rule(
              nodes, shape, rows, [](const parallel_plan&) { return false; }, with_tensor));
        }
}

TEST_CASE("a rule puts states on the host where nothing else fits", "[configurator]")
{
  const cluster nodes = equal_nodes(2, 4, {.latency = 1e-5, .bytes_per_second = 10e9});
  for (const auto& [name, rule] : planners) {
    CAPTURE(name);
    const auto on_host = [](const parallel_plan& plan) { return plan.states_on_host; };
    REQUIRE(rule(nodes, model(8, 1'024), 32, on_host, true));
    CHECK(rule(nodes, model(8, 1'024), 32, on_host, true)->states_on_host);
    CHECK_FALSE(rule(nodes, model(8, 1'024), 32, fits_always, true)->states_on_host);
  }
}

TEST_CASE("Megatron's rule fills a node with tensor parallelism before it adds stages", "[configurator]")
{
  const cluster nodes = equal_nodes(4, 4, {.latency = 1e-5, .bytes_per_second = 10e9});
  const auto chosen = [&](std::uint32_t model_parallel, bool with_tensor) {
    const auto fits = [&](const parallel_plan& plan) { return plan.tensor * plan.stages >= model_parallel; };
    const parallel_plan plan = megatron_default(nodes, model(16, 1'024), 64, fits, with_tensor).value();
    CHECK(plan.ranks() == 16);
    if (plan.tensor == 1) CHECK(plan.micro_batch == 1);  // else larger ones share the latency of sums
    return std::pair{plan.tensor, plan.stages};
  };
  CHECK(chosen(1, true) == std::pair{1U, 1U});
  CHECK(chosen(2, true) == std::pair{2U, 1U});
  CHECK(chosen(4, true) == std::pair{4U, 1U});
  CHECK(chosen(8, true) == std::pair{4U, 2U});
  CHECK(chosen(8, false) == std::pair{1U, 8U});
}

TEST_CASE("Megatron's rule runs forward again only where more stages would take longer", "[configurator]")
{
  const cluster nodes = equal_nodes(4, 1, {.latency = 1e-5, .bytes_per_second = 10e9});
  transformer_shape shape = model(16, 1'024);
  shape.vocabulary = 64;  // stages are equal
  const auto fits = [](const parallel_plan& plan) { return plan.recomputes || plan.stages == 4; };
  // A row takes 4/3 with recomputation, or 1/4 on each of 4 stages. 4 rows: 1 * 4/3 is less than (4 + 3) / 4.
  // 64 rows: 16 * 4/3 is more than (64 + 3) / 4.
  CHECK(megatron_default(nodes, shape, 4, fits, true)->recomputes);
  CHECK_FALSE(megatron_default(nodes, shape, 64, fits, true)->recomputes);
}

TEST_CASE("planners that look at links take fewer replicas where links are slow", "[configurator]")
{
  for (const planner rule : {planner{amp_model}, planner{varuna}, planner{two_bw_planner}}) {
    const auto replicas = [&](double rate) {
      const cluster nodes = equal_nodes(4, 1, {.latency = 1e-6, .bytes_per_second = rate});
      const auto fits = [](const parallel_plan& plan) { return plan.micro_batch == 1; };
      return rule(nodes, model(16, 1'024), 64, fits, true)->replicas;
    };
    CHECK(replicas(1e13) == 4);
    CHECK(replicas(1e9) < 4);
  }
}

TEST_CASE("planners count what their papers count", "[configurator]")
{
  transformer_shape shape = model(12, 1'024);
  shape.vocabulary = 64;  // stages are equal
  const auto chosen = [&](planner rule, double rate, std::uint64_t rows, const memory_verdict& fits) {
    return rule(equal_nodes(4, 1, {.latency = 1e-6, .bytes_per_second = rate}), shape, rows, fits, true).value();
  };
  const auto is_one_pipeline = [](const parallel_plan& plan) { return plan.replicas == 1 && !plan.recomputes; };
  // Each further stage costs AMP one more transfer, and PipeDream-2BW two in each of its slots.
  CHECK(chosen(amp_model, 1e13, 2, is_one_pipeline).stages == 4);
  CHECK(chosen(amp_model, 1e8, 2, is_one_pipeline).stages == 3);
  CHECK(chosen(two_bw_planner, 1e13, 8, is_one_pipeline).stages == 4);
  CHECK(chosen(two_bw_planner, 1e8, 8, is_one_pipeline).stages == 1);
  // One micro-batch runs on one stage at a time. So Varuna gains nothing from more stages, unlike 8 micro-batches.
  shape.layers = 8;
  const auto is_small = [](const parallel_plan& plan) { return plan.replicas == 1 && plan.micro_batch == 1; };
  CHECK(chosen(varuna, 1e13, 1, is_small).stages == 1);
  CHECK(chosen(varuna, 1e13, 8, is_small).stages == 4);
  // AMP takes a run forward as a third of a micro-batch, and recomputation adds one: 4 is less than 3 (3 / 4) + 3, and
  // 16 * 4 is more than 63 (3 / 4) + 3.
  const auto recomputes = [](const parallel_plan& plan) { return plan.recomputes || plan.stages == 4; };
  CHECK(chosen(amp_model, 1e13, 4, recomputes).recomputes);
  CHECK_FALSE(chosen(amp_model, 1e13, 64, recomputes).recomputes);
}

TEST_CASE("ranks that share layers stay within a node", "[configurator]")
{
  const cluster nodes = unequal_nodes();  // of 4, 2 and 4 devices
  for (const planner rule : {planner{megatron_default}, planner{amp_model}}) {
    const auto chosen = [&](std::uint32_t tensor) {
      return rule(
          nodes, model(12, 768), 48, [&](const auto& plan) { return plan.tensor == tensor; }, true);
    };
    CHECK(chosen(2));
    CHECK_FALSE(chosen(4));
  }
}

TEST_CASE("Varuna and PipeDream-2BW take the largest micro-batch that fits", "[configurator]")
{
  const cluster nodes = equal_nodes(4, 1, {.latency = 1e-5, .bytes_per_second = 10e9});
  const auto fits = [](const parallel_plan& plan) { return plan.stages == 4 && plan.micro_batch <= 9; };
  const parallel_plan pipeline = varuna(nodes, model(16, 1'024), 64, fits, true).value();
  CHECK(pipeline.micro_batch == 8);
  CHECK(pipeline.recomputes);
  const parallel_plan flowing = two_bw_planner(nodes, model(16, 1'024), 64, fits, true).value();
  CHECK(flowing.micro_batch == 8);
  CHECK_FALSE(flowing.recomputes);
  // Two versions of the weights need as many micro-batches as stages.
  CHECK(two_bw_planner(nodes, model(16, 1'024), 16, fits, true)->micro_batch == 4);
}

TEST_CASE("AMP's rule keeps micro-batches small where stages wait for each other", "[configurator]")
{
  const cluster nodes = equal_nodes(4, 1, {.latency = 1e-5, .bytes_per_second = 10e9});
  const auto fits = [](const parallel_plan& plan) { return plan.stages == 4; };
  CHECK(amp_model(nodes, model(16, 1'024), 64, fits, true)->micro_batch == 1);
}

}  // namespace planner_oracles_test
