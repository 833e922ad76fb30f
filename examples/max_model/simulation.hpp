// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "movement.hpp"

#include <chunkmem/planner/rank_settings.hpp>
#include <chunkmem/planner/training_forecast.hpp>

namespace max_model {

namespace planner = chunkmem::planner;

/// Trains a job's model in virtual time until its steps repeat, with the manager itself, as one rank of the machine.
///
/// The manager has a profile from the beginning, as after a first run. `fits` is false, with a sentence, where the
/// capacities of `moves` are too small. Cost: tenths of a second for a few hundred groups.
[[nodiscard]] planner::training_forecast simulate(const training_job& job, const movement& moves);

/// One rank as a movement has it, and its settings.
struct simulated_rank {
  workload::rank_share share;
  planner::rank_settings settings;

  simulated_rank(const training_job& job, const movement& moves);
};

// One for each transfer policy, in a file of its own, since they take long to compile.
[[nodiscard]] planner::training_forecast simulate_on_demand(const training_job& job, const simulated_rank& rank);
[[nodiscard]] planner::training_forecast simulate_ahead(const training_job& job, const simulated_rank& rank);
[[nodiscard]] planner::training_forecast simulate_planned(const training_job& job, const simulated_rank& rank);

}  // namespace max_model
