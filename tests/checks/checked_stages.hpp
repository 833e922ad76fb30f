// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/stage_step.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

/// Stages of a pipeline under checks::full.
namespace checked_stages {

namespace cm = chunkmem;
namespace pl = cm::pipeline;
using namespace cm::literals;
using cm::access;
using ends_type = cm::collective::local_threads;
using arena = cm::backend::host_arena;

inline constexpr std::uint32_t width = 64;
inline constexpr float rate = 1.0F / 64;

/// The input of micro-batch k of all replicas.
inline float datum(std::uint32_t number)
{
  return static_cast<float>(number % 3 + 1);
}

/// Every part multiplies by a weight, which begins with 1, and the loss is the sum of the last outputs. The numbers
/// have few digits, so no sum is rounded. @return   the weight of each part after the last batch
inline std::vector<float> train_plainly(std::uint32_t parts, std::uint32_t micro_batches, std::uint32_t batches,
                                        std::uint32_t replicas)
{
  std::vector<float> weights(parts, 1);
  for (std::uint32_t batch = 0; batch < batches; ++batch) {
    std::vector<float> gradients(parts, 0);
    for (std::uint32_t replica = 0; replica < replicas; ++replica)
      for (std::uint32_t it = 0; it < micro_batches; ++it)
        for (std::uint32_t part = 0; part < parts; ++part) {
          float product = datum(batch * micro_batches + it + replica);
          for (std::uint32_t other = 0; other < parts; ++other) product *= other == part ? 1 : weights[other];
          gradients[part] += product;
        }
    for (std::uint32_t part = 0; part < parts; ++part) weights[part] -= rate * gradients[part];
  }
  return weights;
}

inline std::span<const float> floats(std::span<const std::byte> of)
{
  return {reinterpret_cast<const float*>(of.data()), of.size() / sizeof(float)};
}
inline std::span<float> floats(std::span<std::byte> of)
{
  return {reinterpret_cast<float*>(of.data()), of.size() / sizeof(float)};
}

/// @tparam Manager   a manager or a sharded_model, with checks
template <class Manager>
class checked_stage {
 public:
  /// @param worker   of the runs; host: the calling thread
  checked_stage(Manager& manager, arena& memory, const pl::schedule& plan, std::uint32_t stage, std::uint32_t replica,
                ends_type& stages, cm::agent worker)
      : m_{manager}, memory_{memory}, plan_{plan}, replica_{replica}, worker_{worker}, steps_{stages}
  {
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      parts_.push_back(plan.owners[part] == stage
                           ? m_.template add<float>({width}, cm::role::parameter, cm::group_id{part})
                           : cm::tensor<float>{});
    m_.use(sgd_);
  }
  void begin(std::uint32_t stage)
  {
    for (std::uint32_t part = 0; part < plan_.part_count(); ++part)
      if (plan_.owners[part] == stage)
        for (float& it : m_.acquire(parts_[part], access::write).span()) it = 1;
    begin_batch();
  }
  void forward(const pl::forward_run& run)
  {
    batch_->pass(cm::pass::forward, run.step.micro_batch % plan_.micro_batches);
    const auto weight = m_.acquire(parts_[run.step.part], access::read, worker_);
    work([this, run, weights = weight.data()]() noexcept {
      const float own = datum(run.step.micro_batch + replica_);
      for (std::size_t at = 0; at < run.output.size() / sizeof(float); ++at)
        floats(run.output)[at] = weights[at] * (run.input.empty() ? own : floats(run.input)[at]);
    });
  }
  void backward(const pl::backward_run& run)
  {
    batch_->pass(cm::pass::backward, run.step.micro_batch % plan_.micro_batches);
    const auto weight = m_.acquire(parts_[run.step.part], access::read, worker_);
    const auto gradient = m_.template gradient<float>(parts_[run.step.part], worker_);
    work([this, run, weights = weight.data(), sums = gradient.data(), beta = gradient.beta()]() noexcept {
      const float own = datum(run.step.micro_batch + replica_);
      for (std::size_t at = 0; at < width; ++at) {
        const float slope = run.output_gradient.empty() ? 1 : floats(run.output_gradient)[at];
        sums[at] = (beta == 0 ? 0 : sums[at]) + slope * (run.input.empty() ? own : floats(run.input)[at]);
        if (!run.input_gradient.empty()) floats(run.input_gradient)[at] = slope * weights[at];
      }
    });
  }
  void update(const pl::operation& step)
  {
    // All parts have their step with the last one.
    for (std::uint32_t part = step.part + 1; part < plan_.part_count(); ++part)
      if (plan_.owners[part] == plan_.owners[step.part]) return;
    batch_.reset();
    begin_batch();
    (void)steps_.take(m_, sgd_, {.learning_rate = rate}, cm::on_this_thread, [this](cm::tensor_handle it) {
      for (std::uint32_t part = 0; part < parts_.size(); ++part)
        if (parts_[part].id == it.id) return part;
      return UINT32_MAX;
    });
  }
  [[nodiscard]] float weight_of(std::uint32_t part) { return m_.acquire(parts_[part], access::read).span()[width - 1]; }

 private:
  using iteration = decltype(std::declval<Manager&>().iteration("batch"));
  void begin_batch() { batch_.reset(new iteration(m_.iteration("batch", plan_.micro_batches))); }
  template <class Work>
  void work(Work work)
  {
    worker_ == cm::agent::host ? work() : memory_.launch(worker_, work);
  }

  Manager& m_;
  arena& memory_;
  const pl::schedule& plan_;
  std::uint32_t replica_;
  cm::agent worker_;
  std::vector<cm::tensor<float>> parts_;
  cm::optimizer::sgd sgd_{{.momentum = 0}, {.masters = false}};
  pl::stage_step<ends_type> steps_;
  std::unique_ptr<iteration> batch_;
};

enum class runs : std::uint8_t { on_the_host, on_compute, on_an_adopted_agent };

/// Runs the stage of this place. Its links have agents of the manager's backend, its boundaries a lease of the
/// manager.
template <class Stage, class Manager>
void run_stage(Stage& stage, Manager& m, arena& memory, const pl::schedule& plan, pl::thread_stages::place& here,
               cm::agent worker)
{
  stage.begin(here.stage());
  const pl::boundary_buffers buffers{plan, here.stage(),
                                     std::vector<cm::bytes>(plan.part_count(), cm::bytes{width * sizeof(float)})};
  const auto boundaries = m.lease(cm::tier::device, buffers.size(), worker);
  auto links = here.links(memory);
  pl::stage_runner runner{plan,
                          links,
                          memory,
                          buffers,
                          std::as_writable_bytes(boundaries.template span<float>()),
                          worker,
                          cm::checks::full{}};
  runner.run(stage);
}

/// Trains the stage. @param found   gets the weight of each part of this stage
template <class Manager>
void train_stage(Manager& m, arena& memory, const pl::schedule& plan, pl::thread_stages::place& here,
                 std::uint32_t replica, runs where, std::vector<float>& found)
{
  const cm::agent worker = where == runs::on_the_host  ? cm::agent::host
                           : where == runs::on_compute ? cm::agent::compute
                                                       : memory.adopt();
  checked_stage<Manager> stage{m, memory, plan, here.stage(), replica, here.all(), worker};
  run_stage(stage, m, memory, plan, here, worker);
  for (std::uint32_t part = 0; part < plan.part_count(); ++part)
    if (plan.owners[part] == here.stage()) found[part] = stage.weight_of(part);
}

inline constexpr cm::collective::thread_group_options patience{.deadline = 20'000'000'000};  // where stages hang

inline std::vector<pl::schedule> schedules()
{
  const pl::pipeline_shape shape{.stages = 2, .micro_batches = 4, .batches = 2};
  return {make_schedule(pl::one_f_one_b{}, shape), make_schedule(pl::gpipe{}, shape),
          make_schedule(pl::interleaved{.parts = 2}, shape)};
}

}  // namespace checked_stages
