// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "user_mistakes.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/stage_step.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>
#include <chunkmem/pipeline/weight_versions.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rank_mistakes {

namespace cm = chunkmem;
namespace pl = cm::pipeline;
using namespace cm::literals;
using namespace user_mistakes;
using cm::access;
using ends_type = cm::collective::local_threads;
using arena = cm::backend::host_arena;
using manager = cm::manager<arena, cm::checks::full>;
using model = cm::sharded_model<arena, ends_type, cm::checks::full>;

inline constexpr std::size_t width = 64;
inline constexpr cm::collective::thread_group_options patience{.deadline = 20'000'000'000};  // where nobody has to wait
inline constexpr cm::collective::thread_group_options brief{.deadline = 300'000'000};        // one does not come

/// All answers of two ranks or stages, one on a line.
template <class Work>
std::string answers_of_two(Work work)
{
  std::array<std::string, 2> said;
  cm::collective::run_threads(2, [&](std::uint32_t rank) { said[rank] = answer_of([&] { work(rank); }); });
  return said[0] + (said[0].empty() || said[1].empty() ? "" : "\n") + said[1];
}

// --- Ranks ---

/// A rank with two weights of 64 floats, and a buffer.
struct rank_of_two {
  std::uint32_t rank;
  ends_type& ranks;
  arena memory{{.device_capacity = 256_KiB, .host_capacity = 1_MiB}};
  model m{memory, ranks, {.chunk_bytes = 32_KiB}};
  cm::optimizer::sgd sgd{{.momentum = 0}, {.masters = false}};
  cm::tensor<float> first, second, mean;

  rank_of_two(std::uint32_t number, ends_type& group, bool other_order = false) : rank{number}, ranks{group}
  {
    m.use(sgd);
    const auto declare = [&](cm::tensor<float>& it, std::string_view name) {
      it = m.add<float>({width}, cm::role::parameter);
      m.name(it, name);
    };
    if (other_order) declare(second, "second");
    declare(first, "first");
    if (!other_order) declare(second, "second");
    mean = m.add<float>({width}, cm::role::buffer);
    m.name(mean, "mean");
  }
  void fill()
  {
    for (const auto& each : {first, second, mean}) write(each, 1.0F);
  }
  void write(cm::tensor<float> to, float value)
  {
    for (float& it : m.acquire(to, access::write).span()) it = value;
  }
  void add(cm::tensor<float> to, float value, bool is_done = true)
  {
    auto g = m.gradient(to);
    for (float& it : g.span()) it = (g.beta() == 0 ? 0 : it) + value;
    if (is_done) m.gradient_done(std::move(g));
  }
  void pass(float value = 1.0F, std::uint32_t micro_batches = 1)
  {
    auto iteration = m.iteration(micro_batches);
    for (std::uint32_t it = 0; it < micro_batches; ++it) {
      iteration.pass(cm::pass::forward, it);
      (void)m.acquire(first, access::read);
      iteration.pass(cm::pass::backward, it);
      for (const auto& each : {second, first}) add(each, value);
    }
  }
  void step() { m.step(sgd, {.learning_rate = 1.0F / 64}); }
  /// Both ranks gave this many gradients of 1. @throws usage_error   the weights differ from the result
  void expect_steps(int steps)
  {
    for (const auto& each : {first, second})
      for (const float it : m.acquire(each, access::read).span())
        cm::expects(it == 1.0F - static_cast<float>(2 * steps) / 64, "other bits");
  }
};

template <class Work>
std::string answers_of_ranks(Work work, const cm::collective::thread_group_options& deadline = patience)
{
  const cm::collective::thread_group group{2U, deadline};
  return answers_of_two([&](std::uint32_t rank) {
    ends_type ends{group, cm::rank_id{rank}};
    rank_of_two here{rank, ends};
    here.fill();
    work(here);
    here.m.settle();
  });
}

inline std::string the_same_rows_on_all_ranks()
{
  return answers_of_ranks([](rank_of_two& here) {
    here.pass(0.5F);  // the gradient of row 0, on both
    here.step();
  });
}

inline std::string one_batch_more_on_one_rank()
{
  return answers_of_ranks([](rank_of_two& here) {
    for (std::uint32_t batch = 0; batch < 2 + here.rank; ++batch) {
      here.pass();
      here.step();
    }
  });
}

inline std::string a_step_left_out_on_one_rank()
{
  return answers_of_ranks(
      [](rank_of_two& here) {
        here.pass();
        if (here.rank == 0) here.step();
        here.pass();
        here.step();
      },
      brief);
}

inline std::string a_gradient_that_is_never_done()
{
  return answers_of_ranks([](rank_of_two& here) {
    {
      auto iteration = here.m.iteration();
      for (const auto& each : {here.second, here.first}) here.add(each, 1.0F, false);
    }
    here.step();
    here.expect_steps(1);
  });
}

inline std::string other_micro_batches_on_one_rank()
{
  return answers_of_ranks(
      [](rank_of_two& here) {
        here.pass(1.0F, 1 + here.rank);
        here.step();
      },
      brief);
}

/// Clamps weights on rank 0 only, which also logs and saves.
inline std::string a_weight_changed_on_one_rank()
{
  return answers_of_ranks([](rank_of_two& here) {
    here.pass();
    here.step();
    if (here.rank == 0) here.write(here.first, 0.25F);
    here.pass();
    here.step();
  });
}

inline std::string gradients_clipped_on_each_rank()
{
  return answers_of_ranks([](rank_of_two& here) {
    here.pass(here.rank == 0 ? 1.0F : 0.5F);  // each divided by its own norm
    here.step();
  });
}

inline std::string weights_declared_in_another_order()
{
  const cm::collective::thread_group group{2U, patience};
  return answers_of_two([&](std::uint32_t rank) {
    ends_type ends{group, cm::rank_id{rank}};
    rank_of_two here{rank, ends, rank == 1};
    here.write(here.first, 1.0F);
    here.write(here.second, 2.0F);
    here.pass();
    here.step();
  });
}

inline std::string a_pin_across_a_step()
{
  return answers_of_ranks([](rank_of_two& here) {
    here.pass();
    const auto kept = here.m.acquire(here.first, access::read);
    here.step();
  });
}

inline std::string a_pin_of_one_rank_across_a_step()
{
  return answers_of_ranks([](rank_of_two& here) {
    here.pass();
    {
      std::optional<model::pin_type<const float>> kept{here.m.acquire(here.first, access::read)};
      if (here.rank == 1) kept.reset();
      const std::string said = answer_of([&] { here.step(); });
      cm::expects(said.find(here.rank == 0 ? "'first'" : "ranks") != said.npos, "another answer");
    }
    here.step();  // nothing had begun
    here.expect_steps(1);
    throw cm::usage_error{"refused on both, and taken again"};
  });
}

/// Replicas have equal gradients, so each would count once, and the other stages never.
inline std::string a_step_of_stages_over_replicas()
{
  return answers_of_ranks([](rank_of_two& here) {
    here.pass();
    pl::stage_step<ends_type> steps{here.ranks};
    (void)steps.take(here.m, here.sgd, {.learning_rate = 1.0F / 64, .clip = {.norm = 1}}, cm::on_this_thread,
                     [](cm::tensor_handle it) { return cm::index_of(it.id); });
  });
}

/// A generator and its critic, which the ranks read in different orders.
inline std::string two_models_in_another_order(bool have_names)
{
  struct one {
    arena memory{{.device_capacity = 256_KiB, .host_capacity = 1_MiB}};
    model m;
    cm::tensor<float> weight;
    explicit one(ends_type& ends) : m{memory, ends, {.chunk_bytes = 32_KiB}}
    {
      weight = m.add<float>({width}, cm::role::parameter);
    }
  };
  const cm::collective::thread_group group{2U, patience};
  return answers_of_two([&](std::uint32_t rank) {
    ends_type ends{group, cm::rank_id{rank}};
    std::array<one, 2> models{one{ends}, one{ends}};
    for (std::size_t which = 0; which < 2; ++which) {
      if (have_names) models[which].m.name(models[which].weight, which == 0 ? "generator" : "critic");
      for (float& it : models[which].m.acquire(models[which].weight, access::write).span()) it = 1.0F;
    }
    const auto first = models[0].m.iteration();
    const auto second = models[1].m.iteration();
    for (const std::uint32_t turn : {rank, 1 - rank}) {
      (void)models[turn].m.acquire(models[turn].weight, access::read);
      models[turn].m.settle();
    }
  });
}
inline std::string named_models_in_another_order()
{
  return two_models_in_another_order(true);
}
inline std::string unnamed_models_in_another_order()
{
  return two_models_in_another_order(false);
}

inline std::string buffers_that_drift_apart()
{
  return answers_of_ranks([](rank_of_two& here) {
    here.pass();
    here.write(here.mean, static_cast<float>(here.rank));
    here.step();
  });
}

inline std::string a_rehearsal_on_one_rank()
{
  return answers_of_ranks([](rank_of_two& here) {
    const auto whole = [&] {
      here.pass();
      here.step();
    };
    if (here.rank == 0) (void)here.m.rehearse(whole);
    for (int it = 0; it < 3; ++it) whole();
    here.expect_steps(3);
  });
}

inline constexpr user_mistake with_ranks[] = {
    {"all ranks train on the same rows", the_same_rows_on_all_ranks, "", "all ranks that read the same rows"},
    {"one rank has a batch more than the others", one_batch_more_on_one_rank, "has left its group"},
    {"one rank leaves a step out, because its own loss is NaN", a_step_left_out_on_one_rank, "rank"},
    {"a gradient is written, and gradient_done never called", a_gradient_that_is_never_done, "", ""},
    {"one rank begins its iteration with other micro-batches", other_micro_batches_on_one_rank, "rank"},
    {"one rank changes a weight between two iterations", a_weight_changed_on_one_rank, "weight first"},
    {"each rank clips its own gradient before ranks add them up", gradients_clipped_on_each_rank, "",
     "gradients that each rank clips"},
    {"one rank declares two weights in another order", weights_declared_in_another_order, "weight first"},
    {"a pin is held across a step", a_pin_across_a_step, "a step while a weight has a pin: it is one of 'first'"},
    {"one rank alone holds a pin across a step", a_pin_of_one_rank_across_a_step, "refused on both, and taken again"},
    {"a step of all stages is given the replicas of one", a_step_of_stages_over_replicas,
     "was given the communicator of a stage's replicas"},
    {"ranks ask for the weights of two models in another order", named_models_in_another_order,
     "ranks ask for different things"},
    {"the same, and the models have no names", unnamed_models_in_another_order, "",
     "two sharded models over one group"},
    {"buffers of the ranks drift apart", buffers_that_drift_apart, "", "running statistics and other buffers"},
    {"one rank alone rehearses", a_rehearsal_on_one_rank, "", ""},
};

// --- Stages ---

inline std::span<const float> floats(std::span<const std::byte> of)
{
  return {reinterpret_cast<const float*>(of.data()), of.size() / sizeof(float)};
}
inline std::span<float> floats(std::span<std::byte> of)
{
  return {reinterpret_cast<float*>(of.data()), of.size() / sizeof(float)};
}

/// A stage whose part multiplies by a weight, and what a trainer may do otherwise.
struct stage_of_two {
  struct ways {
    std::size_t written = width;  ///< elements of an output
    bool writes_gradient = true;  ///< of the input
    bool counts_all = false;      ///< gives pass() the micro-batch of all batches
    bool flips = true;
    bool has_own_numbers = true;  ///< each weight has a number of its own in the whole model
    bool counts_calls = false;    ///< labels by the number of the call
    double norm = 0;
  };
  manager& m;
  const pl::schedule& plan;
  std::uint32_t stage;
  ways how;
  cm::tensor<float> weight = m.add<float>({width}, cm::role::parameter);
  cm::optimizer::sgd sgd{{.momentum = 0}, {.masters = false}};
  pl::weight_versions<manager> versions{m, plan.versions, cm::dtype::float32};
  pl::stage_step<ends_type> steps;
  using iteration = decltype(std::declval<manager&>().iteration("batch"));
  std::unique_ptr<iteration> batch{};
  std::uint32_t calls = 0;

  stage_of_two(manager& owner, const pl::schedule& schedule, std::uint32_t number, ends_type& stages, ways made)
      : m{owner}, plan{schedule}, stage{number}, how{made}, steps{stages}
  {
    m.name(weight, "w" + std::to_string(stage));
    m.use(sgd);
    for (float& it : m.acquire(weight, access::write).span()) it = 1.0F + static_cast<float>(stage);
    versions.start();
    begin_batch();
  }
  void begin_batch() { batch.reset(new iteration(m.iteration("batch", plan.micro_batches))); }
  [[nodiscard]] std::uint32_t within(std::uint32_t micro_batch) const
  {
    return how.counts_all ? micro_batch : micro_batch % plan.micro_batches;
  }
  void forward(const pl::forward_run& run)
  {
    batch->pass(cm::pass::forward, within(run.step.micro_batch));
    const auto w = versions.acquire(weight, run.step.version);
    const std::size_t count = std::min(run.output.size() / sizeof(float), how.written);
    for (std::size_t at = 0; at < count; ++at)
      floats(run.output)[at] = w.span()[at] * (run.input.empty() ? 1.0F : floats(run.input)[at]);
  }
  void backward(const pl::backward_run& run)
  {
    batch->pass(cm::pass::backward, within(run.step.micro_batch));
    const auto w = versions.acquire(weight, run.step.version);
    auto g = m.gradient<float>(weight);
    const float label = static_cast<float>(how.counts_calls ? calls++ : run.step.micro_batch);
    for (std::size_t at = 0; at < width; ++at) {
      const float slope = run.output_gradient.empty() ? label : floats(run.output_gradient)[at];
      g.span()[at] = (g.beta() == 0 ? 0 : g.span()[at]) + slope * (run.input.empty() ? 1.0F : floats(run.input)[at]);
      if (!run.input_gradient.empty() && how.writes_gradient) floats(run.input_gradient)[at] = slope * w.span()[at];
    }
    if ((run.step.micro_batch + 1) % plan.micro_batches == 0) m.gradient_done(std::move(g));
  }
  void update(const pl::operation&)
  {
    batch.reset();
    if (how.flips) versions.flip();
    begin_batch();
    versions.update([&] {
      return steps.take(m, sgd, {.learning_rate = 1.0F / 1024, .clip = {.norm = static_cast<float>(how.norm)}},
                        cm::on_this_thread, [this](cm::tensor_handle) { return how.has_own_numbers ? stage : 0U; });
    });
  }
};

struct runs {
  std::uint32_t first_batch = 0;
  std::uint64_t input = width * sizeof(float);  ///< bytes of each part
  std::uint64_t lacking = 0;                    ///< bytes of the boundaries
  int times = 1;
};

/// @param choose   `choose(stage, how, here)` sets the deviation of a stage
template <class Choose>
std::string answers_of_stages(const pl::schedule& plan, Choose choose)
{
  const pl::thread_stages all{plan, patience};
  return answers_of_two([&](std::uint32_t stage) {
    pl::thread_stages::place here{all, stage};
    stage_of_two::ways how;
    runs these;
    choose(stage, how, these);
    arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
    manager m{memory, {.chunk_bytes = 256_B}};
    stage_of_two it{m, plan, stage, here.all(), how};
    const pl::boundary_buffers buffers{plan, stage, std::vector<cm::bytes>(2, cm::bytes{these.input})};
    const auto boundaries = m.lease(cm::tier::device, buffers.size());
    auto links = here.links(memory);
    const auto place = std::as_writable_bytes(boundaries.template span<float>());
    pl::stage_runner runner{
        plan, links, memory, buffers, place.first(place.size() - these.lacking), cm::agent::host, cm::checks::full{}};
    for (int time = 0; time < these.times; ++time) runner.run(it, these.first_batch);
    m.verify();
  });
}

inline const pl::schedule& usual()
{
  static const pl::schedule plan =
      pl::make_schedule(pl::one_f_one_b{}, {.stages = 2, .micro_batches = 4, .batches = 2});
  return plan;
}
inline const pl::schedule& with_two_versions()
{
  static const pl::schedule plan =
      pl::make_schedule(pl::pipedream_2bw{}, {.stages = 2, .micro_batches = 4, .batches = 2});
  return plan;
}

inline std::string schedules_that_differ()
{
  const pl::schedule other = pl::make_schedule(pl::gpipe{}, {.stages = 2, .micro_batches = 4, .batches = 2});
  const pl::thread_stages all{usual(), patience};
  const pl::thread_stages theirs{other, patience};
  return answers_of_two([&](std::uint32_t stage) {
    const pl::schedule& plan = stage == 0 ? usual() : other;
    pl::thread_stages::place here{all, stage};
    arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
    manager m{memory, {.chunk_bytes = 256_B}};
    stage_of_two it{m, plan, stage, here.all(), {}};
    const pl::boundary_buffers buffers{plan, stage, std::vector<cm::bytes>(2, cm::bytes{width * sizeof(float)})};
    const auto boundaries = m.lease(cm::tier::device, buffers.size());
    auto links = here.links(memory);
    pl::stage_runner runner{plan,
                            links,
                            memory,
                            buffers,
                            std::as_writable_bytes(boundaries.template span<float>()),
                            cm::agent::host,
                            cm::checks::full{}};
    runner.run(it);
  });
}

inline std::string boundaries_of_different_sizes()
{
  return answers_of_stages(usual(), [](std::uint32_t stage, stage_of_two::ways&, runs& these) {
    if (stage == 1) these.input = 2 * width * sizeof(float);
  });
}

inline std::string half_of_an_output()
{
  return answers_of_stages(usual(), [](std::uint32_t stage, stage_of_two::ways& how, runs&) {
    if (stage == 0) how.written = width / 2;
  });
}

inline std::string no_gradient_of_the_input()
{
  return answers_of_stages(
      usual(), [](std::uint32_t stage, stage_of_two::ways& how, runs&) { how.writes_gradient = stage == 0; });
}

inline std::string micro_batches_of_all_batches()
{
  return answers_of_stages(usual(), [](std::uint32_t, stage_of_two::ways& how, runs&) { how.counts_all = true; });
}

inline std::string versions_that_are_never_flipped()
{
  return answers_of_stages(with_two_versions(),
                           [](std::uint32_t, stage_of_two::ways& how, runs&) { how.flips = false; });
}

inline std::string one_number_for_two_weights()
{
  return answers_of_stages(usual(), [](std::uint32_t, stage_of_two::ways& how, runs&) {
    how.has_own_numbers = false;
    how.norm = 1;
  });
}

inline std::string other_first_batches()
{
  return answers_of_stages(usual(),
                           [](std::uint32_t stage, stage_of_two::ways&, runs& these) { these.first_batch = stage; });
}

inline std::string a_stage_that_does_not_divide()
{
  return answers_of_stages(pl::make_schedule(pl::zb_h1{}, {.stages = 2, .micro_batches = 4}),
                           [](std::uint32_t, stage_of_two::ways&, runs&) {});
}

inline std::string too_few_bytes_for_boundaries()
{
  return answers_of_stages(
      usual(), [](std::uint32_t, stage_of_two::ways&, runs& these) { these.lacking = width * sizeof(float); });
}

inline std::string labels_by_the_count_of_calls()
{
  return answers_of_stages(usual(), [](std::uint32_t, stage_of_two::ways& how, runs&) { how.counts_calls = true; });
}

inline std::string a_runner_that_runs_twice()
{
  return answers_of_stages(usual(), [](std::uint32_t, stage_of_two::ways&, runs& these) { these.times = 2; });
}

inline constexpr user_mistake with_pipelines[] = {
    {"stages run different schedules", schedules_that_differ, "another schedule"},
    {"stages have boundaries of different sizes", boundaries_of_different_sizes, "send of 512 B"},
    {"a forward run writes half of its output", half_of_an_output, "128 of 256 B of its output"},
    {"a backward run does not write the gradient of its input", no_gradient_of_the_input, "were never written"},
    {"pass is given the micro-batch as counted over all batches", micro_batches_of_all_batches,
     "micro-batch 4 of an iteration that was begun with 4"},
    {"versions are updated and never flipped", versions_that_are_never_flipped, "flip"},
    {"weights of two stages have one place in the model", one_number_for_two_weights, "one number"},
    {"stages go on with different batches after a load", other_first_batches, "micro-batch"},
    {"a schedule of divided backward runs, and a stage that has one for both", a_stage_that_does_not_divide,
     "the stage has no such function"},
    {"boundaries in fewer bytes than they need", too_few_bytes_for_boundaries, "B for boundaries and needs"},
    {"labels are taken by a count of calls, and the schedule has another order", labels_by_the_count_of_calls, "",
     "labels or data chosen by a counter of the stage's own"},
    {"a runner runs its schedule a second time", a_runner_that_runs_twice, "is no longer kept"},
};

}  // namespace rank_mistakes
