// SPDX-License-Identifier: Apache-2.0
// 2BW with updates on the CPU, in the slack, and states on the host: what does it gain over a flush, GPipe, and stages
// that take turns?
//
// Stages are threads, each with a manager whose device has room for three chunks of seven. Runs are enqueued on an
// agent and sleep, like kernels of a GPU. Updates clip by the norm of all stages, run on the calling thread, and sleep
// for the time of two pairs of runs. Links are throttled.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/next_gradients.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_links.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/stage_step.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>
#include <chunkmem/pipeline/weight_versions.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <support/throttled_end.hpp>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace chunkmem;
using namespace chunkmem::pipeline;
using chunkmem::pipeline::schedule;  // not that of a manager
using clock_type = std::chrono::steady_clock;

constexpr bytes boundary{4'096};
constexpr std::uint32_t elements = 4'096;
constexpr bytes chunk{std::uint64_t{elements} * 4};
constexpr double run_seconds = 0.01;  // of F, of B and of W
constexpr double link_seconds = 0.001;

void sleep(double seconds)
{
  std::this_thread::sleep_for(std::chrono::duration<double>{seconds});
}

/// The one weight of a stage has the stage's number.
struct numbered_by_stage {
  std::uint32_t stage = 0;
  std::uint32_t operator()(tensor_handle) const noexcept { return stage; }
};

/// Runs sleep on the agent compute. Each update is due on the calling thread.
class offloading_stage {
 public:
  offloading_stage(const schedule& plan, thread_stages::place& here, backend::host_arena& memory, double update_seconds,
                   std::uint32_t updates_every)
      : plan_{plan},
        number_of_{here.stage()},
        update_seconds_{update_seconds},
        updates_every_{updates_every},
        memory_{memory},
        m_{memory, {.chunk_bytes = chunk}, gradient::separate{.wide = true}},
        versions_{m_, plan.versions, dtype::bfloat16},
        steps_{here.all()}
  {
    if (plan.gradient_sets > 1) next_.emplace(m_);
    weight_ = m_.add<bf16>({elements}, role::parameter);
    m_.use(adam_);
    for (bf16& it : m_.acquire(weight_, access::write).span()) it = bf16{0.5F};
    versions_.start();
    begin_batch();
  }
  offloading_stage(const offloading_stage&) = delete;

  [[nodiscard]] auto boundaries(bytes size) { return m_.lease(tier::device, size); }
  [[nodiscard]] std::uint64_t evictions() const { return m_.report().evictions; }

  void forward(const forward_run& run)
  {
    const auto weights = versions_.acquire(weight_, run.step.version / updates_every_, agent::compute);
    memory_.launch(agent::compute, []() noexcept { sleep(run_seconds); });
  }
  void backward(const backward_run& run)
  {
    if (std::exchange(is_complete_, false) && next_) steps_.begin(m_, adam_, options(), number_of_);
    {
      const auto weights = versions_.acquire(weight_, run.step.version / updates_every_, agent::compute);
      memory_.launch(agent::compute, []() noexcept { sleep(2 * run_seconds); });
    }
    const auto write = [&](std::span<float> sum, float beta) {
      memory_.launch(agent::compute, [sum, beta]() noexcept {
        for (float& it : sum) it = (beta == 0 ? 0 : it) + 1e-3F;
      });
    };
    const std::uint32_t batch = plan_.batch_of(run.step.micro_batch);
    if (next_)
      next_->add<float>(weight_, batch, write, agent::compute);
    else
      add(write);
    is_complete_ = (run.step.micro_batch + 1) % plan_.micro_batches == 0;
  }
  void update(const operation& step)
  {
    if (step.version % updates_every_ != 0) return;
    is_complete_ = false;
    scope_.reset();
    versions_.flip();
    begin_batch();
    versions_.update([&] {
      const auto done = steps_.take(m_, adam_, options(), on_this_thread, number_of_);
      sleep(update_seconds_);
      return done;
    });
    if (next_) next_->adopt<float>(agent::compute);
  }

 private:
  using manager_type = chunkmem::manager<backend::host_arena>;
  using iteration_type = chunkmem::iteration<manager_type::engine_type>;

  [[nodiscard]] static optimizer::step_options options() { return {.learning_rate = 0.01F, .clip = {.norm = 1}}; }
  template <class Write>
  void add(Write write)
  {
    const auto pin = m_.gradient<float>(weight_, agent::compute);
    write(pin.span(), pin.beta());
  }
  void begin_batch() { scope_.reset(new iteration_type(m_.iteration("batch"))); }

  const schedule& plan_;
  numbered_by_stage number_of_;
  double update_seconds_;
  std::uint32_t updates_every_;
  backend::host_arena& memory_;
  manager_type m_;
  weight_versions<manager_type> versions_;
  stage_step<collective::local_threads> steps_;
  std::optional<next_gradients<manager_type>> next_;
  tensor<bf16> weight_{};
  optimizer::adam adam_{{}, {.masters = true}};
  std::unique_ptr<iteration_type> scope_;
  bool is_complete_ = false;  // gradients of a batch on which the stages have not begun to agree
};

pipeline_costs costs_of(const schedule& plan, double update_seconds)
{
  pipeline_costs costs = uniform_costs(plan, {.forward = run_seconds,
                                              .backward_input = run_seconds,
                                              .backward_weight = run_seconds,
                                              .update = update_seconds});
  for (std::uint32_t index = 0; index < costs.links.size(); ++index)
    costs.links[index] = {
        .latency = 0, .bytes_per_second = static_cast<double>(boundary.count()) / link_seconds, .channel = index};
  for (part_costs& part : costs.parts) part.output = boundary;
  costs.updates_aside = true;
  return costs;
}

struct executed {
  double seconds = 0;
  std::uint64_t evictions = 0;  ///< of the stage with the fewest
};

/// Time from the common begin of all stages to the end of the last one.
/// @param updates_every   only every so many versions take the time of an update
executed execute(const schedule& plan, double update_seconds, std::uint32_t updates_every = 1)
{
  using end_type = support::throttled_end<collective::local_threads>;
  std::barrier all(plan.stage_count());
  std::vector<double> seconds(plan.stage_count(), 0);
  std::vector<std::uint64_t> evictions(plan.stage_count(), 0);
  const std::vector<bytes> inputs(plan.part_count(), boundary);
  thread_stages{plan}.run([&](thread_stages::place& here) {
    const boundary_buffers buffers{plan, here.stage(), inputs};
    const bytes room = chunk * ((buffers.size().count() + chunk.count() - 1) / chunk.count());
    backend::host_arena memory{
        {.device_capacity = room + chunk * 3, .host_capacity = chunk * 64, .async_compute = true}};
    const auto real = here.links(memory);
    std::deque<end_type> ends;
    stage_links<end_type> links{here.stage()};
    for (const auto& it : real.all()) {
      ends.emplace_back(*it.ends, link_seconds);
      links.add(it.pair, ends.back(), it.stream);
    }
    offloading_stage stage{plan, here, memory, update_seconds, updates_every};
    const auto lease = stage.boundaries(buffers.size());
    stage_runner runner{plan, links, memory, buffers, std::as_writable_bytes(lease.span<float>()), agent::compute};
    all.arrive_and_wait();
    const auto begin = clock_type::now();
    runner.run(stage);
    seconds[here.stage()] = std::chrono::duration<double>{clock_type::now() - begin}.count();
    evictions[here.stage()] = stage.evictions();
  });
  return {*std::ranges::max_element(seconds), *std::ranges::min_element(evictions)};
}

}  // namespace

int main()
{
  constexpr std::uint32_t batches = 10;
  constexpr double update_seconds = 2 * 3 * run_seconds;
  double simulated_worst = 1;
  double formula_worst = 1;
  std::uint64_t evictions = UINT64_MAX;
  for (const auto& [d, m] : {std::pair{2U, 6U}, {4U, 8U}}) {
    const pipeline_shape shape{.stages = d, .micro_batches = m, .batches = batches};
    const auto endless = make_schedule(pipedream_2bw{.update_delay = 2, .for_all_stages = true}, shape);
    const executed found = execute(endless, update_seconds);
    const double simulated = pipeline_timeline{endless, costs_of(endless, update_seconds)}.run().seconds;
    const executed flushed = execute(make_schedule(one_f_one_b{}, shape), 0);
    const executed flushed_updates = execute(make_schedule(one_f_one_b{}, shape), update_seconds);
    const executed all_forward = execute(make_schedule(gpipe{}, shape), update_seconds);
    const pipeline_shape turns{.stages = d, .micro_batches = 1, .batches = batches * m};
    const executed in_turn = execute(make_schedule(one_f_one_b{}, turns), update_seconds, m);
    const double formula = batches * (m + d - 1.0) / (batches * m + d - 1.0);
    const double gain = flushed.seconds / found.seconds;
    std::printf(
        "%u stages, %u micro-batches, updates of %.0f ms: 2BW %.3f s (simulated %.3f s). 1F1B without the time of its "
        "updates %.3f times as long (formula %.3f), with it %.3f, GPipe %.3f, stages in turn %.3f. Evictions: %llu\n",
        d, m, update_seconds * 1e3, found.seconds, simulated, gain, formula, flushed_updates.seconds / found.seconds,
        all_forward.seconds / found.seconds, in_turn.seconds / found.seconds,
        static_cast<unsigned long long>(found.evictions));
    if (std::abs(simulated / found.seconds - 1) > std::abs(simulated_worst - 1))
      simulated_worst = simulated / found.seconds;
    if (std::abs(gain / formula - 1) > std::abs(formula_worst - 1)) formula_worst = gain / formula;
    evictions = std::min(evictions, found.evictions);
  }
  return transfer_bench::write_figures(
      "offloaded_updates_bench",
      {{"pipeline.offloaded_2bw_simulated_over_executed_worst", simulated_worst, "ratio", ">=", 0.9},
       {"pipeline.offloaded_2bw_gain_over_formula_worst", formula_worst, "ratio", ">=", 0.9},
       {"pipeline.offloaded_2bw_evictions_least", static_cast<double>(evictions), "chunks", ">=", 1}});
}
