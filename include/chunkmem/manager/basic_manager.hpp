#pragma once

#include <chunkmem/manager/captured_step.hpp>
#include <chunkmem/manager/iteration.hpp>
#include <chunkmem/manager/model_view.hpp>
#include <chunkmem/manager/step_keeper.hpp>
#include <chunkmem/manager/weight_keeper.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace chunkmem::inline v0 {

/// Keeps the tensors of a model in chunks that move between the device and the host.
///
/// Declare tensors and lists, rehearse a step if the exact need is wanted, fill the weights, then train inside
/// iterations. Name the type through `manager`, which fills in what is not given. A 16-bit parameter may have a master in
/// full precision, which its optimizer updates; the manager makes it from the weight.
/// Guarantees: a call that throws leaves tensors, states and bytes as they were; chunks that had to leave stay away.
/// @threads one caller at a time, from any thread; two managers share nothing
template <stream_backend Backend, tensor_rules Rules, chunk_layout Layout, eviction_policy Eviction, placement_policy Placement,
          gradient_policy Gradient, transfer_policy Transfer, chunk_mover<Backend> Mover, trace_sink Sink>
class basic_manager
    : public model_view<step_keeper<weight_keeper<model_plan<Backend, Rules, Layout, Eviction, Placement, Gradient, Transfer, Mover, Sink>>>> {
 protected:
  using base = model_view<step_keeper<weight_keeper<model_plan<Backend, Rules, Layout, Eviction, Placement, Gradient, Transfer, Mover, Sink>>>>;
  using base::check, base::engine_, base::gradient_, base::ledger_, base::link_, base::ready, base::slot_in, base::slot_of;

 public:
  using base::base, base::for_each_parameter, base::has_gradient, base::rehearsing;
  basic_manager(const basic_manager&) = delete;  // pass a manager by reference: its tensors and pins know where it is
  using engine_type = typename base::engine_type;
  template <element Element>
  using pin_type = pin<Element, engine_type>;

  // Training.
  /// @throws usage_error     another iteration is running, or a pin holds a weight whose master is to be made; or the last iteration
  ///                         ended with its scope and had named too few micro-batches: said once, then iterations go on
  /// @throws config_error    several micro-batches under gradient::in_place: their gradients could not add up; or the placement
  ///                         refuses what the last iteration leased
  /// @throws out_of_memory   arenas cannot be allocated, or no room to make masters; device_error   a copy could not start.
  ///                         Masters that were made for it are gone again; chunks that had to leave stay away
  [[nodiscard]] chunkmem::iteration<engine_type> iteration(std::string_view name, std::uint32_t micro_batches = 1)
  try {
    expects(micro_batches > 0 && micro_batches <= UINT16_MAX, "an iteration has one to 65535 micro-batches");
    if (micro_batches > 1 && gradient_.takes_slot())
      throw config_error{"gradients of several micro-batches cannot add up where their weights lie (use gradient::separate)"};
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
  [[nodiscard]] chunkmem::iteration<engine_type> iteration(std::uint32_t micro_batches = 1) { return iteration("train", micro_batches); }

  /// Runs `step`, one iteration that repeats, and keeps its work as a graph that can be replayed; see captured_step.
  /// @throws usage_error    it does not repeat yet; it does something that no graph can hold, such as work on the host (what came
  ///                        before is done, as after any exception in a step); or it was not the recorded iteration
  template <class Step>
    requires graph_backend<Backend>
  [[nodiscard]] auto capture(Step&& step)
  {
    static_assert(Transfer::plans, "chunkmem: a captured step follows a plan: name a transfer policy that plans, such as transfer::lookahead");
    ready();
    expects(!rehearsing(), "a step was to be captured in a rehearsal");
    return capture_step<Backend>(*link_, engine_.backend(), std::forward<Step>(step));
  }

  /// A pin on the device, ready for the calling thread.
  /// @throws out_of_memory   all that could leave is pinned; names what this moment needs
  /// @throws usage_error     not written yet, in use where it must not be, or a tensor of another manager
  /// @throws device_error    a copy could not be started; try again when the device can
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor<Element> wanted, access how)
  {
    return {link_, [&] { return take(wanted, how, agent::host); }};
  }
  /// A pin on the device, ready for a stream: the host does not wait, and release orders after the stream's work.
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor<Element> wanted, access how, agent who)
  {
    check(who);
    return {link_, [&] { return take(wanted, how, who); }};
  }
  /// A pin on the device or on the host, ready for the calling thread.
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor<Element> wanted, access how, at place)
  {
    if (place == at::device) return acquire(wanted, how);
    return {link_, [&] { return written(wanted, how, [&](std::uint32_t slot) { return engine_.acquire_on_host(slot, kind_of(how, place)); }); }};
  }
  /// A pin of a parameter in a list: a state of an optimizer, or a gradient between backward and step.
  /// @throws usage_error   an element type that is not the list's own, or a list that this parameter is not in
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor_handle wanted, list_id list, access how, at place)
  {
    (void)slot_in(wanted, list);
    expects(engine_.tensors().type_in(wanted.id, list) == dtype_of<Element>, "a list was acquired with an element type that is not its own");
    return list == value_list && writes(how) ? acquire(tensor<Element>{wanted}, how, place) : acquire_in<Element>(wanted, list, how, place);
  }
  /// The same as bytes of any element type, on the host ready for `who`. For optimizers: a weight written through it is taken to be its master's.
  [[nodiscard]] pin_type<std::uint8_t> acquire_bytes(tensor_handle wanted, list_id list, access how, at place, agent who = agent::host)
  {
    return acquire_in<std::uint8_t>(wanted, list, how, place, who);
  }
  /// The same on the device, ready for a stream.
  [[nodiscard]] pin_type<std::uint8_t> acquire_bytes(tensor_handle wanted, list_id list, access how, agent who)
  {
    check(who);
    return acquire_in<std::uint8_t>(wanted, list, how, at::device, who);
  }

  /// The gradient of the weight that `weight` held; that pin is spent, also where there is no room for the gradient, or a pin
  /// on the host is in the way of its chunk.
  /// @tparam Kind   of the gradient, where that is not the weight's: float under gradient::separate{.wide = true}
  /// @throws usage_error   with the pin as it was: no parameter of this manager, rules without gradients, another element
  ///                       type, gradient_done was called, or a gradient in place while another pin holds the weight
  template <class Kind = void, element Element>
  [[nodiscard]] auto gradient(pin_type<Element>&& weight)
  {
    const grant held = weight.details();
    expects(weight.is_of(link_), "a gradient was asked for with a pin of another manager");
    refuse_without_gradients();
    expects(engine_.tensors().is_value_of_parameter(held.slot), "a gradient was asked for with a pin that holds no parameter");
    using kind = std::conditional_t<std::is_void_v<Kind>, Element, Kind>;
    this->template expect_gradient<kind>(held.slot, 1);
    weight.release();
    return open_gradient<kind>(held.slot, held.who);
  }
  /// The same without a pin, for frameworks that hand gradients over.
  template <class Kind = void, element Element>
  [[nodiscard]] auto gradient(tensor<Element> weight, agent who = agent::host)
  {
    check(who);
    refuse_without_gradients();
    (void)slot_in(weight, gradient_list);
    using kind = std::conditional_t<std::is_void_v<Kind>, Element, Kind>;
    this->template expect_gradient<kind>(slot_of(weight), 0);
    return open_gradient<kind>(slot_of(weight), who);
  }

  /// The gradient is complete: nothing is added to it in this step. Where the calling thread wrote it, its norms are taken
  /// now, while it is in the cache, and `optimizer::step` needs no pass of its own for them. Releases the pin.
  /// @throws usage_error   another pin holds the gradient
  template <element Element>
  void gradient_done(gradient_pin<Element, engine_type>&& last)
  {
    const grant held = last.details();
    expects(last.is_of(link_), "gradient_done with a pin of another manager");
    expects(engine_.tensors().slots()[held.slot].pins == 1, "gradient_done while another pin holds the gradient: release it before");
    note_done(last, held);
    last.release();
  }
  /// The same by handle, after the gradient's pins were released. Norms are taken where `who` is the calling thread.
  template <element Element>
  void gradient_done(tensor<Element> weight, agent who = agent::host)
  {
    check(who);
    const std::uint32_t slot = slot_in(weight, gradient_list);
    expects(has_gradient(weight), "gradient_done of a gradient that was not written");
    expects(engine_.tensors().slots()[slot].pins == 0, "gradient_done while a pin holds the gradient: release it before");
    const auto finish = [&](const auto& held) { note_done(held, held.details()); };
    if (who != agent::host || !engine_type::host_addressable) return ledger_.finish(slot_of(weight));
    if (engine_.tensors().type_in(weight.id, gradient_list) == dtype_of<Element>)
      finish(acquire_in<Element>(weight, gradient_list, access::read, at::device));
    else finish(acquire_in<float>(weight, gradient_list, access::read, at::device));
  }
  /// Its norms, or null where neither gradient_done nor a step took them. In a rehearsal the numbers mean nothing.
  [[nodiscard]] const gradient_measure* measure_of(tensor_handle weight)
  {
    (void)slot_in(weight, gradient_list);
    return ledger_.measure_of(slot_of(weight));
  }

  /// The bytes of a tensor are dead: nothing is copied for them any more.
  /// @throws usage_error   pinned, or without bytes; device_error   a copy planned for now could not start
  void drop(tensor_handle wanted) { engine_.drop(slot_of(wanted)); }
  /// Forgets all gradients, as for a step that is tried again. Those not written are passed over; weights whose bytes
  /// their gradients had taken come back from their masters, bit by bit.
  /// @throws out_of_memory, device_error; usage_error   a pin is in the way in the tier where a weight is made again: the
  ///         gradient is gone and its weight unreadable, call again to go on. usage_error also where the gradient is pinned, or
  ///         an optimizer step is half done, which the others' gradients belong to: nothing was dropped.
  void drop_gradients()
  {
    engine_.finish_updates();
    ledger_.expect_no_update("gradients were to be dropped");
    this->forget_step();
  }
  void drop_gradient(tensor_handle wanted)
  {
    engine_.finish_updates();
    ledger_.expect_no_update("a gradient was to be dropped");
    ledger_.forget_measure_of_all(), this->spend_gradient(wanted);
  }

  /// Bytes for a while, from the same budget. @throws out_of_memory, usage_error   zero bytes
  [[nodiscard]] chunkmem::lease<engine_type> lease(tier where, bytes size, agent who = agent::host)
  {
    expects(size.count() > 0, "a lease of zero bytes");
    expects(where != tier::disk, "a lease on the disk tier, which no backend has");
    check(who);
    ready();
    return {link_, [&] { return engine_.lease(where, align_up(size, tensor_alignment).count(), who); }};
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
  /// @throws usage_error   inside an iteration or rehearsal, lists of two element types, one of them is pinned, or they are
  ///                       weights with masters, which the next update would put back
  void exchange(list_id left, list_id right)
  try {
    expects(!rehearsing(), "lists cannot be exchanged in a rehearsal");
    ready();
    engine_.exchange(left, right);
    if (left != right && (left == gradient_list || right == gradient_list)) ledger_.forget_gradients();
  } catch (error& failed) {
    engine_.teller().tell(failed);
    throw;
  }

 private:
  static void refuse_without_gradients()
  {
    expects(state_machine<Rules>::is_legal(tensor_state::compute, tensor_event::spend), "a gradient under rules that know none");
  }

  /// The hot path asks one thing more than the engine: a write may be one that a master must hear of.
  [[nodiscard, gnu::always_inline]] grant take(tensor_handle wanted, access how, agent who)
  {
    if (writes(how) && engine_.tensors().has_masters()) [[unlikely]] return take_to_write(wanted, how, who);
    const std::uint32_t slot = slot_of(wanted);
    if (who != agent::host) return engine_.acquire(slot, kind_of(how, at::device), who);
    if (how == access::read) return engine_.template acquire_as<entry_kind::read>(slot);
    return how == access::write ? engine_.template acquire_as<entry_kind::write>(slot) : engine_.template acquire_as<entry_kind::read_write>(slot);
  }
  [[nodiscard, gnu::noinline]] grant take_to_write(tensor_handle wanted, access how, agent who)
  {
    return written(wanted, how, [&](std::uint32_t slot) { return engine_.acquire(slot, kind_of(how, at::device), who); });
  }
  template <class Take>
  [[nodiscard]] grant written(tensor_handle wanted, access how, Take take)
  {
    const std::uint32_t slot = slot_of(wanted);
    if (!writes(how)) return take(slot);
    this->expect_writable(slot);
    const grant result = take(slot);
    this->note_written(slot);
    return result;
  }

  template <element Element>
  [[nodiscard]] pin_type<Element> acquire_in(tensor_handle wanted, list_id list, access how, at place, agent who = agent::host)
  {
    const std::uint32_t slot = slot_in(wanted, list);
    const entry_kind kind = kind_of(how, place);
    return {link_, [&] {
              if (writes(how) && list != gradient_list) this->before_change();
              if (list == value_list && how == access::write) return this->acquire_over_gradient(slot, kind, who);
              if (list == gradient_list && writes(how)) return this->rewrite_gradient(slot_of(wanted), kind, who);
              return place == at::host ? engine_.acquire_on_host(slot, kind, who) : engine_.acquire(slot, kind, who);
            }};
  }

  template <element Element>
  gradient_pin<Element, engine_type> open_gradient(std::uint32_t value_slot, agent who)
  {
    const bool first = this->state_in(engine_.tensors().gradient_of(value_slot)) == tensor_state::free;
    const entry_kind kind = kind_of(first ? access::write : access::read_write, at::device);
    return {pin_type<Element>{link_, [&] { return this->write_gradient(value_slot, kind, who); }}, first ? 0.0F : 1.0F};
  }

  template <class Pin>
  void note_done(const Pin& last, const grant& held)
  {
    const std::uint32_t parameter = held.slot - engine_.tensors().parameters();
    if constexpr (engine_type::host_addressable && real_element<typename Pin::element_type>) {
      if (held.who == agent::host) return ledger_.finish(parameter, measure(std::span<const typename Pin::element_type>{last.span()}));
    }
    ledger_.finish(parameter);
  }
};

}  // namespace chunkmem::inline v0
