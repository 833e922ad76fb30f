#pragma once

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
};

static_assert(strategy<plain>);

}  // namespace max_model
