// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/call.hpp>
#include <chunkmem/pipeline/pipeline_operation.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// A schedule as one number: every step of every stage, but not its name. Another schedule has another number, except
/// by chance. What was made for one schedule (places of boundaries, links) is compared with it, and not by its shape.
///
///     if (identity_of(mine) != identity_of(theirs)) ...  // the stages follow other schedules
///
/// Never 0, which means that nothing is known. Cost: O(steps of all stages).
[[nodiscard]] inline std::uint64_t identity_of(const schedule& plan) noexcept
{
  collective::fingerprint all;
  for (const std::uint64_t word :
       {std::uint64_t{plan.micro_batches}, std::uint64_t{plan.batches}, std::uint64_t{plan.versions},
        std::uint64_t{plan.gradient_sets}, std::uint64_t{plan.sends_in_flight}, std::uint64_t{plan.part_count()},
        std::uint64_t{plan.stage_count()}})
    all.add(word);
  for (const std::uint32_t owner : plan.owners) all.add(owner);
  for (const std::vector<operation>& steps : plan.stages) {
    all.add(steps.size());
    for (const operation& it : steps) {
      all.add(static_cast<std::uint64_t>(it.kind) << 32U | it.part);
      all.add(std::uint64_t{it.micro_batch} << 32U | it.version);
    }
  }
  return all.value() == 0 ? 1 : all.value();
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
