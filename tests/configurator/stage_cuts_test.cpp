// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/configurator/operator_graph.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/stage_cuts.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/refusal.hpp>

#include "usual_node.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace stage_cuts_test {

using namespace chunkmem;
using namespace chunkmem::configurator;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Numbers of an operator of a chain: times in milliseconds, sizes in bytes.
struct profile_row {
  double forward;
  double backward;
  double output;
  double parameters;
};

// Measured by PipeDream (github.com/msr-fiddle/pipedream, profiler/image_classification/profiles/alexnet/graph.txt)
// without the input, which has no stage of its own. The size of a tensor is a node there. A cut after that node sends
// the size and the tensor.
constexpr profile_row alexnet[] = {{22.316, 6.405, 198246400, 93184},
                                   {0.813, 0.733, 198246400, 0},
                                   {0.756, 1.148, 47775744, 0},
                                   {3.128, 5.612, 143327232, 1229568},
                                   {0.811, 0.524, 143327232, 0},
                                   {0.579, 0.861, 33226752, 0},
                                   {3.260, 6.610, 66453504, 2655744},
                                   {0.427, 0.269, 66453504, 0},
                                   {4.423, 7.197, 44302336, 3539968},
                                   {0.539, 0.188, 44302336, 0},
                                   {2.815, 5.497, 44302336, 2360320},
                                   {0.524, 0.176, 44302336, 0},
                                   {0.391, 0.306, 9437184, 0},
                                   {0, 0, 9437188, 0},
                                   {0, 0, 9437184, 0},
                                   {0, 0, 9437184, 0},
                                   {1.737, 3.072, 4194304, 151011328},
                                   {0.471, 0.039, 4194304, 0},
                                   {0, 0, 4194304, 0},
                                   {1.075, 1.366, 4194304, 67125248},
                                   {0.283, 0.043, 4194304, 0},
                                   {0.453, 0.474, 1024000, 16388000}};

/// The text of a graph that is a chain.
std::string graph_of(std::span<const profile_row> rows)
{
  std::string nodes, edges;
  for (std::size_t it = 0; it < rows.size(); ++it) {
    const profile_row& row = rows[it];
    nodes += "node" + std::to_string(it) + " -- operator -- forward_compute_time=" + std::to_string(row.forward) +
             ", backward_compute_time=" + std::to_string(row.backward) +
             ", activation_size=" + std::to_string(row.output) + ", parameter_size=" + std::to_string(row.parameters) +
             '\n';
    if (it > 0) edges += "\tnode" + std::to_string(it - 1) + " -- node" + std::to_string(it) + '\n';
  }
  return nodes + edges;
}

std::string published_vgg16()
{
  std::ifstream in{std::string{CHUNKMEM_SOURCE_DIR} + "/tests/configurator/measured/pipedream_vgg16.graph.txt"};
  return {std::istreambuf_iterator<char>{in}, {}};
}

constexpr streamed_machines published_machines{.kind = "titan x", .bytes_per_second = 1e9};

/// What the published optimizer printed for four machines of 1e9 B/s.
struct published_split {
  std::string graph;
  std::size_t states;
  double one_machine;
  double replicated;
  std::vector<cut_stage> replicated_stages;
  double straight;
  std::vector<std::uint64_t> straight_cuts;
};

/// The slowest stage of a straight pipeline that is cut there.
template <class Seconds>
double slowest(const Seconds& seconds, const std::vector<std::uint64_t>& cuts, std::size_t units)
{
  double longest = 0;
  std::size_t first = 0;
  for (std::size_t stage = 0; stage <= cuts.size(); ++stage) {
    const std::size_t end = stage < cuts.size() ? cuts[stage] : units;
    longest = std::max(longest, seconds(cut_stage{first, end, 1, static_cast<std::uint32_t>(stage)}));
    first = end;
  }
  return longest;
}

/// The fastest split of all, by trying each.
template <class Seconds>
double fastest_of_all(std::size_t first, std::size_t units, std::uint32_t machines, std::uint32_t before,
                      bool replicates, const Seconds& seconds)
{
  if (first == units) return before == machines ? 0 : std::numeric_limits<double>::infinity();
  double best = std::numeric_limits<double>::infinity();
  for (std::uint32_t of_this = 1; before + of_this <= machines && (replicates || of_this == 1); ++of_this)
    for (std::size_t end = first + 1; end <= units; ++end)
      best = std::min(best, std::max(seconds(cut_stage{first, end, of_this, before}),
                                     fastest_of_all(end, units, machines, before + of_this, replicates, seconds)));
  return best;
}

}  // namespace

TEST_CASE("PipeDream's profiles are cut as its optimizer printed", "[configurator]")
{
  const published_split published[] = {{.graph = published_vgg16(),
                                        .states = 40,
                                        .one_machine = 0.672535,
                                        .replicated = 0.205520896,
                                        .replicated_stages = {{0, 17, 3, 0}, {17, 40, 1, 3}},
                                        .straight = 0.411041792,
                                        .straight_cuts = {10, 24, 33}},
                                       {.graph = graph_of(alexnet),
                                        .states = 22,
                                        .one_machine = 0.085321,
                                        .replicated = 0.034217141,
                                        .replicated_stages = {{0, 13, 3, 0}, {13, 22, 1, 3}},
                                        .straight = 0.066453504,
                                        .straight_cuts = {6, 15, 19}}};
  for (const published_split& expected : published) {
    const model_profile profile = profile_of_graph(expected.graph, "graph.txt", {.kind = "titan x"});
    REQUIRE(profile.parts.size() == expected.states);
    const streamed_stages seconds{profile, published_machines};
    const auto equals = [](double value) { return Catch::Approx(value).epsilon(2e-8); };
    CHECK(cut_chain(expected.states, 1, true, seconds).seconds == equals(expected.one_machine));
    const chain_cuts replicated = cut_chain(expected.states, 4, true, seconds);
    CHECK(replicated.seconds == equals(expected.replicated));
    CHECK(replicated.stages == expected.replicated_stages);
    // Several straight splits are equally fast, since one transfer decides. The printed split is one of them.
    const chain_cuts straight = cut_chain(expected.states, 4, false, seconds);
    CHECK(straight.seconds == equals(expected.straight));
    CHECK(slowest(seconds, straight.cuts(), expected.states) == straight.seconds);
    CHECK(slowest(seconds, expected.straight_cuts, expected.states) == equals(expected.straight));
  }
}

TEST_CASE("cuts of random chains are the fastest of all", "[configurator]")
{
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    support::dice dice{seed};
    const std::size_t units = 2 + dice.below(6);
    const auto machines = static_cast<std::uint32_t>(1 + dice.below(4));
    std::vector<double> work, boundary, speed;
    for (std::size_t it = 0; it <= units; ++it) {
      work.push_back(1 + dice.below(20));
      boundary.push_back(dice.below(30));
    }
    for (std::uint32_t it = 0; it < machines; ++it) speed.push_back(1 + dice.below(3));
    const auto seconds = [&](const cut_stage& it) {
      double of_stage = boundary[it.first] + 2.0 * (it.machines - 1);
      for (std::size_t unit = it.first; unit < it.end; ++unit) of_stage += work[unit];
      return of_stage / it.machines / speed[it.machines_before];  // machines differ
    };
    CAPTURE(seed);
    for (const bool replicates : {false, true}) {
      if (!replicates && units < machines) {
        CHECK_THROWS_AS(cut_chain(units, machines, replicates, seconds), config_error);
        continue;
      }
      const chain_cuts found = cut_chain(units, machines, replicates, seconds);
      CHECK(found.seconds == fastest_of_all(0, units, machines, 0, replicates, seconds));
      double longest = 0;
      std::uint32_t used = 0;
      for (const cut_stage& it : found.stages) {
        CHECK(it.machines_before == used);
        used += it.machines;
        longest = std::max(longest, seconds(it));
      }
      CHECK(longest == found.seconds);
      CHECK(used == machines);
    }
  }
}

TEST_CASE("stages that cannot be are left out, and no stages are found where every cut has one", "[configurator]")
{
  const double never = std::numeric_limits<double>::infinity();
  const auto long_ones = [&](const cut_stage& it) { return it.end - it.first < 3 ? never : 1.0; };
  CHECK(cut_chain(6, 2, false, long_ones).cuts() == std::vector<std::uint64_t>{3});
  const chain_cuts none = cut_chain(5, 2, false, long_ones);
  CHECK(none.seconds == never);
  CHECK(none.stages.empty());
  const model_profile profile = profile_of_graph(
      "node1 -- a -- forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=4\n", "g",
      {.kind = "k"});
  CHECK_THROWS_WITH(streamed_stages(profile, {.kind = "k"}), ContainsSubstring("links have no rate"));
}

TEST_CASE("a graph of operators that branches is cut where all that is read later is sent", "[configurator]")
{
  // The input goes to 2 and 3, whose outputs meet in 4; 2 is read by 5 too.
  const std::string text =
      "node1 -- Input -- forward_compute_time=9, backward_compute_time=0, activation_size=7, "
      "parameter_size=0\n"
      "node2 -- a -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=10, "
      "parameter_size=8\n"
      "node3 -- b -- forward_compute_time=3, backward_compute_time=4, "
      "activation_size=[20.0; 5.0], parameter_size=0\n"
      "node4 -- c -- forward_compute_time=5, backward_compute_time=6, activation_size=40, "
      "parameter_size=16\n"
      "node5 -- d -- forward_compute_time=7, backward_compute_time=8, activation_size=80, "
      "parameter_size=0\n"
      "\tnode1 -- node2\n\tnode1 -- node3\n\tnode2 -- node4\n\tnode3 -- node4\n"
      "\tnode4 -- node5\n\tnode2 -- node5\n";
  const model_profile profile = profile_of_graph(text, "g", {.kind = "k"});
  REQUIRE(profile.parts.size() == 4);
  CHECK(profile.sizes[0].boundary == std::vector<std::uint64_t>{10, 10 + 25, 10 + 40, 80});
  CHECK(profile.weights_of(0, 1) == std::vector<std::uint64_t>{2});
  CHECK(profile.seconds("k", 3, 1, 1).sum() == Catch::Approx(0.015));
  const auto refusal = [](const std::string& of) {
    return support::refusal<format_error>([&] { (void)profile_of_graph(of, "g.txt", {.kind = "k"}); });
  };
  CHECK_THAT(refusal(""), ContainsSubstring("it has no operators (give a line for each)"));
  CHECK_THAT(refusal(text + "\tnode5 -- node4\n"), ContainsSubstring("wait for each other (remove the cycle)"));
  CHECK_THROWS_WITH(profile_of_graph(text, "g", {.kind = "k", .weight_bytes = 0}), ContainsSubstring("0 bytes"));
  CHECK_THAT(refusal(text + "\tnode5 -- node6\n"), ContainsSubstring("line 12 has an edge of an unknown operator"));
  CHECK_THAT(refusal(text + "hello\n"), ContainsSubstring("line 12 does not begin with an operator"));
  CHECK_THAT(refusal("node1 -- a -- forward_compute_time=1\n"), ContainsSubstring("line 1 lacks a number"));
  CHECK_THAT(refusal("node1 -- a -- forward_compute_time=-1\n"), ContainsSubstring("line 1 has an invalid number"));
}

TEST_CASE("balanced cuts give slow nodes and the logits fewer layers, and shorten the step", "[configurator]")
{
  const workload::transformer_shape shape{.layers = 12,
                                          .hidden = 512,
                                          .heads = 8,
                                          .kv_heads = 8,
                                          .ffn = 2048,
                                          .vocabulary = 50'000,
                                          .embedding = 512,
                                          .positions = 0,
                                          .sequence = 512};
  cluster whole{.name = "four", .nodes{}};
  for (int node = 0; node < 4; ++node) whole.nodes.push_back(support::usual_node("node " + std::to_string(node)));
  whole.nodes[1].device_flops_per_second = 5e13;
  whole.links = link_matrix{4, {.latency = 1e-6, .bytes_per_second = 1e12}};
  parallel_plan plan{.stages = 4, .micro_batches = 16, .devices = {0, 1, 2, 3}};
  const step_latency latency{whole, shape};
  const double equal = latency.of(plan).step;
  plan.cuts = balanced_cuts(whole, shape, plan);
  const std::vector<model_part> parts = parts_of(shape, plan);
  CHECK(parts[1].layers < parts[0].layers);  // half as fast
  CHECK(parts[3].layers < parts[0].layers);  // logits
  CHECK(latency.of(plan).step < 0.9 * equal);
  // No other cuts have a faster slowest stage.
  const auto busiest = [&](const parallel_plan& of) {
    double longest = 0;
    const std::vector<model_part> all = parts_of(shape, of);
    for (std::size_t stage = 0; stage < 4; ++stage)
      longest = std::max(longest, all[stage].computing_on(whole.nodes[stage]).sum());
    return longest;
  };
  const double best = busiest(plan);
  for (std::uint64_t one = 1; one < 10; ++one)
    for (std::uint64_t two = one + 1; two < 11; ++two)
      for (std::uint64_t three = two + 1; three < 12; ++three) {
        parallel_plan other = plan;
        other.cuts = {one, two, three};
        CHECK(busiest(other) >= best * (1 - 1e-12));
      }
  plan.parts = 2;
  plan.schedule = schedule_kind::interleaved;
  CHECK_THROWS_WITH(balanced_cuts(whole, shape, plan), ContainsSubstring("2 parts for a stage"));
}

}  // namespace stage_cuts_test
