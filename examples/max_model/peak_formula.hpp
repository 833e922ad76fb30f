// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "strategy.hpp"

namespace max_model {

/// The largest model of a manager that keeps each byte of model data once, wherever there is room.
///
/// Only the peak of leases counts: 14 B for each parameter have to fit device and host, less context, process, reserve,
/// three gather units and activations. A gather unit is the matrix of 4 h^2 elements that a layer has: one is in use,
/// one arrives, one leaves. Only a strategy that gathers less at once can hold more model data.
struct peak_formula {
  static constexpr std::string_view name = "peak_formula";
  static constexpr std::uint64_t gather_units = 3;

  [[nodiscard]] memory_use memory(const training_job& job) const
  {
    const std::uint64_t ranks = job.rank().ranks;
    memory_use use = begun(job);
    use.chunk = 4 * job.shape.hidden * job.shape.hidden;
    use.device.take(taker::buffers, bytes{value_bytes} * use.chunk * gather_units);
    use.device.take(taker::activations, job.activations());
    use.spread(share_of(bytes{value_bytes} * job.parameters(), ranks),
               share_of(bytes{state_bytes} * job.parameters(), ranks));
    return use;
  }
};

static_assert(strategy<peak_formula>);

}  // namespace max_model
