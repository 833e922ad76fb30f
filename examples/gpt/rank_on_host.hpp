// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "either_gradient.hpp"
#include "rank_session.hpp"
#include "trainer.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <cstdint>

namespace gpt {

/// The model of a rank, divided as the command line says.
/// @param memory, ranks   outlive the model
template <class Model, class Backend, class Ranks>
[[nodiscard]] Model model_over(Backend& memory, Ranks& ranks, const training_setup& setup, const rank_plan& plan)
{
  const options& chosen = setup.chosen;
  return Model{memory,
               ranks,
               {.chunk_bytes = setup.chunk},
               {.divided = plan.divided, .gathers_ahead = chosen.gathers_ahead},
               chosen.eviction,
               chosen.layout,
               chosen.transfer,
               chosen.placement,
               either_gradient{chosen.gradient}};
}

/// A rank that trains the layers of gpt: the model, the trainer and the plans of every backend.
///
/// @tparam Communicator   of its process groups
template <class Communicator, class Backend>
class rank_of_layers {
 public:
  using communicator_type = Communicator;
  using ranks_type = chunkmem::sharding::sums_apart<chunkmem::sharding::process_groups<Communicator>>;
  using backend_type = Backend;
  using manager_type = chunkmem::sharded_model<backend_type, ranks_type, chunkmem::ownership::hierarchical,
                                               any_eviction, any_layout, any_transfer, any_placement, either_gradient>;
  using model_type = model;
  using trainer_type = trainer<manager_type>;

  /// @param process_groups   outlive this
  explicit rank_of_layers(ranks_type& process_groups) noexcept : process_groups_{&process_groups} {}

  static constexpr bool foresees = true;
  [[nodiscard]] ranks_type& process_groups() const noexcept { return *process_groups_; }
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

 private:
  ranks_type* process_groups_;
};

/// A rank of a training on the CPU: a limited part of host memory is its device.
template <class Communicator>
class rank_on_host : public rank_of_layers<Communicator, chunkmem::backend::host_arena> {
 public:
  /// @param process_groups   outlive this
  explicit rank_on_host(
      chunkmem::sharding::sums_apart<chunkmem::sharding::process_groups<Communicator>>& process_groups)
      : rank_on_host::rank_of_layers{process_groups}
  {
  }

  [[nodiscard]] static chunkmem::backend::host_arena memory(chunkmem::bytes device, chunkmem::bytes host)
  {
    return chunkmem::backend::host_arena{{.device_capacity = device, .host_capacity = host}};
  }
  /// The memory that this rank may use of the machine that all ranks share.
  [[nodiscard]] static memory_limits limits(const options& chosen)
  {
    const chunkmem::bytes all = machine_memory();
    return {.host = chosen.ranks > 1 ? chunkmem::bytes{all.count() / chosen.ranks} : all, .device = {}};
  }
};

}  // namespace gpt
