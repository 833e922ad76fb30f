// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/error_text.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/call_guard.hpp>
#include <chunkmem/manager/gradient_ledger.hpp>
#include <chunkmem/manager/gradient_store.hpp>
#include <chunkmem/manager/owner_link.hpp>
#include <chunkmem/manager/pending_updates.hpp>
#include <chunkmem/manager/registered_states.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

/// What an optimizer step does with a manager, beside accesses: `m.updates()`.
///
/// A step asks first (`expect_used`, `expect_gradients`), orders the parameters (`order_by_completion`), visits them
/// (`for_each_in_order`), and consumes their gradients between `begin_update` and `end_update`. An order stays until
/// the step is finished or forgotten, also where it is tried again. In each of them parameters without a gradient come
/// first.
/// @tparam Builder   model_builder: resolves handles
template <class Engine, class Builder>
class update_session {
 public:
  using place_type = typename call_guard<Engine>::place_type;

  /// All of them outlive this.
  update_session(Engine& engine, Builder& builder, gradient_ledger& ledger, gradient_store<Engine, Builder>& gradients,
                 const registered_states& states, owner_link<Engine>& link) noexcept
      : engine_{&engine}, builder_{&builder}, ledger_{&ledger}, gradients_{&gradients}, states_{&states}, link_{&link}
  {
  }
  update_session(const update_session&) = delete;

  /// Does a whole step as one call of the manager: its check policy takes what the step calls for the library's own.
  template <class Work>
  decltype(auto) within(place_type from, Work&& work)
  {
    return call_guard<Engine>{*engine_}.within("an optimizer step", from, work);
  }

  // Before a step.

  /// @param what   it is: "an optimizer kernel"   @throws usage_error   this manager was not given it by `use`
  void expect_used(const registration& registered, std::string_view what) const
  {
    states_->expect_used(registered, what);
  }
  /// @throws usage_error   the iteration that runs has gradients of some of its micro-batches, and not of all; or the
  ///   last one had named too few, which is said once
  void expect_whole_iteration()
  {
    link_->micro_batches.expect_told();
    link_->micro_batches.expect_no_more(ledger_->opened_at());
  }
  /// @throws usage_error   a load is half done
  void expect_loaded(std::string_view what) const { ledger_->expect_no_load(what); }
  /// Some parameter has a gradient. With checks: every parameter has one, which was written whole, or may be without.
  /// @throws usage_error   none has one; with checks it names some of those that have none
  void expect_gradients(place_type from = place_type{})
  {
    if constexpr (call_guard<Engine>::is_on)
      call_guard<Engine>{*engine_}.within("an optimizer step", from, [&] {
        look_at_gradients();
        expect_some_gradient();
      });
    else
      expect_some_gradient();
  }
  /// The same of a part of a larger step, whose other parts may have all the gradients: this part may have none.
  /// @return   some parameter has a gradient   @throws usage_error   with checks, as expect_gradients
  [[nodiscard]] bool has_gradients_of_part(place_type from = place_type{})
  {
    if constexpr (call_guard<Engine>::is_on)
      call_guard<Engine>{*engine_}.within("an optimizer step", from, [&] { look_at_gradients(); });
    builder_->expect_ready();
    return has_some_gradient();
  }
  /// The iteration that runs does what few others do, such as skipping a step: its record stays as it was.
  void keep_record() noexcept
  {
    if (!is_rehearsing()) engine_->schedule().keep_record();
  }

  // Rehearsals.

  /// The step has `count` ways, and a rehearsal takes each of them. @return   number of the way that runs now, from 0
  std::size_t rehearse_turns(std::size_t count) noexcept
  {
    engine_->rehearsing().want_turns(count);
    return engine_->rehearsing().turn();
  }

  // Order.

  /// As gradients were completed: the copies of the first ones are on their way while the last ones are made.
  void order_by_completion()
  {
    arrange([this](std::uint32_t index) { return ledger_->completed(slot_id{index}); });
    if (!is_rehearsing()) engine_->note_update();
  }
  /// First these, then as this iteration used the weights for the first time, which is how the next one will; then
  /// those that it did not use. O(accesses so far + parameters log parameters).
  /// @return   how many parameters come before those that are not among `first`
  std::uint32_t order_by_use(std::span<const tensor_handle> first = {})
  {
    constexpr std::uint64_t behind = std::uint64_t{1} << 32;
    const registry& tensors = engine_->tensors();
    rank_.assign(tensors.parameters(), 2 * behind);
    const auto entries =
        is_rehearsing() ? engine_->rehearsing().last_record().entries() : engine_->schedule().entries_so_far();
    for (std::uint32_t now = static_cast<std::uint32_t>(entries.size()); now-- > 0;)
      if (tensors.is_value_of_parameter(slot_id{entries[now].slot})) rank_[entries[now].slot] = behind + now;
    for (std::size_t index = 0; index < first.size(); ++index)
      rank_[index_of(builder_->slot_in(first[index], value_list))] = index;
    arrange([this](std::uint32_t index) { return rank_[index]; });
    const auto order = ledger_->order().all();
    const auto rest = std::find_if(order.begin(), order.end(),
                                   [&](std::uint32_t index) { return has_waiting(index) && rank_[index] >= behind; });
    return static_cast<std::uint32_t>(rest - order.begin());
  }
  /// Calls `visit(handle, info)` for each parameter in that order, without the first `done`.
  template <class Visit>
  void for_each_in_order(std::uint32_t done, Visit visit)
  {
    builder_->expect_ready();
    for (const std::uint32_t index : ledger_->order().all().subspan(done)) with_parameter(index, visit);
  }
  /// Calls `visit(handle, info)` for one parameter. @param ordinal   in the order of declaration
  template <class Visit>
  void with_parameter(std::uint32_t ordinal, Visit&& visit)
  {
    const tensor_id id = engine_->tensors().parameter(ordinal);
    visit(builder_->handle_of(id), engine_->tensors().info(id));
  }

  // Norms.

  /// Of one gradient, or null where neither gradient_done nor a step took them.
  [[nodiscard]] const gradient_measure* measure_of(tensor_handle parameter)
  {
    (void)builder_->slot_in(parameter, gradient_list);
    return ledger_->measure_of(builder_->slot_of(parameter));
  }
  /// What a step measured, so that it is not measured again where the step is tried again. @pre it has a gradient
  void keep_measure(tensor_handle parameter, const gradient_measure& measure)
  {
    ledger_->keep_measure(builder_->slot_of(parameter), measure);
  }
  /// What all gradients of this step measure together, where more take part than this manager knows: the step decides
  /// by it, and measures none. Good until a gradient is asked for or dropped, or the step is over.
  void keep_measure_of_all(const gradient_measure& measure) noexcept { ledger_->keep_measure_of_all(measure); }
  [[nodiscard]] const gradient_measure* measure_of_all() const noexcept { return ledger_->measure_of_all(); }
  /// For checks::full, else nothing happens: the gradient is a sum that was made elsewhere, so nobody counts the
  /// micro-batches in which it is opened.
  void allow_any_micro_batches(tensor_handle parameter)
  {
    if constexpr (call_guard<Engine>::is_on) gradients_->micro_batches().exempt(index_of(builder_->slot_of(parameter)));
  }
  /// How often a gradient was asked for: unchanged means that no gradient was written meanwhile.
  [[nodiscard]] std::uint64_t gradients_opened() const noexcept { return ledger_->opened(); }

  // Updates.

  /// Where the states of a parameter live, and with that where the calling thread updates it.
  [[nodiscard]] memory_location place_of_update(tensor_handle parameter)
  {
    return builder_->update_place(builder_->slot_of(parameter));
  }
  /// A parameter has its update. From here to `end_update`, gradients are not made or dropped, and nothing is saved.
  void begin_update() noexcept { ledger_->begin_update(); }
  void end_update() noexcept { ledger_->end_update(); }
  /// The gradient is used up, or its parameter is passed over.
  /// @throws out_of_memory, device_error   the weight is unreadable; call again
  void consume_gradient(tensor_handle parameter)
  {
    (void)builder_->slot_in(parameter, gradient_list);
    gradients_->consume(builder_->slot_of(parameter));
  }
  /// An update that overwrote a gradient in its weight's place was undone: the bytes are the gradient's again.
  /// @pre no pin holds them
  void take_place_again(tensor_handle parameter) noexcept { gradients_->take_place(builder_->slot_of(parameter)); }
  /// Steps that were begun and do not count: a step that was cut short before goes on only while this stays the same.
  [[nodiscard]] std::uint64_t steps_forgotten() const noexcept { return ledger_->forgotten(); }

  // Updates that wait until their weights are used: see optimizer::late_updates.

  /// @throws std::bad_alloc   @pre nothing waits
  void make_room_for_updates()
  {
    builder_->expect_ready();
    engine_->pending().prepare();
  }
  /// The gradients that are left wait in this order; each is used up by `update(who, value_slot)` before anything of
  /// its parameter is used. @pre make_room_for_updates, and nothing was placed elsewhere since
  void hold_updates(pending_updates::update_type update, void* context) noexcept
  {
    const auto order = ledger_->order().all();
    for (std::size_t index = order.size(); index-- > 0;)
      if (has_waiting(order[index])) engine_->pending().add(slot_id{order[index]});
    engine_->pending().serve(update, context);
  }
  /// Does all that waits. @throws usage_error   the object that had to is gone; and as the updates: call again
  void finish_updates()
  try {
    engine_->pending().finish();
  } catch (error& failed) {
    engine_->annotator().annotate(failed);
    throw;
  }
  /// `context` ends: what waits for it stays unusable until a load.
  void abandon_updates(const void* context) noexcept { engine_->pending().leave(context); }

 private:
  static constexpr std::uint64_t most_named = 4;

  [[nodiscard]] bool is_rehearsing() const noexcept { return engine_->rehearsing().is_running(); }
  template <class Key>
  void arrange(Key key)
  {
    ledger_->order().arrange(
        [&](std::uint32_t index) { return has_waiting(index) ? 1 + std::uint64_t{key(index)} : 0; });
  }
  [[nodiscard]] bool has_waiting(std::uint32_t ordinal) const noexcept
  {
    return !gradients_->is_fresh(slot_id{ordinal});
  }

  [[nodiscard]] bool has_some_gradient() const
  {
    for (std::uint32_t index = 0; index < engine_->tensors().parameters(); ++index)
      if (has_waiting(index) && !engine_->pending().has(slot_id{index})) return true;
    return false;
  }
  void expect_some_gradient()
  {
    const std::uint32_t count = engine_->tensors().parameters();
    if (is_rehearsing() || count == 0 || ledger_->measure_of_all() != nullptr) return;  // a part of a larger step
    builder_->expect_ready();
    if (has_some_gradient()) return;
    throw usage_error{error_text{} << "chunkmem: an optimizer step, and none of " << count
                                   << " parameters has a gradient (write gradients before each step, and take one step "
                                      "for them; leave the step out where there are none)"};
  }
  void look_at_gradients()
  {
    if (is_rehearsing()) return;
    builder_->expect_ready();
    const registry& tensors = engine_->tensors();
    error_text names;
    std::uint64_t missing = 0;
    for (std::uint32_t index = 0; index < tensors.parameters(); ++index) {
      if (has_waiting(index) && !engine_->pending().has(slot_id{index})) {
        engine_->expect_written(slot_id{index}, "an optimizer step");
        expect_every_micro_batch(index);
        continue;
      }
      const tensor_id id = tensors.parameter(index);
      if (engine_->checks().may_lack_gradient(index_of(id)) || ++missing > most_named) continue;
      names << (missing > 1 ? ", " : "");
      tensors.write_name(id, names);
    }
    if (missing == 0) return;
    throw usage_error{error_text{} << "chunkmem: an optimizer step: " << missing << " of "
                                   << std::uint64_t{tensors.parameters()} << " parameters have no gradient: "
                                   << names.view() << (missing > most_named ? ", ..." : "")
                                   << " (write one for each, declare what is not trained with role::frozen, or call "
                                      "without_gradient(w) for what may lack one)"};
  }

  void expect_every_micro_batch(std::uint32_t index)
  {
    const registry& tensors = engine_->tensors();
    const checks::micro_batch_watch::count seen = gradients_->micro_batches().seen(index);
    if (!seen.is_short() || engine_->checks().may_lack_gradient(index_of(tensors.parameter(index)))) return;
    throw usage_error{error_text{} << "chunkmem: an optimizer step: the gradient of " << tensors.label(slot_id{index})
                                   << " was opened in " << seen.opened << " of " << seen.expected
                                   << " micro-batches (add to it in each, name each by pass() before, or call "
                                      "without_gradient(w) for what some micro-batches leave out)"};
  }

  Engine* engine_;
  Builder* builder_;
  gradient_ledger* ledger_;
  gradient_store<Engine, Builder>* gradients_;
  const registered_states* states_;
  owner_link<Engine>* link_;
  sequence<std::uint64_t> rank_;  // by parameter
};

}  // namespace chunkmem::inline v0
