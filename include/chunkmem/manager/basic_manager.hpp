// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/captured_step.hpp>
#include <chunkmem/manager/iteration.hpp>
#include <chunkmem/manager/model_view.hpp>
#include <chunkmem/manager/step_keeper.hpp>
#include <chunkmem/manager/weight_keeper.hpp>
#include <chunkmem/tensor/gradient_start.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace chunkmem::inline v0 {

/// Keeps the tensors of a model in chunks that move between the device and the host.
///
/// Declare tensors and lists, rehearse a step if the exact need is wanted, fill the weights, then train inside
/// iterations. Name the type through `manager`, which fills in what is not given. A 16-bit parameter may have a master
/// in full precision, which its optimizer updates; the manager makes it from the weight. Guarantees: a call that throws
/// leaves tensors, states and bytes as they were; chunks that had to leave stay away.
/// @threads one caller at a time, from any thread; two managers share nothing
template <stream_backend Backend, tensor_rules Rules, chunk_layout Layout, eviction_policy Eviction,
          placement_policy Placement, gradient_policy Gradient, transfer_policy Transfer, chunk_mover<Backend> Mover,
          trace_sink Sink, check_policy Checks = checks::none>
class basic_manager
    : public model_view<step_keeper<weight_keeper<
          model_plan<Backend, Rules, Layout, Eviction, Placement, Gradient, Transfer, Mover, Sink, Checks>>>> {
 protected:
  using base = model_view<step_keeper<
      weight_keeper<model_plan<Backend, Rules, Layout, Eviction, Placement, Gradient, Transfer, Mover, Sink, Checks>>>>;
  using base::check, base::engine_, base::gradient_, base::ledger_, base::link_, base::ready, base::slot_in,
      base::slot_of, base::within;

 public:
  using base::base, base::for_each_parameter, base::has_gradient, base::rehearsing;
  basic_manager(const basic_manager&) = delete;  // pass a manager by reference: its tensors and pins know where it is
  using engine_type = typename base::engine_type;
  template <pinned_element Element>
  using pin_type = pin<Element, engine_type>;
  using place_type = typename Checks::part::place_type;  ///< where in the trainer a call stands; empty without checks

  // Training.
  /// @throws usage_error     another iteration is running, or a pin holds a weight whose master is to be made; or the
  ///                         last iteration ended with its scope and had named too few micro-batches: said once, then
  ///                         iterations go on
  /// @throws config_error    several micro-batches under gradient::in_place: their gradients could not add up; or the
  ///                         placement refuses what the last iteration leased
  /// @throws out_of_memory   arenas cannot be allocated, or no room to make masters; device_error   a copy could not
  ///                         start. Masters that were made for it are gone again; chunks that had to leave stay away
  [[nodiscard]] chunkmem::iteration<engine_type> iteration(std::string_view name, std::uint32_t micro_batches = 1,
                                                           place_type from = place_type{})
  {
    if constexpr (!Checks::is_on)
      return begin(name, micro_batches);
    else
      return within("iteration", from, [&] { return begin(name, micro_batches); });
  }
  [[nodiscard]] chunkmem::iteration<engine_type> iteration(std::uint32_t micro_batches = 1,
                                                           place_type from = place_type{})
  {
    return iteration("train", micro_batches, from);
  }

  /// Runs `step`, one iteration that repeats, and keeps its work as a graph that can be replayed; see captured_step.
  /// @throws usage_error    it does not repeat yet; it does something that no graph can hold, such as work on the host
  ///                        (what came before is done, as after any exception in a step); or it was not the recorded
  ///                        iteration
  template <class Step>
    requires graph_backend<Backend>
  [[nodiscard]] auto capture(Step&& step)
  {
    static_assert(
        Transfer::plans,
        "chunkmem: a captured step follows a plan: name a transfer policy that plans, such as transfer::lookahead");
    return within("capture", place_type{}, [&] {
      ready();
      expects(!rehearsing(), "a step was to be captured in a rehearsal");
      return capture_step<Backend>(*link_, engine_.backend(), std::forward<Step>(step));
    });
  }

  /// A pin on the device, ready for the calling thread. The pin is const, unless `mode` is `access::read_write` or
  /// `access::write`. A variable of type `access` gives a const pin as well; see `pin::writable`.
  /// @throws out_of_memory   all that could leave is pinned; names what this moment needs
  /// @throws usage_error     not written yet, in use where it must not be, or a tensor of another manager
  /// @throws device_error    a copy could not be started; try again when the device can
  template <element Element, access_choice Access>
  [[nodiscard]] pin_type<pinned_as<Element, Access>> acquire(tensor<Element> wanted, Access mode,
                                                             place_type from = place_type{})
  {
    const auto take_it = [&] { return take(wanted, mode, agent::host); };
    if constexpr (!Checks::is_on)
      return {link_, take_it};  // the hot path: nothing comes between
    else
      return within("acquire", from, [&] { return pin_type<pinned_as<Element, Access>>{link_, take_it}; });
  }
  /// A pin on the device, ready for a stream: the host does not wait, and release orders after the stream's work.
  template <element Element, access_choice Access>
  [[nodiscard]] pin_type<pinned_as<Element, Access>> acquire(tensor<Element> wanted, Access mode, agent who,
                                                             place_type from = place_type{})
  {
    const auto take_for = [&] { return check(who), take(wanted, mode, who); };
    if constexpr (!Checks::is_on)
      return {link_, take_for};
    else
      return within("acquire", from, [&] { return pin_type<pinned_as<Element, Access>>{link_, take_for}; });
  }
  /// A pin on the device or on the host, ready for the calling thread.
  template <element Element, access_choice Access>
  [[nodiscard]] pin_type<pinned_as<Element, Access>> acquire(tensor<Element> wanted, Access mode, at place,
                                                             place_type from = place_type{})
  {
    using result = pin_type<pinned_as<Element, Access>>;
    if (place == at::device) return acquire(wanted, mode, from);
    const auto on_host = [&](std::uint32_t slot) { return engine_.acquire_on_host(slot, kind_of(mode, place)); };
    return within("acquire", from, [&] { return result{link_, [&] { return written(wanted, mode, on_host); }}; });
  }
  /// A pin of a parameter in a list: a state of an optimizer, or a gradient between backward and step.
  /// @throws usage_error   an element type that is not the list's own, or a list that this parameter is not in
  template <element Element, access_choice Access>
  [[nodiscard]] pin_type<pinned_as<Element, Access>> acquire(tensor_handle wanted, list_id list, Access mode, at place,
                                                             place_type from = place_type{})
  {
    return within("acquire", from, [&] {
      const std::uint32_t slot = slot_in(wanted, list);
      engine_.tensors().expects_of(slot, engine_.tensors().type_in(wanted.id, list) == dtype_of<Element>,
                                   "a list was acquired with an element type that is not its own");
      return list == value_list && writes(mode) ? acquire(tensor<Element>{wanted}, mode, place, from)
                                                : acquire_in<pinned_as<Element, Access>>(wanted, list, mode, place);
    });
  }
  /// The same as bytes of any element type, on the host ready for `who`. For optimizers: a weight written through it is
  /// taken to be its master's.
  template <access_choice Access>
  [[nodiscard]] pin_type<pinned_as<std::uint8_t, Access>> acquire_bytes(tensor_handle wanted, list_id list, Access mode,
                                                                        at place, agent who = agent::host,
                                                                        place_type from = place_type{})
  {
    return within("acquire_bytes", from,
                  [&] { return acquire_in<pinned_as<std::uint8_t, Access>>(wanted, list, mode, place, who); });
  }
  /// The same on the device, ready for a stream.
  template <access_choice Access>
  [[nodiscard]] pin_type<pinned_as<std::uint8_t, Access>> acquire_bytes(tensor_handle wanted, list_id list, Access mode,
                                                                        agent who, place_type from = place_type{})
  {
    return within("acquire_bytes", from, [&] {
      check(who);
      return acquire_in<pinned_as<std::uint8_t, Access>>(wanted, list, mode, at::device, who);
    });
  }

  /// The gradient of the weight that `weight` held; that pin is spent, also where there is no room for the gradient, or
  /// a pin on the host is in the way of its chunk.
  /// @tparam Kind   of the gradient, where that is not the weight's: float under gradient::separate{.wide = true}
  /// @param how     zeros: for what writes some elements only. The agent fills the bytes, and beta() is 1 from the
  ///   first write on
  /// @throws usage_error   with the pin as it was: no parameter of this manager, rules without gradients, another
  ///                       element type, gradient_done was called, or a gradient in place while another pin holds the
  ///                       weight
  template <class Kind = void, pinned_element Element>
  [[nodiscard]] auto gradient(pin_type<Element>&& weight, gradient_start how = gradient_start::undefined,
                              place_type from = place_type{})
  {
    return within("gradient", from, [&] {
      const grant held = weight.details();
      expects(weight.is_of(link_), "a gradient was asked for with a pin of another manager");
      refuse_without_gradients();
      engine_.tensors().expects_of(held.slot, engine_.tensors().is_value_of_parameter(held.slot),
                                   "a gradient was asked for with a pin that holds no parameter");
      using kind = std::conditional_t<std::is_void_v<Kind>, std::remove_const_t<Element>, Kind>;
      this->template expect_gradient<kind>(held.slot, 1);
      weight.release();
      return open_gradient<kind>(held.slot, held.who, how);
    });
  }
  /// The same without a pin, for frameworks that hand gradients over.
  template <class Kind = void, element Element>
  [[nodiscard]] auto gradient(tensor<Element> weight, agent who = agent::host,
                              gradient_start how = gradient_start::undefined, place_type from = place_type{})
  {
    return within("gradient", from, [&] {
      check(who);
      refuse_without_gradients();
      (void)slot_in(weight, gradient_list);
      using kind = std::conditional_t<std::is_void_v<Kind>, Element, Kind>;
      this->template expect_gradient<kind>(slot_of(weight), 0);
      return open_gradient<kind>(slot_of(weight), who, how);
    });
  }

  /// The gradient is complete: nothing is added to it in this step. Where the calling thread wrote it, its norms are
  /// taken now, while it is in the cache, and `optimizer::step` needs no pass of its own for them. Releases the pin.
  /// @throws usage_error   another pin holds the gradient
  template <element Element>
  void gradient_done(gradient_pin<Element, engine_type>&& last, place_type from = place_type{})
  {
    within("gradient_done", from, [&] {
      const grant held = last.details();
      expects(last.is_of(link_), "gradient_done with a pin of another manager");
      engine_.tensors().expects_of(held.slot, engine_.tensors().slots()[held.slot].pins == 1,
                                   "gradient_done while another pin holds the gradient: release it before");
      engine_.expect_written(held.slot - engine_.tensors().parameters(), "gradient_done");
      note_done(last, held);
      last.release();
    });
  }
  /// The same by handle, after the gradient's pins were released. Norms are taken where `who` is the calling thread.
  template <element Element>
  void gradient_done(tensor<Element> weight, agent who = agent::host, place_type from = place_type{})
  {
    within("gradient_done", from, [&] { finish_gradient(weight, who); });
  }
  /// Its norms, or null where neither gradient_done nor a step took them. In a rehearsal the numbers mean nothing.
  [[nodiscard]] const gradient_measure* measure_of(tensor_handle weight)
  {
    (void)slot_in(weight, gradient_list);
    return ledger_.measure_of(slot_of(weight));
  }

  /// The bytes of a tensor are dead: nothing is copied for them any more. Without bytes nothing happens but an entry in
  /// the record.
  /// @throws usage_error   pinned; device_error   a copy planned for now could not start
  void drop(tensor_handle wanted, place_type from = place_type{})
  {
    within("drop", from, [&] { engine_.drop(slot_of(wanted)); });
  }
  /// Forgets all gradients, as for a step that is tried again. Those not written are passed over; weights whose bytes
  /// their gradients had taken come back from their masters, bit by bit.
  /// @throws out_of_memory, device_error; usage_error   a pin is in the way in the tier where a weight is made again:
  ///         the gradient is gone and its weight unreadable, call again to go on. usage_error also where the gradient
  ///         is pinned, or an optimizer step is half done, which the others' gradients belong to: nothing was dropped.
  void drop_gradients(place_type from = place_type{})
  {
    within("drop_gradients", from, [&] {
      engine_.finish_updates();
      ledger_.expect_no_update("gradients were to be dropped");
      this->forget_step();
    });
  }
  void drop_gradient(tensor_handle wanted, place_type from = place_type{})
  {
    within("drop_gradient", from, [&] {
      engine_.finish_updates();
      ledger_.expect_no_update("a gradient was to be dropped");
      ledger_.forget_measure_of_all(), this->spend_gradient(wanted);
    });
  }

  /// Bytes for a while, from the same budget. @throws out_of_memory, usage_error   zero bytes
  [[nodiscard]] chunkmem::lease<engine_type> lease(tier where, bytes size, agent who = agent::host,
                                                   place_type from = place_type{})
  {
    return within("lease", from, [&] {
      expects(size.count() > 0, "a lease of zero bytes");
      expects(is_tier(where), "a lease on a tier that no backend has (use tier::device or tier::host)");
      check(who);
      ready();
      return chunkmem::lease<engine_type>{
          link_, [&] { return engine_.lease(where, align_up(size, tensor_alignment).count(), who); }};
    });
  }
  /// For checks::full: this parameter may be without a gradient in any step, as an expert that no token chose. Else
  /// nothing happens.
  /// @throws usage_error   not of this manager
  void without_gradient(tensor_handle wanted)
  {
    (void)this->info(wanted);
    engine_.checks().allow_no_gradient(index_of(wanted.id));
  }
  /// For checks::full, else nothing happens: looks at all bytes that no pin holds, as at the end of a program.
  /// @throws usage_error   what was found since the last call
  void verify(place_type from = place_type{})
  {
    within("verify", from, [&] { engine_.verify(); });
  }
  /// For optimizer steps. With checks: every parameter has a gradient, which was written whole, or may be without one.
  /// @throws usage_error   it names some of those that have none
  void expect_gradients(place_type from = place_type{})
  {
    if constexpr (Checks::is_on) within("an optimizer step", from, [&] { look_at_gradients(); });
  }
  /// The iteration that runs does what few others do, such as skipping a step: its record stays as it was.
  void keep_record() noexcept
  {
    if (!rehearsing()) engine_.keep_record();
  }
  [[nodiscard]] Backend& backend() const noexcept { return engine_.backend(); }
  /// One more agent for a stream of the caller's own.
  [[nodiscard]] agent adopt() { return engine_.backend().adopt(); }
  /// Two lists exchange their bytes without a copy, as when weight versions flip.
  /// @throws usage_error   inside an iteration or rehearsal, lists of two element types, one of them is pinned, or they
  ///                       are weights with masters, which the next update would put back
  void exchange(list_id left, list_id right, place_type from = place_type{})
  {
    within("exchange", from, [&] { exchange_lists(left, right); });
  }

 private:
  [[nodiscard, gnu::always_inline]] chunkmem::iteration<engine_type> begin(std::string_view name,
                                                                           std::uint32_t micro_batches)
  try {
    if (micro_batches == 0 || micro_batches > UINT16_MAX)
      throw usage_error{error_text{} << "chunkmem: an iteration has one to 65535 micro-batches, not " << micro_batches};
    if (micro_batches > 1 && gradient_.takes_slot())
      throw config_error{
          "gradients of several micro-batches cannot add up where their weights lie (use gradient::separate)"};
    link_->micro_batches.expect_told();
    link_->micro_batches.reserve(micro_batches);
    ready();
    const bool real = !rehearsing();
    if (real) {
      if (!engine_.is_inside()) this->revise_homes();
      this->begin_with_masters([&] {
        engine_.others().sample();
        engine_.begin_iteration(name);
      });
    }
    return chunkmem::iteration<engine_type>{*link_, micro_batches, real};
  } catch (error& failed) {
    engine_.teller().tell(failed);
    throw;
  }

  template <element Element>
  void finish_gradient(tensor<Element> weight, agent who)
  {
    check(who);
    const std::uint32_t slot = slot_in(weight, gradient_list);
    const registry& tensors = engine_.tensors();
    tensors.expects_of(slot, has_gradient(weight), "gradient_done of a gradient that was not written");
    tensors.expects_of(slot, tensors.slots()[slot].pins == 0,
                       "gradient_done while a pin holds the gradient: release it before");
    engine_.expect_written(slot_of(weight), "gradient_done");
    const auto finish = [&](const auto& held) { note_done(held, held.details()); };
    if (who != agent::host || !engine_type::host_addressable) return ledger_.finish(slot_of(weight));
    if (engine_.tensors().type_in(weight.id, gradient_list) == dtype_of<Element>)
      finish(acquire_in<const Element>(weight, gradient_list, access::read, at::device));
    else
      finish(acquire_in<const float>(weight, gradient_list, access::read, at::device));
  }
  void exchange_lists(list_id left, list_id right)
  try {
    expects(!rehearsing(), "lists cannot be exchanged in a rehearsal");
    ready();
    engine_.exchange(left, right);
    if (left != right && (left == gradient_list || right == gradient_list)) ledger_.forget_gradients();
  } catch (error& failed) {
    engine_.teller().tell(failed);
    throw;
  }
  void look_at_gradients()
  {
    if (rehearsing()) return;
    error_text names;
    std::uint64_t missing = 0, all = 0;
    for_each_parameter([&](tensor_handle it, const tensor_info&) {
      ++all;
      if (has_gradient(it)) return engine_.expect_written(slot_of(it), "an optimizer step");
      if (engine_.checks().may_lack_gradient(index_of(it.id)) || ++missing > most_named) return;
      this->write_name(it.id, names << (missing > 1 ? ", " : ""));
    });
    if (missing == 0) return;
    throw usage_error{error_text{} << "chunkmem: an optimizer step: " << missing << " of " << all
                                   << " parameters have no gradient: " << names.view()
                                   << (missing > most_named ? ", ..." : "")
                                   << " (write one for each, declare what is not trained with role::frozen, or call "
                                      "without_gradient(w) for what may lack one)"};
  }
  static constexpr std::uint64_t most_named = 4;

  static void refuse_without_gradients()
  {
    expects(state_machine<Rules>::is_legal(tensor_state::compute, tensor_event::spend),
            "a gradient under rules that know none");
  }

  /// The hot path asks one thing more than the engine: a write may be one that a master must hear of.
  [[nodiscard, gnu::always_inline]] grant take(tensor_handle wanted, access_mode mode, agent who)
  {
    if (writes(mode) && engine_.tensors().has_masters()) [[unlikely]]
      return take_to_write(wanted, mode, who);
    const std::uint32_t slot = slot_of(wanted);
    if (who != agent::host) return engine_.acquire(slot, kind_of(mode, at::device), who);
    if (mode == access::read) return engine_.template acquire_as<entry_kind::read>(slot);
    return mode == access::write ? engine_.template acquire_as<entry_kind::write>(slot)
                                 : engine_.template acquire_as<entry_kind::read_write>(slot);
  }
  [[nodiscard, gnu::noinline]] grant take_to_write(tensor_handle wanted, access_mode mode, agent who)
  {
    return written(wanted, mode,
                   [&](std::uint32_t slot) { return engine_.acquire(slot, kind_of(mode, at::device), who); });
  }
  template <class Take>
  [[nodiscard]] grant written(tensor_handle wanted, access_mode mode, Take take)
  {
    const std::uint32_t slot = slot_of(wanted);
    if (!writes(mode)) return take(slot);
    this->expect_writable(slot);
    const grant result = take(slot);
    this->note_written(slot);
    return result;
  }

  template <pinned_element Element>
  [[nodiscard]] pin_type<Element> acquire_in(tensor_handle wanted, list_id list, access_mode mode, at place,
                                             agent who = agent::host)
  {
    const std::uint32_t slot = slot_in(wanted, list);
    const entry_kind kind = kind_of(mode, place);
    return {link_, [&] {
              if (writes(mode) && list != gradient_list) this->before_change();
              if (list == value_list && mode == access::write) return this->acquire_over_gradient(slot, kind, who);
              if (list == gradient_list && writes(mode)) return this->rewrite_gradient(slot_of(wanted), kind, who);
              return place == at::host ? engine_.acquire_on_host(slot, kind, who) : engine_.acquire(slot, kind, who);
            }};
  }

  template <element Element>
  gradient_pin<Element, engine_type> open_gradient(std::uint32_t value_slot, agent who, gradient_start how)
  {
    const bool first = this->state_in(engine_.tensors().gradient_of(value_slot)) == tensor_state::free;
    const entry_kind kind = kind_of(first ? access::write : access::read_write, at::device);
    const bool has_beta = how == gradient_start::undefined;
    pin_type<Element> made{link_, [&] { return this->write_gradient(value_slot, kind, who, has_beta); }};
    if (!first || has_beta) return {std::move(made), first ? 0.0F : 1.0F};
    if (!rehearsing()) fill_with_zeros(made, value_slot, who);
    return {std::move(made), 1.0F};
  }
  /// @throws device_error   the gradient is dropped again; out_of_memory, device_error   as drop_gradient
  template <element Element>
  void fill_with_zeros(pin_type<Element>& fresh, std::uint32_t value_slot, agent who)
  try {
    auto* const begin = reinterpret_cast<std::byte*>(fresh.data());
    const bytes size{fresh.size() * sizeof(Element)};
    engine_.health().starting([&] { engine_.backend().fill(begin, std::byte{0}, size, who); });
  } catch (const device_error&) {
    fresh.release();
    this->spend_gradient({engine_.tensors().describe(value_slot).first, this->owner()});
    throw;
  }

  template <class Pin>
  void note_done(const Pin& last, const grant& held)
  {
    const std::uint32_t parameter = held.slot - engine_.tensors().parameters();
    using kind = std::remove_const_t<typename Pin::element_type>;
    if constexpr (engine_type::host_addressable && real_element<kind>) {
      using elements = std::span<const kind>;
      if (held.who == agent::host)
        return ledger_.finish(parameter, measure(rehearsing() ? elements{} : elements{last.span()}));
    }
    ledger_.finish(parameter);
  }
};

}  // namespace chunkmem::inline v0
