// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rank_on_host.hpp"
#include "virtual_clocks.hpp"

#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
namespace gpt {

/// The rates of a rank and of its links.
struct rank_rates {
  clock_rates own;
  chunkmem::collective::network_costs network;  ///< of all ranks, each a node
};

/// A rank of rank_on_host in virtual time: the same model, trainer and plans, without bytes and without other ranks.
class rank_on_clocks : public rank_of_layers<chunkmem::collective::simulated_ranks, virtual_clocks> {
 public:
  /// @param process_groups, rates   outlive this
  rank_on_clocks(ranks_type& process_groups, const rank_rates& rates) noexcept
      : rank_of_layers{process_groups}, rates_{&rates}
  {
  }

  [[nodiscard]] virtual_clocks memory(chunkmem::bytes device, chunkmem::bytes host) const
  {
    return virtual_clocks{device, host, rates_->own};
  }
  /// Nothing is allocated.
  [[nodiscard]] static memory_limits limits(const options&) { return {.host = boundless, .device = {}}; }

 private:
  const rank_rates* rates_;
};

}  // namespace gpt
