// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "movement.hpp"
#include "strategy.hpp"

namespace max_model {

/// A static partition: all 16-bit weights on each device, gradients and states on the host, divided by ranks.
///
/// Gradients leave in buckets as they are computed; each rank keeps and updates its shard of them on the host.
/// Source: ZeRO-Offload (Ren et al. 2021, arXiv 2101.06840), the placement of least traffic with 2 B for each parameter
/// on the device. The bucket is DeepSpeed's default (reduce_bucket_size, 5e8 elements). DeepSpeed itself takes more
/// than the paper: single-precision gradients, and its own estimate of the host is 1.5 times 16 B, for four or more
/// ranks of a node 1.5 times 4 B a rank, since each of them builds the model.
struct zero_offload {
  static constexpr std::string_view name = "zero_offload";
  static constexpr std::uint64_t bucket = 500'000'000;  ///< elements

  [[nodiscard]] memory_use memory(const training_job& job) const
  {
    const std::uint64_t ranks = job.rank().ranks;
    memory_use use = begun(job);
    use.device.take(taker::values, bytes{value_bytes} * job.parameters());
    use.device.take(taker::buffers, bytes{value_bytes} * std::min(bucket, job.parameters()));
    use.device.take(taker::activations, job.activations());
    use.host.take(taker::gradients, share_of(bytes{value_bytes} * job.parameters(), ranks));
    use.host.take(taker::states, share_of(bytes{state_bytes} * job.parameters(), ranks));
    return use;
  }

  /// Simulated with the engine: gradients leave as they are computed, the host updates all, and values come back before
  /// they are used. Different here: the engine gathers weights in both passes, where this strategy has them on each
  /// device and gathers once after the update, so its rings are faster by that factor; and each value comes back when
  /// it was updated, not when all were. The update that is delayed by a step is not simulated, since it changes the
  /// arithmetic.
  [[nodiscard]] movement moves(const training_job& job, const memory_use& use) const
  {
    const std::uint64_t ranks = job.rank().ranks;
    movement moves;
    moves.own_chunk = std::max<std::uint64_t>(256, std::min(bucket, job.parameters()) / ranks);
    moves.device = use.device.capacity() - use.device.of(taker::program);
    moves.host = use.host.capacity() - use.host.of(taker::program) - use.host.of(taker::set_aside);
    moves.copies = copying::ahead;
    moves.rings = 2;
    return moves;
  }
};

static_assert(strategy<zero_offload> && simulated_strategy<zero_offload>);

}  // namespace max_model
