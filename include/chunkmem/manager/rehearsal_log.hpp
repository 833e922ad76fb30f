#pragma once

#include <chunkmem/manager/registry.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/state_machine.hpp>

#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

/// Writes down a step that is run without bytes, and puts everything back afterwards.
///
/// What is read before it was written is taken to be filled already, and so are weights, masters and buffers that the step
/// does not touch. Mistakes that the rules know are found here as in a real step.
template <tensor_rules Rules>
class rehearsal_log {
 public:
  void begin(registry& tensors)
  {
    for (const slot& it : tensors.slots()) expects(it.pins == 0, "a rehearsal while a pin is held: release it first");
    before_ = tensors.slots();
    filled_.assign(before_.size(), 0);
    for (std::size_t at = 0; at < before_.size(); ++at) filled_[at] = before_[at].state != tensor_state::free;
    touched_.assign(before_.size(), 0);
    record_.clear();
    tensors_ = &tensors;  // it runs from here on, and not where there was no memory for what it puts back
    ++serial_;
  }

  void end() noexcept
  {
    assume_filled(*tensors_);
    tensors_->slots().swap(before_);
    tensors_ = nullptr;
  }

  [[nodiscard]] bool is_running() const noexcept { return tensors_ != nullptr; }
  [[nodiscard]] access_record& record() noexcept { return record_; }
  [[nodiscard]] const access_record& record() const noexcept { return record_; }
  [[nodiscard]] const std::vector<std::uint8_t>& filled() const noexcept { return filled_; }

  /// Tells the pins of one rehearsal from those of another.
  [[nodiscard]] std::uint32_t serial() const noexcept { return serial_; }

  std::uint32_t acquire(std::uint32_t index, entry_kind kind)
  {
    touched_[index] = 1;
    slot& it = tensors_->slots()[index];
    if (it.state == tensor_state::free) {
      if (it.starts_at_zero) kind = first_use(kind);
      if (access_of(kind) != access::write && !it.starts_at_zero) filled_[index] = 1;
      apply(it, index, tensor_event::materialize);
    }
    record_.make_room();
    apply(it, index, tensor_event::acquire);
    ++it.pins;
    return record_.append({index, 0, 0, kind, false, 0}, {});
  }

  /// Pins that outlived their rehearsal change nothing.
  void release(std::uint32_t index, std::uint32_t moment, std::uint32_t serial) noexcept
  {
    if (!is_running() || serial != serial_) return;
    slot& it = tensors_->slots()[index];
    if (--it.pins == 0) it.state = tensor_state::hold;
    record_.release(moment);
  }

  std::uint32_t lease(entry_kind kind, std::uint64_t size)
  {
    record_.make_room();
    return record_.append({access_record::never, 0, 0, kind, false, 0}, {size, entry_detail::never, pass::none});
  }
  void end_lease(std::uint32_t moment, std::uint32_t serial) noexcept
  {
    if (is_running() && serial == serial_) record_.release(moment);
  }

  void drop(std::uint32_t index)
  {
    record_.make_room();
    apply(tensors_->slots()[index], index, tensor_event::drop);
    record_.append({index, 0, 0, entry_kind::drop, false, 0}, {});
  }

 private:
  void assume_filled(const registry& tensors) noexcept
  {
    for (std::uint32_t id = 0; id < tensors.tensors(); ++id) {
      const role part = tensors.info(tensor_id{id}).part;
      if (part == role::activation) continue;
      const std::uint32_t value = tensors.value_slot(tensor_id{id});
      for (const std::uint32_t at : {value, tensors.master_of(value)})
        if (at != slot::nowhere && touched_[at] == 0) filled_[at] = 1;
    }
  }

  void apply(slot& it, std::uint32_t index, tensor_event event)
  {
    if (state_machine<Rules>::is_legal(it.state, event)) {
      it.state = static_cast<tensor_state>(state_machine<Rules>::next(it.state, event));
      return;
    }
    const auto [tensor, list] = tensors_->describe(index);
    state_machine<Rules>::refuse(it.state, event, tensor, list);
  }

  registry* tensors_ = nullptr;
  std::uint32_t serial_ = 0;
  std::vector<slot> before_;
  std::vector<std::uint8_t> filled_;   // by slot: it held bytes before the step
  std::vector<std::uint8_t> touched_;  // by slot: the step uses it
  access_record record_;
};

}  // namespace chunkmem::inline v0
