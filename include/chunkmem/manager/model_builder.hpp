// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_size_search.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/gradients.hpp>
#include <chunkmem/manager/manager_options.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/placement/placement_policy.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

/// The tier in which the optimizer states of each parameter live, by the placement policy and by measured leases.
///
///     state_tiers<placement::optimizer_on_host> tiers{{}};
///     tiers.reset(tensors, 1_MiB, 64_MiB);
///     const tier where = tiers.preferred_tier(weight);
///
/// `reset` asks the policy once the model is sealed. `measured` takes the peak of the leases of an iteration, and
/// `assign` asks the policy again. Cost: O(slots) for each assignment.
template <placement_policy Placement>
class state_tiers {
 public:
  static constexpr bool is_profiled = profiled_placement<Placement>;

  explicit state_tiers(Placement policy) : policy_{std::move(policy)} {}

  [[nodiscard]] const Placement& policy() const noexcept { return policy_; }
  [[nodiscard]] tier preferred_tier(slot_id value_slot) const noexcept { return tiers_[index_of(value_slot)]; }
  /// The peak of leases by which tiers were assigned, and whether it was measured over a whole iteration.
  [[nodiscard]] bytes peak_leased() const noexcept { return peak_leased_; }
  [[nodiscard]] bool is_measured() const noexcept { return measured_; }

  [[nodiscard]] bool is_ready() const noexcept { return ready_; }
  /// Assigns tiers by the declarations alone. @pre sealed @throws config_error   the policy cannot place this model
  void reset(const registry& tensors, bytes frame, bytes device)
  {
    states_.assign(tensors.parameters(), bytes{});
    chunks_.assign(tensors.parameters(), 0);
    working_ = bytes{};
    sequence<std::uint8_t> counted(tensors.frames_of_chunk().size(), 0);
    for (const slot_id each : tensors.slot_ids()) add(tensors, frame, each, counted);
    tiers_.clear();
    for (const bytes size : states_) tiers_.push_back(policy_.preferred_tier(role::optimizer_state, size));
    assign(device);
    ready_ = true;
  }

  /// An iteration leased at most this much at once.
  void measured(bytes peak_leased) noexcept
  {
    peak_leased_ = std::max(peak_leased_, peak_leased);
    measured_ = true;
  }

  /// Restores the tiers and the measured peak, unless `keep()` was called: for calls that may be refused.
  class trial {
   public:
    explicit trial(state_tiers& of) : of_{of}, tiers_{of.tiers_}, peak_leased_{of.peak_leased_}, measured_{of.measured_}
    {
    }
    trial(const trial&) = delete;
    ~trial()
    {
      if (is_kept_) return;
      std::swap(of_.tiers_, tiers_);
      of_.peak_leased_ = peak_leased_;
      of_.measured_ = measured_;
    }
    void keep() noexcept { is_kept_ = true; }

   private:
    state_tiers& of_;
    sequence<tier> tiers_;
    bytes peak_leased_;
    bool measured_;
    bool is_kept_ = false;
  };

  /// Takes another value of the policy, and assigns again; before `reset`, only takes the value.
  /// @throws as assign; policy and tiers as before
  void change_policy(Placement policy, bytes device)
  {
    std::swap(policy_, policy);
    if (!ready_) return;
    try {
      assign(device);
    } catch (...) {
      std::swap(policy_, policy);
      throw;
    }
  }

  /// Gives tiers for a device of this size. @return   one changed   @throws config_error   as reset; tiers as before
  bool assign(bytes device)
  {
    if constexpr (!is_profiled)
      return false;
    else {
      fresh_.assign(tiers_.size(), tier::host);
      policy_.assign({device, working_, peak_leased_, measured_, states_, chunks_}, fresh_);
      std::swap(tiers_, fresh_);
      return tiers_ != fresh_;
    }
  }

 private:
  void add(const registry& tensors, bytes frame, slot_id id, sequence<std::uint8_t>& counted)
  {
    const slot& slot_state = tensors[id];
    if (slot_state.chunk == chunk_id::none) return;
    if (index_of(id) < chunks_.size()) chunks_[index_of(id)] = index_of(slot_state.chunk);
    if (tensors.is_state(id))
      states_[index_of(tensors.value_of(id))] += bytes{slot_state.size};
    else if (std::exchange(counted[index_of(slot_state.chunk)], std::uint8_t{1}) == 0)
      working_ += tensors.frames_of_chunk()[index_of(slot_state.chunk)] * frame;
  }

  Placement policy_;
  sequence<tier> tiers_;  // by value slot
  sequence<tier> fresh_;
  sequence<bytes> states_;
  sequence<std::uint32_t> chunks_;  // of values, by value slot
  bytes working_;
  bytes peak_leased_;
  bool measured_ = false;
  bool ready_ = false;
};

/// Decides where the tensors of a model lie: the size of chunks, the chunk of each tensor, and the tier of optimizer
/// states.
///
///     model_places<append_layout, placement::optimizer_on_host> places{{}, {}};
///     const bytes frame = places.seal(tensors, 1_MiB, 64_MiB);
///
/// `seal` places all tensors in the order of declaration; `order_by_first_use` places them again in the order of a
/// rehearsed step; `assign_tiers` asks the placement policy once leases were measured.
template <chunk_layout Layout, placement_policy Placement>
class model_places {
 public:
  model_places(Layout layout, Placement placement) : layout_{std::move(layout)}, tiers_{std::move(placement)} {}

  [[nodiscard]] state_tiers<Placement>& tiers() noexcept { return tiers_; }
  [[nodiscard]] const state_tiers<Placement>& tiers() const noexcept { return tiers_; }

  /// Places everything in the order of declaration. Where the placement refuses the model, the next call asks it again.
  /// @param frame   size of chunks, or least_waste_chunks: then it is searched [bytes]
  /// @param device   capacity [bytes]   @return   the size of chunks [bytes]
  /// @throws config_error   the layout cannot be searched for the size of chunks, or the placement cannot place this
  ///   model
  bytes seal(registry& tensors, bytes frame, bytes device)
  {
    if (frame == least_waste_chunks) frame = search_chunk_bytes(tensors, device);
    tensors.seal(layout_, frame);
    if (!tiers_.is_ready()) tiers_.reset(tensors, frame, device);
    return frame;
  }

  /// The waste at the size of chunks with which the layout wastes the least bytes, no larger than a sixteenth of the
  /// device; in the order of declaration. Cost: that of chunk_size_search.
  [[nodiscard]] chunk_waste::at_size least_waste(const registry& tensors, bytes device) const
    requires searchable_layout<Layout>
  {
    chunk_size_search<Layout> search{layout_};
    sequence<bytes> body;
    tensors.for_each_group([&](const sequence<bytes>& sizes) {
      search.add(sizes);
      if (body.empty()) body = sizes;
    });
    frame_limits limits = frame_limits::of(body);
    const bytes part = align_up(bytes{device.count() / 16}, tensor_alignment);
    limits.most = std::min(limits.most, std::max(part, limits.least));
    const auto found = search.find(limits);
    return {found.frame == bytes{} ? limits.most : found.frame, found.frame * found.frames, found.payload};
  }

  /// The order of first use is wanted and not known yet.
  [[nodiscard]] bool wants_order(const manager_options& options) const noexcept
  {
    return !ordered_ && options.order == tensor_order::first_use;
  }
  /// Places everything again as a step uses it. @pre sealed, nothing is allocated and no gradient lies in place
  void order_by_first_use(registry& tensors, const access_record& step, bytes frame, bytes device)
  {
    sequence<std::uint32_t> first(tensors.slots().size(), access_record::never);
    for (std::uint32_t index = step.size(); index-- > 0;)
      if (step.entries()[index].slot != access_record::never) first[step.entries()[index].slot] = index;
    tensors.place_by_use(first, layout_, frame);
    ordered_ = true;
    tiers_.reset(tensors, frame, device);
  }

 private:
  [[nodiscard]] bytes search_chunk_bytes(const registry& tensors, bytes device) const
  {
    if constexpr (searchable_layout<Layout>) {
      return least_waste(tensors, device).chunk_bytes;
    } else {
      throw config_error{
          "this layout cannot be searched for the size of chunks: give chunk_bytes, or use a layout that "
          "can, such as append_layout or size_class_layout"};
    }
  }

  Layout layout_;
  state_tiers<Placement> tiers_;
  bool ordered_ = false;
};

/// Declares a model, places it before its first use, and resolves the handles that the declarations gave.
///
/// `add` gives a handle; `seal` ends the declarations; `slot_of(handle)` gives the slot of a handle, and seals where
/// the manager is not sealed. Cost of slot_of: one compare, one load.
/// @tparam Engine   engine, whose tensors, gradients and frames it fills
template <class Engine, chunk_layout Layout, placement_policy Placement, gradient_policy Gradient>
class model_builder {
 public:
  using state_tiers_type = state_tiers<Placement>;

  /// @param owner   tells the handles of this manager from another's; never 0
  model_builder(Engine& engine, std::uint32_t owner, Layout layout, Placement placement, Gradient gradient)
      : engine_{&engine},
        owner_{owner},
        places_{std::move(layout), std::move(placement)},
        gradient_{std::move(gradient)}
  {
  }
  model_builder(const model_builder&) = delete;

  [[nodiscard]] std::uint32_t owner() const noexcept { return owner_; }
  [[nodiscard]] const Gradient& gradient() const noexcept { return gradient_; }
  [[nodiscard]] const state_tiers_type& tiers() const noexcept { return places_.tiers(); }

  // Declaring.

  /// @throws usage_error   sealed already, or a role that the manager makes itself; size_overflow
  template <element Element>
  tensor<Element> add(const shape& extents, role part, group_id group)
  {
    constexpr dtype type = dtype_of<Element>;
    return {{engine_->tensors().add(extents, type, part, group, gradient_.type_for(type)), owner_}};
  }
  /// Adds lists for each parameter, all of them or none. @throws usage_error   sealed already, or a name twice
  void add_lists(std::span<const list_spec> specs)
  {
    registry more = engine_->tensors();
    for (const list_spec& spec : specs) more.add_list(spec);
    engine_->tensors() = std::move(more);
  }

  // Placing.

  /// Ends the declarations and places everything. @return   what is known without a rehearsal
  /// @throws config_error   see basic_manager::seal
  memory_requirement seal()
  {
    const memory_requirement need = place();
    if (!is_known_to_fit_) refuse_too_small_for_model(engine_->frames(), capacities(), need);
    is_known_to_fit_ = true;
    return need;
  }
  /// As `seal`, with the waste of the chunks. Cost: a search where chunks waste more than `chunk_waste::little`.
  memory_requirement seal_and_report();
  /// As `seal`, for a rehearsal, which finds the capacities itself. @throws config_error   as seal, but not about
  /// capacities
  memory_requirement place()
  {
    if (gradient_.takes_slot()) prepare_for_gradients_in_place();
    engine_->gradients().reset(engine_->tensors().parameters());
    const bytes device = capacities()[tier::device];
    engine_->set_chunk_bytes(places_.seal(engine_->tensors(), engine_->options().chunk_bytes, device));
    if (gradient_.takes_slot()) tell_gradients_of_gathered();
    return requirement();
  }
  /// A rehearsed step fits: the bounds of the declarations are not checked.
  void note_fit() noexcept { is_known_to_fit_ = true; }
  [[nodiscard]] memory_requirement requirement() const
  {
    const registry& tensors = engine_->tensors();
    return requirement_of(engine_->frames(), engine_->gradients().places(), [&](slot_id slot) {
      return !tensors.is_state(slot) || tiers().preferred_tier(tensors.value_of(slot)) == tier::device;
    });
  }
  /// The waste of all placed chunks. Zero for a sharded model: its units are no tensors of a user. @pre placed
  [[nodiscard]] chunk_waste waste() const
  {
    if constexpr (Engine::copies_type::gathers) return {};
    const registry& tensors = engine_->tensors();
    const bytes frame = engine_->frames().size;
    chunk_waste seen{{frame, frame * tensors.total_frames(), {}}, {}};
    tensors.for_each_group([&](const sequence<bytes>& sizes) {
      for (const bytes size : sizes) seen.now.tensors += size;
    });
    seen.better = seen.now;
    if constexpr (searchable_layout<Layout>)
      if (seen.now.percent() > chunk_waste::little)
        seen.better = places_.least_waste(tensors, capacities()[tier::device]);
    return seen;
  }
  /// @throws config_error   the order of first use is wanted and not known; and as seal
  void expect_ready();
  /// Seals where the manager is not sealed, and again where a seal was refused. @throws as seal; device_error   the
  /// device is lost
  void prepare()
  {
    engine_->health().expect_alive();
    if (!tiers().is_ready() || !(is_known_to_fit_ || engine_->rehearsing().is_running())) seal();
    ready_owner_ = owner_;
  }
  [[nodiscard]] bool wants_order() const noexcept { return places_.wants_order(engine_->options()); }
  /// A step was rehearsed: the next use checks again for the order and whether the step fits.
  void forget_ready() noexcept
  {
    if (wants_order() || !is_known_to_fit_) ready_owner_ = no_owner;
  }
  /// The order of first use is known: all tensors are placed again, where the options want this order.
  void learn_order(const access_record& step)
  {
    if (wants_order())
      places_.order_by_first_use(engine_->tensors(), step, engine_->options().chunk_bytes, capacities()[tier::device]);
  }

  // Tiers of states.

  /// For a trial of other tiers; see state_tiers::trial. @pre everything is placed
  [[nodiscard]] typename state_tiers_type::trial try_tiers()
  {
    return typename state_tiers_type::trial{places_.tiers()};
  }
  /// An iteration leased at most this much of the device at once.
  void measured(bytes leased) noexcept { places_.tiers().measured(leased); }
  /// Gives states tiers for a device of this size. @return   one changed   @throws config_error   tiers as before
  bool assign_tiers(bytes device) { return places_.tiers().assign(device); }
  bool assign_tiers() { return assign_tiers(capacities()[tier::device]); }
  /// @throws as the policy's assign; the policy and its tiers as before
  void change_placement(Placement policy)
  {
    places_.tiers().change_policy(std::move(policy), capacities()[tier::device]);
  }
  /// Before an iteration: the leases so far may give states other tiers.
  /// @throws config_error   the placement refuses it
  void revise_tiers()
  {
    if constexpr (state_tiers_type::is_profiled) {
      const bytes seen{engine_->chunks().space(tier::device).most_leased()};
      if (engine_->snapshot().iterations == 0 || (tiers().is_measured() && seen <= tiers().peak_leased())) return;
      measured(seen);
      assign_tiers();
    }
  }
  /// Where the optimizer's states of a parameter live.
  [[nodiscard]] memory_location place_of_states(slot_id value_slot) const noexcept
  {
    return tiers().preferred_tier(value_slot) == tier::device ? memory_location::device : memory_location::host;
  }
  /// Where the calling thread updates a parameter: in the tier of the optimizer's states, if the thread can address it
  /// or the backend has no bytes.
  [[nodiscard]] memory_location update_place(slot_id value_slot) const noexcept
  {
    constexpr bool is_free = Engine::host_addressable || !Engine::has_bytes;
    return is_free ? place_of_states(value_slot) : memory_location::host;
  }

  // Handles.

  /// The hot path: one compare checks that the handle is of this manager and that it is sealed.
  /// @throws usage_error   of another manager; config_error   as seal
  [[nodiscard]] slot_id slot_of(tensor_handle wanted)
  {
    if (wanted.owner != ready_owner_) [[unlikely]]
      make_ready_for(wanted);
    return engine_->tensors().value_slot(wanted.id);
  }
  /// @throws usage_error   as slot_of; no parameter; or not in the list
  [[nodiscard]] slot_id slot_in(tensor_handle wanted, list_id list)
  {
    const slot_id value = slot_of(wanted);
    const registry& tensors = engine_->tensors();
    tensors.expects_of(value, tensors.info(wanted.id).part == role::parameter,
                       "a gradient or list of a tensor that is not trained (a frozen weight, a buffer or an "
                       "activation)");
    expects(index_of(list) < tensors.lists(), "a list that this manager does not have");
    tensors.expects_of(value, tensors.is_in(wanted.id, list), "the master of a 32-bit parameter, which has none");
    return tensors.slot_in(wanted.id, list);
  }
  /// @param what   the event, such as "a tensor was named"   @throws usage_error   of another manager
  void expect_own(tensor_handle wanted, std::string_view what) const
  {
    expects(wanted.owner == owner_ && index_of(wanted.id) < engine_->tensors().tensors(), what);
  }
  [[nodiscard]] tensor_handle handle_of(tensor_id id) const noexcept { return {id, owner_}; }

 private:
  [[nodiscard]] per_tier<bytes> capacities() const { return engine_->arenas().capacities(); }

  [[gnu::noinline, gnu::cold]] void make_ready_for(tensor_handle wanted)
  {
    expect_own(wanted, "a tensor was used with a manager that did not make it");
    expect_ready();
  }

  /// A policy without any effect is refused.
  void prepare_for_gradients_in_place()
  {
    const registry& tensors = engine_->tensors();
    bool any = false;
    for (std::uint32_t id = 0; id < tensors.tensors(); ++id) {
      const tensor_info& info = tensors.info(tensor_id{id});
      any = any || (info.part == role::parameter && size_of(info.type) == 2);
    }
    if (!any || !tensors.has_masters())
      throw config_error{
          "gradient::in_place needs 16-bit parameters and a master list beside them (declare "
          "parameters as bf16 or fp16 and give use() an optimizer whose lists have masters, or use "
          "gradient::separate)"};
    engine_->gradients().places().enable(tensors.parameters());
  }
  void tell_gradients_of_gathered()
  {
    const registry& tensors = engine_->tensors();
    engine_->gathered().for_each_loaded_from_values(tensors, [&](slot_id whole, slot_id value) {
      engine_->gradients().places().derive(whole, value, tensors.slots().size());
    });
  }

  Engine* engine_;
  std::uint32_t owner_;
  static constexpr std::uint32_t no_owner = 2;  // a number that no handle has
  std::uint32_t ready_owner_ = no_owner;        // owner_ once everything is placed
  bool is_known_to_fit_ = false;
  model_places<Layout, Placement> places_;
  Gradient gradient_;
};

// Outside of the class for compiled_manager.hpp, as in basic_manager.hpp.

template <class Engine, chunk_layout Layout, placement_policy Placement, gradient_policy Gradient>
memory_requirement model_builder<Engine, Layout, Placement, Gradient>::seal_and_report()
{
  memory_requirement need = seal();
  need.waste = waste();
  return need;
}

template <class Engine, chunk_layout Layout, placement_policy Placement, gradient_policy Gradient>
void model_builder<Engine, Layout, Placement, Gradient>::expect_ready()
{
  if (wants_order() && !engine_->rehearsing().is_running())
    throw config_error{"tensor_order::first_use needs to know the order: call rehearse before the first access"};
  prepare();
}

}  // namespace chunkmem::inline v0
