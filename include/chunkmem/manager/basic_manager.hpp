#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/manager/capacity_check.hpp>
#include <chunkmem/manager/engine.hpp>
#include <chunkmem/manager/iteration.hpp>
#include <chunkmem/manager/memory_requirement.hpp>
#include <chunkmem/manager/pin.hpp>
#include <chunkmem/manager/policy_values.hpp>
#include <chunkmem/manager/stacked.hpp>
#include <chunkmem/placement/placement_policy.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// Keeps the tensors of a model in chunks that move between the device and the host.
///
/// Declare tensors and lists, rehearse a step if the exact need is wanted, fill the weights, then train inside
/// iterations. Name the type through `manager`, which fills in what is not given.
/// Guarantees: a call that throws leaves tensors, states and bytes as they were; chunks that had to leave stay away.
/// @threads one caller at a time, from any thread; two managers share nothing
template <stream_backend Backend, tensor_rules Rules, chunk_layout Layout, eviction_policy Eviction, placement_policy Placement,
          transfer_policy Transfer, chunk_mover<Backend> Mover, trace_sink Sink>
class basic_manager {
 public:
  using core_type = engine_core<Backend, Rules, Eviction, Transfer, Mover, Sink>;
  using engine_type = engine<core_type>;
  template <element Element>
  using pin_type = pin<Element, engine_type>;

  /// @param given   policies with settings, by value, in any order
  /// @throws config_error   the chunk size is not a positive multiple of 256 B
  template <class... Given>
  explicit basic_manager(Backend& backend, const manager_options& options = {}, Given... given)
      : engine_{backend, options, policy_value<Eviction>(given...), policy_value<Transfer>(given...),
                policy_value<Mover>(given...), policy_value<Sink>(given...)},
        eviction_{policy_value<Eviction>(given...)},
        placement_{policy_value<Placement>(given...)},
        link_{new owner_link<engine_type>{&engine_, 0}}
  {
    static_assert((is_one_of<Given, Eviction, Placement, Transfer, Mover, Sink> && ...),
                  "chunkmem: a policy value was given whose type this manager was not named with");
    const std::uint64_t chunk = options.chunk_bytes.count();
    if (chunk == 0 || chunk % tensor_alignment.count() != 0) {
      delete link_;
      throw config_error{error_text{} << "chunkmem: chunk_bytes is " << chunk << " B (give a positive multiple of 256 B)"};
    }
  }
  basic_manager(const basic_manager&) = delete;
  ~basic_manager()
  {
    link_->engine = nullptr;
    if (link_->holders == 0) delete link_;
  }

  // Declaring.

  /// @throws usage_error   sealed already, or a role that the manager makes itself; size_overflow
  template <element Element>
  tensor<Element> add(const shape& extents, role part, group_id group = group_id{0})
  {
    return {{tensor_id{engine_.tensors().add(extents, dtype_of<Element>, part, group)}, owner()}};
  }
  /// `layers` tensors of one shape; `slice(l)` is one of them.
  template <element Element>
  stacked<Element> add_stacked(std::uint32_t layers, const shape& extents, role part, group_id group = group_id{0})
  {
    expects(layers > 0, "a stack of tensors needs at least one layer");
    const tensor<Element> first = add<Element>(extents, part, group);
    for (std::uint32_t layer = 1; layer < layers; ++layer) add<Element>(extents, part, group);
    return {first, layers};
  }
  /// Lists beside each parameter, as an optimizer names them. @throws usage_error   sealed already, or a name twice
  void use(std::span<const list_spec> specs)
  {
    for (const list_spec& spec : specs) engine_.tensors().add_list(spec);
  }
  /// Bytes that must survive a restart, by name. They stay the caller's. @throws usage_error   a name twice
  void state(std::string_view name, std::span<std::byte> content)
  {
    for (const auto& known : states_) expects(known.name != name, "two registered states have one name");
    states_.push_back({std::string{name}, content});
  }

  // Planning.

  /// Ends the declarations and places everything; nothing is allocated yet. Done by the first access where it is not
  /// called. @throws config_error   the device is smaller than the largest tensor
  memory_requirement seal()
  {
    engine_.tensors().template seal<Layout>(engine_.options().chunk_bytes);
    const memory_requirement need = requirement_of<core_type>(engine_);
    refuse_below(engine_, tier::device, need.smallest_device, "the largest tensor of this model");
    return need;
  }

  /// Runs `step` once with pins and leases that carry no bytes, and finds the least it needs.
  ///
  /// `step` must make the same calls as a real step; its arithmetic is skipped where `rehearsing()` is true.
  /// @throws config_error   the device or host capacity is too small for this step
  template <class Step>
  memory_requirement rehearse(Step&& step)
  {
    memory_requirement need = seal();
    run_without_bytes(std::forward<Step>(step));
    measure_need<Eviction, Transfer, core_type>(engine_, eviction_, need);
    refuse_below(engine_, tier::device, need.smallest_device, "this step");
    refuse_below(engine_, tier::host, need.smallest_host, "this step");
    return need;
  }
  /// Inside `rehearse`: pins have no bytes.
  [[nodiscard]] bool rehearsing() const noexcept { return engine_.rehearsing().is_running(); }

  // Training.

  /// @throws usage_error   another iteration is running   @throws out_of_memory   arenas cannot be allocated
  [[nodiscard]] chunkmem::iteration<engine_type> iteration(std::string_view name, std::uint32_t micro_batches = 1)
  {
    expects(micro_batches > 0 && micro_batches <= UINT16_MAX, "an iteration has one to 65535 micro-batches");
    ready();
    if (!rehearsing()) engine_.begin_iteration(name);
    return chunkmem::iteration<engine_type>{*link_, micro_batches};
  }
  [[nodiscard]] chunkmem::iteration<engine_type> iteration(std::uint32_t micro_batches = 1) { return iteration("train", micro_batches); }

  /// A pin on the device, ready for the calling thread.
  /// @throws out_of_memory   all that could leave is pinned; names what this moment needs
  /// @throws usage_error     not written yet, in use where it must not be, or a tensor of another manager
  /// @throws device_error    a copy could not be started; try again when the device can
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor<Element> wanted, access how) { return acquire(wanted, how, agent::host); }
  /// A pin on the device, ready for a stream: the host does not wait, and release orders after the stream's work.
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor<Element> wanted, access how, agent who)
  {
    return {link_, engine_.acquire(slot_of(wanted), kind_of(how, at::device), who)};
  }
  /// A pin on the device or on the host, ready for the calling thread.
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor<Element> wanted, access how, at place)
  {
    return {link_, engine_.acquire(slot_of(wanted), kind_of(how, place), agent::host)};
  }
  /// A pin of a parameter in a list of an optimizer, on the device or on the host. For optimizers.
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor_handle wanted, list_id list, access how, at place)
  {
    const std::uint32_t slot = slot_in(wanted, list);
    expects(engine_.tensors().type_in(wanted.id, list) == dtype_of<Element>, "a list was acquired with an element type that is not its own");
    return {link_, engine_.acquire(slot, kind_of(how, place), agent::host)};
  }

  /// The gradient of the weight that `weight` held; that pin is spent, also where this throws.
  template <element Element>
  [[nodiscard]] gradient_pin<Element, engine_type> gradient(pin_type<Element>&& weight)
  {
    const grant held = weight.details();
    expects(engine_.tensors().is_value_of_parameter(held.slot), "a gradient was asked for with a pin that holds no parameter");
    weight.release();
    return open_gradient<Element>(engine_.tensors().gradient_of(held.slot), held.who);
  }
  /// The same without a pin, for frameworks that hand gradients over.
  template <element Element>
  [[nodiscard]] gradient_pin<Element, engine_type> gradient(tensor<Element> weight, agent who = agent::host)
  {
    return open_gradient<Element>(slot_in(weight, gradient_list), who);
  }

  /// The bytes of a tensor are dead: nothing is copied for them any more. @throws usage_error   pinned, or without bytes
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
    ready();
    return {link_, engine_.lease(where, align_up(size, tensor_alignment).count(), who)};
  }
  /// One more agent for a stream of the caller's own.
  [[nodiscard]] agent adopt() { return engine_.backend().adopt(); }
  /// Two lists exchange their bytes without a copy, as when weight versions flip.
  void exchange(list_id left, list_id right) { engine_.exchange(left, right); }

  // Looking.

  [[nodiscard]] chunkmem::report report() const { return engine_.snapshot(); }
  /// The last iteration was not the recorded one.
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
  struct named_state {
    std::string name;
    std::span<std::byte> content;
  };

  /// Tells this manager's handles from another's; never 0.
  [[nodiscard]] std::uint32_t owner() const noexcept
  {
    const auto address = reinterpret_cast<std::uintptr_t>(link_);
    return static_cast<std::uint32_t>(address >> 4) | 1U;
  }

  void ready()
  {
    if (!engine_.tensors().is_sealed()) seal();
    ready_owner_ = owner();
  }

  /// The hot path: one compare says that the handle is ours and that everything is placed.
  [[nodiscard]] std::uint32_t slot_of(tensor_handle wanted)
  {
    if (wanted.owner != ready_owner_) [[unlikely]] make_ready_for(wanted);
    return engine_.tensors().value_slot(wanted.id);
  }
  [[gnu::noinline, gnu::cold]] void make_ready_for(tensor_handle wanted)
  {
    expects(wanted.owner == owner() && index_of(wanted.id) < engine_.tensors().tensors(),
            "a tensor was used with a manager that did not make it");
    ready();
  }
  [[nodiscard]] std::uint32_t slot_in(tensor_handle wanted, list_id list)
  {
    (void)slot_of(wanted);
    expects(engine_.tensors().info(wanted.id).part == role::parameter, "a list of a tensor that is no parameter");
    expects(index_of(list) < engine_.tensors().lists(), "a list that this manager does not have");
    return engine_.tensors().slot_in(wanted.id, list);
  }
  template <element Element>
  gradient_pin<Element, engine_type> open_gradient(std::uint32_t slot, agent who)
  {
    const bool first = engine_.tensors().slots()[slot].state == tensor_state::free;
    const entry_kind kind = kind_of(first ? access::write : access::read_write, at::device);
    return {pin_type<Element>{link_, engine_.acquire(slot, kind, who)}, first ? 0.0F : 1.0F};
  }

  template <class Step>
  void run_without_bytes(Step&& step)
  {
    expects(!engine_.is_inside(), "a rehearsal inside an iteration");
    ready();
    auto& log = engine_.rehearsing();
    log.begin(engine_.tensors());
    try {
      std::forward<Step>(step)();
    } catch (...) {
      log.end();
      throw;
    }
    log.end();
    log.record().finish(engine_.tensors().chunk_of_slot(), static_cast<std::uint32_t>(engine_.tensors().frames_of_chunk().size()));
  }

  engine_type engine_;
  Eviction eviction_;  // for rehearsals
  Placement placement_;
  std::vector<named_state> states_;
  owner_link<engine_type>* link_;
  std::uint32_t ready_owner_ = 0;
};

}  // namespace chunkmem::inline v0
