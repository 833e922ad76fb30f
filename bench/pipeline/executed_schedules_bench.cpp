// SPDX-License-Identifier: Apache-2.0
// How far is a step of a pipeline from the time that the simulator predicts? Does it compute the same bits as one
// device? What does a pipeline without flush gain?
//
// Stages are threads. Runs and transfers sleep, so two cores are enough for any number of stages. Fifty random
// schedules with random times of every part and link, or the number in the argument. Then 2BW and 1F1B of three shapes
// over twelve batches, without a norm and with one. Then every shape and optimizer for the bits, without sleep.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/replay_memory.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_links.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>
#include <chunkmem/pipeline/zero_bubble.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <support/managed_weights.hpp>
#include <support/measured_stage.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/random_schedule.hpp>
#include <support/small_stage.hpp>
#include <support/throttled_end.hpp>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <span>
#include <thread>
#include <vector>

namespace {

using namespace chunkmem;
using namespace chunkmem::pipeline;
using chunkmem::pipeline::schedule;  // not that of a manager
using support::small_optimizer;
using clock_type = std::chrono::steady_clock;

constexpr bytes boundary{256};

void sleep(double seconds)
{
  std::this_thread::sleep_for(std::chrono::duration<double>{seconds});
}

/// Sleeps for the time of its costs.
struct sleeping_stage {
  const pipeline_costs& costs;

  void forward(const forward_run& run) { sleep(costs.parts[run.step.part].forward); }
  void backward(const backward_run& run)
  {
    sleep(costs.parts[run.step.part].backward_input + costs.parts[run.step.part].backward_weight);
  }
  void backward_input(const backward_run& run) { sleep(costs.parts[run.step.part].backward_input); }
  void backward_weight(const operation& step) { sleep(costs.parts[step.part].backward_weight); }
  void update(const operation& step) { sleep(costs.parts[step.part].update); }
};

/// The same with arithmetic, weights in a manager, and steps that clip by the norm of all stages. The device has room
/// for two chunks of seven: masters, states, versions and gradients are loaded from the host and written back.
class clipping_stage
    : public support::stage_of_layers<support::managed_weights<bf16, optimizer::adam, collective::local_threads>> {
 public:
  clipping_stage(const schedule& plan, thread_stages::place& here, const pipeline_costs& costs)
      : stage_of_layers{plan,
                        here.stage(),
                        here.all(),
                        optimizer::adam{{}, {.masters = true}},
                        support::managed_recipe{.options = {.learning_rate = 0.05F, .clip = {.norm = 0.3F}}},
                        2U},
        costs_{costs}
  {
  }

  void forward(const forward_run& run)
  {
    sleep(costs_.parts[run.step.part].forward);
    stage_of_layers::forward(run);
  }
  void backward(const backward_run& run)
  {
    sleep(costs_.parts[run.step.part].backward_input + costs_.parts[run.step.part].backward_weight);
    stage_of_layers::backward(run);
  }

 private:
  const pipeline_costs& costs_;
};

/// @param make   `make(place)`: the arithmetic of a stage
/// @return   time from the common begin of all stages to the end of the last one [s]
template <class Make>
double execute(const schedule& plan, const pipeline_costs& costs, Make make)
{
  using end_type = support::throttled_end<collective::local_threads>;
  std::barrier all(plan.stage_count());
  std::vector<double> seconds(plan.stage_count(), 0);
  const std::vector<bytes> inputs(plan.part_count(), boundary);
  thread_stages{plan}.run([&](thread_stages::place& here) {
    const boundary_buffers buffers{plan, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = buffers.size() + boundary}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, buffers.size() + boundary),
                                          buffers.size().count()};
    const auto real = here.links(memory);
    std::deque<end_type> ends;
    stage_links<end_type> links{here.stage()};
    for (const auto& it : real.all()) {
      const stage_link& link = costs.link(it.pair.first, it.pair.second);
      ends.emplace_back(*it.ends, static_cast<double>(boundary.count()) / link.bytes_per_second);
      links.add(it.pair, ends.back(), it.stream);
    }
    auto stage = make(here);
    stage_runner runner{plan, links, memory, buffers, boundaries};
    all.arrive_and_wait();
    const auto begin = clock_type::now();
    runner.run(stage);
    seconds[here.stage()] = std::chrono::duration<double>{clock_type::now() - begin}.count();
  });
  return *std::ranges::max_element(seconds);
}

double execute(const schedule& plan, const pipeline_costs& costs)
{
  return execute(plan, costs, [&](thread_stages::place&) { return sleeping_stage{costs}; });
}
double execute_with_norm(const schedule& plan, const pipeline_costs& costs)
{
  return execute(plan, costs, [&](thread_stages::place& here) { return clipping_stage{plan, here, costs}; });
}

/// Every link is a wire of its own that is busy until the bytes have arrived, as an agent that sleeps is.
pipeline_costs costs_of(const schedule& plan, const pass_seconds& seconds)
{
  pipeline_costs costs = uniform_costs(plan, seconds);
  for (std::uint32_t index = 0; index < costs.links.size(); ++index)
    costs.links[index] = {
        .latency = 0, .bytes_per_second = static_cast<double>(boundary.count()) / seconds.transfer, .channel = index};
  for (part_costs& part : costs.parts) part.output = boundary;
  return costs;
}

schedule roll_schedule(support::dice& dice, const pipeline_shape& shape)
{
  switch (dice.below(8)) {
    case 0: return make_schedule(gpipe{}, shape);
    case 1: return make_schedule(one_f_one_b{}, shape);
    case 2: return make_schedule(eager_one_f_one_b{}, shape);
    case 3: return make_schedule(interleaved{.parts = 2}, shape);
    case 4: return make_schedule(pipedream_2bw{}, shape);
    case 5: return make_schedule(zb_h1{}, shape);
    case 6: return make_schedule(zb_h2{}, shape);
    default: return make_schedule(zb_v{.trials = 1'000}, shape);
  }
}

/// Times differ from part to part and from link to link, and from the times of the generated schedule.
pipeline_costs roll_costs(support::dice& dice, const schedule& plan, const pass_seconds& seconds)
{
  const auto vary = [&] { return dice.between(70, 130) / 100.0; };
  pipeline_costs costs = costs_of(plan, seconds);
  for (part_costs& part : costs.parts) {
    part.forward *= vary();
    part.backward_input *= vary();
    part.backward_weight *= vary();
    part.update = 0.006 * dice.below(4);
  }
  for (stage_link& link : costs.links) link.bytes_per_second *= vary();
  return costs;
}

struct ratios {
  double least = 1e9;
  double most = 0;

  void add(double ratio)
  {
    least = std::min(least, ratio);
    most = std::max(most, ratio);
  }
};

ratios compare_random_schedules(std::uint64_t count)
{
  ratios all;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    support::dice dice{seed};
    const std::uint32_t stages = dice.between(2, 5);
    const pass_seconds seconds{
        .forward = 0.02, .backward_input = 0.02, .backward_weight = 0.02, .transfer = 0.004 * dice.between(1, 4)};
    const pipeline_shape shape{.stages = stages,
                               .micro_batches = stages * dice.between(1, 2),
                               .batches = dice.between(1, 2),
                               .seconds = seconds};
    const schedule plan = roll_schedule(dice, shape);
    const pipeline_costs costs = roll_costs(dice, plan, seconds);
    const double simulated = pipeline_timeline{plan, costs}.run().seconds;
    const double executed = execute(plan, costs);
    std::printf("%-18s %u stages, %2u micro-batches, %u batches: simulated %.4f s, executed %.4f s, ratio %.3f\n",
                plan.name.c_str(), stages, shape.micro_batches, shape.batches, simulated, executed,
                simulated / executed);
    all.add(simulated / executed);
  }
  return all;
}

/// Executed times of T batches with and without flush, over T(m + d - 1) / (T m + d - 1).
/// @param norm   every step clips by the norm of all stages. If all stages agree on updates later, no stage waits; with
///   updates right after their batches, which are printed, each batch waits as with a flush
double worst_gain_over_formula(bool norm)
{
  constexpr std::uint32_t batches = 12;
  const pass_seconds seconds{.forward = 0.01, .backward_input = 0.01, .backward_weight = 0.01, .transfer = 1e-9};
  double worst = 1;
  struct stages_and_batch {
    std::uint32_t d;
    std::uint32_t m;
  };
  for (const auto [d, m] : {stages_and_batch{4, 4}, {4, 8}, {8, 8}}) {
    const pipeline_shape shape{.stages = d, .micro_batches = m, .batches = batches, .seconds = seconds};
    const auto time_of = [&](const schedule& plan) {
      const pipeline_costs costs = costs_of(plan, seconds);
      return norm ? execute_with_norm(plan, costs) : execute(plan, costs);
    };
    const double flushed = time_of(make_schedule(one_f_one_b{}, shape));
    const double gain = flushed / time_of(make_schedule(pipedream_2bw{.for_all_stages = norm}, shape));
    const double formula = batches * (m + d - 1.0) / (batches * m + d - 1.0);
    std::printf("2BW%s, %u stages, %u micro-batches: %.3f times as fast as 1F1B, formula %.3f",
                norm ? " with a norm" : "", d, m, gain, formula);
    if (norm) std::printf("; with updates at once %.3f", flushed / time_of(make_schedule(pipedream_2bw{}, shape)));
    std::printf("\n");
    if (std::abs(gain / formula - 1) > std::abs(worst - 1)) worst = gain / formula;
  }
  return worst;
}

// --- Bits ---

bool has_the_bits_of_one_device(const schedule& plan, small_optimizer how, bool rounds)
{
  const auto alone = support::train_alone(plan, how, rounds);
  std::vector<support::vector_type> found(plan.part_count());
  const std::vector<bytes> inputs(plan.part_count(), bytes{support::width * sizeof(float)});
  thread_stages{plan}.run([&](thread_stages::place& here) {
    const boundary_buffers buffers{plan, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = buffers.size() + boundary}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, buffers.size() + boundary),
                                          buffers.size().count()};
    auto links = here.links(memory);
    support::small_stage stage{plan, here.stage(), how, rounds};
    stage_runner runner{plan, links, memory, buffers, boundaries};
    runner.run(stage);
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      if (plan.owners[part] == here.stage()) found[part] = stage.masters(part);
  });
  return found == alone;
}

double percent_equal(const std::vector<schedule>& plans)
{
  using enum small_optimizer;
  std::uint64_t equal = 0;
  std::uint64_t all = 0;
  for (const schedule& plan : plans)
    for (const small_optimizer how : {sgd, momentum, adam, adamw})
      for (const bool rounds : {false, true}) {
        ++all;
        equal += has_the_bits_of_one_device(plan, how, rounds) ? 1 : 0;
      }
  return 100.0 * static_cast<double>(equal) / static_cast<double>(all);
}

std::vector<schedule> late_plans()
{
  std::vector<schedule> plans;
  struct stages_and_batch {
    std::uint32_t d;
    std::uint32_t m;
  };
  for (const auto [d, m] : {stages_and_batch{1, 1}, {1, 4}, {2, 2}, {3, 3}, {4, 4}, {4, 7}, {8, 8}, {8, 16}})
    plans.push_back(make_schedule(pipedream_2bw{}, {.stages = d, .micro_batches = m, .batches = 6}));
  for (const auto [d, m] : {stages_and_batch{4, 1}, {5, 2}, {8, 3}})
    plans.push_back(make_schedule(pipedream_2bw{.versions = fewest_versions(d, m)},
                                  {.stages = d, .micro_batches = m, .batches = 12}));
  return plans;
}

std::vector<schedule> synchronous_plans()
{
  const pipeline_shape shape{.stages = 4, .micro_batches = 8, .batches = 3};
  return {make_schedule(gpipe{}, shape),
          make_schedule(one_f_one_b{}, shape),
          make_schedule(eager_one_f_one_b{}, shape),
          make_schedule(interleaved{.parts = 2}, shape),
          make_schedule(zb_h1{}, shape),
          make_schedule(zb_h2{}, shape),
          make_schedule(zb_v{}, shape)};
}

}  // namespace

namespace {

/// The largest difference, in bytes, between a stage of 200 random schedules and `executor_memory`.
std::uint64_t worst_memory_error()
{
  std::uint64_t worst = 0;
  int compared = 0;
  for (std::uint64_t seed = 1'000; compared < 200; ++seed) {
    support::dice dice{seed};
    const schedule plan = support::random_schedule{dice}.plan();
    if (support::most_links(plan) > max_agents - built_in_agents) continue;
    const auto size = [&] { return bytes{dice.below(100'000)}; };
    std::vector<part_memory> parts;
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      parts.push_back({size(), size(), size(), size(), size(), size(), size(), size(), size()});
    const std::vector<bytes> said = executor_memory(plan, parts);
    const std::vector<bytes> found = support::measured_memory(plan, parts);
    for (std::size_t stage = 0; stage < said.size(); ++stage)
      worst =
          std::max(worst, std::max(said[stage], found[stage]).count() - std::min(said[stage], found[stage]).count());
    ++compared;
  }
  return worst;
}

}  // namespace

int main(int count, char** arguments)
{
  const std::uint64_t schedules = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 50;
  const ratios found = compare_random_schedules(schedules);
  const double gain = worst_gain_over_formula(false);
  return transfer_bench::write_figures(
      "executed_schedules_bench",
      {{"pipeline.simulated_over_executed_least", found.least, "ratio", ">=", 0.9},
       {"pipeline.simulated_over_executed_most", found.most, "ratio", "<=", 1.1},
       {"pipeline.no_flush_gain_over_formula_worst", gain, "ratio", ">=", 0.9},
       {"pipeline.no_flush_norm_gain_over_formula_worst", worst_gain_over_formula(true), "ratio", ">=", 0.9},
       {"pipeline.replay_peak_error_bytes", static_cast<double>(worst_memory_error()), "B", "==", 0},
       {"pipeline.delayed_sgd_bits_percent", percent_equal(late_plans()), "%", "==", 100},
       {"pipeline.synchronous_bits_percent", percent_equal(synchronous_plans()), "%", "==", 100}});
}
