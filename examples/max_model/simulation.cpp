// SPDX-License-Identifier: Apache-2.0
#include "simulation.hpp"

namespace max_model {
namespace {

/// How often the engine sends each weight or gradient around all ranks, on average.
double rings_of_engine(const training_job& job, std::uint64_t own_chunk, std::uint64_t ranks)
{
  const planner::parameter_groups groups{job.shape, job.setup,
                                         ranks * planner::chunk_elements_of({.chunk_elements = own_chunk}, ranks)};
  const planner::training_script script{groups, job.setup.recomputes_layers, 1e12};
  std::uint64_t sent = 0;
  for (const planner::act& it : script.acts())
    if (it.kind == planner::act_kind::use)
      sent += groups.elements_of(it.id) * ((it.gathers ? 1U : 0U) + (it.makes_gradient ? 1U : 0U));
  return static_cast<double>(sent) / static_cast<double>(groups.elements());
}

}  // namespace

simulated_rank::simulated_rank(const training_job& job, const movement& moves) : share{job.rank()}
{
  if (moves.is_replicated) share.ranks = 1;
  if (moves.rings > 0 && share.ranks > 1) {
    const double faster = rings_of_engine(job, moves.own_chunk, share.ranks) / moves.rings;
    share.rates.peer_bytes_per_second *= faster;
    share.rates.network_bytes_per_second *= faster;
  }
  settings.chunk_elements = moves.own_chunk;
  settings.device_update_share = moves.device_update_share;
  settings.updates_late = moves.updates_late;
  settings.known = planner::known_before::profile;
  // The capacities are exact: reserves are already subtracted.
  share.device_bytes = moves.device;
  share.host_bytes = moves.host;
  settings.device_context = bytes{};
  settings.host_process = bytes{};
  settings.host_reserve = 0;
}

planner::training_forecast simulate(const training_job& job, const movement& moves)
{
  const simulated_rank rank{job, moves};
  switch (moves.copies) {
    case copying::on_demand: return simulate_on_demand(job, rank);
    case copying::ahead: return simulate_ahead(job, rank);
    case copying::planned: break;
  }
  return simulate_planned(job, rank);
}

}  // namespace max_model
