// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/planner/training_script.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace step_bound {

namespace cm = chunkmem;

/// The time of an iteration of a script if links and updates take no time [ns].
///
/// Compute waits for gathers, gathers wait for a unit, and scatters wait for compute. Compute and the ring each do one
/// thing at a time, in the order of the script. No step of the script is faster. Cost: O(acts).
///
/// @param rings   time to gather or to scatter each group [ns]
[[nodiscard]] inline std::uint64_t ring_chain(const cm::planner::training_script& script,
                                              std::span<const std::uint64_t> rings)
{
  constexpr int iterations = 4;  // the first ones fill the pipe
  const auto acts = script.acts();
  std::vector<std::uint64_t> gathered(script.units(), 0);
  std::vector<std::uint64_t> freed(script.units(), 0);
  std::uint64_t compute = 0;
  std::uint64_t ring = 0;
  std::uint64_t before = 0;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    before = compute;
    std::size_t next = 0;
    for (std::size_t index = 0; index < acts.size(); ++index) {
      for (; next < acts.size() && (!acts[next].gathers || acts[next].gathered_at <= index); ++next) {
        if (!acts[next].gathers) continue;
        ring = std::max(ring, freed[acts[next].unit]) + rings[acts[next].id];
        gathered[acts[next].unit] = ring;
      }
      const cm::planner::act& it = acts[index];
      if (it.kind != cm::planner::act_kind::use) continue;
      if (it.reads) compute = std::max(compute, gathered[it.unit]);
      compute += it.nanoseconds;
      if (it.makes_gradient) ring = std::max(ring, compute) + rings[it.id];
      if (it.reads) freed[it.unit] = it.makes_gradient ? ring : compute;
    }
  }
  return compute - before;
}

}  // namespace step_bound
