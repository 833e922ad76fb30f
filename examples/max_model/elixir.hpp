// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chunk_searches.hpp"
#include "model_tensors.hpp"
#include "movement.hpp"
#include "strategy.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace max_model {

/// Elixir: a pool of blocks into which chunks are gathered, then whole chunks with their states on the device.
///
/// - Chunks are filled in order of construction and divided over all ranks; the shard of a rank is on the device with
///   its states, or on the host with them. A tied vocabulary has a block of its own for ever.
/// - The pool may take 0.95 of the device less 2 GiB and 1.25 times the activations, less the largest sum of a module's
///   tensors: the computation uses a copy of them.
/// - Its cost model, with the rates of its measurement, decides what comes first: with one rank blocks, with more ranks
///   states. Where states come first there are blocks for a layer that is recomputed, one more and two to overlap, at
///   least 6; chunks are then placed while room lasts. Where blocks come first, there are as many as chunks.
///
/// The size of a chunk is the best of 33 over its range for the given job. That favours Elixir: its own searches only
/// consider waste or moves.
/// Source: Huang et al. 2022 (arXiv 2212.05339) and its code.
struct elixir {
  static constexpr std::string_view name = "elixir";
  static constexpr double ratio = 0.95;
  static constexpr bytes driver{std::uint64_t{2} << 30};
  static constexpr std::uint64_t sizes = 33;

  /// The time that one more resident element saves in its cost model, as a block or with its states [ns].
  struct gains {
    double block = 0;
    double states = 0;

    explicit gains(std::uint64_t ranks)
    {
      const double n = static_cast<double>(ranks);
      const double to_device = 16.3 * n + 8.7;  // GB/s
      const double to_host = 15.8 * n + 2.3;
      const double device_updates = 50 * n;  // elements/ns
      const double host_updates = 1.66 * std::log(n) + 5.15;
      block = 2 / to_device + 2 / to_host;
      states = n / 7 * (4 / to_device + block + 2 / to_host + 1 / host_updates - 1 / device_updates);
    }
  };

  [[nodiscard]] memory_use memory(const training_job& job) const
  {
    const std::uint64_t tied = job.shape.ties_embedding ? job.shape.vocabulary * job.shape.embedding : 0;
    std::vector<std::uint64_t> tensors;
    std::vector<std::uint64_t> modules;
    const model_tensors all{job.shape, true};
    for (const declared_tensor& it : all.all()) {
      if (it.elements != tied) tensors.push_back(it.elements);
      modules.resize(it.module + 1, 0);
      modules[it.module] += it.elements;
    }
    const elixir_range range{*std::max_element(tensors.begin(), tensors.end())};
    const std::uint64_t copied = *std::max_element(modules.begin(), modules.end());
    memory_use best;
    for (std::uint64_t index = 0; index < sizes; ++index) {
      const std::uint64_t chunk = range.least + (range.most - range.least) / (sizes - 1) * index;
      appended_chunks chunks{chunk};
      for (const std::uint64_t elements : tensors) chunks.add(elements);
      const memory_use here = memory(job, {chunk, chunks.held() / chunk, tied, copied});
      const bool is_better =
          here.missing() < best.missing() || (here.missing() == best.missing() && here.room() > best.room());
      if (best.chunk == 0 || is_better) best = here;
    }
    return best;
  }

  /// Simulated with the engine: its chunks, its capacities less its reserves. The chunks that it keeps with their
  /// states are updated on the device; copies start ahead. Different here: weights are gathered in both passes, where
  /// enough blocks would keep them gathered between the two; the copy for the computation is left out.
  [[nodiscard]] movement moves(const training_job& job, const memory_use& use) const
  {
    movement moves = moves_within(job, use);
    moves.copies = copying::ahead;
    return moves;
  }

 private:
  struct chunked_model {
    std::uint64_t chunk;   ///< elements of a chunk
    std::uint64_t chunks;  ///< of the whole model
    std::uint64_t tied;    ///< elements that are in no chunk
    std::uint64_t copied;  ///< elements of the largest module
  };

  [[nodiscard]] static memory_use memory(const training_job& job, const chunked_model& model)
  {
    const workload::rank_share rank = job.rank();
    memory_use use;
    use.chunk = model.chunk;
    use.device = tier_use{rank.device_bytes};
    use.device.take(taker::program, driver);
    use.device.take(taker::activations, job.activations());
    use.device.take(taker::set_aside, part_of(job.activations(), 0.25));
    use.device.take(taker::set_aside, use.device.room() - part_of(use.device.room(), ratio));
    use.device.take(taker::buffers, bytes{value_bytes} * (model.copied + model.tied));
    use.host = begun(job).host;

    const bytes block = bytes{value_bytes} * model.chunk;
    std::uint64_t blocks = std::max<std::uint64_t>(4, (layer_of(job) + model.chunk - 1) / model.chunk + 1) + 2;
    const gains gained{rank.ranks};
    if (gained.block > gained.states) blocks = std::max(blocks, use.device.room().count() / block.count());
    use.device.take(taker::buffers, block * std::min(blocks, model.chunks));
    const bytes part = share_of(bytes{model_bytes} * model.chunk, rank.ranks);
    const std::uint64_t near = std::min(model.chunks, use.device.room().count() / part.count());
    take(use.device, near * model.chunk, rank.ranks);
    take(use.host, (model.chunks - near) * model.chunk + model.tied, rank.ranks);
    return use;
  }

  static void take(tier_use& tier, std::uint64_t elements, std::uint64_t ranks)
  {
    tier.take(taker::values, share_of(bytes{value_bytes} * elements, ranks));
    tier.take(taker::states, share_of(bytes{state_bytes} * elements, ranks));
  }

  /// Elements of a layer.
  [[nodiscard]] static std::uint64_t layer_of(const training_job& job)
  {
    workload::transformer_shape shape = job.shape;
    shape.layers = 1;
    const std::uint64_t one = workload::parameters_of(shape);
    shape.layers = 2;
    return workload::parameters_of(shape) - one;
  }
};

static_assert(strategy<elixir> && simulated_strategy<elixir>);

}  // namespace max_model
