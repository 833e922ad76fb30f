// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/slot_states.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// Writes down a step that is run without bytes, and puts all slots back afterwards.
///
/// `begin(tensors)`, the calls of the step, `end()`; `begin_second()` between two steps where the first one leaves
/// updates to the second. A tensor that is read before it was written counts as filled, and so do weights, masters and
/// buffers that the step does not touch. Mistakes against the rules are found as in a real step. Cost: O(slots) for
/// begin and end, O(1) for a call.
template <tensor_rules Rules>
class rehearsal_log {
 public:
  void begin(registry& tensors)
  {
    for (const slot& slot_state : tensors.slots())
      expects(slot_state.pins == 0, "a rehearsal while a pin is held: release it first");
    before_ = tensors.slots();
    begin_turn(0, tensors);
    began_at_ = serial_;
    held_ = 0;
    tensors_ = &tensors;  // it runs from here on, and not where there was no memory for what it puts back
  }
  /// What comes now is the second step. Pins of the first one change nothing any more.
  void begin_second()
  {
    assume_filled(*tensors_);
    begin_turn(1, *tensors_);
    for (std::size_t index = 0; index < before_.size(); ++index)
      if (turns_[0].touched[index] == 0) turns_[1].filled[index] |= turns_[0].filled[index];
  }

  void end() noexcept
  {
    assume_filled(*tensors_);
    tensors_->slots().swap(before_);
    tensors_ = nullptr;
  }

  [[nodiscard]] bool is_running() const noexcept { return tensors_ != nullptr; }
  /// There was a second step.
  [[nodiscard]] bool has_second() const noexcept { return last_ == 1; }
  /// Of the first step, or of the last one.
  [[nodiscard]] access_record& record(bool last = false) noexcept { return turns_[last ? last_ : 0].record; }
  [[nodiscard]] const access_record& record(bool last = false) const noexcept
  {
    return turns_[last ? last_ : 0].record;
  }
  [[nodiscard]] const sequence<std::uint8_t>& filled(bool last = false) const noexcept
  {
    return turns_[last ? last_ : 0].filled;
  }

  /// Tells the pins of one rehearsal from those of another, and from those of iterations, whose numbers are small.
  [[nodiscard]] std::uint32_t serial() const noexcept { return serial_; }
  /// A pin or lease with this number was made in a rehearsal.
  [[nodiscard]] static constexpr bool made(std::uint32_t serial) noexcept { return serial >= first_serial; }

  /// Pins and leases of the last rehearsal that have not ended.
  [[nodiscard]] std::uint64_t held() const noexcept { return held_; }

  std::uint32_t acquire(slot_id slot, entry_kind kind)
  {
    turn& now = turns_[last_];
    now.touched[index_of(slot)] = 1;
    chunkmem::slot& slot_state = (*tensors_)[slot];
    if (slot_state.state == tensor_state::free) {
      if (slot_state.starts_at_zero) kind = first_use(kind);
      if (access_of(kind) != access::write && !slot_state.starts_at_zero) now.filled[index_of(slot)] = 1;
      states::expect(*tensors_, slot, tensor_event::materialize);
    } else {
      states::expect(*tensors_, slot, tensor_event::acquire);
    }
    now.record.make_room();
    states::begin(slot_state, memory_location::device);
    ++held_;
    return now.record.append({index_of(slot), 0, 0, kind, false, 0}, {});
  }

  /// Pins that outlived their rehearsal change nothing.
  void release(slot_id slot, std::uint32_t access_index, std::uint32_t serial) noexcept
  {
    note_end(serial);
    if (!is_running() || serial != serial_) return;
    states::end((*tensors_)[slot], memory_location::device);
    turns_[last_].record.release(access_index);
  }

  std::uint32_t lease(entry_kind kind, std::uint64_t size)
  {
    access_record& record = turns_[last_].record;
    record.make_room();
    ++held_;
    return record.append({access_record::never, 0, 0, kind, false, 0}, {size, entry_detail::never, pass::none});
  }
  void end_lease(std::uint32_t access_index, std::uint32_t serial) noexcept
  {
    note_end(serial);
    if (is_running() && serial == serial_) turns_[last_].record.release(access_index);
  }

  void drop(slot_id slot)
  {
    access_record& record = turns_[last_].record;
    record.make_room();
    states::expect(*tensors_, slot, tensor_event::drop);
    states::drop((*tensors_)[slot]);
    record.append({index_of(slot), 0, 0, entry_kind::drop, false, 0}, {});
  }

 private:
  using states = slot_states<Rules>;
  struct turn {
    access_record record;
    sequence<std::uint8_t> filled;   // by slot: it held bytes before the step
    sequence<std::uint8_t> touched;  // by slot: the step uses it
  };

  void note_end(std::uint32_t serial) noexcept
  {
    if (serial >= began_at_) --held_;
  }

  void begin_turn(std::size_t which, const registry& tensors)
  {
    turn& it = turns_[which];
    it.filled.assign(before_.size(), 0);
    it.touched.assign(before_.size(), 0);
    for (std::size_t index = 0; index < before_.size(); ++index)
      it.filled[index] = tensors.slots()[index].state != tensor_state::free;
    it.record.clear();
    last_ = which;
    ++serial_;
  }

  void assume_filled(const registry& tensors) noexcept
  {
    for (std::uint32_t id = 0; id < tensors.tensors(); ++id) {
      const role part = tensors.info(tensor_id{id}).part;
      if (part == role::activation) continue;
      const slot_id value = tensors.value_slot(tensor_id{id});
      for (const slot_id each : {value, tensors.master_of(value)})
        if (each != slot_id::none && turns_[last_].touched[index_of(each)] == 0)
          turns_[last_].filled[index_of(each)] = 1;
    }
  }

  static constexpr std::uint32_t first_serial = std::uint32_t{1} << 31;
  registry* tensors_ = nullptr;
  std::uint32_t serial_ = first_serial;
  std::uint32_t began_at_ = first_serial;  // serial of the first step of the last rehearsal
  std::uint64_t held_ = 0;
  sequence<slot> before_;
  turn turns_[2];
  std::size_t last_ = 0;
};

}  // namespace chunkmem::inline v0
