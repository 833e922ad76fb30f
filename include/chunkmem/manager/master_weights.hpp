// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/change_watch.hpp>
#include <chunkmem/manager/engine.hpp>
#include <chunkmem/manager/pin.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/tensor/half.hpp>
#include <chunkmem/tensor/widen.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// Keeps 16-bit weights and their masters in full precision in agreement.
///
/// A master is made from its weight before the first iteration, and again where the weight was written between
/// iterations: `begin(iteration)` does it. `expect_writable` before and `note_written` after a trainer writes a weight
/// tell it. Cost: O(parameters) at the begin of an iteration after a write; else one test.
/// @tparam Builder   model_builder: where a parameter is updated
template <class Engine, class Builder>
class master_weights {
 public:
  /// All of them outlive this. @param link   of the pins that it takes   @param changes   hears before a weight changes
  master_weights(Engine& engine, Builder& builder, change_watch& changes, owner_link<Engine>& link) noexcept
      : engine_{&engine}, builder_{&builder}, changes_{&changes}, link_{&link}
  {
  }
  master_weights(const master_weights&) = delete;

  /// Begins an iteration by `begin()`, before which weights that were written since have their masters again. Where the
  /// iteration is refused, they have none, as before: masters would take room that cannot be had back.
  /// @throws usage_error   a pin holds a weight whose master is to be made; out_of_memory, device_error; and as `begin`
  template <class Begin>
  void begin(Begin begin)
  {
    try {
      if (wanted_ && engine_->tensors().has_masters() && !engine_->schedule().is_inside()) {
        engine_->pending().finish();  // they make masters too
        make_all();
      }
      begin();
    } catch (...) {
      unmake_all();
      throw;
    }
    made_.clear();
    wanted_ = false;
  }

  /// A trainer is about to write a weight. @throws usage_error   inside an iteration, where its master would not hear
  /// of it
  void expect_writable(slot_id slot)
  {
    const registry& tensors = engine_->tensors();
    if (tensors.is_value_of_parameter(slot)) tell_of_change(slot);
    const slot_id master = tensors.master_of(slot);
    if (master == slot_id::none || is_rehearsing()) return;
    engine_->pending().catch_up(slot);  // an update that waits may be the one that makes the master
    if (state_in(master) == tensor_state::free) return;
    tell_of_change(master);  // which goes
    tensors.expects_of(slot, !engine_->schedule().is_inside(),
                       "a 16-bit weight was to be written inside an iteration: its update comes from its master (write "
                       "it between iterations)");
    tensors.expects_of(slot, tensors[master].pins == 0,
                       "a weight was to be written while its master is pinned: release it first");
  }
  /// It did: the master is not that of this weight any more.
  void note_written(slot_id slot)
  {
    const slot_id master = engine_->tensors().master_of(slot);
    if (master == slot_id::none || is_rehearsing()) return;
    if (state_in(master) != tensor_state::free && !engine_->schedule().is_inside()) engine_->drop(master);
    wanted_ = true;
  }
  /// A save that takes bytes from where they lie hears before one changes. In a rehearsal nothing changes.
  void tell_of_change(slot_id slot) noexcept
  {
    if (!is_rehearsing()) changes_->tell(engine_->tensors().chunk_of(slot));
  }

 private:
  [[nodiscard]] bool is_rehearsing() const noexcept { return engine_->rehearsing().is_running(); }
  [[nodiscard]] tensor_state state_in(slot_id slot) const noexcept { return engine_->tensors()[slot].state; }

  void make_all()
  {
    made_.clear();
    made_.reserve(engine_->tensors().parameters());
    for (const slot_id each : ids<slot_id>(engine_->tensors().parameters())) make(each);
  }
  void unmake_all() noexcept
  {
    for (; !made_.empty(); made_.pop_back()) {
      try {
        if (state_in(made_.back()) != tensor_state::free) engine_->drop(made_.back());
      } catch (...) {  // the device is lost, and with it everything
      }
    }
  }

  void make(slot_id value_slot)
  {
    const registry& tensors = engine_->tensors();
    const slot_id master = tensors.master_of(value_slot);
    if (master == slot_id::none || state_in(master) != tensor_state::free || state_in(value_slot) == tensor_state::free)
      return;
    tell_of_change(value_slot);  // a save that takes the weight's bytes from where they lie has a pin on it
    tell_of_change(master);
    tensors.expects_of(value_slot, tensors[value_slot].pins == 0,
                       "a weight is pinned while its master is made: release pins of weights that were written before "
                       "the iteration");
    made_.push_back(master);
    const memory_location place = builder_->update_place(value_slot);
    if (tensors.value_type(value_slot) == dtype::bfloat16)
      widen<bf16>(value_slot, master, place);
    else
      widen<fp16>(value_slot, master, place);
  }
  template <element Element>
  void widen(slot_id value_slot, slot_id master_slot, memory_location place)
  {
    const pin<const Element, Engine> weight{
        link_, [&] { return engine_->acquire_in_place(value_slot, kind_of(access::read, place)); }};
    const pin<float, Engine> master{
        link_, [&] { return engine_->acquire_in_place(master_slot, kind_of(access::write, place)); }};
    if constexpr (!Engine::has_bytes) return;
    chunkmem::widen(weight.span(), master.span());
  }

  Engine* engine_;
  Builder* builder_;
  change_watch* changes_;
  owner_link<Engine>* link_;
  bool wanted_ = true;
  sequence<slot_id> made_;  // masters made for the iteration that is about to begin
};

}  // namespace chunkmem::inline v0
