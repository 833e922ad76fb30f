// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/planned_optimizer.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/pipeline/next_gradients.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/weight_versions.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/sharding/zero.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The model data of a rank without replicas.
template <stream_backend Backend>
using lone_model = manager<Backend, gradient::separate, placement::update_share>;

/// The model data of a rank whose stage has replicas.
template <stream_backend Backend, class Ranks>
using replicated_model = sharded_model<Backend, Ranks, gradient::separate, placement::update_share>;

/// The placement of states under a plan: all on the device, or all on the host.
///
///     manager<backend::host_arena, placement::update_share> m{memory, {}, update_place(plan)};
[[nodiscard]] constexpr placement::update_share update_place(const parallel_plan& plan) noexcept
{
  return {.device_share = plan.states_on_host ? 0.0 : 1.0};
}
/// The stage of ZeRO under a plan, as the options of a sharded_model have it.
///
///     const sharding::sharding_options options{.divided = divided_by(plan)};
[[nodiscard]] constexpr sharding::zero divided_by(const parallel_plan& plan) noexcept
{
  return {.gradients = plan.zero > 1, .parameters = plan.zero > 2};
}

/// A rank of a plan without its arithmetic: it declares the weights of its stage, leases the bytes of each run, reads
/// weights, writes gradients and takes steps of the optimizer, as the trainer of the plan does.
///
/// So it needs exactly the bytes of the trainer, and its rehearsal finds their number. Weights and gradients have 16
/// bits, masters and moments 32. It also runs with stage_runner, on real memory.
///
///     lone_model<backend::simulated> m{memory, {.chunk_bytes = work.chunk}, gradient::separate{}, update_place(plan)};
///     planned_rank rank{m, work, stage};
///     const memory_requirement need = m.rehearse([&] { rank.take_all(boundaries); });  // bytes of boundary_buffers
///
/// Before each step it polls the interruption of its work, and may throw pipeline::interrupted.
/// @tparam Model   lone_model or replicated_model   @threads   one caller
/// Cost: that of an access of the manager for each weight of a run
template <class Model>
class planned_rank {
 public:
  using operation = pipeline::operation;

  /// Both arguments outlive this. @param m   without declared tensors   @throws usage_error   it has some
  planned_rank(Model& m, const planned_work& work, std::uint32_t stage)
      : m_{m},
        work_{work},
        stage_{stage},
        optimizer_{work.trainer.states},
        versions_{m, work.schedule.versions, dtype::bfloat16}
  {
    if constexpr (!has_replicas)
      if (work.schedule.gradient_sets > 1) next_.emplace(m, dtype::bfloat16);
    for (std::uint32_t part = 0; part < work.schedule.part_count(); ++part) {
      if (work.schedule.owners[part] != stage) continue;
      std::vector<tensor<bf16>>& weights = parts_[part];       // none where a part has no weights
      for (const std::uint64_t elements : work.tensors[part])  // replicas sum parts one by one
        weights.push_back(m.template add<bf16>({elements}, role::parameter, group_id{has_replicas ? part : 0}));
    }
    m.use(optimizer_);
  }
  planned_rank(const planned_rank&) = delete;

  /// Runs its whole list of steps, without other stages: for a rehearsal. @param boundaries   of the stage
  void take_all(bytes boundaries)
  {
    const auto between = m_.lease(tier::device, std::max(boundaries, bytes{1}));
    begin();
    for (const operation& step : work_.schedule.stages[stage_]) take(step);
    end();
  }
  /// Writes the initial weights, in memory that the calling thread can write.
  void fill()
  {
    for (const auto& [part, weights] : parts_)
      for (const tensor<bf16>& it : weights) {
        const auto pin = m_.acquire(it, access::write);
        std::fill_n(pin.data(), pin.size(), bf16{});
      }
    versions_.start();
  }
  void begin()
  {
    batch_ = 0;
    begin_batch();
  }
  void end() { scope_.reset(); }

  // Called by stage_runner.

  template <class Run>
  void forward(const Run& run)
  {
    take(run.step);
  }
  template <class Run>
  void backward(const Run& run)
  {
    take(run.step);
  }
  template <class Run>
  void backward_input(const Run& run)
  {
    take(run.step);
  }
  void backward_weight(const operation& step) { take(step); }
  void update(const operation& step) { take(step); }

 private:
  static constexpr bool has_replicas = requires(Model& m) { m.shares(); };
  using lease_type = decltype(std::declval<Model&>().lease(tier::device, bytes{1}));
  using scope_type = decltype(std::declval<Model&>().iteration("batch", 1U));
  using leases = std::map<std::pair<std::uint32_t, std::uint32_t>, lease_type>;  // by part and micro-batch

  void take(const operation& step)
  {
    work_.stop.look();
    using enum pipeline::operation_kind;
    switch (step.kind) {
      case forward: run_forward(step); break;
      case backward: run_backward(step, true); break;
      case backward_input: run_backward(step, false); break;
      case pipeline::operation_kind::backward_weight: run_backward_weight(step); break;
      case pipeline::operation_kind::update: take_step(); break;
      default: break;  // boundaries are leased as a whole
    }
  }
  void run_forward(const operation& step)
  {
    during(pass::forward, step);
    const pipeline::part_memory& memory = work_.parts[step.part];
    if (step.part == 0) hold(inputs_, step, memory.input);
    hold(saved_, step, memory.saved);
    const auto working = lease(memory.forward_working);
    read_weights(step);
  }
  void run_backward(const operation& step, bool makes_gradients)
  {
    during(pass::backward, step);
    {
      const auto working = lease(work_.parts[step.part].backward_working);
      read_weights(step);
      if (makes_gradients) add_gradients(step);
    }
    release(inputs_, step);
    if (makes_gradients) release(saved_, step);
  }
  /// Bytes that the gradient of the input has read stay for this run.
  void run_backward_weight(const operation& step)
  {
    during(pass::backward, step);
    {
      const auto working = lease(work_.parts[step.part].backward_working);
      add_gradients(step);
    }
    release(saved_, step);
  }
  /// Takes the step of a batch at the last part's update: at the end of its iteration, or at the begin of the next one
  /// where that still reads the version before.
  void take_step()
  {
    if (++updated_ < parts_.size()) return;
    updated_ = 0;
    ++batch_;
    if (versions_.kept() == 1) {
      step();
      return begin_batch();
    }
    scope_.reset();
    versions_.flip();
    begin_batch();
    versions_.update([&] { return step(); });
    if constexpr (!has_replicas)
      if (next_) next_->template adopt<bf16>();
  }
  optimizer::step_outcome step()
  {
    if constexpr (has_replicas)
      return m_.step(optimizer_, {.skip_nonfinite = false});
    else
      return optimizer::step(m_, optimizer_, {.skip_nonfinite = false});
  }

  void begin_batch()
  {
    scope_.reset();
    if (batch_ < work_.schedule.batches)
      scope_.reset(new scope_type(m_.iteration(name_of_batch(), work_.schedule.micro_batches)));
    else if (versions_.kept() > 1)
      scope_.reset(new scope_type(m_.iteration("last update")));
  }
  /// Iterations of one name repeat their calls. Where updates come a batch later, the first batch begins without one,
  /// and no batch follows the last.
  [[nodiscard]] std::string_view name_of_batch() const noexcept
  {
    if (versions_.kept() == 1) return "batch";
    if (batch_ == 0) return "first batch";
    return batch_ + 1 == work_.schedule.batches ? "last batch" : "batch";
  }
  void during(pass which, const operation& step)
  {
    scope_->pass(which, step.micro_batch % work_.schedule.micro_batches);
  }
  [[nodiscard]] std::optional<lease_type> lease(bytes size)
  {
    if (size == bytes{}) return std::nullopt;
    return m_.lease(tier::device, size);
  }
  void hold(leases& where, const operation& step, bytes size)
  {
    if (size != bytes{}) where.emplace(std::pair{step.part, step.micro_batch}, m_.lease(tier::device, size));
  }
  static void release(leases& where, const operation& step) { where.erase({step.part, step.micro_batch}); }
  void read_weights(const operation& step)
  {
    for (const tensor<bf16>& it : parts_.at(step.part))
      if (versions_.kept() == 1)
        (void)m_.acquire(it, access::read);
      else
        (void)versions_.acquire(it, step.version);
  }
  void add_gradients(const operation& step)
  {
    const auto write = [this](std::span<bf16> sum, float beta) {
      if (beta == 0 && !m_.rehearsing()) std::ranges::fill(sum, bf16{});
    };
    const auto write_to = [&](const auto& pin) { write({pin.data(), pin.size()}, pin.beta()); };
    for (const tensor<bf16>& it : parts_.at(step.part)) {
      if constexpr (has_replicas) {
        auto pin = m_.template gradient<bf16>(it);
        write_to(pin);
        m_.gradient_done(std::move(pin));
      } else if (next_) {
        next_->template add<bf16>(it, work_.schedule.batch_of(step.micro_batch), write);
      } else {
        const auto pin = m_.template gradient<bf16>(it);
        write_to(pin);
      }
    }
  }

  Model& m_;
  const planned_work& work_;
  std::uint32_t stage_;
  optimizer::planned_optimizer optimizer_;
  pipeline::weight_versions<Model> versions_;
  std::optional<pipeline::next_gradients<Model>> next_;  // never with replicas
  std::map<std::uint32_t, std::vector<tensor<bf16>>> parts_;
  std::unique_ptr<scope_type> scope_;
  leases inputs_;
  leases saved_;
  std::uint32_t batch_ = 0;
  std::size_t updated_ = 0;  // parts, of this batch
};

}  // namespace configurator

}  // namespace chunkmem::inline v0
