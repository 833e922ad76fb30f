// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rank_on_host.hpp"
#include "virtual_clocks.hpp"

#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <cstdint>

namespace gpt {

/// The rates of a rank and of its links.
struct rank_rates {
  clock_rates own;
  chunkmem::collective::network_costs network;  ///< of all ranks, each a node
};

/// A rank of rank_on_host in virtual time: the same model, trainer and plans, without bytes and without other ranks.
class rank_on_clocks {
 public:
  using communicator_type = chunkmem::collective::simulated_ranks;
  using ranks_type = chunkmem::sharding::sums_apart<chunkmem::sharding::process_groups<communicator_type>>;
  using backend_type = virtual_clocks;
  using manager_type = chunkmem::sharded_model<backend_type, ranks_type, chunkmem::ownership::hierarchical,
                                               any_eviction, any_layout, any_transfer, any_placement, either_gradient>;
  using model_type = model;
  using trainer_type = trainer<manager_type>;

  /// @param process_groups, rates   outlive this
  rank_on_clocks(ranks_type& process_groups, const rank_rates& rates) noexcept
      : process_groups_{&process_groups}, rates_{&rates}
  {
  }

  static constexpr bool foresees = true;
  [[nodiscard]] ranks_type& process_groups() const noexcept { return *process_groups_; }
  [[nodiscard]] backend_type memory(chunkmem::bytes device, chunkmem::bytes host) const
  {
    return backend_type{device, host, rates_->own};
  }
  [[nodiscard]] manager_type manager(backend_type& memory, const training_setup& setup, const rank_plan& plan) const
  {
    return model_over<manager_type>(memory, *process_groups_, setup, plan);
  }
  [[nodiscard]] static model_type declare(manager_type& manager, const extents& size, chunkmem::dtype precision)
  {
    return gpt::declare(manager, size, precision);
  }
  [[nodiscard]] static chunkmem::activation::activation_plan plan(activation_mode choice, const options& chosen,
                                                                  chunkmem::bytes device)
  {
    return plan_layer_runs(choice, chosen.size, device);
  }
  [[nodiscard]] static std::uint64_t largest_tensor_bytes(const extents& size) { return size.largest_tensor_bytes(); }
  /// Nothing is allocated.
  [[nodiscard]] static memory_limits limits(const options&) { return {.host = boundless, .device = {}}; }

 private:
  ranks_type* process_groups_;
  const rank_rates* rates_;
};

}  // namespace gpt
