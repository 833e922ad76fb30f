// SPDX-License-Identifier: Apache-2.0
// The examples in the comments of the configurator's functions, each as it stands there, with the effect that its
// comment promises.
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/cluster_file.hpp>
#include <chunkmem/configurator/least_memory.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/configurator/operator_graph.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/placement_cost.hpp>
#include <chunkmem/configurator/placement_search.hpp>
#include <chunkmem/configurator/plan_file.hpp>
#include <chunkmem/configurator/plan_search.hpp>
#include <chunkmem/configurator/plan_space.hpp>
#include <chunkmem/configurator/planned_rank.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/profile_chain.hpp>
#include <chunkmem/configurator/profile_file.hpp>
#include <chunkmem/configurator/profile_meter.hpp>
#include <chunkmem/configurator/rank_places.hpp>
#include <chunkmem/configurator/replica_units.hpp>
#include <chunkmem/configurator/stage_cuts.hpp>
#include <chunkmem/configurator/steady_period.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/schedules.hpp>

#include <checkpoint/small_model.hpp>
#include <configurator/usual_node.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace configurator_examples_test {

using namespace chunkmem;
using namespace chunkmem::configurator;
using namespace chunkmem::literals;

namespace {

/// Four nodes of one device each, a small transformer, and a plan of two stages with two replicas.
struct rig {
  explicit rig(std::uint32_t nodes = 4)
  {
    whole.nodes.resize(nodes, support::usual_node("v100"));
    whole.links = link_matrix{nodes, {.latency = 1e-5, .bytes_per_second = 1e9}};
  }
  cluster whole{.name = "small", .nodes{}};
  workload::transformer_shape shape{.layers = 8,
                                    .hidden = 64,
                                    .heads = 4,
                                    .kv_heads = 4,
                                    .ffn = 256,
                                    .vocabulary = 500,
                                    .embedding = 64,
                                    .positions = 32,
                                    .sequence = 16};
  trained_model model{shape};
  parallel_plan plan{
      .stages = 2, .replicas = 2, .micro_batch = 2, .micro_batches = 4, .zero = 3, .devices = {0, 1, 2, 3}};
  pipeline::pass_seconds seconds{.forward = 1, .backward_input = 1, .backward_weight = 1};
};

/// Two parts as they were measured on a "node-0" with `rows` rows.
model_profile profile_of(std::uint64_t rows)
{
  model_profile made{.name = "two parts", .input_of_row = 64_B, .parts = {}};
  made.parts = {{.name = "table"}, {.name = "block", .all_reduces = 2}};
  made.weights = {{1, {{512}, {4096, 64}}}};
  made.sizes = {{1, rows, {0, 4096 * rows}, {512 * rows, 512 * rows}, {0, 1024}}};
  made.times = {{"node-0", 1, rows, {{0.001, 0.001, 0.001}, {0.01, 0.01, 0.01}}}};
  return made;
}

double step_with_copies(const cluster& whole, const parallel_plan& plan, const memory_proof& proof,
                        const step_latency& latency)
{
#include "configurator.moved_by.1.inc"
  return seconds;
}

void print_families(const trained_model& model, const cluster& whole)
{
#include "configurator.families_of.1.inc"
}

/// The text that an example prints.
template <class Example>
std::string printed(Example example)
{
  std::ostringstream text;
  std::streambuf* const out = std::cout.rdbuf(text.rdbuf());
  std::streambuf* const err = std::cerr.rdbuf(text.rdbuf());
  example();
  std::cout.rdbuf(out);
  std::cerr.rdbuf(err);
  return text.str();
}

std::string text_of_file(const std::string& path)
{
  std::stringstream text;
  text << std::ifstream{path}.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("the example of each file of a cluster reads back what was written", "[pages]")
{
  const checkpoints::temporary_folder folder;
  const std::string path = folder.path() + "/cluster.json";
  const rig here;
  [&](const cluster& whole) {
#include "configurator.cluster_text.1.inc"
  }(here.whole);
  const std::string text = text_of_file(path);
  {
#include "configurator.read_cluster.1.inc"
    CHECK(whole.nodes == here.whole.nodes);
  }
  const auto read_and_print = [&] {
#include "configurator.parse_cluster.1.inc"
    CHECK(whole.nodes == here.whole.nodes);
  };
  CHECK(printed(read_and_print) == "4 devices\n");
}

TEST_CASE("the example of each file of a profile reads back what was written", "[pages]")
{
  const checkpoints::temporary_folder folder;
  const std::string path = folder.path() + "/profile.json";
  const model_profile profile = profile_of(1);
  {
#include "configurator.profile_text.1.inc"
  }
  const std::string text = text_of_file(path);
  {
#include "configurator.read_profile.1.inc"
    CHECK(*model.profile == profile);
  }
  {
#include "configurator.parse_profile.1.inc"
    CHECK(*model.profile == profile);
  }
}

TEST_CASE("the example of each file of a plan reads back what was written", "[pages]")
{
  const checkpoints::temporary_folder folder;
  const std::string path = folder.path() + "/plan.json";
  const rig here;
  const auto& model = here.model;
  const auto& whole = here.whole;
  [&](const parallel_plan& plan) {
#include "configurator.plan_text.1.inc"
  }(here.plan);
  {
#include "configurator.subject_of.1.inc"
    CHECK(subject != subject_of(trained_model{here.shape, {.activation_bytes = 4}}, whole));
  }
  const std::string text = text_of_file(path);
#include "configurator.parse_plan.1.inc"
  CHECK(plan == here.plan);
}

TEST_CASE("the examples of profiles lead to the times that were measured", "[pages]")
{
  const model_profile of_one_row = profile_of(1), of_eight_rows = profile_of(8);
#include "configurator.add_measurements.1.inc"
  CHECK(both.times.size() == 2);
  const model_profile& forward_alone = of_one_row;
  {
#include "configurator.with_backward_runs.1.inc"
    CHECK(model.profile->times[0].of_parts[1].backward_input == 0.01);
    CHECK(model.profile->times[0].of_parts[1].backward_weight == 0.01);
  }
  const std::string text =
      "node1 -- a -- forward_compute_time=1, backward_compute_time=2, activation_size=8, parameter_size=4\n";
#include "configurator.profile_of_graph.1.inc"
  CHECK(vgg.parts.size() == 1);
  const model_profile& profile = both;
#include "configurator.chain_of.1.inc"
  CHECK(chain.blocks.size() == 2);
  CHECK(plan.costs.fits);
}

TEST_CASE("the examples of plans tell their parts, steps and schedule", "[pages]")
{
  rig here;
  auto& [whole, shape, model, plan, seconds] = here;
  const step_latency latency{whole, model};
  const auto print = [] {
#include "configurator.text_of.1.inc"
  };
  CHECK(printed(print) == text_of({.stages = 2, .micro_batches = 4}) + '\n');
  {
    constexpr std::size_t part = 1;
#include "configurator.owners_of.1.inc"
    CHECK(stage == 1);
  }
  {
#include "configurator.schedule_steps.1.inc"
    CHECK(steps == 7 * 4 * 2);
  }
  {
#include "configurator.schedule_of.1.inc"
    CHECK(steps_of_first_stage > 2 * 4);
    CHECK(steps_of_first_stage <= schedule_steps(plan));
  }
  {
#include "configurator.parts_of.1.inc"
    CHECK(parts.size() == 2);
    CHECK(kept > 0_B);
  }
  {
#include "configurator.tensors_of_parts.1.inc"
    CHECK(elements == 500 * 64);
#include "configurator.planned_chunk.1.inc"
    CHECK(chunk > 0_B);
  }
  const auto check = [&] {
#include "configurator.check_schedulable.1.inc"
  };
  CHECK_NOTHROW(check());
  const parallel_plan checked =
      std::exchange(plan, {.stages = 4, .micro_batches = 2, .schedule = schedule_kind::two_versions});
  CHECK_THROWS_AS(check(), config_error);
  plan = checked;
  plan.micro_batches = 100;
#include "configurator.few_micro_batches.1.inc"
  CHECK(plan.micro_batches == 14);
}

TEST_CASE("the examples of proofs tell what a plan needs", "[pages]")
{
  rig here;
  auto& [whole, shape, model, plan, seconds] = here;
  const step_latency latency{whole, model};
#include "configurator.work_of.1.inc"
  CHECK(of_first_part == tensors_of_parts(model, plan)[0]);
  const auto print_a_refusal = [&] {
#include "configurator.refuse_by_leases.1.inc"
  };
  CHECK(printed(print_a_refusal).empty());
  {
#include "configurator.prove_memory.1.inc"
    CHECK(proof.fits);
#include "configurator.room_of_stage.1.inc"
    CHECK(device == 32_GiB);
  }
  {
#include "configurator.least_memory_of.1.inc"
    CHECK(activations > 0_B);
#include "configurator.least_moved.1.inc"
    CHECK(of_step == 0_B);
  }
  {
#include "configurator.with_few_micro_batches.1.inc"
    CHECK(proof.fits);
    CHECK(rehearsed == plan);  // few micro-batches stay as they are
    CHECK(step_with_copies(whole, plan, proof, latency) == latency.of(plan).step);
  }
  {
    const auto print = [&] {
#include "configurator.replica_units_of.1.inc"
      CHECK(units.count > 0);
    };
    CHECK_THAT(printed(print), Catch::Matchers::ContainsSubstring(" gathers, "));
  }
  backend::host_arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
#include "configurator.update_place.1.inc"
  CHECK(m.placement().device_share == 1);
#include "configurator.divided_by.1.inc"
  CHECK(options.divided == sharding::zero_3);
}

TEST_CASE("the examples of searches find plans, cuts and places", "[pages]")
{
  rig here;
  auto& [whole, shape, model, plan, run_time] = here;
  const step_latency latency{whole, model};
  std::string text = printed([&] { print_families(model, whole); });
  CHECK(std::ranges::count(text, '\n') > 100);
  text = printed([&] {
#include "configurator.device_choices.1.inc"
  });
  CHECK(text.starts_with("4\n"));
  const auto search = [whole = rig{2}.whole, shape = [&] {
    workload::transformer_shape small = here.shape;
    small.layers = 2;
    return small;
  }()] {
#include "configurator.find_plans.1.inc"
    CHECK_FALSE(found.best.empty());
  };
  CHECK(printed(search).empty());
  {
    const auto seconds = [](const cut_stage& stage) { return static_cast<double>(stage.end - stage.first); };
#include "configurator.cut_chain.1.inc"
    CHECK(straight.cuts() == std::vector<std::uint64_t>{10, 20, 30});
  }
  {
    double seconds = std::numeric_limits<double>::infinity();
#include "configurator.balanced_cuts.1.inc"
    CHECK(plan.cuts.size() == 1);
    CHECK(seconds == latency.of(plan).step);
  }
  {
    const double before = latency.of(plan).step;
#include "configurator.improve_places.1.inc"
    CHECK(seconds <= before);
    const group_places places{whole, plan, parts_of(model, plan)};
#include "configurator.slowest_places.1.inc"
    CHECK(worst >= seconds);
  }
  {
#include "configurator.identity_placement.1.inc"
    CHECK(places == rank_placement{0, 1, 2, 3});
  }
}

TEST_CASE("the example of place_ranks finds a node for each rank", "[pages]")
{
  const link_matrix links{64, {.latency = 1e-5, .bytes_per_second = 1e9}};
  constexpr std::size_t replica = 1, stage = 2;
#include "configurator.place_ranks.1.inc"
  CHECK(node < 64);
}

TEST_CASE("the examples of periods find the one of a long batch", "[pages]")
{
  rig here;
  const std::uint32_t micro_batches = [&] {
#include "configurator.steady_window.1.inc"
    return shape.micro_batches;
  }();
  here.plan.micro_batches = micro_batches;
  const step_latency latency{here.whole, here.model};
  const pipeline::schedule plan = schedule_of(here.plan, here.seconds);
  const pipeline::pipeline_costs costs = latency.costs(here.plan);
  const pipeline::pipeline_times times = pipeline::pipeline_timeline{plan, costs}.run(true);
  double seconds = times.seconds;
  constexpr double repeats = 10;
#include "configurator.steady_period_of.1.inc"
  REQUIRE(period);
  CHECK(seconds > times.seconds);
#include "configurator.steady_depth.1.inc"
  CHECK(can_repeat);
}

}  // namespace configurator_examples_test
