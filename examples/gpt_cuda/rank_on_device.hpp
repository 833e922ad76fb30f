// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "batch_activations.hpp"
#include "either_gradient.hpp"
#include "policies.hpp"
#include "rank_session.hpp"
#include "trainer.hpp"
#include "training_on_device.hpp"
#include "warm_up.hpp"

#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/sharding/zero.hpp>

#include <cstdint>

namespace gpt::cuda {

/// How ranks divide a model on devices: gradients of several micro-batches are added over ranks once for a step, since
/// no kernel here adds to a summed gradient.
/// @throws problem   the stage requires another way; or a planner would see the device of one rank alone
[[nodiscard]] inline rank_plan plan_on_device(const options& chosen, std::uint32_t ranks)
{
  if (is_planned(chosen.activations))
    throw problem{"--activations karma or planned is for one rank (choose swap, keep or recompute)"};
  rank_plan plan = rank_plan::of(chosen, ranks);
  if (chosen.size.micro_batches == 1 || !plan.divided.gradients) return plan;
  if (!plan.divided.parameters)
    throw problem{
        "--shard 2 cannot be combined with --accumulate on a GPU, where gradients are added over ranks once for a step "
        "(choose --shard 1 or 3)"};
  plan.divided = chunkmem::sharding::zero_3_reduce_last;
  return plan;
}

/// A rank of a training on GPUs, for the session that it shares with ranks on the CPU.
///
/// @tparam Gpu    of this rank: `backend_type`, `make(device, host)`, `host_limit()`; `largest_message` of the warm-up
///   of groups, and the bytes `left_to_libraries` after the warm-up
/// @tparam Math   see network
template <class Gpu, class Communicator, class Math>
class rank_on_device {
 public:
  using communicator_type = Communicator;
  using ranks_type = chunkmem::sharding::process_groups<Communicator>;
  using backend_type = typename Gpu::backend_type;
  using manager_type = chunkmem::sharded_model<backend_type, ranks_type, chunkmem::ownership::hierarchical,
                                               any_eviction, any_layout, any_transfer, either_gradient>;
  using model_type = batch_model;
  using trainer_type = batch_trainer<manager_type, Math>;

  /// @param gpu, process groups   outlive this
  rank_on_device(const Gpu& gpu, ranks_type& process_groups) noexcept : gpu_{&gpu}, process_groups_{&process_groups} {}

  static constexpr bool foresees = false;
  [[nodiscard]] ranks_type& process_groups() const noexcept { return *process_groups_; }
  [[nodiscard]] backend_type memory(chunkmem::bytes device, chunkmem::bytes host) const
  {
    return gpu_->make(device, host);
  }
  [[nodiscard]] manager_type manager(backend_type& memory, const training_setup& setup, const rank_plan& plan) const
  {
    const options& chosen = setup.chosen;
    return manager_type{
        memory,        *process_groups_, {.chunk_bytes = setup.chunk},    {.divided = plan.divided}, chosen.eviction,
        chosen.layout, chosen.transfer,  either_gradient{chosen.gradient}};
  }
  [[nodiscard]] static model_type declare(manager_type& manager, const extents& size, chunkmem::dtype precision)
  {
    return declare_batch_model(manager, size, precision);
  }
  [[nodiscard]] static chunkmem::activation::activation_plan plan(activation_mode choice, const options& chosen,
                                                                  chunkmem::bytes device)
  {
    return plan_batch(choice, chosen, device);
  }
  [[nodiscard]] static std::uint64_t largest_tensor_bytes(const extents& size) { return largest_batch_tensor(size); }
  /// Device memory for a rank, measured when products and groups are warm. All ranks make this call together.
  [[nodiscard]] memory_limits limits(const options&) const
  {
    backend_type memory = gpu_->make(4 * Gpu::largest_message + chunkmem::bytes{Math::workspace_bytes}, {});
    Math math;  // keeps its memory until the free memory is measured
    warm_products(memory, math);
    warm_groups(memory, *process_groups_, Gpu::largest_message);
    memory.resize_to_free(Gpu::left_to_libraries);
    return {.host = gpu_->host_limit(), .device = memory.capacity(chunkmem::tier::device)};
  }

 private:
  const Gpu* gpu_;
  ranks_type* process_groups_;
};

}  // namespace gpt::cuda
