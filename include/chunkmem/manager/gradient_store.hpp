// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checks/micro_batch_watch.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/engine.hpp>
#include <chunkmem/manager/gradient_ledger.hpp>
#include <chunkmem/manager/pin.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/tensor/half.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// Opens, finishes and consumes gradients, also those that take the bytes of their weights.
///
/// `expect(slot)` then `open(slot)` for each gradient pin; `consume(slot)` when the update is done or the gradient is
/// dropped. A weight whose bytes its gradient took is made again from its master where no update overwrote it.
/// @tparam Builder   model_builder: where a parameter is updated
template <class Engine, class Builder>
class gradient_store {
 public:
  using states = typename Engine::states;

  /// All of them outlive this. @param link   of the pins that it takes
  gradient_store(Engine& engine, Builder& builder, gradient_ledger& ledger, owner_link<Engine>& link) noexcept
      : engine_{&engine}, builder_{&builder}, ledger_{&ledger}, link_{&link}
  {
  }
  gradient_store(const gradient_store&) = delete;

  /// A gradient may be asked for. @param pins   on the weight that may be there
  /// @throws usage_error   another element type, after gradient_done, an update is half done, or the gradient has
  ///   to take the bytes of a weight that is pinned or has no master
  template <element Element>
  void expect(slot_id value_slot, std::uint32_t pins)
  {
    engine_->pending().finish();  // gradients of two steps do not meet
    const registry& tensors = engine_->tensors();
    if (const dtype own = tensors.gradient_type(value_slot); own != dtype_of<Element>) [[unlikely]]
      throw usage_error{error_text{} << "chunkmem: " << tensors.label(value_slot)
                                     << ": a gradient was asked for with an element type that is not its own: "
                                     << name_of(dtype_of<Element>) << ", and it is of " << name_of(own)
                                     << " (name that type, as in m.gradient<float>(...))"};
    ledger_->expect_no_update("a gradient was asked for");
    if (!ledger_->is_open(value_slot, link_->micro_batches.moment())) [[unlikely]]
      refuse_done(value_slot);
    if (tensors[tensors.gradient_of(value_slot)].pins == 0)
      engine_->expect_written(value_slot, "a gradient was opened again");
    if (state_in(tensors.gradient_of(value_slot)) == tensor_state::free) expect_place(value_slot, pins);
  }
  /// It has no bytes yet: nobody wrote it in this step.
  [[nodiscard]] bool is_fresh(slot_id value_slot) const noexcept
  {
    return state_in(engine_->tensors().gradient_of(value_slot)) == tensor_state::free;
  }

  /// A pin on the gradient of this weight, which may take the weight's bytes. @pre expect
  /// @param has_beta   its holder can ask whether to add
  [[nodiscard]] access_token open(slot_id value_slot, entry_kind kind, agent stream, bool has_beta)
  {
    const bool first = is_fresh(value_slot);
    if constexpr (Engine::checks_type::is_on) note_micro_batch(value_slot);
    const access_token result = engine_->acquire_in_place(engine_->tensors().gradient_of(value_slot), kind, stream);
    if (first && takes_place(value_slot)) take_place(value_slot);
    ledger_->note_opened(value_slot, link_->micro_batches.moment());
    engine_->gradient_opened(value_slot, result, first, has_beta);
    return result;
  }
  /// The same between backward and step: norms that were taken are not its norms any more.
  [[nodiscard]] access_token open_again(slot_id value_slot, entry_kind kind, agent stream)
  {
    engine_->pending().finish();
    if (is_fresh(value_slot)) expect_place(value_slot, 0);
    ledger_->expect_no_update("a gradient was to be changed");
    return open(value_slot, kind, stream, false);
  }

  /// A weight is overwritten although its gradient has its bytes: what the update does, element by element.
  /// Guarantee: strong, as acquire.
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

  /// The gradient is used up, or its parameter is passed over.
  /// @throws out_of_memory, device_error   the weight stays unreadable; call again
  void consume(slot_id value_slot)
  {
    const slot_id gradient = engine_->tensors().gradient_of(value_slot);
    if (state_in(gradient) != tensor_state::free) engine_->drop(gradient);
    ledger_->forget(value_slot);
    if constexpr (Engine::checks_type::is_on) micro_batches_.forget(index_of(value_slot));
    restore_weight(value_slot);
  }
  /// With checks: in which micro-batches of its iteration a gradient was opened.
  [[nodiscard]] checks::micro_batch_watch& micro_batches() noexcept { return micro_batches_; }
  /// Those of all parameters. @throws as consume; device_error
  void consume_all()
  {
    engine_->health().expect_alive();
    for (const slot_id each : ids<slot_id>(engine_->tensors().parameters())) consume(each);
  }
  /// All gradients go, and with them a step that was begun. @pre no parameter has its update
  void forget_step()
  {
    ledger_->forget_measure_of_all();
    if (!engine_->rehearsing().is_running()) ledger_->forget_step();
    consume_all();
  }
  /// The gradient takes the bytes of its value, again where an update was undone. @pre the value has no pins, and its
  /// gradient lies in its place
  void take_place(slot_id value_slot) noexcept
  {
    states::consume(engine_->tensors()[value_slot]);
    engine_->places().note_consumed(value_slot);
  }

 private:
  void note_micro_batch(slot_id value_slot)
  {
    if (engine_->rehearsing().is_running()) return;
    if (engine_->schedule().is_inside())
      micro_batches_.opened(index_of(value_slot), link_->micro_batches.current(), link_->micro_batches.expected());
    else
      micro_batches_.exempt(index_of(value_slot));
  }
  [[nodiscard]] tensor_state state_in(slot_id slot) const noexcept { return engine_->tensors()[slot].state; }
  /// The next gradient of this weight takes the weight's own bytes. A rehearsal takes none.
  [[nodiscard]] bool takes_place(slot_id value_slot) const noexcept
  {
    return !engine_->rehearsing().is_running() && engine_->places().is_lent(value_slot);
  }
  [[noreturn, gnu::noinline, gnu::cold]] void refuse_done(slot_id value_slot) const
  {
    const micro_batch_ledger& now = link_->micro_batches;
    error_text text;
    text << "chunkmem: " << engine_->tensors().label(value_slot) << ": a gradient was asked for after gradient_done";
    if (ledger_->is_done_in_iteration(value_slot, now.moment()))
      text << ", in micro-batch " << (now.moment() & 0xffffU) << " of " << now.expected()
           << " (call gradient_done behind its last write; for several passes that add up, begin the iteration with as "
              "many micro-batches and name each by pass())";
    else
      text << ", and no step was taken since (take the step, or drop the gradient; for iterations that add up, begin "
              "one with as many micro-batches and name each by pass())";
    throw usage_error{text};
  }
  /// @param pins   that may hold the weight
  void expect_place(slot_id value_slot, std::uint32_t pins) const
  {
    if (!takes_place(value_slot)) return;
    const registry& tensors = engine_->tensors();
    tensors.expects_of(value_slot, tensors[value_slot].pins <= pins,
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

  /// After its gradient is gone: a weight that the gradient had overwritten is made again from its master.
  void restore_weight(slot_id value_slot)
  {
    if (state_in(value_slot) != tensor_state::gradient) return;
    const memory_location place = builder_->update_place(value_slot);
    const slot_id from = engine_->tensors().master_of(value_slot);
    const pin<const float, Engine> master{
        link_, [&] { return engine_->acquire_in_place(from, kind_of(access::read, place)); }};
    if (engine_->tensors().value_type(value_slot) == dtype::bfloat16)
      round_into<bf16>(master, value_slot, place);
    else
      round_into<fp16>(master, value_slot, place);
  }
  template <element Element>
  void round_into(const pin<const float, Engine>& master, slot_id value_slot, memory_location place)
  {
    const pin<Element, Engine> weight{
        link_, [&] { return acquire_over(value_slot, kind_of(access::write, place), agent::host); }};
    if constexpr (!Engine::has_bytes) return;
    const std::span<const float> from = master.span();
    const std::span<Element> to = weight.span();
    for (std::size_t index = 0; index < to.size(); ++index) to[index] = round_to<Element>(from[index]);
  }

  Engine* engine_;
  Builder* builder_;
  gradient_ledger* ledger_;
  owner_link<Engine>* link_;
  checks::micro_batch_watch micro_batches_;  // with checks
};

}  // namespace chunkmem::inline v0
