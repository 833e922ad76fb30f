// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/stage_links.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>
#include <support/throttled_end.hpp>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <span>
#include <thread>
#include <vector>

namespace sleeping_ranks {

using namespace chunkmem;
using namespace chunkmem::configurator;
using clock_type = std::chrono::steady_clock;

inline constexpr bytes boundary{256};  // bytes that threads really send

inline void sleep(double seconds)
{
  std::this_thread::sleep_for(std::chrono::duration<double>{seconds});
}

/// Sleeps for the time of its costs. Replicas meet before an update, and before the first run of a batch that gathers.
class sleeping_rank {
 public:
  sleeping_rank(const pipeline::schedule& schedule, const pipeline::pipeline_costs& costs, std::barrier<>& updating,
                std::barrier<>& gathering)
      : schedule_{schedule}, costs_{costs}, updating_{updating}, gathering_{gathering}
  {
  }

  void forward(const pipeline::forward_run& run)
  {
    await(run.step.version);
    const pipeline::part_costs& it = costs_.parts[run.step.part];
    if (it.gather > 0 && run.step.micro_batch % schedule_.micro_batches == 0) {
      gathering_.arrive_and_wait();
      sleep(it.gather);
    }
    sleep(it.forward);
  }
  void backward(const pipeline::backward_run& run)
  {
    const std::uint32_t batch = schedule_.batch_of(run.step.micro_batch);  // its gradients need a free set
    if (batch >= schedule_.gradient_sets) await(batch - schedule_.gradient_sets + 1);
    const pipeline::part_costs& it = costs_.parts[run.step.part];
    sleep(it.backward_input + it.backward_weight);
  }
  void backward_input(const pipeline::backward_run& run) { sleep(costs_.parts[run.step.part].backward_input); }
  void backward_weight(const pipeline::operation& step) { sleep(costs_.parts[step.part].backward_weight); }
  void update(const pipeline::operation& step)
  {
    const auto work = [this, part = step.part] {
      updating_.arrive_and_wait();
      sleep(costs_.parts[part].update);
    };
    if (!costs_.updates_aside) return work();
    if (last_.valid()) last_.wait();
    last_ = updates_[step.version] = std::async(std::launch::async, work).share();
  }

 private:
  /// Waits until the update that makes this version is complete.
  void await(std::uint32_t version)
  {
    if (const auto it = updates_.find(version); it != updates_.end()) it->second.wait();
  }

  const pipeline::schedule& schedule_;
  const pipeline::pipeline_costs& costs_;
  std::barrier<>& updating_;
  std::barrier<>& gathering_;
  std::map<std::uint32_t, std::shared_future<void>> updates_;  // by the version that they make
  std::shared_future<void> last_;
};

/// @return   time from the common begin of all ranks to the end of the last one [s]
[[nodiscard]] inline double execute(const parallel_plan& plan, const pipeline::schedule& schedule,
                                    const step_latency& latency)
{
  using end_type = support::throttled_end<collective::local_threads>;
  std::deque<pipeline::thread_stages> pipelines;
  std::deque<std::barrier<>> updating, gathering;  // by stage
  for (std::uint32_t it = 0; it < plan.replicas; ++it) pipelines.emplace_back(schedule);
  for (std::uint32_t it = 0; it < plan.stages; ++it) {
    updating.emplace_back(plan.replicas);
    gathering.emplace_back(plan.replicas);
  }
  const std::uint32_t ranks = plan.replicas * plan.stages;
  std::barrier<> all(ranks);
  std::vector<double> seconds(ranks, 0);
  const std::vector<bytes> inputs(schedule.part_count(), boundary);
  collective::run_threads(ranks, [&](std::uint32_t rank) {
    const std::uint32_t replica = rank / plan.stages;
    const pipeline::pipeline_costs costs = latency.costs(plan, replica);
    pipeline::thread_stages::place here{pipelines[replica], rank % plan.stages};
    const pipeline::boundary_buffers buffers{schedule, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = buffers.size() + boundary}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, buffers.size() + boundary),
                                          buffers.size().count()};
    const auto real = here.links(memory);
    std::deque<end_type> ends;
    pipeline::stage_links<end_type> links{here.stage()};
    for (const auto& it : real.all()) {
      const pipeline::stage_link& link = costs.link(it.pair.first, it.pair.second);
      const double size = static_cast<double>(costs.parts.front().output.count());
      ends.emplace_back(*it.ends, link.latency + size / link.bytes_per_second);
      links.add(it.pair, ends.back(), it.stream);
    }
    sleeping_rank stage{schedule, costs, updating[here.stage()], gathering[here.stage()]};
    pipeline::stage_runner runner{schedule, links, memory, buffers, boundaries};
    all.arrive_and_wait();
    const auto begin = clock_type::now();
    runner.run(stage);
    seconds[rank] = std::chrono::duration<double>{clock_type::now() - begin}.count();
  });
  return *std::ranges::max_element(seconds);
}

/// Seconds from batch to batch, as defined by step_latency.
[[nodiscard]] inline double execute(const parallel_plan& plan, const step_latency& latency)
{
  const auto of = [&](std::uint32_t batches) {
    return execute(plan, schedule_of(plan, latency.typical_seconds(plan), batches), latency);
  };
  return plan.schedule == schedule_kind::two_versions ? (of(6) - of(2)) / 4 : of(1);
}

}  // namespace sleeping_ranks
