// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/sharding/process_groups.hpp>

#include <cstdint>

namespace gpt {

/// The three process groups of one rank, on virtual clocks.
struct simulated_groups {
  using network_costs = chunkmem::collective::network_costs;
  using simulated_ranks = chunkmem::collective::simulated_ranks;

  /// @param of_node   ranks that divide the model
  /// @param beside    another group of this rank; these groups share its link
  simulated_groups(const network_costs& costs, chunkmem::rank_id rank, std::uint32_t of_node, simulated_ranks& beside)
      : all{costs, rank, beside},
        node{with(costs, of_node), chunkmem::rank_id{chunkmem::index_of(rank) % of_node}, beside},
        across{with(costs, costs.ranks() / of_node), chunkmem::rank_id{chunkmem::index_of(rank) / of_node}, beside}
  {
  }
  [[nodiscard]] static network_costs with(network_costs costs, std::uint32_t ranks)
  {
    costs.nodes = ranks;
    return costs;
  }

  simulated_ranks all, node, across;
  chunkmem::sharding::process_groups<simulated_ranks> groups{all, node, across};
};

}  // namespace gpt
