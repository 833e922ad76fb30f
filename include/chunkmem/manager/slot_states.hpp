// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>

namespace chunkmem::inline v0 {

/// Changes states and pins of slots by the tensor rules. No other code writes them.
///
///     using states = slot_states<training_rules>;
///     states::expect(tensors, id, tensor_event::acquire);
///     states::begin(tensors[id], memory_location::device);
///
/// `expect` checks before anything moves; `begin`, `end`, `drop`, `consume` and `take_back` commit and cannot fail.
/// Cost: one load of the table for each call.
template <tensor_rules Rules>
struct slot_states {
  using machine = state_machine<Rules>;

  /// The event of an access: a slot without bytes gets bytes by its first write, or starts at zero.
  [[nodiscard]] static constexpr tensor_event event_of_access(const slot& slot_state, entry_kind kind) noexcept
  {
    const bool gets_bytes = access_of(kind) == access::write || slot_state.starts_at_zero;
    return slot_state.state == tensor_state::free && gets_bytes ? tensor_event::materialize : tensor_event::acquire;
  }

  /// @throws usage_error   the rules do not allow the event; names tensor, list, state and event
  static void expect(const registry& tensors, slot_id slot, tensor_event event)
  {
    const tensor_state state = tensors[slot].state;
    if (!machine::is_legal(state, event)) machine::refuse(state, event, tensors.label(slot));
  }
  /// A pin may begin on a slot that has bytes. The hot path.
  [[nodiscard]] static bool can_begin(const slot& slot_state) noexcept
  {
    return machine::is_legal(slot_state.state, tensor_event::acquire);
  }

  /// A pin begins, and the slot has bytes from now on. @pre expect(event_of_access)
  static void begin(slot& slot_state, memory_location place) noexcept
  {
    if (slot_state.state == tensor_state::free) slot_state.state = tensor_state::hold;
    begin_resident(slot_state);
    if (place == memory_location::host) ++slot_state.host_pins;
  }
  /// As `begin`, for a slot with bytes on the device. The hot path. @pre can_begin()
  static void begin_resident(slot& slot_state) noexcept
  {
    slot_state.state = after(slot_state.state, tensor_event::acquire);
    ++slot_state.pins;
  }
  /// A pin ends.
  static void end(slot& slot_state, memory_location place) noexcept
  {
    end_on_device(slot_state);
    if (place == memory_location::host) --slot_state.host_pins;
  }
  /// As `end`, for a pin on the device. The hot path.
  static void end_on_device(slot& slot_state) noexcept
  {
    if (--slot_state.pins != 0) return;
    if (machine::is_legal(slot_state.state, tensor_event::release))
      slot_state.state = after(slot_state.state, tensor_event::release);
  }

  /// Its bytes are dead. @pre expect(drop)
  static void drop(slot& slot_state) noexcept { slot_state.state = tensor_state::free; }
  /// The gradient of this value has taken its bytes. @pre the value has bytes and no pin
  static void consume(slot& slot_state) noexcept
  {
    slot_state.state = after(after(slot_state.state, tensor_event::acquire), tensor_event::consume);
  }
  /// The bytes that a gradient had taken are the value's again, to be overwritten. Does nothing for other slots.
  static void take_back(slot& slot_state) noexcept
  {
    if (slot_state.state == tensor_state::gradient) slot_state.state = after(slot_state.state, tensor_event::release);
  }
  /// The call after `take_back` failed: restores the state.
  static void undo(slot& slot_state, tensor_state before) noexcept { slot_state.state = before; }

 private:
  [[nodiscard]] static tensor_state after(tensor_state state, tensor_event event) noexcept
  {
    return static_cast<tensor_state>(machine::next(state, event));
  }
};

}  // namespace chunkmem::inline v0
