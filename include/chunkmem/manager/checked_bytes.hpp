// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checks/check_policy.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/tensor/access.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// Tells a check policy about pins, frames and gradients: this part knows which bytes belong to which tensor.
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

  void pinned(std::uint32_t index, std::byte* data, access how)
  {
    if constexpr (sees_bytes) part_.pinned(event_of(index, data, how));
  }
  void released(std::uint32_t index, std::byte* data, access how) noexcept
  {
    if constexpr (sees_bytes) part_.released(event_of(index, data, how));
  }
  /// Its bytes were not touched since its last pin ended, or it is noted that they were.
  void compare(std::uint32_t index, std::byte* data) noexcept
  {
    if constexpr (sees_bytes) part_.compare(event_of(index, data, access::read));
  }
  [[nodiscard]] bool is_watched(std::uint32_t index) const noexcept
  {
    if constexpr (sees_bytes)
      return tensors_ != nullptr && part_.is_watched(cell_of(index));
    else
      return false;
  }
  /// The same of all tensors in a chunk, which is about to leave. O(slots).
  void compare_chunk(std::uint32_t chunk, std::byte* begin) noexcept
  {
    if constexpr (sees_bytes) {
      const auto& slots = tensors_->slots();
      for (std::uint32_t index = 0; index < slots.size(); ++index)
        if (slots[index].chunk == chunk && is_watched(index)) compare(index, begin + slots[index].offset);
    }
  }

  /// The bytes of a slot are dead, unless its weight has taken them back. @return   whether they are
  bool dropped(std::uint32_t index) noexcept
  {
    if constexpr (!is_on) return false;
    if (is_gradient(index)) part_.gradient_gone(index - tensors_->parameters());
    const std::uint32_t cell = cell_of(index);
    const tensor_state owner = tensors_->slots()[cell].state;
    if (cell != index && owner != tensor_state::free && owner != tensor_state::gradient) return false;
    part_.forget(cell);
    return true;
  }

  /// @param data   of a valid copy; null: there is none that the calling thread can read
  void gradient_opened(std::uint32_t parameter, std::byte* data, bool first, bool has_beta)
  {
    if constexpr (is_on) part_.gradient_opened(gradient_of(parameter, data), first, has_beta);
  }
  void expect_written(std::uint32_t parameter, std::byte* data, std::string_view before)
  {
    if constexpr (is_on) part_.expect_written(gradient_of(parameter, data), before);
  }

 private:
  [[nodiscard]] bool is_gradient(std::uint32_t index) const noexcept
  {
    return index >= tensors_->parameters() && index < 2 * tensors_->parameters();
  }
  /// A gradient in its weight's bytes has the weight's cell.
  [[nodiscard]] std::uint32_t cell_of(std::uint32_t index) const noexcept
  {
    if (!is_gradient(index)) return index;
    const slot& own = tensors_->slots()[index];
    const slot& value = tensors_->slots()[index - tensors_->parameters()];
    return own.chunk == value.chunk && own.offset == value.offset ? index - tensors_->parameters() : index;
  }
  [[nodiscard]] checks::pin_event event_of(std::uint32_t index, std::byte* data, access how) const noexcept
  {
    return {index, cell_of(index), {data, tensors_->slots()[index].size}, how, !tensors_->is_gathered(index)};
  }
  [[nodiscard]] checks::gradient_event gradient_of(std::uint32_t parameter, std::byte* data) const noexcept
  {
    const std::uint32_t index = tensors_->gradient_of(parameter);
    const std::size_t size = sees_bytes && data != nullptr ? tensors_->slots()[index].size : 0;
    return {parameter, index, {data, size}, tensors_->gradient_type(parameter)};
  }

  [[no_unique_address]] part_type part_;
  const registry* tensors_ = nullptr;
};

}  // namespace chunkmem::inline v0
