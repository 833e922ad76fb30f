// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/plan_search.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <support/catch.hpp>
#include <support/refusal.hpp>

#include "usual_node.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace model_profile_test {

using namespace chunkmem;
using namespace chunkmem::configurator;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A table, four layers and a head that has the table too, for one row and four, on one rank and on two.
model_profile table_layers_head()
{
  model_profile made{.name = "small", .input_of_row = bytes{64}, .times_have_sums = true, .parts = {}};
  made.parts.push_back({.name = "table", .layers = 0});
  for (int layer = 0; layer < 4; ++layer) made.parts.push_back({.name = "layer", .all_reduces = 2});
  made.parts.push_back({.name = "head", .layers = 0});
  for (const std::uint32_t tensor : {1U, 2U}) {
    profiled_weights weights{.tensor = tensor, .elements = {{1000 / tensor}}};
    for (int layer = 0; layer < 4; ++layer) weights.elements.push_back({{600 / tensor, 10}});
    weights.elements.push_back({{7, 1000 / tensor}});
    made.weights.push_back(weights);
    for (const std::uint64_t rows : {1U, 4U}) {
      made.sizes.push_back({.tensor = tensor,
                            .rows = rows,
                            .saved = {0, 50 * rows, 50 * rows, 50 * rows, 50 * rows, 90 * rows},
                            .boundary = {100 * rows, 100 * rows, 100 * rows, 100 * rows, 100 * rows, 4},
                            .transient = {0, 30, 30, 30, 30, 500}});
      const double wide = (1 + static_cast<double>(rows)) * (tensor == 1 ? 1 : 0.8);  // 2 ms and 5 ms on one rank
      const run_seconds layer{1e-3 * wide, 1.2e-3 * wide, 0.8e-3 * wide};
      for (const auto& [kind, factor] : {std::pair{"fast", 1.0}, std::pair{"slow", 3.0}}) {
        profiled_times times{.kind = kind, .tensor = tensor, .rows = rows};
        times.of_parts = {{}, layer, layer, layer, layer, {2e-3 * wide, 3e-3 * wide, 1e-3 * wide}};
        for (run_seconds& it : times.of_parts)
          it = {factor * it.forward, factor * it.backward_input, factor * it.backward_weight};
        made.times.push_back(times);
      }
    }
  }
  made.tie = profiled_tie{0, 5, 1000};
  return made;
}

cluster nodes(std::uint32_t count, std::uint32_t devices = 1)
{
  cluster whole{.name = "even", .nodes{}};
  for (std::uint32_t it = 0; it < count; ++it) {
    whole.nodes.push_back(support::usual_node("fast", devices));
    whole.nodes.back().device_updates_per_second = 1e14;
  }
  whole.links = link_matrix{count, {.latency = 0, .bytes_per_second = 1e14}};
  return whole;
}

parallel_plan on_first_devices(parallel_plan plan)
{
  plan.devices.resize(plan.ranks());
  std::iota(plan.devices.begin(), plan.devices.end(), 0U);
  return plan;
}

}  // namespace

TEST_CASE("times and sizes are on the line through the nearest measured micro-batches", "[configurator]")
{
  const model_profile profile = table_layers_head();
  const auto forward = [&](const model_profile& of, std::uint64_t rows) {
    return of.seconds("fast", 1, 1, rows).forward;
  };
  CHECK(forward(profile, 1) == Catch::Approx(2e-3));
  CHECK(forward(profile, 4) == Catch::Approx(5e-3));
  CHECK(forward(profile, 2) == Catch::Approx(3e-3));
  CHECK(forward(profile, 9) == Catch::Approx(10e-3));
  CHECK(profile.seconds("slow", 1, 1, 2).backward_input == Catch::Approx(3 * 3.6e-3));
  CHECK(profile.size(&profiled_sizes::saved, 1, 1, 3) == bytes{150});
  CHECK(profile.size(&profiled_sizes::transient, 1, 1, 3) == bytes{30});
  model_profile larger = profile;  // 8 rows take as long as 4, and 12 less: what was measured counts
  for (const auto& [rows, seconds] : {std::pair{12U, 4e-3}, std::pair{8U, 5e-3}}) {
    profiled_times times = profile.times.front();
    times.rows = rows;
    times.of_parts[1].forward = seconds;
    larger.times.insert(larger.times.begin(), times);
  }
  CHECK(forward(larger, 6) == Catch::Approx(5e-3));
  CHECK(forward(larger, 10) == Catch::Approx(4.5e-3));
  CHECK(forward(larger, 16) == Catch::Approx(4e-3));  // more rows never take less than the last ones
  CHECK(forward(larger, 400) == Catch::Approx(4e-3));
  CHECK(forward(larger, 2) == Catch::Approx(3e-3));
  model_profile steep = profile;  // on the line, 1 of 4 and 8 rows would take no time
  for (profiled_times& times : steep.times) times.rows = times.rows == 1 ? 4 : 8;
  steep.times[0].of_parts[1].forward = 1e-3;
  CHECK(forward(steep, 1) == Catch::Approx(0.25e-3));
  CHECK(forward(steep, 5) == Catch::Approx(2e-3));
  CHECK(forward(steep, 12) == Catch::Approx(9e-3));
  model_profile fewer = profile;
  std::erase_if(fewer.times, [](const profiled_times& it) { return it.rows == 1; });
  std::erase_if(fewer.sizes, [](const profiled_sizes& it) { return it.rows == 1; });
  CHECK(forward(fewer, 1) == Catch::Approx(5e-3 / 4));  // of one size: proportional
  CHECK(forward(fewer, 8) == Catch::Approx(10e-3));
  CHECK_THROWS_WITH(profile.seconds("other", 1, 1, 2), ContainsSubstring("has no other for this degree"));
}

TEST_CASE("parts of a plan add the profile's parts up, and have one copy of a tied table or two", "[configurator]")
{
  const trained_model model{table_layers_head()};
  const std::vector<model_part> whole = parts_of(model, {.micro_batch = 4});
  CHECK(whole.front().parameters == 1000 + 4 * 610 + 7);
  CHECK(whole.front().tied == 0);
  CHECK(whole.front().layers == 4);
  CHECK(whole.front().kept == bytes{4 * 200 + 360 + 5 * 400});  // saved, and inputs of all but the first
  CHECK(whole.front().working == bytes{500});
  const std::vector<model_part> halves = parts_of(model, {.stages = 2, .micro_batch = 4});
  CHECK(halves[0].layers == 2);
  CHECK(halves[0].parameters == 1000 + 2 * 610);
  CHECK(halves[1].parameters == 1000 + 2 * 610 + 7);
  CHECK(halves[0].tied == 1000);
  CHECK(halves[1].tied == 1000);
  CHECK(halves[0].boundary == bytes{400});
  CHECK(halves[0].measured_on("fast").seconds.forward == Catch::Approx(2 * 5e-3));
  const std::vector<model_part> uneven = parts_of(model, {.stages = 3, .micro_batch = 4, .cuts = {2, 5}});
  CHECK(uneven[0].layers == 1);
  CHECK(uneven[1].layers == 3);
  CHECK(uneven[2].layers == 0);
  CHECK(uneven[2].measured_on("slow").seconds.sum() == Catch::Approx(3 * 6e-3 * 5));
  const std::vector<model_part> again = parts_of(model, {.micro_batch = 4, .recomputes = true});
  CHECK(again.front().kept == bytes{5 * 400});
  CHECK(again.front().measured_on("fast").seconds.backward_input ==
        Catch::Approx(whole.front().measured_on("fast").seconds.backward_input +
                      whole.front().measured_on("fast").seconds.forward));
  const std::vector<model_part> shared = parts_of(model, {.tensor = 2, .stages = 2});
  CHECK(shared[1].parameters == 500 + 2 * 310 + 7);
  CHECK(shared[1].tied == 500);
  CHECK(shared[0].all_reduces == 4);
}

TEST_CASE("of forward runs alone, a backward run computes twice as long and adds up as often", "[configurator]")
{
  model_profile forward_alone = table_layers_head();
  for (profiled_times& times : forward_alone.times)
    for (run_seconds& it : times.of_parts) it.backward_input = it.backward_weight = 0;
  const model_profile both = with_backward_runs(forward_alone);
  const auto layer = [](const model_profile& of, std::uint32_t tensor) { return of.seconds("fast", 1, tensor, 4); };
  CHECK(layer(both, 1) == run_seconds{5e-3, 5e-3, 5e-3});
  // Of 4 ms on two ranks, 2.5 ms are computing, and 1.5 ms sums.
  CHECK(layer(both, 2).forward == Catch::Approx(4e-3));
  CHECK(layer(both, 2).backward_input + layer(both, 2).backward_weight == Catch::Approx(2 * 2.5e-3 + 1.5e-3));
  forward_alone.times_have_sums = false;
  CHECK(layer(with_backward_runs(forward_alone), 2).backward_weight == Catch::Approx(4e-3));
}

TEST_CASE("a step takes the measured times of the nodes that it runs on", "[configurator]")
{
  const trained_model model{table_layers_head()};
  cluster whole = nodes(2);
  whole.nodes[1].kind = "slow";
  const double all = 4 * 3e-3 * 2 + 6e-3 * 2;  // of one row on a fast node
  const step_latency latency{whole, model};
  CHECK(latency.of({.micro_batches = 3, .devices = {0}}).step == Catch::Approx(3 * all).epsilon(1e-6));
  CHECK(latency.of({.micro_batches = 3, .devices = {1}}).step == Catch::Approx(9 * all).epsilon(1e-6));
  const double first = 2 * 3e-3 * 2, last = all - first;
  CHECK(latency.of({.stages = 2, .micro_batches = 1, .devices = {1, 0}}).step ==
        Catch::Approx(3 * first + last).epsilon(1e-6));
  const double of_one = latency.typical_seconds({.stages = 2, .devices = {0, 1}}).forward;
  CHECK(of_one == Catch::Approx((4 * 2e-3 + 4e-3) / 2 * 2));  // half of the model, on a mean device
  whole.nodes[1].kind = "unknown";
  CHECK_THROWS_WITH(step_latency(whole, model).of({.devices = {1}}), ContainsSubstring("the kind \"unknown\""));
  CHECK_THROWS_WITH(step_latency(whole, model).of(on_first_devices({.stages = 7})),
                    ContainsSubstring("the model has 6 parts in its profile"));
  CHECK_THROWS_WITH(step_latency(whole, model).of({.tensor = 3, .devices = {0, 1, 2}}),
                    ContainsSubstring("does not have"));
}

TEST_CASE("sums over shared layers are measured inside a node, and added between nodes", "[configurator]")
{
  const trained_model model{table_layers_head()};
  const double measured = (4 * 3e-3 * 2 + 6e-3 * 2) * 0.8;
  const cluster one = nodes(1, 2);
  CHECK(step_latency{one, model}.of(on_first_devices({.tensor = 2})).step == Catch::Approx(measured).epsilon(1e-6));
  cluster two = nodes(2);
  const auto step = [&](double rate, const trained_model& of) {
    two.links = link_matrix{2, {.latency = 0, .bytes_per_second = rate}};
    return step_latency{two, of}.of(on_first_devices({.tensor = 2})).step;
  };
  CHECK(step(1e14, model) == Catch::Approx(measured).epsilon(1e-6));  // never below the measured time
  const double sums = 8 * 2 * 50.0;                                   // bytes that a rank sends, in each direction
  // Forward runs and gradients of inputs have sums. Gradients of weights have none, and take the measured time.
  const double weights = (4 * 2 * 0.8e-3 + 2 * 1e-3) * 0.8, computing = (4 * 2 * 2.2e-3 + 2 * 5e-3) / 2;
  CHECK(step(1e5, model) == Catch::Approx(computing + weights + 2 * sums / 1e5).epsilon(1e-4));
  model_profile apart = table_layers_head();
  apart.times_have_sums = false;
  CHECK(step(1e5, trained_model{apart}) == Catch::Approx(measured + 2 * sums / 1e5).epsilon(1e-4));
}

TEST_CASE("the bytes of a profile are those that a plan needs", "[configurator]")
{
  const trained_model model{table_layers_head()};
  const cluster whole = nodes(4);
  const auto work = [&](const parallel_plan& plan, const trained_model& of) {
    return work_of(of, plan, step_latency{whole, of}.typical_seconds(plan));
  };
  const parallel_plan halves = on_first_devices({.stages = 2, .micro_batch = 4, .micro_batches = 2});
  const planned_work usual = work(halves, model);
  CHECK(usual.parts[0].input.count() == 4 * 64);
  CHECK(usual.parts[1].input.count() == 400);
  CHECK(usual.parts[1].saved.count() == 2 * 200 + 360 + 2 * 400);
  CHECK(prove_memory(whole, usual).fits);
  // Gradients of 4 bytes beside weights of 2 take 2 more for each parameter.
  const trained_model wide{table_layers_head(), {.gradient_bytes = 4}};
  const memory_proof before = prove_memory(whole, usual), after = prove_memory(whole, work(halves, wide));
  for (std::size_t stage = 0; stage < 2; ++stage)
    CHECK(after.stages[stage].leases ==
          align_up(before.stages[stage].leases + bytes{2} * parts_of(model, halves)[stage].parameters, bytes{256}));
  // Weights of 4 bytes have no masters. Replicas divide masters, and with ZeRO 1 and 2 no weights.
  const trained_model single{table_layers_head(), {.weight_bytes = 4, .gradient_bytes = 4}};
  const auto beside = [&](std::uint32_t zero, bool on_host) {
    parallel_plan plan = on_first_devices({.replicas = 4, .states_on_host = on_host, .zero = zero});
    return work(plan, single).beside[0].count();
  };
  const std::uint64_t each = parts_of(single, {}).front().parameters, share = (each + 3) / 4;
  CHECK(beside(0, false) == 0);
  CHECK(beside(0, true) == 4 * each);
  CHECK(beside(1, false) == 4 * each - 4 * share);
  CHECK(beside(2, false) == 2 * each - 2 * share);
  CHECK(beside(3, false) == 0);
  // Without ZeRO a replica has all states. With ZeRO 1 two of them have a half each.
  model_profile large = table_layers_head();
  large.tie.reset();
  for (profiled_weights& weights : large.weights)
    for (std::vector<std::uint64_t>& part : weights.elements)
      for (std::uint64_t& elements : part) elements *= 8192;
  parallel_plan replicas = on_first_devices({.replicas = 2, .zero = 0});
  const auto states = [&] {
    return prove_memory(whole, work(replicas, trained_model{large})).stages[0].states.count();
  };
  const std::uint64_t all = states(), parameters = parts_of(trained_model{large}, replicas).front().parameters;
  replicas.zero = 1;
  CHECK(all >= 12 * parameters);
  CHECK(static_cast<double>(states()) < 0.6 * static_cast<double>(all));
}

TEST_CASE("a search over a model with a profile finds the fastest plan of its parts", "[configurator]")
{
  const trained_model model{table_layers_head()};
  cluster whole = nodes(2);
  whole.links = link_matrix{2, {.latency = 1e-5, .bytes_per_second = 1e9}};
  const plan_search_result found = find_plans(whole, model, {.rows = 8});
  REQUIRE_FALSE(found.best.empty());
  const step_latency latency{whole, model};
  const double best = found.best.front().time.step;
  for (const std::uint32_t rows : {1U, 2U, 4U}) {
    CHECK(best <= latency.of(on_first_devices({.replicas = 2, .micro_batch = rows, .micro_batches = 4 / rows})).step);
    CHECK(best <= latency.of(on_first_devices({.stages = 2, .micro_batch = rows, .micro_batches = 8 / rows})).step);
    CHECK(best <= latency.of(on_first_devices({.tensor = 2, .micro_batch = rows, .micro_batches = 8 / rows})).step);
  }
  for (const found_plan& it : found.best) CHECK(it.bound <= it.time.step * (1 + 1e-12));
}

TEST_CASE("a search cuts a profile where stages take equal times", "[configurator]")
{
  model_profile uneven = table_layers_head();
  for (profiled_times& of : uneven.times)
    for (double run_seconds::*run :
         {&run_seconds::forward, &run_seconds::backward_input, &run_seconds::backward_weight})
      of.of_parts.back().*run = 3 * (of.of_parts[1].*run);  // the head takes as long as three layers
  cluster whole = nodes(2);
  whole.links = link_matrix{2, {.latency = 1e-5, .bytes_per_second = 1e6}};
  const trained_model model{uneven};
  plan_space space{.rows = 16, .with_tensor = false, .most_parts = 1, .schedules = {schedule_kind::one_f_one_b}};
  const auto best_of = [&](const plan_space& of) {
    const plan_search_result found = find_plans(whole, model, of, {.best = 50});
    const auto piped = std::ranges::find(found.best, 2U, [](const found_plan& it) { return it.plan.stages; });
    REQUIRE(piped != found.best.end());
    return *piped;
  };
  const found_plan cut = best_of(space);
  space.with_cuts = false;
  const found_plan uncut = best_of(space);
  CHECK(uncut.plan.cuts.empty());
  CHECK(cut.plan.cuts == std::vector<std::uint64_t>{4});  // the table and three layers, a layer and the head
  CHECK(cut.time.step < 0.95 * uncut.time.step);
  CHECK(cut.time.step == step_latency{whole, model}.of(cut.plan).step);
  CHECK(cut.bound <= cut.time.step * (1 + 1e-12));
}

TEST_CASE("a degree that one kind of devices lacks takes no other plans from a search", "[configurator]")
{
  cluster whole = nodes(2, 4);
  whole.nodes[1].kind = "slow";
  model_profile part = table_layers_head();  // of 1, 2 and 4 ranks; two slow ones were not measured
  part.tie.reset();
  const auto add = [](auto& all) {
    for (std::size_t index = 0, end = all.size(); index < end; ++index) {
      if (all[index].tensor == 1) continue;
      all.push_back(all[index]);
      all.back().tensor = 4;
    }
  };
  add(part.weights);
  add(part.sizes);
  add(part.times);
  std::erase_if(part.times, [](const profiled_times& it) { return it.tensor == 2 && it.kind == "slow"; });
  for (profiled_times& of : part.times)
    for (run_seconds& it : of.of_parts)
      if (of.tensor == 4) it = {it.forward / 8, it.backward_input / 8, it.backward_weight / 8};
  plan_space space{.rows = 8, .most_parts = 1, .schedules = {schedule_kind::one_f_one_b}};
  for (const bool with_cuts : {true, false}) {
    space.with_cuts = with_cuts;
    CHECK(find_plans(whole, trained_model{part}, space, {.best = 1}).best.front().plan.tensor == 4);
  }
}

TEST_CASE("a profile that cannot be is refused in one sentence", "[configurator]")
{
  const auto refusal = [](auto change) {
    model_profile profile = table_layers_head();
    change(profile);
    return support::refusal<config_error>([&] { const trained_model unused{profile}; });
  };
  const auto says = [](const char* words) { return ContainsSubstring(words); };
  CHECK_THAT(refusal([](model_profile& it) { it.name.clear(); }), says("name is empty"));
  CHECK_THAT(refusal([](model_profile& it) { it.parts.clear(); }), says("parts is empty"));
  CHECK_THAT(refusal([](model_profile& it) { it.parts.pop_back(); }),
             says("weights.1 has 6 parts, and the profile has 5"));
  CHECK_THAT(refusal([](model_profile& it) { it.sizes[1].saved.pop_back(); }), says("sizes.1 x 4 has 5 parts"));
  CHECK_THAT(refusal([](model_profile& it) { it.sizes[1].rows = 1; }), says("sizes.1 x 1 is there twice"));
  CHECK_THAT(refusal([](model_profile& it) { it.sizes[1].rows = 0; }), says("is for 0 rows"));
  CHECK_THAT(refusal([](model_profile& it) { it.times[0].of_parts[2].forward = -1; }),
             says("times.fast.1 x 1 has a time"));
  CHECK_THAT(refusal([](model_profile& it) { it.times[0].kind.clear(); }), says("a kind of device without a name"));
  CHECK_THAT(refusal([](model_profile& it) { it.times[0].kind = "g4dn.12xlarge"; }), says("without . and ["));
  CHECK_THAT(refusal([](model_profile& it) {
               it.weights[0].elements[1] = {UINT64_MAX, 5};
             }),
             says("weights.1 has a tensor that no part has"));
  CHECK_THAT(refusal([](model_profile& it) { it.weights[0].elements[1] = {0}; }), says("or leave it out"));
  CHECK_THAT(refusal([](model_profile& it) { it.weights[1].tensor = 4; }), says("weights.4 is of a degree without"));
  CHECK_THAT(refusal([](model_profile& it) { it.tie->last_part = 9; }), says("tie names no two parts"));
  CHECK_THAT(refusal([](model_profile& it) { it.tie->elements = 999; }), says("part 0 has no tensor of so many"));
}

}  // namespace model_profile_test
