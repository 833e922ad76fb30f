// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/sharding/zero.hpp>

#include <cstdint>
#include <vector>

namespace gpt {

/// How ranks divide a training. Rank `replica * stages + stage` is a stage of a pipeline.
struct training_grid {
  chunkmem::pipeline::schedule plan;                         ///< of each pipeline
  std::uint32_t replicas = 1;                                ///< pipelines
  chunkmem::sharding::zero divided;                          ///< over the replicas of a stage
  std::vector<std::uint32_t> processes{};                    ///< of each rank; empty: in their order
  std::vector<chunkmem::per_tier<chunkmem::bytes>> rooms{};  ///< by stage; empty: as the command line says

  [[nodiscard]] std::uint32_t ranks() const noexcept { return plan.stage_count() * replicas; }
};

}  // namespace gpt
