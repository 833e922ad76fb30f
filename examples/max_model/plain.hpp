// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "movement.hpp"
#include "strategy.hpp"

namespace max_model {

/// Everything on the device, a whole copy on each rank: data-parallel training without any sharding.
///
/// Source: 16 B for each parameter with mixed precision and Adam (Rajbhandari et al. 2020, arXiv 1910.02054).
struct plain {
  static constexpr std::string_view name = "plain";

  [[nodiscard]] memory_use memory(const training_job& job) const
  {
    memory_use use = begun(job);
    use.device.take(taker::values, bytes{value_bytes} * job.parameters());
    use.device.take(taker::gradients, bytes{value_bytes} * job.parameters());
    use.device.take(taker::states, bytes{state_bytes} * job.parameters());
    use.device.take(taker::activations, job.activations());
    return use;
  }

  /// Simulated with the engine: everything stays on the device and is updated there. Different here: gradients take the
  /// place of weights, and the backward pass is assumed to hide their sums over ranks.
  [[nodiscard]] movement moves(const training_job& job, const memory_use& use) const
  {
    movement moves;
    moves.own_chunk =
        std::max({std::uint64_t{256}, job.shape.hidden * job.shape.hidden, job.parameters() / most_groups});
    moves.device = use.device.capacity() - use.device.of(taker::program);
    moves.host = bytes{2 * model_bytes} * job.parameters();  // it starts there, whatever the machine has
    moves.device_update_share = 1;
    moves.is_replicated = true;
    return moves;
  }
};

static_assert(strategy<plain> && simulated_strategy<plain>);

}  // namespace max_model
