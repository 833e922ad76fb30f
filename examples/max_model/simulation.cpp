#include "simulation.hpp"

namespace max_model {

simulated_rank::simulated_rank(const training_job& job, const movement& moves) : share{job.rank()}
{
  if (moves.is_replicated) share.ranks = 1;
  share.rates.peer_bytes_per_second /= moves.ring_share;
  share.rates.network_bytes_per_second /= moves.ring_share;
  settings.chunk_elements = moves.own_chunk;
  settings.device_update_share = moves.device_update_share;
  settings.known = planner::known_before::profile;
  // The capacities themselves: they have been worked out.
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
