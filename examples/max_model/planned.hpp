// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "largest_model.hpp"
#include "peak_formula.hpp"
#include "simulation.hpp"

#include <chunkmem/transfer/update_split.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace max_model {

/// chunkmem with transfer::planned. The manager in virtual time decides whether a model fits, not a sum of bytes.
///
/// A group of chunks is a matrix of 4 h^2 elements, with fewer than four ranks a part of it: the waste is counted in
/// whole chunks. A group is larger where the machine has room for more than 800 of them. For the fastest step groups of
/// three times that size, a layer's elements, are tried too: fewer are gathered twice. The host updates the states that
/// it has room for, or fewer; the rest is updated on the device, where its states stay or are loaded. Several shares
/// are tried: the least, somewhat more, the states that fit the device, the share that would keep all resources of the
/// update busy, and everything. Updates at the end of the step and updates at the next use of their weights are both
/// tried for the fastest step; only the first kind decides whether a model fits.
struct planned {
  static constexpr std::string_view name = "planned";

  /// The place of bytes: as many on the device as fit. Only the simulation decides whether the job fits.
  [[nodiscard]] memory_use memory(const training_job& job) const
  {
    const std::uint64_t ranks = job.rank().ranks;
    memory_use use = begun(job);
    use.chunk = own_chunk(job) * ranks;
    use.device.take(taker::buffers, bytes{value_bytes} * own_chunk(job) * (ranks - 1) * gathered_groups);
    use.device.take(taker::activations, job.activations());
    use.spread(share_of(bytes{value_bytes} * job.parameters(), ranks),
               share_of(bytes{state_bytes} * job.parameters(), ranks));
    return use;
  }

  /// With the least share of updates on the device.
  [[nodiscard]] movement moves(const training_job& job, const memory_use&) const
  {
    return candidates(job, own_chunk(job)).front();
  }

  /// One iteration of the fastest candidate; that of the first candidate where none fits.
  [[nodiscard]] planner::training_forecast fastest(const training_job& job) const
  {
    if (!memory(job).fits()) {
      planner::training_forecast refused;
      refused.why_not = "its bytes are more than device and host have";
      return refused;
    }
    std::optional<planner::training_forecast> best;
    for (const std::uint64_t chunk : {own_chunk(job), 3 * own_chunk(job)}) {
      for (movement it : candidates(job, chunk)) {
        for (const bool late : {false, true}) {
          it.updates_late = late;
          planner::training_forecast found = simulate(job, it);
          if (!best || (found.fits && (!best->fits || found.step.nanoseconds < best->step.nanoseconds)))
            best = std::move(found);
        }
      }
    }
    return *best;
  }

  /// Whether the manager trains the model with any candidate.
  [[nodiscard]] bool runs(const training_job& job) const
  {
    if (!memory(job).fits()) return false;  // each byte has to be somewhere
    for (const movement& it : candidates(job, own_chunk(job)))
      if (simulate(job, it).fits) return true;
    return false;
  }

  /// The most layers that run, searched around those of the peak formula. `tries(layers)` is called before each trial.
  template <class Tries>
  [[nodiscard]] largest_model find_largest(const training_job& job, const Tries& tries) const
  {
    const auto fits = [&](std::uint64_t layers) {
      tries(layers);
      return runs(with_layers(job, layers));
    };
    const std::uint64_t formula = max_model::find_largest(peak_formula{}, job).layers();
    std::uint64_t good = 0;
    std::uint64_t bad = formula + formula / 20 + 2;
    for (std::uint64_t layers = formula, step = 1; layers >= 1; layers -= std::min(layers, step), step *= 2) {
      if (fits(layers)) {
        good = layers;
        break;
      }
      bad = layers;
    }
    while (bad - good > 1) {
      const std::uint64_t middle = good + (bad - good) / 2;
      (fits(middle) ? good : bad) = middle;
    }
    return {with_layers(job, good), memory(with_layers(job, std::max<std::uint64_t>(good, 1)))};
  }

 private:
  /// Added to the least share of updates: whole chunks and the times of their moves may need more or less.
  static constexpr double margins[] = {0.02, 0.15, 0.04, 0.3};

  [[nodiscard]] static std::uint64_t own_chunk(const training_job& job)
  {
    const std::uint64_t parts = std::max<std::uint64_t>(4, job.rank().ranks);
    const bytes room = begun(job).room();
    return std::max({std::uint64_t{256}, 4 * job.shape.hidden * job.shape.hidden / parts,
                     room.count() / model_bytes / most_groups});
  }

  [[nodiscard]] std::vector<movement> candidates(const training_job& job, std::uint64_t chunk) const
  {
    const workload::rank_share rank = job.rank();
    const memory_use use = begun(job);
    movement moves;
    moves.own_chunk = chunk;
    moves.device = use.device.room();
    moves.host = use.host.room();
    moves.copies = copying::planned;
    const double own = static_cast<double>(model_bytes * job.parameters()) / static_cast<double>(rank.ranks);
    const double least = 1 - static_cast<double>(moves.host.count()) / own;
    std::vector<double> shares;
    if (least <= 0) shares.push_back(0);
    for (const double margin : margins)
      if (least + margin > 0 && least + margin < 1) shares.push_back(least + margin);
    const double split =
        chunkmem::transfer::update_bound{{rank.rates.host_updates_per_second, rank.rates.device_updates_per_second,
                                          rank.rates.to_device_bytes_per_second, rank.rates.to_host_bytes_per_second,
                                          rank.rates.host_memory_bytes_per_second}}
            .best()
            .device_share;
    const tier_use device = memory(job).device;
    const double resident = static_cast<double>(device.of(taker::states).count()) / own * model_bytes / state_bytes;
    for (const double share : {resident, split})
      if (share > least && share > 0 && share < 1) shares.push_back(share);
    shares.push_back(1);
    std::vector<movement> found;
    for (const double share : shares) {
      found.push_back(moves);
      found.back().device_update_share = share;
    }
    return found;
  }
};

static_assert(strategy<planned> && simulated_strategy<planned>);

}  // namespace max_model
