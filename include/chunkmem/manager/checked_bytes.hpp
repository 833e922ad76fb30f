// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checks/check_policy.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/tensor/access.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// Tells a check policy about pins, frames and gradients: this part knows which bytes belong to which tensor.
///
///     checked_bytes<checks::full, true> watch;
///     watch.reset(tensors);
///     watch.pinned(slot, data, access::read);
///     watch.released(slot, data, access::read);
///
/// Every call is empty where the policy is off. Where the calling thread cannot read the device, only calls and
/// gradients are looked at. Cost: that of the policy; O(slots) where a chunk leaves.
/// @tparam SeesBytes   the calling thread can read all tiers
template <check_policy Checks, bool SeesBytes>
class checked_bytes {
 public:
  using part_type = typename Checks::part;
  static constexpr bool is_on = Checks::is_on;
  static constexpr bool sees_bytes = is_on && SeesBytes;

  [[nodiscard]] part_type& part() noexcept { return part_; }

  /// Arenas are about to be used. @param tensors   sealed; outlives this
  void reset(const registry& tensors)
  {
    if constexpr (is_on) {
      part_.reset(static_cast<std::uint32_t>(tensors.slots().size()), tensors.parameters());
      tensors_ = &tensors;
    }
  }

  void pinned(slot_id slot, std::byte* data, access how)
  {
    if constexpr (sees_bytes) part_.pinned(event_of(slot, data, how));
  }
  void released(slot_id slot, std::byte* data, access how) noexcept
  {
    if constexpr (sees_bytes) part_.released(event_of(slot, data, how));
  }
  /// Its bytes were not touched since its last pin ended, or it is noted that they were.
  void compare(slot_id slot, std::byte* data) noexcept
  {
    if constexpr (sees_bytes) part_.compare(event_of(slot, data, access::read));
  }
  [[nodiscard]] bool is_watched(slot_id slot) const noexcept
  {
    if constexpr (sees_bytes)
      return tensors_ != nullptr && part_.is_watched(index_of(cell_of(slot)));
    else
      return false;
  }
  /// The same of all tensors in a chunk, which is about to leave. O(slots).
  void compare_chunk(chunk_id chunk, std::byte* begin) noexcept
  {
    if constexpr (sees_bytes) {
      for (const slot_id each : tensors_->slot_ids()) {
        const slot& slot_state = (*tensors_)[each];
        if (slot_state.chunk == chunk && is_watched(each)) compare(each, begin + slot_state.offset);
      }
    }
  }

  /// The bytes of a slot are dead, unless its weight has taken them back. @return   whether they are
  bool dropped(slot_id slot) noexcept
  {
    if constexpr (!is_on) return false;
    if (tensors_->is_gradient(slot)) part_.gradient_gone(index_of(tensors_->value_of(slot)));
    const slot_id cell = cell_of(slot);
    const tensor_state owner = (*tensors_)[cell].state;
    if (cell != slot && owner != tensor_state::free && owner != tensor_state::gradient) return false;
    part_.forget(index_of(cell));
    return true;
  }

  /// @param data   of a valid copy; null: there is none that the calling thread can read
  void gradient_opened(slot_id value_slot, std::byte* data, bool first, bool has_beta)
  {
    if constexpr (is_on) part_.gradient_opened(gradient_of(value_slot, data), first, has_beta);
  }
  void expect_written(slot_id value_slot, std::byte* data, std::string_view before)
  {
    if constexpr (is_on) part_.expect_written(gradient_of(value_slot, data), before);
  }

 private:
  /// A gradient in its weight's bytes has the weight's cell.
  [[nodiscard]] slot_id cell_of(slot_id slot) const noexcept
  {
    if (!tensors_->is_gradient(slot)) return slot;
    const chunkmem::slot& own = (*tensors_)[slot];
    const chunkmem::slot& value = (*tensors_)[tensors_->value_of(slot)];
    return own.chunk == value.chunk && own.offset == value.offset ? tensors_->value_of(slot) : slot;
  }
  [[nodiscard]] checks::pin_event event_of(slot_id slot, std::byte* data, access how) const noexcept
  {
    return {index_of(slot), index_of(cell_of(slot)), {data, (*tensors_)[slot].size}, how, !tensors_->is_gathered(slot)};
  }
  [[nodiscard]] checks::gradient_event gradient_of(slot_id value_slot, std::byte* data) const noexcept
  {
    const slot_id gradient = tensors_->gradient_of(value_slot);
    const std::size_t size = sees_bytes && data != nullptr ? (*tensors_)[gradient].size : 0;
    return {index_of(value_slot), index_of(gradient), {data, size}, tensors_->gradient_type(value_slot)};
  }

  [[no_unique_address]] part_type part_;
  const registry* tensors_ = nullptr;
};

}  // namespace chunkmem::inline v0
