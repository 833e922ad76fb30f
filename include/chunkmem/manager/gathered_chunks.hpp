// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/chunk_mover.hpp>
#include <chunkmem/manager/registry.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

/// Tensors that are made whole from the shares of all ranks, and the parts that this rank keeps.
///
/// `add(whole, label, keeps)` and `derive(whole, share, begin)` declare, before anything is allocated. Each whole
/// tensor fills a chunk of its own. Afterwards `shares()` tells the copy engine what to gather.
class gathered_chunks {
 public:
  /// The chunk of `whole` is made from shares of all ranks each time it is loaded.
  /// @param label   of it, the same on every rank
  /// @param keeps   it is loaded as others are, and gathered only where the owner asks for it
  /// @param from    the list of the shares that it is made of. What is made of the same shares is added one behind the
  ///   other
  /// @pre nothing is allocated; a mover that gathers; `whole` fills its chunk
  void add(tensor_id whole, std::uint32_t label, bool keeps, list_id from = value_list)
  {
    gathered_.push_back({whole, label, keeps, from});
  }
  /// A part of this rank's share of it. @param begin   of the part in `whole` [bytes]
  void derive(tensor_id whole, tensor_id share, std::uint64_t begin, list_id from = value_list)
  {
    parts_.push_back({whole, share, begin, from});
  }

  [[nodiscard]] bool empty() const noexcept { return gathered_.empty(); }

  /// Calls `visit(chunk)` for each chunk that is made anew at each load: it has no place on the host.
  /// @pre `tensors` is sealed
  template <class Visit>
  void for_each_loaded_from_shares(const registry& tensors, Visit visit) const
  {
    for (const gathered_tensor& it : gathered_)
      if (!it.keeps) visit(tensors.chunk_of(it.whole));
  }
  /// Calls `visit(a, b)` for the slots of each two whole tensors that are made of the same shares in these lists.
  /// They exchange their bytes when the lists do. @pre `tensors` is sealed
  template <class Visit>
  void for_each_pair(const registry& tensors, list_id left, list_id right, Visit visit) const
  {
    for (std::size_t first = 0; first < gathered_.size(); ++first)
      if (gathered_[first].from == left || gathered_[first].from == right)
        for (std::size_t second = first + 1; second < gathered_.size() && are_of_one(first, second); ++second)
          if (gathered_[second].from == left || gathered_[second].from == right)
            visit(tensors.value_slot(gathered_[first].whole), tensors.value_slot(gathered_[second].whole));
  }
  /// @throws usage_error   one of these is pinned
  void expect_unpinned(const registry& tensors, list_id left, list_id right) const
  {
    for_each_pair(tensors, left, right, [&](slot_id a, slot_id b) {
      expects(tensors[a].pins + tensors[b].pins == 0, "a list was to be exchanged while a pin holds what it makes up");
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
    list_id from = value_list;
  };
  struct part {
    tensor_id whole;
    tensor_id share;
    std::uint64_t begin = 0;
    list_id from = value_list;
  };

  [[nodiscard]] bool are_of_one(std::size_t first, std::size_t second) const noexcept
  {
    return gathered_[first].label == gathered_[second].label;
  }

  sequence<gathered_tensor> gathered_;
  sequence<part> parts_;
};

}  // namespace chunkmem::inline v0
