// SPDX-License-Identifier: Apache-2.0
#include "simulation.hpp"

#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/transfer/planned.hpp>

namespace max_model {

planner::training_forecast simulate_planned(const training_job& job, const simulated_rank& rank)
{
  return planner::forecast_training<chunkmem::eviction::belady, chunkmem::transfer::planned>(job.shape, job.setup,
                                                                                             rank.share, rank.settings);
}

}  // namespace max_model
