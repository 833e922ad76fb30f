// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memory_use.hpp"
#include "training_job.hpp"

#include <algorithm>
#include <concepts>
#include <cstdint>

namespace max_model {

/// The time when a chunk is copied to the device.
enum class copying : std::uint8_t {
  on_demand,  ///< when it is used
  ahead,      ///< before its use, victims as on demand: transfer::lookahead
  planned,    ///< as solved for the whole iteration: transfer::planned
};

/// How a strategy's chunks move and where they are updated, in the terms of the engine that simulates it.
///
/// Every strategy has the engine's kernels, links, updates, ring collectives and its order of work; the chunk with the
/// farthest next use is evicted. Strategies differ in these members: sizes, capacities, the place of updates, the start
/// of copies.
struct movement {
  std::uint64_t own_chunk = 0;     ///< elements; a gathered group has one from each rank
  bytes device;                    ///< for chunks, gathered chunks, and activations
  bytes host;                      ///< for chunks
  double device_update_share = 0;  ///< of the states
  copying copies = copying::on_demand;
  bool updates_late = false;   ///< updates may wait for the next use of their weights; else they end the step
  bool is_replicated = false;  ///< each rank holds and updates the whole model: nothing is gathered
  /// times that a step sends each weight or gradient around all ranks; 0: as the engine
  double rings = 0;
};

/// A strategy whose step can be simulated. `moves(job, use)`: for a job that fits, with the result of `memory`.
template <class Strategy>
concept simulated_strategy = requires(const Strategy& it, const training_job& job, const memory_use& use) {
  {
    it.moves(job, use)
  } -> std::same_as<movement>;
};

/// Above this number of groups a simulation would take long. Strategies that choose their chunks have no more.
inline constexpr std::uint64_t most_groups = 800;

/// Groups that the engine holds whole at once: the current, the previous and the next one.
inline constexpr std::uint64_t gathered_groups = 3;

/// A strategy with chunks of its own, in the capacities that its rules leave. Gathered chunks of the engine beyond the
/// strategy's own buffers are not charged to it: its device is larger by their bytes.
[[nodiscard]] inline movement moves_within(const training_job& job, const memory_use& use)
{
  const std::uint64_t ranks = job.rank().ranks;
  const auto left = [](const tier_use& tier, bytes beside) {
    const bytes taken = tier.of(taker::program) + tier.of(taker::set_aside) + beside;
    return taken < tier.capacity() ? tier.capacity() - taken : bytes{};
  };
  movement moves;
  moves.own_chunk = std::max<std::uint64_t>(256, use.chunk / ranks);
  moves.device = left(use.device, bytes{});
  moves.host = left(use.host, use.host.of(taker::buffers));
  const bytes gathered = bytes{value_bytes} * moves.own_chunk * (ranks - 1) * gathered_groups;
  if (gathered > use.device.of(taker::buffers)) moves.device += gathered - use.device.of(taker::buffers);
  const double near = static_cast<double>(use.device.of(taker::states).count());
  const double all = near + static_cast<double>(use.host.of(taker::states).count());
  moves.device_update_share = all > 0 ? near / all : 0;
  return moves;
}

}  // namespace max_model
