// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gemini.hpp"
#include "movement.hpp"

#include <algorithm>

namespace max_model {

/// Gemini with its automatic placement: weights on the device while nine tenths of it allow, states on the host.
///
/// - In the first iteration weights have a fifth of the device; later 0.9 of it less activations. The rest is evicted,
///   or the iteration refuses to run.
/// - States go to the device once, after the first iteration: masters in a quarter of the bytes that were never used
///   then (gpu_margin_mem_ratio, here its maximum, 1; its default 0 leaves all on the host); their moments follow.
/// - A gradient goes where its states are, as in gemini_static.
/// Source: as gemini_chunks.
struct gemini_auto {
  static constexpr std::string_view name = "gemini_auto";
  static constexpr double steady_ratio = 0.9;
  static constexpr double warm_up_ratio = 0.2;

  [[nodiscard]] memory_use memory(const training_job& job) const
  {
    const gemini_chunks chunks{job};
    memory_use use = begun(job);
    const bytes capacity = use.device.capacity();
    use.chunk = chunks.chunk();
    const bytes beside = capacity - part_of(capacity, steady_ratio);
    if (beside > job.beside.context) use.device.take(taker::set_aside, beside - job.beside.context);
    use.device.take(taker::buffers, chunks.gathered());
    use.device.take(taker::activations, job.activations());
    const bytes first_values = part_of(capacity, warm_up_ratio);
    if (first_values < chunks.gathered()) use.refusal = "the first iteration has no room";

    const bytes most = chunks.gathered() + job.activations() + std::min(chunks.values(), first_values);
    const bytes never_used = most < capacity ? capacity - most : bytes{};
    const bytes masters{never_used.count() / 4};
    const bytes near_states = std::min({chunks.states(), masters * 3, use.device.room()});
    use.device.take(taker::states, near_states);
    const bytes states_away = chunks.states() - near_states;
    use.host.take(taker::states, states_away);
    // Chunks whose states are on the device stay there; gradients of all others come to the host.
    const bytes values_away{states_away.count() / state_bytes * value_bytes};
    use.device.take(taker::values, std::min(chunks.values(), use.device.room()));
    use.host.take(taker::values, std::max(values_away, chunks.values() - use.device.of(taker::values)));
    return use;
  }

  /// Simulated with the engine: its chunks, nine tenths of the device as limit of its chunk cache, the states that it
  /// puts on the device; the chunk with the farthest next use is evicted, and a chunk is loaded when it is used
  /// (max_prefetch 0). Different here: gradients whose states are on the host leave as soon as room is needed.
  [[nodiscard]] movement moves(const training_job& job, const memory_use& use) const { return moves_within(job, use); }
};

static_assert(strategy<gemini_auto> && simulated_strategy<gemini_auto>);

}  // namespace max_model
