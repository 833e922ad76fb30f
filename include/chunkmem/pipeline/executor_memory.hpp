// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/replay_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The most bytes that each stage takes where a stage_runner runs it, with its boundaries.
///
/// Boundaries have their places for the whole run, so their bytes and the most bytes of the rest add up.
/// `replay_memory` counts the boundaries of each moment instead, and gives less.
///
/// Use:
///
///     const bytes device = executor_memory(plan, parts)[stage];
///
/// @param parts   by part; the input of part 0 is the stage's own, and counts from its forward to its backward run
/// @pre    find_fault(plan) finds nothing
/// @throws config_error, size_overflow   as replay_memory and boundary_buffers
/// @complexity   O(steps times buffers that live together)
[[nodiscard]] inline std::vector<bytes> executor_memory(const schedule& plan, std::vector<part_memory> parts)
{
  std::vector<bytes> inputs(parts.size());
  for (std::size_t part = 1; part < parts.size(); ++part) inputs[part] = std::exchange(parts[part].input, bytes{});
  const std::vector<stage_peak> peaks = replay_memory(plan, parts);
  std::vector<bytes> needed;
  for (std::uint32_t stage = 0; stage < plan.stage_count(); ++stage)
    needed.push_back(boundary_buffers{plan, stage, inputs}.size() + peaks[stage].device);
  return needed;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
