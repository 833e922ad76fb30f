// SPDX-License-Identifier: Apache-2.0
#include "either_gradient.hpp"
#include "foresight.hpp"
#include "policies.hpp"
#include "rank_on_clocks.hpp"
#include "rank_session.hpp"
#include "run.hpp"
#include "simulated_groups.hpp"
#include "training_on_host.hpp"
#include "virtual_clocks.hpp"

#include <chunkmem/chunkmem.hpp>
#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/sharding/process_groups.hpp>

namespace gpt {

foreseen_steps foresee(const training_setup& setup, const chunkmem::activation::activation_plan& later,
                       const training_start& start, const clock_rates& rates)
{
  using manager =
      chunkmem::manager<virtual_clocks, any_eviction, any_layout, any_placement, any_transfer, either_gradient>;
  training_setup timed = setup;
  timed.is_followed = false;
  timed.rates = &rates;
  return session_as_chosen<training_on_host<manager>>(timed, start.device, start.host,
                                                      either_gradient{setup.chosen.gradient})
      .foresee(later, start);
}

foreseen_steps foresee(const training_setup& setup, const chunkmem::activation::activation_plan& later,
                       const training_start& start, const clock_rates& rates, const rank_plan& plan,
                       const chunkmem::collective::network_costs& network, chunkmem::rank_id rank)
{
  const rank_rates all{rates, network};
  chunkmem::collective::simulated_ranks link{all.network, rank};
  simulated_groups gathers{all.network, rank, plan.of_node, link};
  simulated_groups sums{all.network, rank, plan.of_node, link};
  chunkmem::sharding::sums_apart both{gathers.groups, sums.groups};
  training_setup timed = setup;
  timed.is_followed = false;
  return rank_session<rank_on_clocks>{timed, rank_on_clocks{both, all}, plan, start.device, start.host}.foresee(later,
                                                                                                                start);
}

}  // namespace gpt
