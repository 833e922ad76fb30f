// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/nccl_stages.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>

#include <support/catch.hpp>
#include <support/fake_cuda.hpp>
#include <support/fake_nccl.hpp>
#include <support/small_stage.hpp>

#include "schedule_runs.hpp"

#include <cstddef>
#include <cstdint>
#include <latch>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace nccl_stages_test {

using namespace pipeline_test;
using chunkmem::pipeline::schedule;  // not that of a manager
using support::fake_nccl;
using support::small_optimizer;
using support::small_stage;
using support::vector_type;
using support::width;

namespace {

using device = backend::cuda_device<support::fake_cuda>;
using worlds = std::map<stage_pair, std::shared_ptr<support::fake_nccl_world>>;

/// The arithmetic of small_stage as kernels on a stream.
struct enqueued_stage : small_stage {
  using small_stage::small_stage;

  void forward(const forward_run& run)
  {
    enqueue([this, run] { small_stage::forward(run); });
  }
  void backward(const backward_run& run)
  {
    enqueue([this, run] { small_stage::backward(run); });
  }
  void update(const operation& step)
  {
    enqueue([this, step] { small_stage::update(step); });
  }

  device* gpu = nullptr;

 private:
  template <class Kernel>
  void enqueue(Kernel kernel)
  {
    gpu->launch(agent::compute, [&](support::fake_stream_handle stream) { launch_kernel(stream, kernel); });
  }
};

struct trained {
  std::vector<vector_type> weights;
  int misuses = 0;
  std::uint32_t lost = 0;             ///< stages that ended with a comm_error
  std::vector<std::string> errors{};  ///< of each stage: what that said, below it its details
};

/// Runs a schedule on threads with a device each. Links are groups of NCCL.
/// @param failing   the link whose sender fails at a call of NCCL   @param at   which call
template <class Stage>
trained train(const schedule& plan, small_optimizer how, stage_pair failing = {0, 0}, int at = -1)
{
  worlds links_of;
  for (const stage_pair& pair : pairs_of(plan)) links_of[pair] = std::make_shared<support::fake_nccl_world>(2);
  trained found{.weights = std::vector<vector_type>(plan.part_count())};
  std::vector<std::uint32_t> lost(plan.stage_count(), 0);
  found.errors.resize(plan.stage_count());
  const std::vector<bytes> inputs(plan.part_count(), bytes{width * sizeof(float)});
  thread_stages{plan}.run([&](thread_stages::place& hosts) {
    const std::uint32_t stage_number = hosts.stage();
    const support::fake_cuda cuda{support::fake_cuda_options{.seed = stage_number + 1}};
    device gpu{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}, cuda};
    const boundary_buffers buffers{plan, stage_number, inputs};
    const std::span<std::byte> boundaries{gpu.allocate(tier::device, 64_KiB), buffers.size().count()};
    const auto api_of = [&](stage_pair pair) {
      const bool fails = pair == failing && pair.first == stage_number;
      return fake_nccl{links_of[pair], cuda, pair.first == stage_number ? 0 : 1,
                       fails ? fake_nccl::plan{.fail_at = at, .number = 3} : fake_nccl::plan{}};
    };
    const std::uint64_t deadline = at < 0 ? 20'000'000'000 : 1'000'000'000;  // a failure may be heard of by it alone
    nccl_stages<fake_nccl, thread_stages::place> here{hosts, {.deadline = deadline}, api_of};
    auto links = here.links(gpu);
    Stage stage{plan, stage_number, how, false};
    agent worker = agent::host;
    if constexpr (requires { stage.gpu; }) {
      stage.gpu = &gpu;
      worker = agent::compute;
    }
    stage_runner runner{plan, links, gpu, buffers, boundaries, worker};
    try {
      runner.run(stage);
      if (!stage.is_clean()) throw std::logic_error{"something was left over"};
      for (std::uint32_t part = 0; part < plan.part_count(); ++part)
        if (plan.owners[part] == stage_number) found.weights[part] = stage.masters(part);
    } catch (const comm_error& failed) {
      if (at < 0) throw;
      found.errors[stage_number] = std::string{failed.what()} + "\n" + std::string{failed.details()};
      lost[stage_number] = 1;
    }
  });
  for (const auto& [pair, world] : links_of) found.misuses += world->misuses;
  for (const std::uint32_t each : lost) found.lost += each;
  return found;
}

}  // namespace

TEST_CASE("stages over groups of NCCL have the bits of one device", "[pipeline]")
{
  const pipeline_shape shape{.stages = 3, .micro_batches = 4, .batches = 3};
  for (const schedule& plan :
       {make_schedule(one_f_one_b{}, shape), make_schedule(pipedream_2bw{}, shape), make_schedule(zb_h1{}, shape)}) {
    CAPTURE(plan.name);
    const trained found = train<small_stage>(plan, small_optimizer::adam);
    CHECK(found.weights == train_alone(plan, small_optimizer::adam, false));
    CHECK(found.misuses == 0);
  }
  const schedule plan = make_schedule(pipedream_2bw{}, shape);
  CHECK(train<enqueued_stage>(plan, small_optimizer::adam).weights == train_alone(plan, small_optimizer::adam, false));
}

TEST_CASE("a link of NCCL that fails ends every stage with an error", "[pipeline]")
{
  const schedule plan = make_schedule(pipedream_2bw{}, {.stages = 3, .micro_batches = 4, .batches = 3});
  for (const stage_pair& failing : {stage_pair{0, 1}, stage_pair{1, 2}, stage_pair{2, 1}})
    for (const int at : {4, 9, 14}) {
      CAPTURE(failing.first, failing.second, at);
      const trained found = train<enqueued_stage>(plan, small_optimizer::sgd, failing, at);
      CHECK(found.lost == 3);
      for (std::uint32_t stage = 0; stage < 3; ++stage) {
        CAPTURE(stage, found.errors[stage]);
        CHECK(found.errors[stage].find("(the link from stage ") != std::string::npos);
        CHECK(found.errors[stage].find("(stage ") != std::string::npos);
        CHECK(found.errors[stage].find("\nstage " + std::to_string(stage) + " of 3 was at ") != std::string::npos);
      }
    }
}

namespace {

/// The last of two stages, which is sent one micro-batch, and then nothing.
struct waiting_stage {
  device& gpu;
  agent worker;
  int wrong_inputs = 0;  ///< of runs on the calling thread
  int updates = 0;

  void forward(const forward_run& run)
  {
    if (worker == agent::host && run.input[0] != static_cast<std::byte>(run.step.micro_batch + 1)) ++wrong_inputs;
  }
  void backward(const backward_run& run)
  {
    const auto work = [run]() noexcept { run.input_gradient[0] = std::byte{1}; };
    worker == agent::host ? work() : gpu.launch(worker, work);
  }
  void update(const operation&) { ++updates; }
};

}  // namespace

TEST_CASE("a stage over NCCL waits for a silent one by the deadline, and updates nothing", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  for (const agent worker : {agent::host, agent::compute}) {
    worlds links_of;
    for (const stage_pair& pair : pairs_of(plan)) links_of[pair] = std::make_shared<support::fake_nccl_world>(2);
    std::latch through{1};
    bool was_told = false;
    int wrong_inputs = -1;
    int updates = -1;
    thread_stages{plan}.run([&](thread_stages::place& hosts) {
      const support::fake_cuda cuda{support::fake_cuda_options{.seed = hosts.stage() + 1}};
      device gpu{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}, cuda};
      const std::span<std::byte> room{gpu.allocate(tier::device, 64_KiB), std::size_t{64} << 10};
      const auto api_of = [&](stage_pair pair) {
        return fake_nccl{links_of[pair], cuda, pair.first == hosts.stage() ? 0 : 1, {}};
      };
      nccl_stages<fake_nccl, thread_stages::place> here{hosts, {.deadline = 200'000'000}, api_of};
      auto links = here.links(gpu);
      if (hosts.stage() == 0) {
        room[0] = std::byte{1};
        const auto& out = *links.find({0, 1});
        out.ends->send(gpu, out.stream, room.data(), bytes{256}, rank_id{1}, 2);
        return through.wait();
      }
      const boundary_buffers buffers{plan, 1, {bytes{256}, bytes{256}}};
      waiting_stage stage{gpu, worker};
      stage_runner runner{plan, links, gpu, buffers, room, worker};
      try {
        runner.run(stage);
      } catch (const comm_error&) {
        was_told = true;
      } catch (...) {  // the silent one waits for this
      }
      wrong_inputs = stage.wrong_inputs;
      updates = stage.updates;
      through.count_down();
    });
    CAPTURE(static_cast<int>(worker));
    CHECK((was_told && wrong_inputs == 0 && updates == 0));
  }
}

}  // namespace nccl_stages_test
