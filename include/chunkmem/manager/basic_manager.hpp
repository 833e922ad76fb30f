#pragma once

#include <chunkmem/manager/iteration.hpp>
#include <chunkmem/manager/model_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// Keeps the tensors of a model in chunks that move between the device and the host.
///
/// Declare tensors and lists, rehearse a step if the exact need is wanted, fill the weights, then train inside
/// iterations. Name the type through `manager`, which fills in what is not given.
/// Guarantees: a call that throws leaves tensors, states and bytes as they were; chunks that had to leave stay away.
/// @threads one caller at a time, from any thread; two managers share nothing
template <stream_backend Backend, tensor_rules Rules, chunk_layout Layout, eviction_policy Eviction, placement_policy Placement,
          transfer_policy Transfer, chunk_mover<Backend> Mover, trace_sink Sink>
class basic_manager : public model_plan<Backend, Rules, Layout, Eviction, Placement, Transfer, Mover, Sink> {
  using base = model_plan<Backend, Rules, Layout, Eviction, Placement, Transfer, Mover, Sink>;
  using base::check, base::engine_, base::link_, base::owner, base::placement_, base::ready, base::slot_in, base::slot_of, base::states_;

 public:
  using base::base, base::rehearsing;
  using engine_type = typename base::engine_type;
  template <element Element>
  using pin_type = pin<Element, engine_type>;

  // Training.

  /// @throws usage_error     another iteration is running
  /// @throws out_of_memory   arenas cannot be allocated; device_error   the device had to be cleared and could not
  [[nodiscard]] chunkmem::iteration<engine_type> iteration(std::string_view name, std::uint32_t micro_batches = 1)
  {
    expects(micro_batches > 0 && micro_batches <= UINT16_MAX, "an iteration has one to 65535 micro-batches");
    ready();
    const bool real = !rehearsing();
    if (real) engine_.begin_iteration(name);
    return chunkmem::iteration<engine_type>{*link_, micro_batches, real};
  }
  [[nodiscard]] chunkmem::iteration<engine_type> iteration(std::uint32_t micro_batches = 1) { return iteration("train", micro_batches); }

  /// A pin on the device, ready for the calling thread.
  /// @throws out_of_memory   all that could leave is pinned; names what this moment needs
  /// @throws usage_error     not written yet, in use where it must not be, or a tensor of another manager
  /// @throws device_error    a copy could not be started; try again when the device can
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor<Element> wanted, access how)
  {
    return {link_, [&] { return engine_.acquire(slot_of(wanted), kind_of(how, at::device), agent::host); }};
  }
  /// A pin on the device, ready for a stream: the host does not wait, and release orders after the stream's work.
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor<Element> wanted, access how, agent who)
  {
    check(who);
    return {link_, [&] { return engine_.acquire(slot_of(wanted), kind_of(how, at::device), who); }};
  }
  /// A pin on the device or on the host, ready for the calling thread.
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor<Element> wanted, access how, at place)
  {
    if (place == at::device) return acquire(wanted, how);
    return {link_, [&] { return engine_.acquire_on_host(slot_of(wanted), kind_of(how, place)); }};
  }
  /// A pin of a parameter in a list of an optimizer, on the device or on the host. For optimizers.
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor_handle wanted, list_id list, access how, at place)
  {
    const std::uint32_t slot = slot_in(wanted, list);
    expects(engine_.tensors().type_in(wanted.id, list) == dtype_of<Element>, "a list was acquired with an element type that is not its own");
    const entry_kind kind = kind_of(how, place);
    return {link_, [&] { return place == at::host ? engine_.acquire_on_host(slot, kind) : engine_.acquire(slot, kind, agent::host); }};
  }

  /// The gradient of the weight that `weight` held; that pin is spent, also where there is no room for the gradient.
  /// @throws usage_error   with the pin as it was: no parameter of this manager, or rules without gradients
  template <element Element>
  [[nodiscard]] gradient_pin<Element, engine_type> gradient(pin_type<Element>&& weight)
  {
    const grant held = weight.details();
    expects(weight.is_of(link_), "a gradient was asked for with a pin of another manager");
    refuse_without_gradients();
    expects(engine_.tensors().is_value_of_parameter(held.slot), "a gradient was asked for with a pin that holds no parameter");
    weight.release();
    return open_gradient<Element>(engine_.tensors().gradient_of(held.slot), held.who);
  }
  /// The same without a pin, for frameworks that hand gradients over.
  template <element Element>
  [[nodiscard]] gradient_pin<Element, engine_type> gradient(tensor<Element> weight, agent who = agent::host)
  {
    check(who);
    refuse_without_gradients();
    return open_gradient<Element>(slot_in(weight, gradient_list), who);
  }

  /// The bytes of a tensor are dead: nothing is copied for them any more.
  /// @throws usage_error   pinned, or without bytes; device_error   a copy planned for now could not start
  void drop(tensor_handle wanted) { engine_.drop(slot_of(wanted)); }
  /// Forgets all gradients, as for a step that is tried again. Those not written are passed over.
  void drop_gradients()
  {
    for_each_parameter([this](tensor_handle it, const tensor_info&) { drop_gradient(it); });
  }
  void drop_gradient(tensor_handle wanted)
  {
    if (has_gradient(wanted)) engine_.drop(slot_in(wanted, gradient_list));
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
  /// One more agent for a stream of the caller's own.
  [[nodiscard]] agent adopt() { return engine_.backend().adopt(); }
  /// Two lists exchange their bytes without a copy, as when weight versions flip.
  /// @throws usage_error   inside an iteration or rehearsal, lists of two element types, or one of them is pinned
  void exchange(list_id left, list_id right)
  {
    expects(!rehearsing(), "lists cannot be exchanged in a rehearsal");
    ready();
    engine_.exchange(left, right);
  }

  // Looking.

  [[nodiscard]] chunkmem::report report() const { return engine_.snapshot(); }
  /// The last iteration was not the one recorded under its name.
  [[nodiscard]] bool drifted() const noexcept { return engine_.last_changed(); }
  [[nodiscard]] list_id list(std::string_view name) const { return engine_.tensors().list(name); }
  [[nodiscard]] const Placement& placement() const noexcept { return placement_; }
  [[nodiscard]] tensor_state state_of(tensor_handle wanted) { return engine_.tensors().slots()[slot_of(wanted)].state; }
  [[nodiscard]] bool has_gradient(tensor_handle wanted)
  {
    return engine_.tensors().slots()[slot_in(wanted, gradient_list)].state != tensor_state::free;
  }
  /// Calls `visit(handle, info)` for each parameter, in the order of declaration.
  template <class Visit>
  void for_each_parameter(Visit visit)
  {
    ready();
    for (std::uint32_t id = 0; id < engine_.tensors().tensors(); ++id)
      if (const tensor_info& it = engine_.tensors().info(tensor_id{id}); it.part == role::parameter)
        visit(tensor_handle{tensor_id{id}, owner()}, it);
  }
  /// Calls `visit(name, content)` for each registered state.
  template <class Visit>
  void for_each_state(Visit visit) const
  {
    for (const auto& known : states_) visit(std::string_view{known.name}, known.content);
  }

 private:
  static void refuse_without_gradients()
  {
    expects(state_machine<Rules>::is_legal(tensor_state::compute, tensor_event::spend), "a gradient under rules that know none");
  }

  template <element Element>
  gradient_pin<Element, engine_type> open_gradient(std::uint32_t slot, agent who)
  {
    const bool first = engine_.tensors().slots()[slot].state == tensor_state::free;
    const entry_kind kind = kind_of(first ? access::write : access::read_write, at::device);
    return {pin_type<Element>{link_, [&] { return engine_.acquire(slot, kind, who); }}, first ? 0.0F : 1.0F};
  }
};

}  // namespace chunkmem::inline v0
