// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/manager/capacity_check.hpp>
#include <chunkmem/manager/engine.hpp>
#include <chunkmem/manager/error_details.hpp>
#include <chunkmem/manager/gradient_ledger.hpp>
#include <chunkmem/manager/model_places.hpp>
#include <chunkmem/manager/pin.hpp>
#include <chunkmem/manager/plan_store.hpp>
#include <chunkmem/manager/policy_values.hpp>
#include <chunkmem/manager/rehearse_on.hpp>
#include <chunkmem/manager/stacked.hpp>
#include <chunkmem/tensor/gradient_policy.hpp>
#include <chunkmem/tensor/registration.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// The half of a manager that comes before training: tensors, lists and states are declared, and the need is measured.
///
/// Not for users by itself: see basic_manager.
template <stream_backend Backend, tensor_rules Rules, chunk_layout Layout, eviction_policy Eviction,
          placement_policy Placement, gradient_policy Gradient, transfer_policy Transfer, chunk_mover<Backend> Mover,
          trace_sink Sink, check_policy Checks = checks::none>
class model_plan {
 public:
  using core_type = plan_store<iteration_driver<Backend, Rules, Eviction, Transfer, Mover, Sink, Checks>>;
  using engine_type = engine<core_type>;
  template <pinned_element Element>
  using pin_type = pin<Element, engine_type>;
  using homes_type = state_homes<Placement>;
  static_assert(!homes_type::is_profiled || Backend::host_addressable || !has_bytes<Backend>(),
                "chunkmem: this placement lets the calling thread update states on the device, which it cannot read "
                "there: take placement::host_first, or "
                "optimizer::device_optimizer, which works on the device under any placement");

  /// @param given   policies with settings, by value, in any order
  /// @throws config_error   the chunk size is not a positive multiple of 256 B
  template <class... Given>
  explicit model_plan(Backend& backend, const manager_options& options = {}, Given... given)
      : engine_{backend,
                options,
                policy_value<Eviction>(given...),
                policy_value<Transfer>(given...),
                policy_value<Mover>(given...),
                policy_value<Sink>(given...)},
        eviction_{policy_value<Eviction>(given...)},
        model_places_{policy_value<Layout>(given...), policy_value<Placement>(given...)},
        gradient_{policy_value<Gradient>(given...)},
        link_{new owner_link<engine_type>{&engine_, 0}}
  {
    static_assert((is_one_of<Given, Layout, Eviction, Placement, Gradient, Transfer, Mover, Sink, Checks> && ...),
                  "chunkmem: a policy value was given whose type this manager was not named with: add it to the "
                  "arguments of manager<...>");
    const std::uint64_t chunk = options.chunk_bytes.count();
    if (options.chunk_bytes != least_waste_chunks && (chunk == 0 || chunk % tensor_alignment.count() != 0)) {
      delete link_;
      throw config_error{error_text{} << "chunkmem: chunk_bytes is " << chunk
                                      << " B (give a positive multiple of 256 B, or least_waste_chunks)"};
    }
    if (options.error_details) engine_.teller().ask(&model_plan::details_of, this);
    engine_.checks().attach(
        {this, [](void* plan) noexcept { static_cast<model_plan*>(plan)->engine_.settle(); }, &model_plan::describe});
  }
  model_plan(const model_plan&) = delete;
  ~model_plan()
  {
    link_->engine = nullptr;
    if (link_->holders == 0) delete link_;
  }

  // Declaring.

  /// @param group   parameters that share settings of the optimizer
  /// @throws usage_error   sealed already, or a role that the manager makes itself; size_overflow
  template <element Element>
  tensor<Element> add(const shape& extents, role part, group_id group = group_id{0})
  {
    constexpr dtype type = dtype_of<Element>;
    return {{tensor_id{engine_.tensors().add(extents, type, part, group, gradient_.type_for(type))}, owner()}};
  }
  /// `layers` tensors of one shape; `slice(l)` is one of them.
  template <element Element>
  stacked<Element> add_stacked(std::uint32_t layers, const shape& extents, role part, group_id group = group_id{0})
  {
    expects(layers > 0, "a stack of tensors needs at least one layer");
    engine_.tensors().make_room(layers);
    const tensor<Element> first = add<Element>(extents, part, group);
    for (std::uint32_t layer = 1; layer < layers; ++layer) add<Element>(extents, part, group);
    return {first, layers};
  }
  /// What files and messages call a tensor; one without a name is "tensor.<number>". @throws usage_error   not of this
  /// manager
  void name(tensor_handle wanted, std::string_view text)
  {
    expects(wanted.owner == owner() && index_of(wanted.id) < engine_.tensors().tensors(),
            "a tensor was named that this manager did not make");
    engine_.tensors().name(wanted.id, text);
  }
  /// What a training depends on besides its weights: an optimizer kernel, a loss scale, learning rates. Its lists are
  /// kept beside each parameter, and checkpoints save and load its states by name, such as "adam/updates": no other
  /// call is needed.
  ///
  /// The object is tied to this manager for good, and stays where it is: a copy of it is not known here. A step refuses
  /// a kernel, a loss scale or rates that its manager was not given.
  /// @throws usage_error   it was given to a manager before; sealed already, and it has lists; or a name twice: nothing
  ///   was changed
  template <registrable Owner>
  void use(Owner& owner)
  {
    registration& registered = detail::registration_of(owner);
    expects(!registered.is_tied_to(used_),
            "an object was given to use() again: this manager has it already (call use once)");
    expects(
        !registered.is_tied(),
        "an object was given to use() again: it counts the updates of its first manager (make one for each manager)");
    std::vector<named_state> states = states_;
    detail::for_each_state_of(owner, [&](const restart_state& it) {
      add_state(states, {full_name(detail::name_of_type<Owner>(), it.name), it.content, it.check, used_.next()});
    });
    used_.make_room();
    if constexpr (requires { std::span<const list_spec>{owner.lists()}; })
      use(std::span<const list_spec>{owner.lists()});
    states_ = std::move(states);
    used_.add(registered);
  }
  /// Lists beside each parameter, without an optimizer. @throws usage_error   sealed already, or a name twice
  void use(std::span<const list_spec> specs)
  {
    registry more = engine_.tensors();  // all of them, or none
    for (const list_spec& spec : specs) more.add_list(spec);
    engine_.tensors() = std::move(more);
  }
  /// For optimizer steps. @param what   it is: "an optimizer kernel"   @throws usage_error   this manager was not given
  /// it by `use`
  void expect_used(const registration& registered, std::string_view what) const
  {
    if (registered.is_tied_to(used_)) [[likely]]
      return;
    const std::string_view why =
        registered.is_tied()
            ? " that another manager was given (make one for each manager, and give it to use())"
            : " that the manager was not given (call m.use() with it before the first access; a copy is another one)";
    throw usage_error{error_text{} << "chunkmem: a step with " << what << why};
  }
  /// For optimizer steps. @throws usage_error   the last iteration had named too few of its micro-batches: said once
  void expect_whole_iteration() { link_->micro_batches.expect_told(); }
  /// Bytes that must survive a restart, by name. They stay the caller's. @throws usage_error   a name twice
  void state(std::string_view name, std::span<std::byte> content)
  {
    add_state(states_, {std::string{name}, content, nullptr, callers_own});
  }

  /// For saves and loads. @throws usage_error   the owner of a state was given to `use` and is gone, and the bytes with
  /// it
  void expect_states() const
  {
    for (const named_state& it : states_)
      if (!has_owner(it))
        throw usage_error{
            error_text{} << "chunkmem: the owner of the state " << it.name
                         << " was given to use() and is gone (keep it where it is for as "
                         << "long as its manager is saved or loaded; a copy or a moved one is not known)"};
  }

  // Planning.

  /// Ends the declarations and places everything; nothing is allocated yet. The first access does it where nobody did.
  /// @throws config_error   the device is smaller than the largest tensor; device and host together are smaller than
  ///                        the weights and the states of the optimizer (the message lists each size that must grow);
  ///                        no gradient could ever lie in place; the placement cannot place this model; or the layout
  ///                        cannot be searched for the size of chunks
  memory_requirement seal()
  {
    if (gradient_.takes_slot()) prepare_for_gradients_in_place();
    ledger_.reset(engine_.tensors().parameters());
    model_places_.seal(engine_);  // the last that may be left undone: see prepare
    const memory_requirement need = requirement();
    refuse_too_small_for_model(engine_, need);
    return need;
  }

  /// Runs `step` with pins and leases that carry no bytes, and finds the least it needs.
  ///
  /// `step` must make the same calls as a real step; its arithmetic is skipped where `rehearsing()` is true. It is run
  /// once; again where the placement gives states other homes by what was measured; each time twice where updates wait
  /// for the next step, which does them.
  /// @param on   what pins and leases point to: with scratch bytes plain loops need no test of `rehearsing()`; see
  ///   rehearse_on
  /// @throws config_error   the device or host capacity is too small for this step, or the placement refuses it
  /// @throws usage_error    scratch bytes for a device that the calling thread cannot address, or as a mistake in the
  ///   step
  template <class Step>
  memory_requirement rehearse(Step&& step, rehearse_on on = rehearse_on::nothing)
  {
    seal(), engine_.finish_updates();
    const scratch_until_end scratch{*this, on};
    run_without_bytes(step);
    model_places_.homes().measured(most_leased_of(engine_.rehearsing(), tier::device));
    memory_requirement need = requirement();
    measure_need<Eviction, Transfer, core_type>(engine_, eviction_, need,
                                                [&](bytes device) { return settle(device, step); });
    refuse_too_small_for_step(engine_, need);
    engine_.note_step_need({{need.smallest_device, need.smallest_host}});
    if (model_places_.assign_homes(engine_)) run_without_bytes(step);
    return need;
  }
  /// Iterations of this name follow a profile that another run of this model made, from the first one on.
  /// @throws config_error   the profile is not of this model; usage_error   they were recorded already, or one is
  ///   running
  void use_profile(const access_record& record, std::string_view name = "train")
  {
    ready();
    expects(!rehearsing(), "a profile was given to a manager in a rehearsal");
    engine_.expect_record(record);
    model_places_.homes().measured(most_leased(record, tier::device));
    model_places_.assign_homes(engine_);
    engine_.use_record(name, record);
  }
  /// What another run solved for them, after their profile: `profile()`'s companion `plan()`. @throws config_error,
  /// usage_error
  void use_plan(const transfer::stored_plan& plan, std::string_view name = "train")
  {
    ready(), engine_.use_stored_plan(plan, name);
  }
  /// Inside `rehearse`: pins have no bytes, or scratch bytes.
  [[nodiscard]] bool rehearsing() const noexcept { return engine_.rehearsing().is_running(); }

 protected:
  static constexpr std::size_t callers_own = SIZE_MAX;
  struct named_state {
    std::string name;
    std::span<std::byte> content;
    void (*check)(std::span<const std::byte> loaded) = nullptr;
    std::size_t owner = callers_own;  // among those that were given to use()
  };

  using place_type = typename Checks::part::place_type;
  /// Does the work of a public call. With checks: for one thread at a time, after what was noted before is thrown, and
  /// an error that leaves it says where in the caller's program it was called.
  /// @param call   a literal
  template <class Work>
  [[gnu::always_inline]] decltype(auto) within(const char* call, place_type from, Work&& work)
  {
    if constexpr (!Checks::is_on)
      return work();
    else
      return watched(call, from, work);
  }

  [[nodiscard]] bool has_owner(const named_state& it) const noexcept
  {
    return it.owner == callers_own || used_.has(it.owner);
  }
  static void add_state(std::vector<named_state>& states, named_state fresh)
  {
    for (const named_state& known : states)
      if (known.name == fresh.name)
        throw usage_error{error_text{} << "chunkmem: two registered states have one name, " << fresh.name
                                       << " (give one of them another; one optimizer of each kind is enough)"};
    states.push_back(std::move(fresh));
  }
  [[nodiscard]] static std::string full_name(std::string_view type, std::string_view name)
  {
    return type.empty() ? std::string{name} : std::string{type} + '/' + std::string{name};
  }

  /// Tells this manager's handles from another's; never 0.
  [[nodiscard]] std::uint32_t owner() const noexcept
  {
    const auto address = reinterpret_cast<std::uintptr_t>(link_);
    return static_cast<std::uint32_t>(address >> 3) | 1U;  // a link is at least 16 bytes from the next
  }

  void check(agent who) const
  {
    expects(static_cast<std::size_t>(who) < engine_.backend().agents(),
            "an agent that this backend does not have: adopt() makes one");
    expects(who != agent::to_device && who != agent::to_host,
            "the agents of the manager's own copies: use compute, or adopt() one");
  }
  void ready()
  {
    if (wants_order() && !rehearsing())
      throw config_error{"tensor_order::first_use needs to know the order: call rehearse before the first access"};
    prepare();
  }
  void prepare()
  {
    engine_.expect_alive();
    if (!model_places_.homes().is_ready()) seal();
    ready_owner_ = owner();
  }

  /// The hot path: one compare says that the handle is ours and that everything is placed.
  [[nodiscard]] std::uint32_t slot_of(tensor_handle wanted)
  {
    if (wanted.owner != ready_owner_) [[unlikely]]
      make_ready_for(wanted);
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
    engine_.tensors().expects_of(
        engine_.tensors().value_slot(wanted.id), engine_.tensors().info(wanted.id).part == role::parameter,
        "a gradient or list of a tensor that is not trained (a frozen weight, a buffer or an activation)");
    expects(index_of(list) < engine_.tensors().lists(), "a list that this manager does not have");
    engine_.tensors().expects_of(engine_.tensors().value_slot(wanted.id), engine_.tensors().is_in(wanted.id, list),
                                 "the master of a 32-bit parameter, which has none");
    return engine_.tensors().slot_in(wanted.id, list);
  }
  /// The record becomes that of a device of this size. @return   false where the placement refuses it
  template <class Step>
  bool settle(bytes device, Step& step)
  try {
    if (model_places_.homes().assign(device)) run_without_bytes(step);
    return true;
  } catch (const config_error&) {
    return false;
  }
  template <class Step>
  void run_without_bytes(Step& step)
  {
    expects(!engine_.is_inside() && !rehearsing(), "a rehearsal inside an iteration or another rehearsal");
    prepare();
    auto& log = engine_.rehearsing();
    const std::uint64_t holders = link_->holders;
    ledger_.begin_rehearsal();
    try {
      log.begin(engine_.tensors()), step();
      if (engine_.pending().any()) log.begin_second(), step();
      expects(!engine_.has_scratch() || link_->holders == holders,
              "a pin or lease of a rehearsal on scratch bytes outlived the step: its bytes are no tensor's (end all of "
              "them in the step)");
    } catch (...) {
      end_rehearsal();
      if (wants_order()) ready_owner_ = no_owner;
      throw;
    }
    end_rehearsal();
    if (wants_order()) model_places_.order_by_first_use(engine_, log.record(true));
    engine_.places().learn(log.record(true), engine_.tensors());
    engine_.settle_gradients();
    for (const bool last : {false, true})
      log.record(last).finish(engine_.tensors().chunk_of_slot(),
                              static_cast<std::uint32_t>(engine_.tensors().frames_of_chunk().size()));
  }
  struct scratch_until_end {
    model_plan* plan = nullptr;
    scratch_until_end(model_plan& of, rehearse_on on)
    {
      if (on == rehearse_on::nothing || of.rehearsing()) return;  // inside another one the next line refuses
      expects(core_type::host_addressable,
              "a rehearsal on scratch bytes, of a device that the calling thread cannot address: its kernels "
              "could not work on them (rehearse on nothing, and skip kernels where rehearsing() is true)");
      of.engine_.begin_scratch();
      plan = &of;
    }
    scratch_until_end(const scratch_until_end&) = delete;
    ~scratch_until_end()
    {
      if (plan != nullptr) plan->engine_.end_scratch();
    }
  };
  void end_rehearsal() noexcept
  {
    if (engine_.rehearsing().is_running()) engine_.rehearsing().end();
    engine_.pending().discard(), ledger_.end_rehearsal();
  }

  [[nodiscard]] static std::string details_of(const void* plan)
  {
    const auto& it = *static_cast<const model_plan*>(plan);
    return error_details(it.engine_, it.engine_.tensors().names());
  }

  template <class Work>
  decltype(auto) watched(const char* call, place_type from, Work& work)
  try {
    [[maybe_unused]] const auto inside = engine_.checks().enter(call, from);
    return work();
  } catch (error& failed) {
    error_text line;
    engine_.checks().tell_place(line, from);
    try {
      if (failed.details().find(line.view()) == std::string_view::npos) failed.append_details(line.view());
    } catch (...) {  // no memory for a line about it
    }
    throw;
  }
  /// For messages of checks.
  static void describe(void* plan, std::uint32_t slot, error_text& text) noexcept
  {
    const auto& it = *static_cast<const model_plan*>(plan);
    text << it.engine_.tensors().label(slot);
  }
  void write_name(tensor_id tensor, error_text& text) const noexcept
  {
    const std::uint32_t at = index_of(tensor);
    const auto names = engine_.tensors().names();
    if (at < names.size() && !names[at].empty())
      text << "'" << names[at] << "'";
    else
      text << "tensor." << std::uint64_t{at};
  }

  [[nodiscard]] bool wants_order() const noexcept { return model_places_.wants_order(engine_.options()); }
  /// Before an iteration: what was leased so far may give states other homes. @throws config_error   the placement
  /// refuses it
  void revise_homes()
  {
    if constexpr (homes_type::is_profiled) {
      const bytes seen{engine_.places_now().space(tier::device).most_leased()};
      if (engine_.snapshot().iterations == 0 ||
          (model_places_.homes().is_measured() && seen <= model_places_.homes().tide()))
        return;
      model_places_.homes().measured(seen);
      model_places_.assign_homes(engine_);
    }
  }

  [[nodiscard]] memory_requirement requirement() const
  {
    const registry& tensors = engine_.tensors();
    return requirement_of<core_type>(engine_, [&](std::uint32_t slot) {
      if (!tensors.is_state(slot)) return true;
      return model_places_.homes().home_of(slot % tensors.parameters()) == tier::device;
    });
  }

  /// A policy that could do nothing is refused: a knob without effect would be a surprise.
  void prepare_for_gradients_in_place()
  {
    bool any = false;
    for (std::uint32_t id = 0; id < engine_.tensors().tensors(); ++id) {
      const tensor_info& it = engine_.tensors().info(tensor_id{id});
      any = any || (it.part == role::parameter && size_of(it.type) == 2);
    }
    if (!any || !engine_.tensors().has_masters())
      throw config_error{
          "gradient::in_place needs 16-bit parameters and a master list beside them (declare "
          "parameters as bf16 or fp16 and hand an optimizer's lists with masters to use(), or take "
          "gradient::separate)"};
    engine_.places().enable(engine_.tensors().parameters());
  }

  engine_type engine_;
  Eviction eviction_;  // for rehearsals
  model_places<Layout, Placement> model_places_;
  Gradient gradient_;
  gradient_ledger ledger_;
  std::vector<named_state> states_;
  registrations used_;
  owner_link<engine_type>* link_;
  static constexpr std::uint32_t no_owner = 2;  // a number that no handle has
  std::uint32_t ready_owner_ = no_owner;        // owner() once everything is placed
};

}  // namespace chunkmem::inline v0
