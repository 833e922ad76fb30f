// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gemini.hpp"
#include "movement.hpp"

#include <algorithm>

namespace max_model {

/// Gemini with its static placement: a fixed part of states, and then of weights, on the host.
///
/// The two parts are options of its user (offload_optim_frac, offload_param_frac; the second only where the first is
/// one), here with the best values. A gradient goes where its states are: at the update the host holds 14 B for each
/// parameter whose states it has, although the weight may be on the device until then.
/// Source: as gemini_chunks.
struct gemini_static {
  static constexpr std::string_view name = "gemini_static";

  [[nodiscard]] memory_use memory(const training_job& job) const
  {
    const gemini_chunks chunks{job};
    memory_use use = begun(job);
    use.chunk = chunks.chunk();
    use.device.take(taker::buffers, chunks.gathered());
    use.device.take(taker::activations, job.activations());
    const bytes room = use.device.room();
    const bytes near_values = std::min(chunks.values(), room);
    const bytes near_states = std::min(chunks.states(), room - near_values);
    use.device.take(taker::values, near_values);
    use.device.take(taker::states, near_states);
    use.host.take(taker::states, chunks.states() - near_states);
    // Chunks whose states are on the host: the weight, or the gradient that takes its place.
    const bytes states_away = chunks.states() - near_states;
    use.host.take(taker::values, bytes{states_away.count() / state_bytes * value_bytes});
    return use;
  }

  /// Simulated with the engine: its chunks, capacities and the part of states that is updated on the device; a chunk is
  /// loaded when it is used (max_prefetch 0). Different here: a chunk stays on the device between uses while there is
  /// room, where Gemini would evict a fixed part.
  [[nodiscard]] movement moves(const training_job& job, const memory_use& use) const { return moves_within(job, use); }
};

static_assert(strategy<gemini_static> && simulated_strategy<gemini_static>);

}  // namespace max_model
