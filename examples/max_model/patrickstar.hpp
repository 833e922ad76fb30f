// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chunk_searches.hpp"
#include "model_tensors.hpp"
#include "movement.hpp"
#include "strategy.hpp"

#include <vector>

namespace max_model {

/// PatrickStar by its own rules (Fang et al. 2022, arXiv 2108.05818, and its release 0.4).
///
/// - Chunks of one number of elements; the tensors of a module are in one chunk, in order of construction; tables of
///   the embedding stay outside, in single precision on every rank's host, with gradient and moments.
/// - A chunk belongs to one rank, in turn: each rank holds as many as there are groups, the last one filled with
///   dummies. 14 B for each element of a chunk.
/// - 0.9 of device and host count. The other bytes that its tracer measures are subtracted: activations and the
///   gradients that are not yet in their chunks; on the host the process, two pinned tiles of 512 MB that its Adam
///   allocates, and a chunk in which gradients are read.
/// - It keeps free on the device: two bytes for each element of k^2 chunks in the backward pass, 16 bytes for each
///   element of one chunk during the update. Memory-saving communication (a chunk at a time from its owner) has k = 1;
///   with gathered groups, its default, k is the number of ranks.
/// - During warm-up chunks have a tenth of the device, which must hold one; moments do not exist yet.
///
/// The size of a chunk is the best of those that its script and its benchmarks try, or the next multiple of 32 Mi
/// elements that holds the largest module.
struct patrickstar {
  static constexpr std::string_view name = "patrickstar";
  static constexpr double ratio = 0.9;
  static constexpr double warm_up_ratio = 0.1;
  static constexpr std::uint64_t step = std::uint64_t{32} << 20;  ///< of chunk sizes, elements
  static constexpr bytes tiles{1'000'000'000};                    ///< pinned, of the host

  bool saves_memory = true;  ///< memory-saving communication

  [[nodiscard]] memory_use memory(const training_job& job) const
  {
    const std::vector<std::uint64_t> modules = modules_of(job.shape);
    const std::uint64_t largest = *std::max_element(modules.begin(), modules.end());
    memory_use best;
    for (const std::uint64_t mebi : {88u, 120u, 152u, 184u, 216u, 248u, 256u, 280u, 288u, 312u, 384u, 0u}) {
      const std::uint64_t chunk = mebi == 0 ? (largest + step - 1) / step * step : mebi << 20;
      if (chunk < largest) continue;
      const memory_use here = memory(job, modules, chunk);
      if (best.chunk == 0 || is_better(here, best)) best = here;
    }
    return best;
  }

  /// With chunks of just this many elements. @pre   no module is larger
  [[nodiscard]] memory_use memory(const training_job& job, std::uint64_t chunk) const
  {
    return memory(job, modules_of(job.shape), chunk);
  }

  /// Simulated with the engine: its chunks, capacities and share of states on the device; the chunk with the farthest
  /// next use is evicted, and a chunk is loaded when it is used. Different here: each rank owns a part of every chunk,
  /// so there are no dummies; chunks with a valid copy on the host are dropped, where PatrickStar copies them; tables
  /// of the embedding are in chunks.
  [[nodiscard]] movement moves(const training_job& job, const memory_use& use) const { return moves_within(job, use); }

 private:
  [[nodiscard]] static bool is_better(const memory_use& left, const memory_use& right)
  {
    if (left.refusal.empty() != right.refusal.empty()) return left.refusal.empty();
    if (left.missing() != right.missing()) return left.missing() < right.missing();
    return left.room() > right.room();
  }

  /// Elements of each module.
  [[nodiscard]] static std::vector<std::uint64_t> modules_of(const workload::transformer_shape& shape)
  {
    const model_tensors body{shape, false};
    std::vector<std::uint64_t> modules(body.all().back().module + 1, 0);
    for (const declared_tensor& it : body.all()) modules[it.module] += it.elements;
    return modules;
  }
  [[nodiscard]] static std::uint64_t embedded(const workload::transformer_shape& shape,
                                              const std::vector<std::uint64_t>& modules)
  {
    std::uint64_t body = 0;
    for (const std::uint64_t it : modules) body += it;
    return workload::parameters_of(shape) - body;
  }

  [[nodiscard]] memory_use memory(const training_job& job, const std::vector<std::uint64_t>& modules,
                                  std::uint64_t chunk) const
  {
    const workload::rank_share rank = job.rank();
    const std::uint64_t in_flight = *std::max_element(modules.begin(), modules.end());
    const std::uint64_t groups_wide = saves_memory ? 1 : rank.ranks;
    memory_use use;
    use.chunk = chunk;
    use.device = tier_use{rank.device_bytes};
    use.device.take(taker::set_aside, rank.device_bytes - part_of(rank.device_bytes, ratio));
    use.device.take(taker::activations, job.activations() + bytes{value_bytes} * in_flight);
    use.device.take(taker::buffers, bytes{2} * chunk * groups_wide * groups_wide);
    const bytes for_update = bytes{16} * chunk;
    const bytes in_backward = use.device.of(taker::activations) + use.device.of(taker::buffers);
    if (for_update > in_backward) use.device.take(taker::buffers, for_update - in_backward);

    use.host = tier_use{rank.host_bytes};
    use.host.take(taker::set_aside, rank.host_bytes - part_of(rank.host_bytes, ratio));
    use.host.take(taker::program, job.beside.process + bytes{16} * embedded(job.shape, modules));
    use.host.take(taker::buffers, tiles + bytes{2} * chunk);
    const std::uint64_t own = chunk * groups_of(modules, chunk, rank.ranks);
    if (!warms_up(use, own, rank)) use.refusal = "the first iteration has no room";
    use.spread(bytes{value_bytes} * own, bytes{state_bytes} * own);
    return use;
  }

  /// Chunks that each rank owns.
  [[nodiscard]] static std::uint64_t groups_of(const std::vector<std::uint64_t>& modules, std::uint64_t chunk,
                                               std::uint64_t ranks)
  {
    appended_chunks chunks{chunk};
    for (const std::uint64_t elements : modules) chunks.add(elements);
    return (chunks.held() / chunk + ranks - 1) / ranks;
  }

  /// Whether the first iteration runs: values and masters, with a tenth of the device, which has to hold a chunk.
  [[nodiscard]] static bool warms_up(const memory_use& use, std::uint64_t own, const workload::rank_share& rank)
  {
    const bytes device = part_of(part_of(rank.device_bytes, ratio), warm_up_ratio);
    return device >= bytes{2} * use.chunk && device + use.host.room() >= bytes{6} * own;
  }
};

static_assert(strategy<patrickstar> && simulated_strategy<patrickstar>);

}  // namespace max_model
