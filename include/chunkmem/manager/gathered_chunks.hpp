// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/chunk_mover.hpp>
#include <chunkmem/manager/registry.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

/// Tensors that are gathered from the shards of all ranks, and the parts that this rank keeps.
///
/// `add(whole, label, keeps)`, `derive(whole, share, begin)` and `add_summed(gradients)` declare, before anything is
/// allocated. Each whole tensor fills a chunk of its own. Afterwards `shares()` tells the copy engine what to gather.
class gathered_chunks {
 public:
  /// The chunk of `whole` is made from shares of all ranks each time it is loaded.
  /// @param label   of it, the same on every rank
  /// @param keeps   the chunk is loaded as others are, and gathered only by `gather_now`
  /// @pre nothing is allocated; a mover that gathers; `whole` fills its chunk
  void add(tensor_id whole, std::uint32_t label, bool keeps) { gathered_.push_back({whole, label, keeps}); }
  /// A part of this rank's share of a whole tensor. @param begin   of the part in `whole` [bytes]   @param from   the
  ///   list that has the share. Where a share in several lists makes several tensors, they are derived one after the
  ///   other, and have no other share
  void derive(tensor_id whole, tensor_id share, std::uint64_t begin, list_id from = value_list)
  {
    parts_.push_back({whole, share, begin, from});
  }

  /// Ranks add up the chunk of this tensor before it leaves. @pre nothing is allocated
  void add_summed(tensor_id whole) { summed_.push_back(whole); }

  [[nodiscard]] bool empty() const noexcept { return gathered_.empty(); }

  /// Calls `visit(chunk)` for each chunk that is made anew at each load: it has no place on the host.
  /// @pre `tensors` is sealed
  template <class Visit>
  void for_each_loaded_from_shares(const registry& tensors, Visit visit) const
  {
    for (const gathered_tensor& it : gathered_)
      if (!it.keeps) visit(tensors.chunk_of(it.whole));
  }
  /// Calls `visit(chunk)` for each chunk that only `gather_now` gathers. @pre `tensors` is sealed
  template <class Visit>
  void for_each_kept(const registry& tensors, Visit visit) const
  {
    for (const gathered_tensor& it : gathered_)
      if (it.keeps) visit(tensors.chunk_of(it.whole));
  }
  /// Calls `visit(chunk)` for each chunk that ranks add up. @pre `tensors` is sealed
  template <class Visit>
  void for_each_summed(const registry& tensors, Visit visit) const
  {
    for (const tensor_id whole : summed_) visit(tensors.chunk_of(whole));
  }
  /// Calls `visit(whole, value)` with the slots of each tensor that a load makes from the values of a parameter.
  /// @pre `tensors` is sealed
  template <class Visit>
  void for_each_loaded_from_values(const registry& tensors, Visit visit) const
  {
    for (const gathered_tensor& it : gathered_) {
      if (it.keeps) continue;
      for (const part& each : parts_) {
        if (each.whole != it.whole || each.from != value_list) continue;
        const slot_id value = tensors.value_slot(each.share);
        if (tensors.is_value_of_parameter(value)) visit(tensors.value_slot(it.whole), value);
      }
    }
  }
  /// Calls `visit(a, b)` for the slots of each two whole tensors that are made of the same shares in these lists.
  /// They exchange their bytes when the lists exchange theirs. @pre `tensors` is sealed
  template <class Visit>
  void for_each_pair(const registry& tensors, list_id left, list_id right, Visit visit) const
  {
    for (auto first = parts_.begin(); first != parts_.end();) {
      const auto end = std::find_if(first, parts_.end(), [&](const part& it) { return it.share != first->share; });
      const auto of = [&](list_id list) {
        return std::find_if(first, end, [&](const part& it) { return it.from == list; });
      };
      if (of(left) != end && of(right) != end)
        visit(tensors.value_slot(of(left)->whole), tensors.value_slot(of(right)->whole));
      first = end;
    }
  }
  /// @throws usage_error   one of these is pinned
  void expect_unpinned(const registry& tensors, list_id left, list_id right) const
  {
    for_each_pair(tensors, left, right, [&](slot_id a, slot_id b) {
      expects(tensors[a].pins + tensors[b].pins == 0, "a list cannot be exchanged while a tensor made of it is pinned");
    });
  }
  /// @pre `tensors` is sealed
  [[nodiscard]] chunk_shares shares(const registry& tensors) const
  {
    sequence<chunk_share> all;
    for (const part& it : parts_) {
      const slot& share =
          tensors[it.from == value_list ? tensors.value_slot(it.share) : tensors.slot_in(it.share, it.from)];
      all.push_back({tensors.chunk_of(it.whole), share.chunk, share.offset, it.begin, share.size});
    }
    sequence<std::uint32_t> labels(tensors.frames_of_chunk().size(), 0);
    for (const gathered_tensor& it : gathered_) labels[index_of(tensors.chunk_of(it.whole))] = it.label;
    return {std::move(all), std::move(labels)};
  }

 private:
  struct gathered_tensor {
    tensor_id whole;
    std::uint32_t label = 0;
    bool keeps = false;
  };
  struct part {
    tensor_id whole;
    tensor_id share;
    std::uint64_t begin = 0;
    list_id from = value_list;
  };

  sequence<gathered_tensor> gathered_;
  sequence<part> parts_;
  sequence<tensor_id> summed_;
};

/// The interface of a manager for sharded models: `m.gathered()`. A view of the manager.
///
/// `tensors()` declares tensors that are gathered from the shares of all ranks, and tensors that all ranks add up;
/// `gather_now` and `sum` are the collectives on their chunks. Every rank calls them in the same order.
template <class Engine>
class gathered_access {
 public:
  explicit gathered_access(Engine& engine) noexcept : engine_{&engine} {}

  /// The tensors, to be declared. @pre nothing is placed yet
  [[nodiscard]] gathered_chunks& tensors() noexcept { return engine_->gathered(); }
  /// An agent that reduces gradients while the passes run: its waits are no stalls of the step.
  void add_side_agent(agent stream) noexcept { engine_->add_side_agent(stream); }
  /// The share has a master. @pre everything is placed
  [[nodiscard]] bool has_master(tensor_id share) const noexcept
  {
    const registry& tensors = engine_->tensors();
    const slot_id master = tensors.master_of(tensors.value_slot(share));
    return master != slot_id::none && tensors[master].state != tensor_state::free;
  }
  /// A tensor cannot be gathered from this share, since its gradient has taken its bytes. From the next iteration on,
  /// the gradient has bytes of its own.
  void keep_apart(tensor_id share) noexcept
  {
    engine_->gradients().places().keep_apart(engine_->tensors().value_slot(share));
  }
  /// Gathers a kept tensor from the present shares of all ranks. In a rehearsal nothing happens.
  /// @pre a pin of a write keeps it on the device
  /// @throws out_of_memory, device_error, comm_error   the bytes of the tensor are undefined until the next call
  ///   succeeds
  void gather_now(tensor_id whole)
  {
    if (!is_rehearsing()) engine_->gather_over_ranks(engine_->tensors().value_slot(whole));
  }
  /// Adds the bytes of all ranks in the chunk of this tensor; this rank's share becomes the sum. In a rehearsal nothing
  /// happens.
  /// @pre a pin keeps it on the device, and only agents whose pins have ended work on it
  void sum(tensor_id whole, std::uint32_t label, collective::sum how)
  {
    if (!is_rehearsing()) engine_->sum_over_ranks(engine_->tensors().value_slot(whole), label, how);
  }

 private:
  [[nodiscard]] bool is_rehearsing() const noexcept { return engine_->rehearsing().is_running(); }

  Engine* engine_;
};

}  // namespace chunkmem::inline v0
