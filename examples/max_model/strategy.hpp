// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memory_use.hpp"
#include "training_job.hpp"

#include <concepts>
#include <string_view>

namespace max_model {

/// A way to find room for a training.
///
/// `memory` counts the bytes of each tier at its peak, whether or not the tier has them. Laws: one layer less never
/// takes more where the chunk stays the same; equal jobs give equal answers; no bytes are counted twice on one tier.
template <class Strategy>
concept strategy = requires(const Strategy& it, const training_job& job) {
  {
    Strategy::name
  } -> std::convertible_to<std::string_view>;
  {
    it.memory(job)
  } -> std::same_as<memory_use>;
};

/// A rank's device and host before a strategy begins, with context, process and the host's reserve subtracted.
[[nodiscard]] inline memory_use begun(const training_job& job)
{
  const workload::rank_share rank = job.rank();
  memory_use use;
  use.device = tier_use{rank.device_bytes};
  use.device.take(taker::program, job.beside.context);
  use.host = tier_use{rank.host_bytes};
  use.host.take(taker::program, job.beside.process);
  use.host.take(taker::set_aside, part_of(rank.host_bytes, job.beside.host_reserve));
  return use;
}

}  // namespace max_model
