// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/registry.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// What a sharded model does with a manager, beside accesses: `m.gathered()`. A view of the manager.
///
/// `add` and `derive` declare tensors that are made whole from the shares of all ranks; `gather_now` and `sum` are the
/// collectives on their chunks. Every rank calls them in the same order.
template <class Engine>
class gathered_access {
 public:
  explicit gathered_access(Engine& engine) noexcept : engine_{&engine} {}

  /// @param label   of it, the same on every rank   @pre nothing is placed yet
  /// @param keeps   it has a place on the host too and is gathered by `gather_now`; else each load gathers it
  void add(tensor_id whole, std::uint32_t label, bool keeps) { engine_->gathered().add(whole, label, keeps); }
  /// A part of this rank's share of `whole`. @param begin   of it in `whole` [bytes]   @pre as above
  /// @param from   the list that has it, as in gathered_chunks
  void derive(tensor_id whole, tensor_id share, std::uint64_t begin, list_id from = value_list)
  {
    engine_->gathered().derive(whole, share, begin, from);
  }
  /// The share has a master that was made from it. @pre everything is placed
  [[nodiscard]] bool has_master(tensor_id share) const noexcept
  {
    const registry& tensors = engine_->tensors();
    const slot_id master = tensors.master_of(tensors.value_slot(share));
    return master != slot_id::none && tensors[master].state != tensor_state::free;
  }
  /// Makes a kept tensor whole from what ranks have in their shares now. In a rehearsal nothing happens.
  /// @pre a pin of a write keeps it on the device
  /// @throws out_of_memory, device_error, comm_error   what it holds is undefined until it is called again
  void gather_now(tensor_id whole)
  {
    if (!is_rehearsing()) engine_->gather_over_ranks(engine_->tensors().value_slot(whole));
  }
  /// Adds what all ranks have in the chunk of this tensor; its share becomes the sum. In a rehearsal nothing happens.
  /// @pre a pin keeps it on the device, and nobody works on it but agents whose pins have ended
  void sum(tensor_id whole, std::uint32_t label, collective::sum how)
  {
    if (!is_rehearsing()) engine_->sum_over_ranks(engine_->tensors().value_slot(whole), label, how);
  }

 private:
  [[nodiscard]] bool is_rehearsing() const noexcept { return engine_->rehearsing().is_running(); }

  Engine* engine_;
};

}  // namespace chunkmem::inline v0
