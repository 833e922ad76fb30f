// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checks/micro_batch_watch.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/engine.hpp>
#include <chunkmem/manager/gradients.hpp>
#include <chunkmem/manager/pin.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// Notifies a watcher before a weight or a state changes on the host, and while an update runs there. A save that reads
/// bytes in place is such a watcher.
///
/// `begin(before, during, who)` registers the watcher. `tell(chunk)` is called before each change, and an update holds
/// `updating()` as long as it runs. `end(who)` removes the watcher. Cost: one test for a change or an update without a
/// watcher.
class change_watch {
 public:
  /// @param chunk   a tensor in it changes; none: all may change
  using call = void (*)(void* context, chunk_id chunk) noexcept;
  /// @param begins   an update reads and writes the host's memory from here on; else it has ended, or has thrown
  using update_call = void (*)(void* context, bool begins) noexcept;

  /// Tells when an update begins and ends.
  class update_scope {
   public:
    explicit update_scope(change_watch& told) noexcept : told_{told.updating_ == nullptr ? nullptr : &told}
    {
      if (told_ != nullptr) [[unlikely]]
        told_->updating_(told_->who_, true);
    }
    update_scope(const update_scope&) = delete;
    ~update_scope()
    {
      if (told_ != nullptr && told_->updating_ != nullptr) [[unlikely]]
        told_->updating_(told_->who_, false);
    }

   private:
    change_watch* told_;
  };

  /// @throws usage_error   there is a watcher already
  void begin(call before, update_call during, void* context)
  {
    expects(before_ == nullptr,
            "two saves cannot read bytes of one manager in place (wait for the first, or call its detach())");
    before_ = before;
    updating_ = during;
    who_ = context;
  }
  /// Does nothing where the watcher is another one.
  void end(const void* context) noexcept
  {
    if (who_ == context) before_ = nullptr, updating_ = nullptr, who_ = nullptr;
  }
  void tell(chunk_id chunk) noexcept
  {
    if (before_ != nullptr) [[unlikely]]
      before_(who_, chunk);
  }
  [[nodiscard]] update_scope updating() noexcept { return update_scope{*this}; }

 private:
  call before_ = nullptr;
  update_call updating_ = nullptr;
  void* who_ = nullptr;
};

/// The gradients of a model and the masters of its 16-bit weights, with the watcher of changes on the host.
///
/// `expect(slot)` then `open(slot)` for each gradient pin; `consume(slot)` when the update is done or the gradient is
/// dropped. A weight whose bytes its gradient took is made again from its master where no update overwrote it.
///
/// A master is made from its weight before the first iteration, and again where the weight was written between
/// iterations: `begin(iteration)` makes it. Call `expect_writable` before and `note_written` after a trainer writes a
/// weight. Cost: O(parameters) at the begin of an iteration after a write; else one test.
/// @tparam Builder   model_builder: where a parameter is updated
template <class Engine, class Builder>
class gradient_store {
 public:
  using states = typename Engine::states;

  /// All arguments outlive this object. @param link   for the pins that it takes
  gradient_store(Engine& engine, Builder& builder, control_block<Engine>& link) noexcept
      : engine_{&engine}, builder_{&builder}, link_{&link}
  {
  }
  gradient_store(const gradient_store&) = delete;

  /// Notified before weights or states change on the host, by an update, a write or a load, and of updates there.
  [[nodiscard]] change_watch& changes() noexcept { return changes_; }

  // Gradients.

  /// A gradient may be requested. @param pins   most pins that may hold the weight
  /// @throws usage_error   another element type, after gradient_done, an update is half done, or the gradient has
  ///   to take the bytes of a weight that is pinned or has no master
  template <element Element>
  void expect(slot_id value_slot, std::uint32_t pins)
  {
    engine_->pending().finish();  // gradients of two steps are never there at once
    const registry& tensors = engine_->tensors();
    if (const dtype own = tensors.gradient_type(value_slot); own != dtype_of<Element>) [[unlikely]]
      throw usage_error{error_text{} << "chunkmem: " << tensors.label(value_slot)
                                     << ": a gradient was requested with an element type that is not its own: "
                                     << name_of(dtype_of<Element>) << ", and it is of " << name_of(own)
                                     << " (name that type, as in m.gradient<float>(...))"};
    engine_->gradients().expect_no_update("a gradient was requested");
    named().expect_open(engine_->gradients().done(value_slot), [&] { return tensors.label(value_slot); });
    if (tensors[tensors.gradient_of(value_slot)].pins == 0)
      engine_->expect_written(value_slot, "a gradient was opened again");
    if (state_in(tensors.gradient_of(value_slot)) == tensor_state::free) expect_place(value_slot, pins);
  }
  /// The gradient has no bytes yet: it was not written in this step.
  [[nodiscard]] bool is_fresh(slot_id value_slot) const noexcept
  {
    return state_in(engine_->tensors().gradient_of(value_slot)) == tensor_state::free;
  }

  /// A pin on the gradient of this weight, which may take the weight's bytes. @pre expect
  /// @param has_beta   the pin has a `beta()`
  [[nodiscard]] access_token open(slot_id value_slot, entry_kind kind, agent stream, bool has_beta)
  {
    const bool first = is_fresh(value_slot);
    if constexpr (Engine::checks_type::is_on) note_micro_batch(value_slot);
    const access_token result = engine_->acquire_in_place(engine_->tensors().gradient_of(value_slot), kind, stream);
    if (first && takes_place(value_slot)) take_place(value_slot);
    engine_->gradients().note_opened(value_slot);
    engine_->gradient_opened(value_slot, result, first, has_beta);
    return result;
  }
  /// As `open`, between backward and step: norms taken before are out of date.
  [[nodiscard]] access_token open_again(slot_id value_slot, entry_kind kind, agent stream)
  {
    engine_->pending().finish();
    if (is_fresh(value_slot)) expect_place(value_slot, 0);
    engine_->gradients().expect_no_update("a gradient cannot be changed");
    return open(value_slot, kind, stream, false);
  }

  /// Overwrites a weight whose bytes its gradient has taken: the update does so, element by element. Guarantee: strong,
  /// as acquire.
  [[nodiscard]] access_token acquire_over(slot_id value_slot, entry_kind kind, agent stream)
  {
    engine_->pending().catch_up(value_slot);
    slot& value = engine_->tensors()[value_slot];
    const tensor_state before = value.state;
    states::take_back(value);
    try {
      return engine_->acquire_in_place(value_slot, kind, stream);
    } catch (...) {
      states::undo(value, before);
      throw;
    }
  }

  /// The gradient was used, or its parameter is skipped.
  /// @throws out_of_memory, device_error   the weight stays unreadable; call again
  void consume(slot_id value_slot)
  {
    const slot_id gradient = engine_->tensors().gradient_of(value_slot);
    if (state_in(gradient) != tensor_state::free) engine_->drop(gradient);
    engine_->gradients().forget(value_slot);
    if constexpr (Engine::checks_type::is_on) micro_batches_.forget(index_of(value_slot));
    restore_weight(value_slot);
  }
  /// With checks: in which micro-batches of its iteration a gradient was opened.
  [[nodiscard]] checks::micro_batch_watch& micro_batches() noexcept { return micro_batches_; }
  /// Consumes the gradients of all parameters. @throws as consume; device_error
  void consume_all()
  {
    engine_->health().expect_alive();
    for (const slot_id each : ids<slot_id>(engine_->tensors().parameters())) consume(each);
  }
  /// Drops all gradients and a step that was begun. @pre no parameter has its update
  void forget_step()
  {
    engine_->gradients().forget_measure_of_all();
    if (!is_rehearsing()) engine_->gradients().forget_step();
    consume_all();
  }
  /// The gradient takes the bytes of its value, again where an update was undone. @pre the value has no pins, and its
  /// gradient lies in its place
  void take_place(slot_id value_slot) noexcept
  {
    states::consume(engine_->tensors()[value_slot]);
    engine_->gradients().places().note_consumed(value_slot);
  }

  // Masters.

  /// Makes the masters of weights that were written since the last iteration, then begins the iteration by `begin()`.
  /// Where the iteration is refused, these masters are dropped again: they would keep their room.
  /// @throws usage_error   a pin holds a weight whose master is to be made; out_of_memory, device_error; and as `begin`
  template <class Begin>
  void begin(Begin begin)
  {
    try {
      if (wants_masters_ && engine_->tensors().has_masters() && !engine_->schedule().is_inside()) {
        engine_->pending().finish();  // they make masters too
        make_all();
      }
      begin();
    } catch (...) {
      unmake_all();
      throw;
    }
    made_.clear();
    wants_masters_ = false;
  }

  /// A trainer is about to write a weight. @throws usage_error   inside an iteration, where its master would be out of
  /// date
  void expect_writable(slot_id slot)
  {
    const registry& tensors = engine_->tensors();
    if (tensors.is_value_of_parameter(slot)) {
      engine_->pending().catch_up_to_write(slot);  // first: a save copies the weight's bytes after its update
      tell_of_change(slot);
    }
    const slot_id master = tensors.master_of(slot);
    if (master == slot_id::none || is_rehearsing()) return;
    if (state_in(master) == tensor_state::free) return;
    tell_of_change(master);  // which goes
    tensors.expects_of(slot, !engine_->schedule().is_inside(),
                       "a 16-bit weight cannot be written inside an iteration: its update comes from its master (write "
                       "it between iterations)");
    tensors.expects_of(slot, tensors[master].pins == 0,
                       "a weight cannot be written while its master is pinned: release it first");
  }
  /// A trainer wrote the weight: its master is out of date.
  void note_written(slot_id slot)
  {
    const slot_id master = engine_->tensors().master_of(slot);
    if (master == slot_id::none || is_rehearsing()) return;
    if (state_in(master) != tensor_state::free && !engine_->schedule().is_inside()) engine_->drop(master);
    wants_masters_ = true;
  }
  /// A save that reads bytes in place is notified before one changes. In a rehearsal nothing changes.
  void tell_of_change(slot_id slot) noexcept
  {
    if (!is_rehearsing()) changes_.tell(engine_->tensors().chunk_of(slot));
  }

 private:
  void note_micro_batch(slot_id value_slot)
  {
    if (is_rehearsing()) return;
    if (engine_->schedule().is_inside())
      micro_batches_.opened(index_of(value_slot), named().current(), named().expected());
    else
      micro_batches_.exempt(index_of(value_slot));
  }
  [[nodiscard]] bool is_rehearsing() const noexcept { return engine_->rehearsing().is_running(); }
  [[nodiscard]] const micro_batch_ledger& named() const noexcept { return engine_->gradients().micro_batches(); }
  [[nodiscard]] tensor_state state_in(slot_id slot) const noexcept { return engine_->tensors()[slot].state; }
  /// The next gradient of this weight takes the weight's own bytes. A rehearsal takes none.
  [[nodiscard]] bool takes_place(slot_id value_slot) const noexcept
  {
    return !is_rehearsing() && engine_->gradients().places().is_lent(value_slot);
  }
  /// @param pins   that may hold the weight
  void expect_place(slot_id value_slot, std::uint32_t pins) const
  {
    if (!takes_place(value_slot)) return;
    const registry& tensors = engine_->tensors();
    tensors.expects_of(
        value_slot, tensors[value_slot].pins <= pins,
        "a gradient in place was requested while another pin holds the weight: release that pin first, or "
        "use gradient::separate");
    tensors.expects_of(value_slot, state_in(value_slot) != tensor_state::gradient,
                       "a gradient in place of a weight that must first be made again from its master: call "
                       "drop_gradient again first");
    tensors.expects_of(
        value_slot,
        state_in(value_slot) != tensor_state::free && state_in(tensors.master_of(value_slot)) != tensor_state::free,
        "a gradient in place of a weight without a master yet: fill weights before their first iteration");
  }

  /// After its gradient is gone: a weight that the gradient had overwritten is made again from its master.
  void restore_weight(slot_id value_slot)
  {
    if (state_in(value_slot) != tensor_state::gradient) return;
    const memory_location place = builder_->update_place(value_slot);
    const slot_id from = engine_->tensors().master_of(value_slot);
    const pin<const float, Engine> master{
        link_, [&] { return engine_->acquire_in_place(from, kind_of(access::read, place)); }};
    with_16_bits(value_slot, [&]<class Element>(Element) {
      const pin<Element, Engine> weight{
          link_, [&] { return acquire_over(value_slot, kind_of(access::write, place), agent::host); }};
      if constexpr (!Engine::has_bytes) return;
      const std::span<const float> from_full = master.span();
      const std::span<Element> to = weight.span();
      for (std::size_t index = 0; index < to.size(); ++index) to[index] = round_to<Element>(from_full[index]);
    });
  }

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
      } catch (...) {  // the device is lost, and all bytes with it
      }
    }
  }

  void make(slot_id value_slot)
  {
    const registry& tensors = engine_->tensors();
    const slot_id master = tensors.master_of(value_slot);
    if (master == slot_id::none || state_in(master) != tensor_state::free || state_in(value_slot) == tensor_state::free)
      return;
    tell_of_change(value_slot);  // a save that reads the weight's bytes in place has a pin on it
    tell_of_change(master);
    tensors.expects_of(value_slot, tensors[value_slot].pins == 0,
                       "a weight is pinned while its master is made: release pins of weights that were written before "
                       "the iteration");
    made_.push_back(master);
    const memory_location place = builder_->update_place(value_slot);
    with_16_bits(value_slot, [&]<class Element>(Element) {
      const pin<const Element, Engine> weight{
          link_, [&] { return engine_->acquire_in_place(value_slot, kind_of(access::read, place)); }};
      const pin<float, Engine> full{link_,
                                    [&] { return engine_->acquire_in_place(master, kind_of(access::write, place)); }};
      if constexpr (Engine::has_bytes) widen(weight.span(), full.span());
    });
  }
  /// Calls `work(Element{})` for the type of a weight that has a master.
  template <class Work>
  void with_16_bits(slot_id value_slot, Work work) const
  {
    engine_->tensors().value_type(value_slot) == dtype::bfloat16 ? work(bf16{}) : work(fp16{});
  }

  Engine* engine_;
  Builder* builder_;
  control_block<Engine>* link_;
  change_watch changes_;
  checks::micro_batch_watch micro_batches_;  // with checks
  bool wants_masters_ = true;
  sequence<slot_id> made_;  // masters made for the iteration that is about to begin
};

}  // namespace chunkmem::inline v0
