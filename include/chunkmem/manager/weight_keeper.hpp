// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/manager/change_watch.hpp>
#include <chunkmem/manager/model_plan.hpp>
#include <chunkmem/manager/pin.hpp>
#include <chunkmem/tensor/half.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

/// The part of a manager that keeps a 16-bit weight, its master and a gradient in the weight's place in agreement.
///
/// A master is made from its weight before the first iteration, and again where the weight was written between
/// iterations. A weight whose bytes its gradient took is made again from its master where no update did it. Not for
/// users: see basic_manager.
template <class Plan>
class weight_keeper : public Plan {
 public:
  using Plan::Plan;
  using engine_type = typename Plan::engine_type;

  // For optimizers and checkpoints: what is half done is known here.

  /// A parameter has its update. From here to `end_update`, gradients are not made or dropped, and nothing is saved.
  void begin_update() noexcept { ledger_.begin_update(); }
  void end_update() noexcept { ledger_.end_update(); }
  /// The gradient is used up, or its parameter is passed over. @throws   as drop_gradient, which asks before
  void spend_gradient(tensor_handle wanted)
  {
    const std::uint32_t slot = this->slot_in(wanted, gradient_list);
    if (state_in(slot) != tensor_state::free) engine_.drop(slot);
    ledger_.forget(this->slot_of(wanted));
    restore_weight(this->slot_of(wanted));
  }
  /// All is about to be overwritten: gradients are dropped, and a step that is half done is void. Until `end_load`, no
  /// step is taken and nothing is saved. @throws   as drop_gradients
  void begin_load()
  {
    before_change();
    ledger_.begin_load();
    engine_.pending().discard();
    spend_gradients();
  }
  void end_load() noexcept { ledger_.end_load(); }
  /// Told before weights or states change on the host: by an update, a write there, or a load.
  [[nodiscard]] change_watch& changes() noexcept { return changes_; }
  /// Steps that were begun and do not count: a step that was cut short before goes on only while this stays the same.
  [[nodiscard]] std::uint64_t steps_forgotten() const noexcept { return ledger_.forgotten(); }
  /// @throws usage_error   an optimizer step is half done
  void expect_updated(std::string_view what) const { ledger_.expect_no_update(what); }
  /// @throws usage_error   a load is half done
  void expect_loaded(std::string_view what) const { ledger_.expect_no_load(what); }

 protected:
  using Plan::engine_, Plan::gradient_, Plan::ledger_, Plan::link_, Plan::model_places_;
  template <pinned_element Element>
  using held_by = pin<Element, engine_type>;

  void before_change() noexcept
  {
    if (!this->rehearsing()) changes_.tell();
  }

  /// Where the calling thread updates a parameter: where the optimizer's states live, if it can read there or has
  /// nothing to read.
  [[nodiscard]] at update_place(std::uint32_t value_slot) const noexcept
  {
    constexpr bool is_free = engine_type::host_addressable || !engine_type::has_bytes;
    return is_free && model_places_.homes().home_of(value_slot) == tier::device ? at::device : at::host;
  }

  /// Begins an iteration, before which weights that were written since have their masters again. Where it is refused,
  /// they have none, as before: masters would take room that cannot be had back. O(parameters) where one was written.
  template <class Begin>
  void begin_with_masters(Begin begin)
  {
    try {
      if (masters_wanted_ && engine_.tensors().has_masters() && !engine_.is_inside()) {
        engine_.finish_updates();  // they make masters too
        make_masters();
      }
      begin();
    } catch (...) {
      unmake_masters();
      throw;
    }
    made_.clear();
    masters_wanted_ = false;
  }

  /// A trainer is about to write a weight. @throws usage_error   inside an iteration, where its master would not hear
  /// of it
  void expect_writable(std::uint32_t slot)
  {
    if (engine_.tensors().is_value_of_parameter(slot)) before_change();
    const std::uint32_t master = engine_.tensors().master_of(slot);
    if (master == slot::nowhere || this->rehearsing()) return;
    engine_.catch_up(slot);  // an update that waits may be the one that makes the master
    if (state_in(master) == tensor_state::free) return;
    engine_.tensors().expects_of(slot, !engine_.is_inside(),
                                 "a 16-bit weight was to be written inside an iteration: its update comes from its "
                                 "master (write it between iterations)");
    engine_.tensors().expects_of(slot, engine_.tensors().slots()[master].pins == 0,
                                 "a weight was to be written while its master is pinned: release it first");
  }
  /// It did: the master is not that of this weight any more.
  void note_written(std::uint32_t slot)
  {
    const std::uint32_t master = engine_.tensors().master_of(slot);
    if (master == slot::nowhere || this->rehearsing()) return;
    if (state_in(master) != tensor_state::free && !engine_.is_inside()) engine_.drop(master);
    masters_wanted_ = true;
  }

  /// The next gradient of this weight takes the weight's own bytes. A rehearsal takes none.
  [[nodiscard]] bool takes_place(std::uint32_t value_slot) const noexcept
  {
    return !this->rehearsing() && engine_.places().is_lent(value_slot);
  }
  /// @param pins   that may hold the weight
  /// @throws usage_error   more pins hold it, it was filled after the first iteration had begun, or dropping its last
  ///   gradient failed
  void expect_place(std::uint32_t value_slot, std::uint32_t pins) const
  {
    if (!takes_place(value_slot)) return;
    const registry& tensors = engine_.tensors();
    tensors.expects_of(value_slot, tensors.slots()[value_slot].pins <= pins,
                       "a gradient in place was asked for while another pin holds the weight: release it before, or "
                       "take gradient::separate");
    tensors.expects_of(value_slot, state_in(value_slot) != tensor_state::gradient,
                       "a gradient in place of a weight that is still to be made again from its master: call "
                       "drop_gradient again before");
    tensors.expects_of(
        value_slot,
        state_in(value_slot) != tensor_state::free && state_in(tensors.master_of(value_slot)) != tensor_state::free,
        "a gradient in place of a weight without a master yet: fill weights before their first iteration");
  }

  /// @param pins   on the weight that may be there
  template <element Element>
  void expect_gradient(std::uint32_t value_slot, std::uint32_t pins)
  {
    engine_.finish_updates();  // gradients of two steps do not meet
    const registry& tensors = engine_.tensors();
    tensors.expects_of(value_slot, tensors.gradient_type(value_slot) == dtype_of<Element>,
                       "a gradient was asked for with an element type that is not its own (m.gradient<float>(...) "
                       "where gradients are wide)");
    ledger_.expect_no_update("a gradient was asked for");
    tensors.expects_of(
        value_slot, ledger_.is_open(value_slot),
        "a gradient was asked for after gradient_done: its norm is taken already (take the step, or drop it)");
    if (tensors.slots()[tensors.gradient_of(value_slot)].pins == 0)
      engine_.expect_written(value_slot, "a gradient was opened again");
    if (state_in(tensors.gradient_of(value_slot)) == tensor_state::free) expect_place(value_slot, pins);
  }

  /// A pin on the gradient of this weight, which may take the weight's bytes. @pre expect_place
  /// @param has_beta   its holder can ask whether to add
  [[nodiscard]] grant write_gradient(std::uint32_t value_slot, entry_kind kind, agent who, bool has_beta = false)
  {
    const std::uint32_t slot = engine_.tensors().gradient_of(value_slot);
    const bool first = state_in(slot) == tensor_state::free;
    const grant result =
        place_of(kind) == at::host ? engine_.acquire_on_host(slot, kind) : engine_.acquire(slot, kind, who);
    if (first && takes_place(value_slot)) spend(value_slot);
    ledger_.note_opened(value_slot);
    engine_.gradient_opened(value_slot, result, first, has_beta);
    return result;
  }
  /// A gradient is changed between backward and step: norms that were taken are not its norms any more.
  [[nodiscard]] grant rewrite_gradient(std::uint32_t value_slot, entry_kind kind, agent who)
  {
    engine_.finish_updates();
    if (state_in(engine_.tensors().gradient_of(value_slot)) == tensor_state::free) expect_place(value_slot, 0);
    ledger_.expect_no_update("a gradient was to be changed");
    return write_gradient(value_slot, kind, who);
  }

  /// A weight is overwritten although its gradient has its bytes: what the update does, element by element.
  /// Guarantee: strong, as acquire.
  [[nodiscard]] grant acquire_over_gradient(std::uint32_t value_slot, entry_kind kind, agent who)
  {
    engine_.catch_up(value_slot);
    tensor_state& state = engine_.tensors().slots()[value_slot].state;
    const tensor_state before = state;
    if (before == tensor_state::gradient) state = after(before, tensor_event::release);
    try {
      return place_of(kind) == at::host ? engine_.acquire_on_host(value_slot, kind)
                                        : engine_.acquire(value_slot, kind, who);
    } catch (...) {
      state = before;
      throw;
    }
  }

  /// After its gradient is gone: a weight that the gradient had overwritten is made again from its master.
  /// @throws out_of_memory, device_error   the weight stays unreadable; call again
  void restore_weight(std::uint32_t value_slot)
  {
    if (state_in(value_slot) != tensor_state::gradient) return;
    const at place = update_place(value_slot);
    const auto master = take<float>(engine_.tensors().master_of(value_slot), access::read, place);
    if (value_type(value_slot) == dtype::bfloat16)
      copy_rounded(master, take_over<bf16>(value_slot, place));
    else
      copy_rounded(master, take_over<fp16>(value_slot, place));
  }

  /// Of all parameters.
  void spend_gradients()
  {
    engine_.expect_alive();
    for (std::uint32_t id = 0; id < engine_.tensors().tensors(); ++id)
      if (engine_.tensors().info(tensor_id{id}).part == role::parameter)
        spend_gradient(tensor_handle{tensor_id{id}, this->owner()});
  }
  /// All gradients go, and with them a step that was begun. @pre no parameter has its update
  void forget_step()
  {
    ledger_.forget_measure_of_all();
    if (!this->rehearsing()) ledger_.forget_step();
    spend_gradients();
  }

  /// The gradient has taken the bytes of this value. @pre the value has no pins, and its gradient lies in its place
  void spend(std::uint32_t value_slot) noexcept
  {
    tensor_state& state = engine_.tensors().slots()[value_slot].state;
    state = after(after(state, tensor_event::acquire), tensor_event::spend);
    engine_.places().note_spent(value_slot);
  }
  [[nodiscard]] tensor_state state_in(std::uint32_t slot) const noexcept
  {
    return engine_.tensors().slots()[slot].state;
  }

 private:
  [[nodiscard]] static tensor_state after(tensor_state state, tensor_event event) noexcept
  {
    return static_cast<tensor_state>(state_machine<typename engine_type::rules_type>::next(state, event));
  }

  void make_masters()
  {
    made_.clear();
    made_.reserve(engine_.tensors().parameters());
    for (std::uint32_t at = 0; at < engine_.tensors().parameters(); ++at) make_master(at);
  }
  void unmake_masters() noexcept
  {
    for (; !made_.empty(); made_.pop_back()) {
      try {
        if (state_in(made_.back()) != tensor_state::free) engine_.drop(made_.back());
      } catch (...) {  // the device is lost, and with it everything
      }
    }
  }

  void make_master(std::uint32_t value_slot)
  {
    const std::uint32_t master = engine_.tensors().master_of(value_slot);
    if (master == slot::nowhere || state_in(master) != tensor_state::free || state_in(value_slot) == tensor_state::free)
      return;
    before_change();  // a save that takes the weight's bytes from where they lie has a pin on it
    engine_.tensors().expects_of(
        value_slot, engine_.tensors().slots()[value_slot].pins == 0,
        "a weight is pinned while its master is made: release pins of weights that were written before the iteration");
    made_.push_back(master);
    const at place = update_place(value_slot);
    if (value_type(value_slot) == dtype::bfloat16)
      copy_widened(take<bf16>(value_slot, access::read, place), master, place);
    else
      copy_widened(take<fp16>(value_slot, access::read, place), master, place);
  }

  template <element Element>
  void copy_widened(const held_by<const Element>& weight, std::uint32_t master_slot, at place)
  {
    const auto master = take<float>(master_slot, access::write, place);
    if constexpr (!engine_type::has_bytes) return;
    const std::span<const Element> from = weight.span();
    const std::span<float> to = master.span();
    for (std::size_t at = 0; at < to.size(); ++at) to[at] = to_float(from[at]);
  }
  template <element Element>
  static void copy_rounded(const held_by<const float>& master, const held_by<Element>& weight)
  {
    if constexpr (!engine_type::has_bytes) return;
    const std::span<const float> from = master.span();
    const std::span<Element> to = weight.span();
    for (std::size_t at = 0; at < to.size(); ++at) to[at] = round_to<Element>(from[at]);
  }

  template <element Element, access_choice Access>
  [[nodiscard]] held_by<pinned_as<Element, Access>> take(std::uint32_t slot, Access mode, at place)
  {
    const entry_kind kind = kind_of(mode, place);
    return {link_, [&] {
              return place == at::host ? engine_.acquire_on_host(slot, kind) : engine_.acquire(slot, kind, agent::host);
            }};
  }
  template <element Element>
  [[nodiscard]] held_by<Element> take_over(std::uint32_t slot, at place)
  {
    return {link_, [&] { return acquire_over_gradient(slot, kind_of(access::write, place), agent::host); }};
  }

  [[nodiscard]] dtype value_type(std::uint32_t value_slot) const noexcept
  {
    return engine_.tensors().value_type(value_slot);
  }

  change_watch changes_;
  bool masters_wanted_ = true;
  std::vector<std::uint32_t> made_;  // slots of masters made for the iteration that is about to begin
};

}  // namespace chunkmem::inline v0
