// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/replay_memory.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>
#include <chunkmem/pipeline/zero_bubble.hpp>

#include <support/catch.hpp>
#include <support/measured_stage.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/random_schedule.hpp>
#include <support/sanitized.hpp>
#include <support/small_stage.hpp>

#include "schedule_runs.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <latch>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace stage_runner_test {

using namespace pipeline_test;
using chunkmem::pipeline::schedule;  // not that of a manager
using support::most_links;
using support::small_optimizer;
using support::small_stage;
using support::train_alone;
using support::vector_type;
using support::width;

namespace {

/// The arithmetic of small_stage, enqueued on compute, as kernels of a GPU are.
struct enqueued_stage : small_stage {
  using small_stage::small_stage;

  void forward(const forward_run& run)
  {
    memory->launch(agent::compute, [this, run]() noexcept { small_stage::forward(run); });
  }
  void backward(const backward_run& run)
  {
    memory->launch(agent::compute, [this, run]() noexcept { small_stage::backward(run); });
  }
  void update(const operation& step)
  {
    memory->launch(agent::compute, [this, step]() noexcept { small_stage::update(step); });
  }

  backend::host_arena* memory = nullptr;
};

enum class checked : std::uint8_t { not_at_all, fully };

/// Runs a schedule on threads. @return   the weights of each part in the end
/// @param worker   of its runs
template <class Stage = small_stage>
std::vector<vector_type> train(const schedule& plan, small_optimizer how, bool rounds, agent worker = agent::host,
                               std::vector<bytes> inputs = {}, checked how_checked = checked::not_at_all)
{
  if (inputs.empty()) inputs.assign(plan.part_count(), bytes{width * sizeof(float)});
  std::vector<vector_type> found(plan.part_count());
  thread_stages{plan}.run([&](thread_stages::place& here) {
    const boundary_buffers buffers{plan, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = buffers.size() + bytes{4'096}, .async_compute = true}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, buffers.size() + bytes{1}),
                                          buffers.size().count()};
    auto links = here.links(memory);
    Stage stage{plan, here.stage(), how, rounds};
    if constexpr (requires { stage.memory; }) stage.memory = &memory;
    if (how_checked == checked::fully)
      stage_runner{plan, links, memory, buffers, boundaries, worker, checks::full{}}.run(stage);
    else
      stage_runner{plan, links, memory, buffers, boundaries, worker}.run(stage);
    if (!stage.is_clean()) throw std::logic_error{"something was left over"};
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      if (plan.owners[part] == here.stage()) found[part] = stage.masters(part);
  });
  return found;
}

/// Ends early: it is asked in its updates of the second batch, as every other stage.
struct ending_stage : small_stage {
  ending_stage(const schedule& whole, std::uint32_t stage, small_optimizer how, bool rounds)
      : small_stage{whole, stage, how, rounds}, plan{whole}
  {
  }

  void update(const operation& step)
  {
    if (step.version == 2) end = last_begun_batch(plan, 1);
    small_stage::update(step);
  }
  [[nodiscard]] bool ends_before(std::uint32_t batch) const { return batch > end; }

  const schedule& plan;
  std::uint32_t end = UINT32_MAX;
};

/// Passes numbers forward alone, before and behind its training.
struct evaluating_stage : small_stage {
  using small_stage::small_stage;

  void evaluate(const forward_run& run)
  {
    if (run.step.micro_batch == breaks_at) throw std::domain_error{"a stage broke"};
    vector_type numbers(width, static_cast<float>(run.step.micro_batch));
    if (!run.input.empty()) std::memcpy(numbers.data(), run.input.data(), run.input.size());
    for (float& it : numbers) it = 2 * it + static_cast<float>(run.step.part);
    if (run.output.empty())
      results.push_back(numbers[1]);
    else
      std::memcpy(run.output.data(), numbers.data(), run.output.size());
  }

  std::uint32_t breaks_at = UINT32_MAX;
  std::vector<float> results;  ///< of the last part
};

/// Evaluates, trains, and evaluates twice. @return   the results of the last part; the weights are compared
template <class... Checks>
std::vector<float> evaluate_beside_training(const schedule& plan, Checks... how)
{
  const std::vector<bytes> inputs(plan.part_count(), bytes{width * sizeof(float)});
  std::vector<vector_type> weights(plan.part_count());
  std::vector<float> results;
  thread_stages{plan}.run([&](thread_stages::place& here) {
    const boundary_buffers buffers{plan, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = 64_KiB, .async_compute = true}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, 32_KiB), std::size_t{32} << 10};
    auto links = here.links(memory);
    evaluating_stage stage{plan, here.stage(), small_optimizer::momentum, false};
    stage_runner runner{plan, links, memory, buffers, boundaries, agent::host, how...};
    runner.evaluate(stage);
    runner.run(stage);
    for (int time = 0; time < 2; ++time) runner.evaluate(stage);
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      if (plan.owners[part] == here.stage()) weights[part] = stage.masters(part);
    if (plan.owners.back() == here.stage()) results = stage.results;
  });
  CHECK(weights == train_alone(plan, small_optimizer::momentum, false));
  return results;
}

enum class outcome : std::uint8_t { ended, broke, lost_another };

/// Throws at one of its calls.
struct breaking_stage : small_stage {
  using small_stage::small_stage;

  void forward(const forward_run& run)
  {
    count();
    small_stage::forward(run);
  }
  void backward(const backward_run& run)
  {
    count();
    small_stage::backward(run);
  }
  void update(const operation& step)
  {
    count();
    small_stage::update(step);
  }

  std::uint32_t calls_left = UINT32_MAX;

 private:
  void count()
  {
    if (calls_left-- == 0) throw std::domain_error{"a stage broke"};
  }
};

/// The result of each stage where one throws at a call. The deadline is longer than the test may take.
std::vector<outcome> break_at(const schedule& plan, std::uint32_t broken, std::uint32_t call)
{
  std::vector<outcome> found(plan.stage_count(), outcome::ended);
  const std::vector<bytes> inputs(plan.part_count(), bytes{width * sizeof(float)});
  try {
    thread_stages{plan, {.deadline = 600'000'000'000}}.run([&](thread_stages::place& here) {
      const boundary_buffers buffers{plan, here.stage(), inputs};
      backend::host_arena memory{{.device_capacity = 64_KiB}};
      const std::span<std::byte> boundaries{memory.allocate(tier::device, 64_KiB), std::size_t{64} << 10};
      auto links = here.links(memory);
      breaking_stage stage{plan, here.stage(), small_optimizer::sgd, false};
      if (here.stage() == broken) stage.calls_left = call;
      stage_runner runner{plan, links, memory, buffers, boundaries};
      try {
        runner.run(stage);
      } catch (const comm_error&) {
        found[here.stage()] = outcome::lost_another;
      }
    });
  } catch (const std::domain_error&) {
    found[broken] = outcome::broke;
  }
  return found;
}

void has_the_bits_of_one_device(const schedule& plan, small_optimizer how = small_optimizer::adam, bool rounds = false)
{
  CAPTURE(plan.name, plan.stage_count(), plan.micro_batches, static_cast<int>(how), rounds);
  CHECK(train(plan, how, rounds) == train_alone(plan, how, rounds));
}

}  // namespace

TEST_CASE("a pipeline without flush has the bits of delayed SGD", "[pipeline][delayed]")
{
  struct shape {
    std::uint32_t d, m;
  };
  using enum small_optimizer;
  for (const auto [d, m] : {shape{1, 1}, {1, 4}, {2, 2}, {3, 3}, {4, 4}, {4, 7}, {8, 8}, {8, 16}})
    for (const small_optimizer how : {sgd, momentum, adam, adamw})
      for (const bool rounds : {false, true}) {
        if (support::sanitized && (d > 4 || how != adam)) continue;
        has_the_bits_of_one_device(make_schedule(pipedream_2bw{}, {.stages = d, .micro_batches = m, .batches = 6}), how,
                                   rounds);
      }
}

TEST_CASE("a pipeline with K versions has the bits of SGD that is K - 1 updates late", "[pipeline][delayed]")
{
  for (const std::uint32_t d : {2U, 4U, 5U})
    for (const std::uint32_t m : {1U, 2U, 3U})
      for (const std::uint32_t more : {0U, 1U}) {
        const pipedream_2bw generator{.versions = fewest_versions(d, m) + more};
        has_the_bits_of_one_device(make_schedule(generator, {.stages = d, .micro_batches = m, .batches = 12}));
      }
}

TEST_CASE("an update that comes later changes no bit", "[pipeline][delayed]")
{
  for (const std::uint32_t delay : {1U, 3U})
    has_the_bits_of_one_device(
        make_schedule(pipedream_2bw{.update_delay = delay}, {.stages = 3, .micro_batches = 6, .batches = 4}));
}

TEST_CASE("every synchronous schedule has the bits of one device that adds up the micro-batches", "[pipeline]")
{
  const pipeline_shape shape{.stages = 4, .micro_batches = 8, .batches = 3};
  for (const schedule& plan :
       {make_schedule(gpipe{}, shape), make_schedule(one_f_one_b{}, shape), make_schedule(eager_one_f_one_b{}, shape),
        make_schedule(interleaved{.parts = 2}, shape), make_schedule(zb_h1{}, shape), make_schedule(zb_h2{}, shape),
        make_schedule(zb_v{}, shape)})
    for (const bool rounds : {false, true}) has_the_bits_of_one_device(plan, small_optimizer::momentum, rounds);
}

TEST_CASE("random schedules with offloads and second forward runs have the bits of one device where sums are in order",
          "[pipeline]")
{
  int trained = 0;
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    support::dice dice{seed};
    const schedule plan = support::random_schedule{dice}.plan();
    if (most_links(plan) > max_agents - built_in_agents) continue;
    CAPTURE(seed);
    const std::vector<vector_type> found = train(plan, small_optimizer::sgd, false);
    ++trained;
    if (plan.micro_batches > 1) continue;  // their sums come in any order
    CHECK(found == train_alone(plan, small_optimizer::sgd, false));
    ++compared;
  }
  CHECK(trained >= 40);
  CHECK(compared >= 10);
}

TEST_CASE("stages that agree to end go on to the end of the batches that some have begun", "[pipeline][delayed]")
{
  const auto expect = [](const auto& generator, pipeline_shape shape, std::uint32_t last) {
    shape.batches = 6;
    const schedule plan = make_schedule(generator, shape);
    CAPTURE(plan.name);
    CHECK(last_begun_batch(plan, 1) == last);
    CHECK(last_begun_batch(plan, 5) == 5);
    const std::vector<vector_type> found = train<ending_stage>(plan, small_optimizer::adam, false);
    shape.batches = last + 1;
    CHECK(found == train_alone(make_schedule(generator, shape), small_optimizer::adam, false));
  };
  // A receive starts early: a stage waits for the next batch while the last updates of this one come.
  const pipeline_shape four{.stages = 4, .micro_batches = 8};
  expect(gpipe{}, four, 2);
  expect(one_f_one_b{}, four, 2);
  expect(interleaved{.parts = 2}, four, 2);
  expect(zb_h2{}, four, 2);
  expect(zb_v{}, four, 2);
  expect(pipedream_2bw{}, {.stages = 4, .micro_batches = 4}, 2);
  expect(pipedream_2bw{.versions = 4}, {.stages = 4, .micro_batches = 1}, 4);
}

TEST_CASE("an evaluation passes each micro-batch of a batch forward once, and changes no bit of a training",
          "[pipeline]")
{
  const pipeline_shape shape{.stages = 3, .micro_batches = 6, .batches = 3};
  for (const schedule& plan :
       {make_schedule(gpipe{}, shape), make_schedule(one_f_one_b{}, shape), make_schedule(eager_one_f_one_b{}, shape),
        make_schedule(interleaved{.parts = 2}, shape), make_schedule(pipedream_2bw{}, shape),
        make_schedule(zb_h1{}, shape), make_schedule(zb_h2{}, shape), make_schedule(zb_v{}, shape)}) {
    CAPTURE(plan.name);
    std::vector<float> expected;
    for (int time = 0; time < 3; ++time)
      for (std::uint32_t micro_batch = 0; micro_batch < plan.micro_batches; ++micro_batch) {
        expected.push_back(static_cast<float>(micro_batch));
        for (std::uint32_t part = 0; part < plan.part_count(); ++part)
          expected.back() = 2 * expected.back() + static_cast<float>(part);
      }
    CHECK(evaluate_beside_training(plan) == expected);
    CHECK(evaluate_beside_training(plan, checks::full{}) == expected);
  }
}

TEST_CASE("a stage that throws in an evaluation ends the others with a comm_error", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 3, .micro_batches = 6});
  const std::vector<bytes> inputs(plan.part_count(), bytes{width * sizeof(float)});
  std::vector<outcome> found(3, outcome::ended);
  CHECK_THROWS_AS(thread_stages(plan, {.deadline = 600'000'000'000}).run([&](thread_stages::place& here) {
    const boundary_buffers buffers{plan, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = 64_KiB}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, 64_KiB), std::size_t{64} << 10};
    auto links = here.links(memory);
    evaluating_stage stage{plan, here.stage(), small_optimizer::sgd, false};
    if (here.stage() == 1) stage.breaks_at = 3;
    stage_runner runner{plan, links, memory, buffers, boundaries};
    try {
      runner.evaluate(stage);
    } catch (const std::domain_error&) {
      found[here.stage()] = outcome::broke;
      throw;
    } catch (const comm_error&) {
      found[here.stage()] = outcome::lost_another;
      throw;
    }
  }),
                  std::domain_error);
  CHECK(found == std::vector{outcome::lost_another, outcome::broke, outcome::lost_another});
}

TEST_CASE("runs may be enqueued on an agent of their own", "[pipeline]")
{
  const schedule plan = make_schedule(pipedream_2bw{}, {.stages = 3, .micro_batches = 4, .batches = 3});
  CHECK(train<enqueued_stage>(plan, small_optimizer::adam, false, agent::compute) ==
        train_alone(plan, small_optimizer::adam, false));
}

TEST_CASE("boundaries take as many bytes as the replay counts, where all have one size", "[pipeline]")
{
  for (std::uint64_t seed = 1; seed <= (support::sanitized ? 40U : 200U); ++seed) {
    support::dice dice{seed};
    const schedule plan = support::random_schedule{dice}.plan();
    const std::vector<bytes> inputs(plan.part_count(), bytes{512});
    std::vector<part_memory> parts(plan.part_count(), part_memory{.input = bytes{512}});
    parts[0].input = bytes{};  // the first part reads the batch
    const std::vector<stage_peak> peaks = replay_memory(plan, parts);
    for (std::uint32_t stage = 0; stage < plan.stage_count(); ++stage) {
      CAPTURE(seed, stage);
      CHECK(boundary_buffers{plan, stage, inputs}.size() == peaks[stage].device);
    }
  }
}

TEST_CASE("stages take as many bytes as their schedule says", "[pipeline]")
{
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= (support::sanitized ? 40U : 300U); ++seed) {
    support::dice dice{seed};
    const schedule plan = support::random_schedule{dice}.plan();
    if (most_links(plan) > max_agents - built_in_agents) continue;
    const auto size = [&] { return bytes{dice.below(2'000)}; };
    std::vector<part_memory> parts;
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      parts.push_back({size(), size(), size(), size(), size(), size(), size(), size(), size()});
    CAPTURE(seed);
    CHECK(support::measured_memory(plan, parts) == executor_memory(plan, parts));
    ++compared;
  }
  CHECK(compared >= (support::sanitized ? 20 : 200));
}

TEST_CASE("buffers of unequal boundaries keep their bytes while they live", "[pipeline]")
{
  int trained = 0;
  for (std::uint64_t seed = 1; seed <= (support::sanitized ? 20U : 60U); ++seed) {
    support::dice dice{seed};
    const schedule plan = support::random_schedule{dice}.plan();
    if (most_links(plan) > max_agents - built_in_agents) continue;
    std::vector<bytes> inputs;
    for (std::uint32_t part = 0; part < plan.part_count(); ++part) inputs.push_back(bytes{dice.between(24, 1'500)});
    CAPTURE(seed);
    CHECK_NOTHROW(train(plan, small_optimizer::sgd, false, agent::host, inputs));  // each run reads to the end
    ++trained;
  }
  CHECK(trained >= 10);
}

TEST_CASE("work of a stage's own agent has ended when its run throws", "[pipeline]")
{
  // Both parts are on one stage: the first run is enqueued and slow, the second one throws.
  struct slow_then_broken {
    backend::host_arena& memory;
    std::span<std::byte> boundaries;

    void forward(const forward_run& run)
    {
      if (run.step.part == 1) throw std::domain_error{"a stage broke"};
      memory.launch(agent::compute, [output = run.output]() noexcept {
        std::this_thread::sleep_for(std::chrono::milliseconds{50});
        std::ranges::fill(output, std::byte{1});
      });
    }
    void backward(const backward_run&) {}
    void update(const operation&) {}
  };
  schedule plan;
  plan.owners = {0, 0};
  plan.stages = {{{operation_kind::forward, 0, 0, 0},
                  {operation_kind::forward, 1, 0, 0},
                  {operation_kind::backward, 1, 0, 0},
                  {operation_kind::backward, 0, 0, 0},
                  {operation_kind::update, 0, 0, 1},
                  {operation_kind::update, 1, 0, 1}}};
  const boundary_buffers buffers{plan, 0, {bytes{}, bytes{256}}};
  std::vector<std::byte> boundaries(buffers.size().count());
  backend::host_arena memory{{.device_capacity = 4_KiB, .async_compute = true}};
  stage_links<collective::local_threads> links{0};
  stage_runner runner{plan, links, memory, buffers, boundaries, agent::compute};
  slow_then_broken stage{memory, boundaries};
  CHECK_THROWS_AS(runner.run(stage), std::domain_error);
  CHECK(std::ranges::count(boundaries, std::byte{1}) == 256);  // and nothing writes them from now on
}

namespace {

/// The action of stage 0 in place of its second send.
enum class first_stage : std::uint8_t { is_dead, is_silent, sends_something_else };

struct found_by_stage {
  int wrong_inputs = 0;  ///< of runs on the calling thread
  int updates = 0;
  bool was_told = false;
};

/// Each micro-batch has bytes of its own; a boundary that was not made has others.
struct watching_stage {
  backend::host_arena& memory;
  agent worker;
  found_by_stage& found;

  static std::byte byte_of(const operation& step) { return static_cast<std::byte>(step.micro_batch + 1); }

  void forward(const forward_run& run)
  {
    if (worker != agent::host)
      return memory.launch(worker, [run]() noexcept {
        std::ranges::copy_n(run.input.data(), std::ssize(run.output), run.output.data());
      });
    if (std::ranges::count(run.input, byte_of(run.step)) != std::ranges::ssize(run.input)) ++found.wrong_inputs;
    std::ranges::copy_n(run.input.data(), std::ssize(run.output), run.output.data());
  }
  void backward(const backward_run& run)
  {
    const auto work = [run]() noexcept { std::ranges::fill(run.input_gradient, byte_of(run.step)); };
    worker == agent::host ? work() : memory.launch(worker, work);
  }
  void update(const operation&) { ++found.updates; }
};

/// Three stages, of which the first fails the others behind its first send. @param middle   works on
std::vector<found_by_stage> fail_behind(first_stage how, agent middle)
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 3, .micro_batches = 2});
  const std::vector<bytes> inputs(plan.part_count(), bytes{256});
  std::vector<found_by_stage> found(3);
  std::latch others{2};
  const std::uint64_t deadline = how == first_stage::is_silent ? 100'000'000 : 60'000'000'000;
  thread_stages{plan, {.deadline = deadline}}.run([&](thread_stages::place& here) {
    backend::host_arena memory{{.device_capacity = 64_KiB, .async_compute = true}};
    const std::span<std::byte> room{memory.allocate(tier::device, 64_KiB), std::size_t{64} << 10};
    std::ranges::fill(room, std::byte{0xEE});
    auto links = here.links(memory);
    if (here.stage() == 0) {
      const auto& out = *links.find({0, 1});
      std::ranges::fill(room.first(256), std::byte{1});
      out.ends->send(memory, out.stream, room.data(), bytes{256}, rank_id{1}, 2);
      try {
        if (how == first_stage::sends_something_else)
          out.ends->send(memory, out.stream, room.data(), bytes{128}, rank_id{1}, 2);
        memory.wait(agent::host, memory.record(out.stream));
      } catch (const comm_error&) {  // it is told too
      }
      return how == first_stage::is_dead ? void() : others.wait();
    }
    const boundary_buffers buffers{plan, here.stage(), inputs};
    const agent worker = here.stage() == 1 ? middle : agent::host;
    watching_stage stage{memory, worker, found[here.stage()]};
    stage_runner runner{plan, links, memory, buffers, room, worker};
    try {
      runner.run(stage);
    } catch (const comm_error&) {
      found[here.stage()].was_told = true;
    } catch (...) {  // the silent one waits for this
    }
    others.count_down();
  });
  return found;
}

}  // namespace

TEST_CASE("a stage is given no boundary that did not come, and updates nothing by it", "[pipeline]")
{
  for (const auto how : {first_stage::is_dead, first_stage::is_silent, first_stage::sends_something_else})
    for (const agent middle : {agent::host, agent::compute}) {
      const std::vector<found_by_stage> found = fail_behind(how, middle);
      for (const std::size_t stage : {1U, 2U}) {
        CAPTURE(static_cast<int>(how), static_cast<int>(middle), stage);
        CHECK(found[stage].was_told);
        CHECK(found[stage].wrong_inputs == 0);
        CHECK(found[stage].updates == 0);
      }
    }
}

TEST_CASE("links and buffers of another stage or schedule are refused", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  const schedule longer = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 3});
  const std::vector<bytes> inputs(2, bytes{8});
  backend::host_arena memory{{.device_capacity = 4_KiB}};
  std::vector<std::byte> boundaries(4'096);
  stage_links<collective::local_threads> nowhere{1'000};
  stage_links<collective::local_threads> first{0};
  const boundary_buffers of_second{plan, 1, inputs};
  const boundary_buffers of_longer{longer, 0, inputs};
  CHECK_THROWS_AS((stage_runner{plan, nowhere, memory, of_second, boundaries}), usage_error);
  CHECK_THROWS_AS((stage_runner{plan, first, memory, of_second, boundaries}), usage_error);
  CHECK_THROWS_AS((stage_runner{plan, first, memory, of_longer, boundaries}), usage_error);
}

TEST_CASE("buffers and links of another schedule of the same shape are refused", "[pipeline]")
{
  const pipeline_shape shape{.stages = 2, .micro_batches = 4};
  const schedule runs = make_schedule(gpipe{}, shape);
  const schedule other = make_schedule(one_f_one_b{}, shape);
  schedule renamed = runs;
  renamed.name = "another name";
  const std::vector<bytes> inputs(2, bytes{256});
  for (std::uint32_t stage = 0; stage < 2; ++stage) {
    CAPTURE(stage);
    const boundary_buffers own{runs, stage, inputs};
    const boundary_buffers of_other{other, stage, inputs};
    std::vector<std::byte> boundaries(4'096);
    backend::host_arena memory{{.device_capacity = 4_KiB}};
    const thread_stages stages{runs};
    thread_stages::place here{stages, stage};
    auto links = here.links(memory);
    CHECK_NOTHROW(stage_runner{runs, links, memory, own, boundaries});
    CHECK_NOTHROW(stage_runner{renamed, links, memory, own, boundaries});
    CHECK_THROWS_WITH(
        (stage_runner{runs, links, memory, of_other, boundaries}),
        Catch::Matchers::ContainsSubstring("the boundary_buffers given to stage " + std::to_string(stage)) &&
            Catch::Matchers::ContainsSubstring("another stage or schedule than '" + runs.name));
    CHECK_THROWS_AS((stage_runner{runs, links, memory, of_other, boundaries}), usage_error);
    CHECK_THROWS_WITH((stage_runner{other, links, memory, of_other, boundaries}),
                      Catch::Matchers::ContainsSubstring("its links are those of another schedule"));
  }
  // What steps of any kind say is a part of it.
  const auto differs = [&](auto change) {
    schedule changed = runs;
    change(changed);
    return identity_of(changed) != identity_of(runs) && !boundary_buffers{runs, 0, inputs}.are_of(changed, 0);
  };
  CHECK(differs([](schedule& it) { it.versions = 2; }));
  CHECK(differs([](schedule& it) { it.gradient_sets = 2; }));
  CHECK(differs([](schedule& it) { it.sends_in_flight = 1; }));
  CHECK(differs([](schedule& it) { std::swap(it.micro_batches, it.batches); }));
  CHECK(differs([](schedule& it) { std::swap(it.owners[0], it.owners[1]); }));
  CHECK(differs([](schedule& it) { std::swap(it.stages[0], it.stages[1]); }));
  CHECK(differs([](schedule& it) { it.stages[1].front().micro_batch = 1; }));
  CHECK(differs([](schedule& it) { it.stages[1].front().version = 1; }));
  CHECK(differs([](schedule& it) { it.stages[1].back().part = 0; }));
}

namespace {

/// Makes thread_stages of a plan and gives each stage's error, if it had one: its text, and below it its details.
template <class Work>
std::vector<std::string> errors_of(const schedule& plan, std::uint64_t deadline, Work work)
{
  std::vector<std::string> found(plan.stage_count());
  const std::vector<bytes> inputs(plan.part_count(), bytes{width * sizeof(float)});
  thread_stages{plan, {.deadline = deadline}, "replica 1"}.run([&](thread_stages::place& here) {
    const boundary_buffers buffers{plan, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = 64_KiB}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, 64_KiB), std::size_t{64} << 10};
    auto links = here.links(memory);
    try {
      work(here, links, memory, buffers, boundaries);
    } catch (const comm_error& failed) {
      found[here.stage()] = std::string{failed.what()} + "\n" + std::string{failed.details()};
    } catch (const std::domain_error&) {
      found[here.stage()] = "broke";
    }
  });
  return found;
}
bool has(const std::string& text, const std::string& words)
{
  return text.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("the error of a link names the stages at its ends, and says where the stage was", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 4, .micro_batches = 4});
  for (std::uint32_t broken = 0; broken < 4; ++broken) {
    const std::vector<std::string> found = errors_of(
        plan, 600'000'000'000, [&](auto& here, auto& links, auto& memory, auto& buffers, std::span<std::byte> place) {
          breaking_stage stage{plan, here.stage(), small_optimizer::sgd, false};
          if (here.stage() == broken) stage.calls_left = 1;
          stage_runner runner{plan, links, memory, buffers, place};
          runner.run(stage);
        });
    for (std::uint32_t stage = 0; stage < 4; ++stage) {
      CAPTURE(broken, stage, found[stage]);
      if (stage == broken) {
        CHECK(found[stage] == "broke");
        continue;
      }
      const auto neighbour = [&](std::uint32_t other) {
        return other < 4 && has(found[stage], "(stage " + std::to_string(other) + " of replica 1)");
      };
      CHECK((neighbour(stage - 1) || neighbour(stage + 1)));
      CHECK(has(found[stage], "(the link from stage "));
      CHECK(has(found[stage], "\nstage " + std::to_string(stage) + " of 4 was at "));
    }
  }
}

TEST_CASE("a stage that never comes, and one that means other bytes, are named", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  std::atomic<bool> is_over{false};
  const std::vector<std::string> silent =
      errors_of(plan, 5'000'000, [&](auto& here, auto& links, auto& memory, auto& buffers, std::span<std::byte> place) {
        if (here.stage() == 0) return is_over.wait(false);
        small_stage stage{plan, here.stage(), small_optimizer::sgd, false};
        stage_runner runner{plan, links, memory, buffers, place};
        const auto tell = [&] { is_over.store(true), is_over.notify_all(); };
        try {
          runner.run(stage);
        } catch (const comm_error&) {
          tell();
          throw;
        }
        tell();
      });
  CAPTURE(silent[1]);
  CHECK(has(silent[1], "rank 0 (stage 0 of replica 1) did not come within 5 ms: rank 1 (stage 1 of replica 1) waits"));
  CHECK(has(silent[1], "(part 1, micro-batch 0)"));
  CHECK(has(silent[1], "stage 1 of 2 was at forward of part 1, micro-batch 0"));

  const std::vector<std::string> other =
      errors_of(plan, 600'000'000'000, [&](auto& here, auto& links, auto& memory, auto&, std::span<std::byte> place) {
        const auto& link = *links.find({0, 1});
        if (here.stage() == 0)
          link.ends->send(memory, link.stream, place.data(), bytes{256}, rank_id{1}, 2);
        else
          link.ends->receive(memory, link.stream, place.data(), bytes{256}, rank_id{0}, 3);
        memory.wait(agent::host, memory.record(link.stream));
        link.ends->check();
      });
  for (const std::string& text : other) {
    CAPTURE(text);
    CHECK(has(text, "(stage 0 of replica 1)"));
    CHECK(has(text, "(stage 1 of replica 1)"));
    CHECK(has(text, "label 2 (part 1, micro-batch 0)"));
    CHECK(has(text, "label 3 (part 1, micro-batch 1)"));
  }
}

TEST_CASE("a stage that breaks at any call ends the others with a typed error, and none waits", "[pipeline]")
{
  const schedule plan = make_schedule(pipedream_2bw{}, {.stages = 4, .micro_batches = 4, .batches = 3});
  support::dice dice{5};
  for (int trial = 0; trial < (support::sanitized ? 10 : 50); ++trial) {
    const std::uint32_t broken = dice.below(4);
    const std::uint32_t call = dice.below(2 * plan.all_micro_batches() + plan.batches);
    CAPTURE(trial, broken, call);
    const std::vector<outcome> found = break_at(plan, broken, call);
    for (std::uint32_t stage = 0; stage < 4; ++stage) {
      CAPTURE(stage);
      if (stage == broken) {
        CHECK(found[stage] == outcome::broke);
      } else {
        // A stage that had sent and received everything may be at its end before.
        CHECK((found[stage] == outcome::lost_another || found[stage] == outcome::ended));
      }
    }
    if (call < plan.all_micro_batches()) CHECK(std::ranges::count(found, outcome::lost_another) == 3);
  }
}

TEST_CASE("a stage without a function for a step, a link or memory is refused", "[pipeline]")
{
  struct fused_stage {
    void forward(const forward_run&) {}
    void backward(const backward_run&) {}
    void update(const operation&) {}
  };
  const schedule plan = make_schedule(zb_h1{}, {.stages = 1, .micro_batches = 1});
  const boundary_buffers buffers{plan, 0, {bytes{}}};
  backend::host_arena memory{{.device_capacity = 4_KiB}};
  stage_links<collective::local_threads> links{0};
  stage_runner runner{plan, links, memory, buffers, {}};
  fused_stage stage;
  CHECK_THROWS_AS(runner.run(stage), usage_error);

  const schedule two = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 1});
  const boundary_buffers needed{two, 0, {bytes{}, bytes{8}}};
  std::vector<std::byte> bytes_of_boundaries(needed.size().count());
  CHECK_THROWS_AS((stage_runner{two, links, memory, needed, bytes_of_boundaries}), usage_error);
  CHECK_THROWS_AS((stage_runner{two, links, memory, needed, {}}), usage_error);
  CHECK_THROWS_AS((boundary_buffers{two, 2, {bytes{}, bytes{8}}}), config_error);
  CHECK_THROWS_AS((boundary_buffers{two, 0, {bytes{}}}), config_error);
}

TEST_CASE("right stages have no complaint from checks, and the same bits", "[pipeline]")
{
  const auto checked_bits = [](const schedule& plan) {
    return train(plan, small_optimizer::sgd, false, agent::host, {}, checked::fully);
  };
  const pipeline_shape shape{.stages = 4, .micro_batches = 8, .batches = 2};
  for (const schedule& plan :
       {make_schedule(gpipe{}, shape), make_schedule(interleaved{.parts = 2}, shape), make_schedule(zb_h1{}, shape),
        make_schedule(zb_v{}, shape), make_schedule(pipedream_2bw{}, shape)}) {
    CAPTURE(plan.name);
    CHECK(checked_bits(plan) == train_alone(plan, small_optimizer::sgd, false));
  }
  const schedule plan = make_schedule(pipedream_2bw{}, shape);
  CHECK(train<enqueued_stage>(plan, small_optimizer::sgd, false, agent::compute, {}, checked::fully) ==
        train_alone(plan, small_optimizer::sgd, false));
  for (std::uint64_t seed = 1; seed <= (support::sanitized ? 10U : 60U); ++seed) {
    support::dice dice{seed};
    const schedule random = support::random_schedule{dice}.plan();
    if (most_links(random) > max_agents - built_in_agents) continue;
    CAPTURE(seed);
    CHECK(checked_bits(random) == train(random, small_optimizer::sgd, false));
  }
}

namespace {

/// What one stage of two does wrong with its boundaries, in micro-batch 2 of 4.
enum class boundary_mistake : std::uint8_t {
  none,
  half_an_output,
  half_an_input_gradient,
  adds_to_the_input_gradient,
  writes_its_input,
  keeps_its_input,
  names_no_worker,
};

/// Part 1 of 2 is on stage 1, and part 0 on stage 0. Each byte is a float.
struct careless_stage {
  boundary_mistake mistake = boundary_mistake::none;
  backend::host_arena* memory = nullptr;
  std::atomic<bool>* may_go = nullptr;
  std::span<const std::byte> kept{};
  bool has_read_nan = false;

  static std::span<float> floats(std::span<std::byte> of)
  {
    return {reinterpret_cast<float*>(of.data()), of.size() / sizeof(float)};
  }
  [[nodiscard]] bool is_wrong(const operation& step, boundary_mistake which) const
  {
    return step.micro_batch == 2 && mistake == which;
  }
  void forward(const forward_run& run)
  {
    if (is_wrong(run.step, boundary_mistake::keeps_its_input)) kept = run.input;
    const auto write = [run, half = is_wrong(run.step, boundary_mistake::half_an_output)]() noexcept {
      const std::span<float> out = floats(run.output);
      std::ranges::fill(out.first(half ? out.size() / 2 : out.size()), 1.0F);
    };
    if (!is_wrong(run.step, boundary_mistake::names_no_worker)) return write();
    memory->launch(agent::compute, [write, go = may_go]() noexcept {
      go->wait(false);
      write();
    });
  }
  void backward_input(const backward_run& run)
  {
    if (is_wrong(run.step, boundary_mistake::writes_its_input) && !run.input.empty())
      const_cast<std::byte&>(run.input[3]) ^= std::byte{1};
    const std::span<float> out = floats(run.input_gradient);
    const bool half = is_wrong(run.step, boundary_mistake::half_an_input_gradient);
    for (float& it : out.first(half ? out.size() / 2 : out.size()))
      it = is_wrong(run.step, boundary_mistake::adds_to_the_input_gradient) ? it + 1 : 1;
    for (std::size_t at = 0; at + sizeof(float) <= run.output_gradient.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, run.output_gradient.data() + at, sizeof value);
      has_read_nan = has_read_nan || value != value;
    }
  }
  void backward_weight(const operation& step)
  {
    if (!is_wrong(step, boundary_mistake::keeps_its_input) || kept.empty()) return;
    float value = 0;
    std::memcpy(&value, kept.data(), sizeof value);
    has_read_nan = has_read_nan || value != value;
  }
  void backward(const backward_run&) {}
  void update(const operation&) {}
};

struct careless_end {
  std::string answer;         // of the usage_error, of whichever stage had one
  bool has_read_nan = false;  // on some stage
};
careless_end run_careless(boundary_mistake mistake)
{
  const schedule plan = make_schedule(zb_h1{}, {.stages = 2, .micro_batches = 4});
  const std::vector<bytes> inputs(2, bytes{256});
  std::vector<careless_end> found(2);
  std::atomic<bool> may_go{false};
  thread_stages{plan}.run([&](thread_stages::place& here) {
    const boundary_buffers buffers{plan, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = 64_KiB, .async_compute = true}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, 64_KiB), std::size_t{64} << 10};
    auto links = here.links(memory);
    careless_stage stage{mistake, &memory, &may_go};
    try {
      stage_runner{plan, links, memory, buffers, boundaries, agent::host, checks::full{}}.run(stage);
    } catch (const usage_error& refused) {
      found[here.stage()].answer = refused.what();
    } catch (const comm_error&) {  // the other stage had an error
    }
    may_go = true;
    may_go.notify_all();
    found[here.stage()].has_read_nan = stage.has_read_nan;
  });
  return {found[0].answer + found[1].answer, found[0].has_read_nan || found[1].has_read_nan};
}

}  // namespace

TEST_CASE("checks find what a stage does wrong with its boundaries", "[pipeline]")
{
  using enum boundary_mistake;
  CHECK(run_careless(none).answer == "");
  CHECK_FALSE(run_careless(none).has_read_nan);
  CHECK_THAT(run_careless(half_an_output).answer,
             Catch::Matchers::ContainsSubstring("stage 0, forward of part 0, micro-batch 2: 128 of 256 B of its output "
                                                "were never written, the first one is byte 128"));
  CHECK_THAT(run_careless(half_an_input_gradient).answer,
             Catch::Matchers::ContainsSubstring("stage 1, backward_input of part 1, micro-batch 2: 128 of 256 B of its "
                                                "input_gradient were never written"));
  CHECK_THAT(
      run_careless(writes_its_input).answer,
      Catch::Matchers::ContainsSubstring("stage 1, backward_input of part 1, micro-batch 2: its input has changed"));
  CHECK_THAT(run_careless(names_no_worker).answer,
             Catch::Matchers::ContainsSubstring("256 of 256 B of its output were never written"));
  // These read bytes that are not theirs: they are NaN.
  for (const boundary_mistake it : {adds_to_the_input_gradient, keeps_its_input}) {
    const careless_end end = run_careless(it);
    CAPTURE(static_cast<int>(it), end.answer);
    CHECK(end.has_read_nan);
  }
}

TEST_CASE("a stage that begins with another batch than its neighbour is refused", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2, .batches = 2});
  const std::vector<std::string> found = errors_of(
      plan, 600'000'000'000, [&](auto& here, auto& links, auto& memory, auto& buffers, std::span<std::byte> place) {
        small_stage stage{plan, here.stage(), small_optimizer::sgd, false};
        stage_runner runner{plan, links, memory, buffers, place};
        runner.run(stage, here.stage());
      });
  for (const std::string& text : found) {
    CAPTURE(text);
    CHECK(has(text, "ranks ask for different things"));
    CHECK(has(text, "(part 1, micro-batch 0)"));
    CHECK(has(text, "(part 1, micro-batch 2)"));
  }
}

}  // namespace stage_runner_test
