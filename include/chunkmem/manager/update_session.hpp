// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/chunk_table.hpp>
#include <chunkmem/manager/control_block.hpp>
#include <chunkmem/manager/gradient_store.hpp>
#include <chunkmem/manager/gradients.hpp>
#include <chunkmem/manager/registered_states.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/report.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/profile/recorder.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

// Views of a manager for optimizers (update_session) and for saves and loads (content_session), and a step as a graph
// (captured_step).

namespace chunkmem::inline v0 {

/// A step of a trainer as one device graph: the manager's copies and the trainer's kernels, in their order.
///
/// `replay()` runs the step again without the trainer's code, as one launch. It is the same step at the same addresses:
/// kernels read inputs that change (a batch, a learning rate) from device memory outside of the manager. Where the
/// step's plan ends as it begins, the graph has no extra copies; else it clears the device at its end, which costs
/// copies of the chunks that stayed. The manager may be used freely between replays. Where chunks moved so that they
/// cannot be brought back, or activations have other sizes, an ordinary step has to come first. Move-only; unusable
/// after its manager ends. Source: stream capture of CUDA graphs. Cost of a replay: O(slots + chunks + frames) on the
/// calling thread.
/// @threads one caller per manager
template <class Engine, graph_backend Backend>
class captured_step {
 public:
  using graph_type = typename Backend::graph_type;

  /// The conditions under which a graph can be replayed.
  struct circumstances {
    chunk_table start;              ///< the residency at the start and at the end
    std::uint64_t arrangement = 0;  ///< see schedule::arrangement
    std::uint64_t sizes = 0;        ///< of slots
    bool clears = false;            ///< the graph starts from a cleared device, and clears it again
  };

  captured_step(control_block<Engine>& link, graph_type graph, circumstances around, const report& moved)
      : link_{&link}, graph_{std::move(graph)}, around_{std::move(around)}, moved_{moved}
  {
    ++link_->holders;
  }
  captured_step(captured_step&& other) noexcept
      : link_{std::exchange(other.link_, nullptr)},
        graph_{std::move(other.graph_)},
        around_{std::move(other.around_)},
        moved_{other.moved_}
  {
  }
  captured_step& operator=(captured_step&&) = delete;
  ~captured_step()
  {
    if (link_ != nullptr && --link_->holders == 0 && link_->engine == nullptr) delete link_;
  }

  /// Runs the step again; returns when the graph is enqueued.
  ///
  /// @return   false where the residency or the sizes of activations do not fit the graph: run the step as usual, and
  ///   capture it again if this repeats
  /// @throws usage_error    inside an iteration, or its manager is gone
  /// @throws device_error   the device could not be cleared, or the graph could not be started: call again
  [[nodiscard]] bool replay()
  try {
    expects(link_ != nullptr && link_->engine != nullptr,
            "a captured step was replayed after its manager or after it was moved from");
    Engine& engine = *link_->engine;
    engine.health().expect_alive();
    expects(!engine.schedule().is_inside(), "a captured step was replayed inside an iteration");
    engine.pending().finish();
    if (engine.schedule().arrangement() != around_.arrangement || engine.sizes() != around_.sizes) return false;
    if (!engine.chunks().table().same_places(around_.start)) {
      engine.return_to(around_.start, around_.clears);
      if (!engine.chunks().table().same_places(around_.start)) return false;
    }
    engine.replay(graph_, moved_);
    return true;
  } catch (error& failed) {
    if (link_ != nullptr && link_->engine != nullptr) link_->engine->annotator().annotate(failed);
    throw;
  }

 private:
  control_block<Engine>* link_;
  graph_type graph_;
  circumstances around_;
  report moved_;  // by one step; copies alone
};

/// Captures the work of `step` as a graph, and runs the graph once.
///
/// @throws usage_error   the step does not repeat, or has work that no graph holds; the work captured until then is
///   done
/// @throws the errors of `step`: likewise, and the iteration has ended as after any exception
template <graph_backend Backend, class Engine, class Step>
[[nodiscard]] captured_step<Engine, Backend> capture_step(control_block<Engine>& link, Backend& backend, Step&& step)
try {
  Engine& engine = *link.engine;
  engine.health().expect_alive();
  expects(!engine.schedule().is_inside(),
          "a step cannot be captured inside an iteration: capture begins and ends outside");
  expects(engine.schedule().has_repeated(),
          "a step that does not repeat yet cannot be captured: run it until it follows its plan (a step, a "
          "second one, and a third)");
  engine.pending().finish();
  const bool clears = !engine.schedule().is_steady();
  if (clears) engine.clear_device();
  typename captured_step<Engine, Backend>::circumstances around{
      engine.chunks().table(), engine.schedule().arrangement(), engine.sizes(), clears};
  const report before = engine.snapshot();
  const auto finish = [&] {
    auto graph = backend.end_capture();
    backend.launch(graph);
    return graph;
  };
  engine.health().starting([&] { backend.begin_capture(); });
  try {
    std::forward<Step>(step)();
    if (clears && !engine.schedule().is_inside()) engine.clear_device();
  } catch (...) {
    (void)engine.health().ordering(finish);
    throw;
  }
  auto graph = engine.health().ordering(finish);
  expects(engine.snapshot().iterations == before.iterations + 1 && engine.schedule().has_repeated() &&
              !engine.schedule().is_inside() && engine.schedule().arrangement() == around.arrangement &&
              engine.sizes() == around.sizes && engine.chunks().table().same_places(around.start),
          "the captured step was not the recorded one: its work was done, but it cannot be replayed");
  return {link, std::move(graph), std::move(around), engine.snapshot().copies_since(before)};
} catch (error& failed) {
  link.engine->annotator().annotate(failed);
  throw;
}

/// At most one object, of a type that its owner does not know. A std::any for types that cannot be copied, without the
/// header that every user of a manager would preprocess.
///
///     older_check* const known = kept.get<older_check>();
///     older_check& check = known != nullptr ? *known : kept.emplace<older_check>();
class kept_object {
 public:
  kept_object() = default;
  kept_object(const kept_object&) = delete;
  ~kept_object() { reset(); }

  /// The object, if it has this type; else null.
  template <class Object>
  [[nodiscard]] Object* get() const noexcept
  {
    return destroy_ == &destroy<Object> ? static_cast<Object*>(object_) : nullptr;
  }
  /// Destroys the object, and makes one of this type. @throws   as its default constructor: there is no object then
  template <class Object>
  Object& emplace()
  {
    reset();
    auto* const made = new Object{};
    object_ = made;
    destroy_ = &destroy<Object>;
    return *made;
  }

 private:
  template <class Object>
  static void destroy(void* object) noexcept
  {
    delete static_cast<Object*>(object);
  }
  void reset() noexcept
  {
    if (destroy_ != nullptr) std::exchange(destroy_, nullptr)(object_);
  }

  void* object_ = nullptr;
  void (*destroy_)(void*) noexcept = nullptr;
};

/// The interface of a manager for saves and loads: `m.content()`.
///
/// A save visits the `states()`, and may read bytes in place while `changes()` notifies it of writes. A load calls
/// `begin_load`, writes, and calls `end_load` or `abandon_load`.
/// @tparam Builder   model_builder: seals a manager that is not sealed
template <class Engine, class Builder>
class content_session {
 public:
  /// All of them outlive this.
  content_session(Engine& engine, Builder& builder, gradient_store<Engine, Builder>& gradients,
                  const registered_states& states) noexcept
      : engine_{&engine}, builder_{&builder}, gradients_{&gradients}, states_{&states}
  {
  }
  content_session(const content_session&) = delete;

  /// States that were registered by `use` and `state`.
  [[nodiscard]] const registered_states& states() const noexcept { return *states_; }

  // Checks.

  /// The bytes of a tensor in the tier where they are now; none where it was not written. Nothing moves and nothing is
  /// recorded. Waits for the work that wrote the bytes.
  /// @pre the calling thread can address the device
  [[nodiscard]] std::span<const std::byte> bytes_of(tensor_handle wanted)
  {
    return engine_->bytes_now(builder_->slot_of(wanted));
  }

  // Saves.

  [[nodiscard]] change_watch& changes() noexcept { return gradients_->changes(); }  ///< of weights and states
  /// Notifies a watcher after the late updates of a chunk of weights: its bytes are then of one step.
  [[nodiscard]] pending_updates& late_updates() noexcept { return engine_->pending(); }
  /// By slot: the position of its first change in the last iteration. The next iteration changes slots in the same
  /// order. UINT32_MAX for a slot without a change.
  [[nodiscard]] sequence<std::uint32_t> places_of_changes() const
  {
    sequence<std::uint32_t> places;
    places.assign(engine_->tensors().slots().size(), UINT32_MAX);
    const auto entries = engine_->schedule().last_record().entries();
    for (std::uint32_t place = static_cast<std::uint32_t>(entries.size()); place-- > 0;)
      if (is_access(entries[place].kind) && writes(access_of(entries[place].kind)) &&
          entries[place].slot < places.size())
        places[entries[place].slot] = place;
    return places;
  }
  [[nodiscard]] slot_id slot_of(tensor_handle tensor, list_id list) const { return builder_->slot_in(tensor, list); }
  /// The number of the training, for its checkpoints: its first save draws it and a load takes it over; 0 before.
  [[nodiscard]] std::uint64_t run() const noexcept { return run_; }
  void belongs_to(std::uint64_t run) noexcept { run_ = run; }
  /// An object that a save keeps for the next save. It ends with the manager.
  [[nodiscard]] kept_object& kept_by_saver() noexcept { return kept_by_saver_; }

  // Loads.

  /// @throws usage_error   a pin of the trainer holds a tensor
  void expect_unpinned()
  {
    changes().tell(chunk_id::none);
    const registry& tensors = engine_->tensors();
    for (const slot_id it : tensors.slot_ids())
      tensors.expects_of(it, tensors[it].pins == 0,
                         "a checkpoint cannot be loaded while a pin holds a tensor: release it before");
  }
  /// All tensors are about to be overwritten: gradients are dropped, and a step that is half done is void. Until
  /// `end_load`, no step is taken and nothing is saved. @param kept   tensors that the load does not write: see
  /// abandon_load
  /// @throws   as basic_manager::drop_gradients
  void begin_load(std::span<const tensor_handle> kept = {})
  {
    if (!engine_->rehearsing().is_running()) changes().tell(chunk_id::none);
    engine_->gradients().begin_load();
    engine_->pending().discard();
    const registry& tensors = engine_->tensors();
    if (tensors.parameters() > 0) builder_->expect_ready();
    stays_.assign(tensors.slots().size(), 0);
    for (const tensor_handle& each : kept) {
      const slot_id value = tensors.value_slot(each.id);
      stays_[index_of(value)] = 1;
      if (const slot_id master = tensors.master_of(value); master != slot_id::none) stays_[index_of(master)] = 1;
    }
    gradients_->consume_all();
  }
  void end_load() noexcept { engine_->gradients().end_load(); }
  /// A load failed: tensors lose their bytes, so that no unverified byte is read. A read is a usage_error until the
  /// tensor is written, or a load succeeds; lists that start at zero read as zeros. Values and masters of the kept
  /// tensors stay. O(slots). @pre   begin_load()
  void abandon_load() noexcept
  {
    for (const slot_id it : engine_->tensors().slot_ids()) {
      if (index_of(it) < stays_.size() && stays_[index_of(it)] != 0) continue;
      try {
        engine_->drop(it);
      } catch (...) {  // a lost device has no readable bytes
      }
    }
  }

 private:
  Engine* engine_;
  Builder* builder_;
  gradient_store<Engine, Builder>* gradients_;
  const registered_states* states_;
  std::uint64_t run_ = 0;
  kept_object kept_by_saver_;
  sequence<std::uint8_t> stays_;  // by slot: the running load does not write it
};

/// The interface of a manager for optimizer steps: `m.updates()`.
///
/// A step checks first (`expect_used`, `expect_gradients`), orders the parameters (`order_by_completion`), visits them
/// (`for_each_in_order`), and consumes their gradients between `begin_update` and `end_update`. An order stays until
/// the step is finished or dropped, also where it is tried again. Parameters without a gradient come first in each
/// order.
/// @tparam Builder   model_builder: resolves handles
template <class Engine, class Builder>
class update_session {
 public:
  using place_type = typename Engine::place_type;

  /// All of them outlive this.
  update_session(Engine& engine, Builder& builder, gradient_store<Engine, Builder>& store,
                 const registered_states& states) noexcept
      : engine_{&engine}, builder_{&builder}, store_{&store}, states_{&states}
  {
  }
  update_session(const update_session&) = delete;

  /// The state of gradients and of the step.
  [[nodiscard]] model_gradients& gradients() const noexcept { return engine_->gradients(); }
  /// Updates that wait for the next use of their weights: see optimizer::late_updates.
  [[nodiscard]] pending_updates& pending() const noexcept { return engine_->pending(); }

  /// Runs a whole step as one call of the manager: the check policy counts inner calls as the library's own.
  template <class Work>
  decltype(auto) within(place_type from, Work&& work)
  {
    return engine_->within("an optimizer step", from, work);
  }

  // Before a step.

  /// @param what   the object, such as "an optimizer kernel"   @throws usage_error   it was not given to this manager
  ///   by `use`
  void expect_used(const registration& registered, std::string_view what) const
  {
    states_->expect_used(registered, what);
  }
  /// Checks that some parameter has a gradient. With checks: every parameter has one that was written whole, or may be
  /// without.
  /// @throws usage_error   none has one; with checks it names some of those that have none
  void expect_gradients(place_type from = place_type{})
  {
    within(from, [&] {
      if constexpr (Engine::checks_type::is_on) look_at_gradients();
      expect_some_gradient();
    });
  }
  /// As expect_gradients, for a part of a larger step: this part may have no gradient.
  /// @return   some parameter has a gradient   @throws usage_error   with checks, as expect_gradients
  [[nodiscard]] bool has_gradients_of_part(place_type from = place_type{})
  {
    if constexpr (Engine::checks_type::is_on) within(from, [&] { look_at_gradients(); });
    builder_->expect_ready();
    return has_some_gradient();
  }
  /// The running iteration is an exception, such as a skipped step: the record stays as it was.
  void keep_record() noexcept
  {
    if (!is_rehearsing()) engine_->schedule().keep_record();
  }

  // Rehearsals.

  /// The step has `count` variants, and a rehearsal runs each of them. @return   number of the running variant, from 0
  std::size_t rehearse_turns(std::size_t count) noexcept
  {
    engine_->rehearsing().want_turns(count);
    return engine_->rehearsing().turn();
  }

  // Order.

  /// Orders parameters by the completion of their gradients: the first gradients are copied while the last ones are
  /// computed.
  void order_by_completion()
  {
    arrange([this](std::uint32_t index) { return gradients().completed(slot_id{index}); });
    if (!is_rehearsing()) engine_->note_update();
  }
  /// Orders parameters: first `first`, then by the first use of their weights in this iteration, which the next one
  /// repeats; then unused ones. O(accesses so far + parameters log parameters).
  /// @return   the number of parameters before those that are not in `first`
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
    const auto order = gradients().order().all();
    const auto rest = std::find_if(order.begin(), order.end(),
                                   [&](std::uint32_t index) { return has_waiting(index) && rank_[index] >= behind; });
    return static_cast<std::uint32_t>(rest - order.begin());
  }
  /// Calls `visit(handle, info)` for each parameter in that order, without the first `done`.
  template <class Visit>
  void for_each_in_order(std::uint32_t done, Visit visit)
  {
    builder_->expect_ready();
    for (const std::uint32_t index : gradients().order().all().subspan(done)) with_parameter(index, visit);
  }
  /// Calls `visit(handle, info)` for one parameter. @param ordinal   in the order of declaration
  template <class Visit>
  void with_parameter(std::uint32_t ordinal, Visit&& visit)
  {
    const tensor_id id = engine_->tensors().parameter(ordinal);
    visit(builder_->handle_of(id), engine_->tensors().info(id));
  }

  // Norms.

  /// The measure of one gradient, or null where neither gradient_done nor a step took it.
  [[nodiscard]] const gradient_measure* measure_of(tensor_handle parameter)
  {
    (void)builder_->slot_in(parameter, gradient_list);
    return gradients().measure_of(builder_->slot_of(parameter));
  }
  /// Keeps the measure of a step, so that a retry of the step does not measure again. @pre the parameter has a gradient
  void keep_measure(tensor_handle parameter, const gradient_measure& measure)
  {
    gradients().keep_measure(builder_->slot_of(parameter), measure);
  }
  /// For checks::full: the gradient is a sum from elsewhere, so the micro-batches in which it is opened are not
  /// counted. Other check policies ignore the call.
  void allow_any_micro_batches(tensor_handle parameter)
  {
    if constexpr (Engine::checks_type::is_on) store_->micro_batches().exempt(index_of(builder_->slot_of(parameter)));
  }

  // Updates.

  /// The place of a parameter's states, where a step with a thread and a device updates the parameter.
  [[nodiscard]] memory_location place_of_states(tensor_handle parameter)
  {
    return builder_->place_of_states(builder_->slot_of(parameter));
  }
  /// Where the calling thread updates a parameter: at the place of its states, if the thread can address it.
  [[nodiscard]] memory_location place_of_update(tensor_handle parameter)
  {
    return builder_->update_place(builder_->slot_of(parameter));
  }
  /// While this object lives, an update or a norm uses the host's memory bandwidth: a save leaves it alone.
  [[nodiscard]] change_watch::update_scope updating() noexcept { return store_->changes().updating(); }
  /// The position of the iteration in its record.
  [[nodiscard]] recorder::position here() const noexcept { return engine_->schedule().here(); }
  /// Goes back to a position: the accesses since then are repeated, and count once.
  void go_back(const recorder::position& to) noexcept { engine_->schedule().go_back(to); }
  /// Runs work whose accesses are all repeated where it throws. They count once: a rank whose call failed then decides
  /// as the other ranks, and gathers alike. @param work   holds no pin after its end
  template <class Work>
  decltype(auto) whole(Work work)
  {
    const recorder::position begun = here();
    try {
      return work();
    } catch (...) {
      go_back(begun);
      throw;
    }
  }
  /// The gradient was used, or its parameter is skipped.
  /// @throws out_of_memory, device_error   the weight is unreadable; call again
  void consume_gradient(tensor_handle parameter)
  {
    (void)builder_->slot_in(parameter, gradient_list);
    store_->consume(builder_->slot_of(parameter));
  }
  /// An update that overwrote a gradient in its weight's place was undone: the bytes are the gradient's again.
  /// @pre no pin holds them
  void take_place_again(tensor_handle parameter) noexcept { store_->take_place(builder_->slot_of(parameter)); }

  // Updates that wait.

  /// @throws std::bad_alloc   @pre no update waits
  void make_room_for_updates()
  {
    builder_->expect_ready();
    engine_->pending().prepare();
  }
  /// The remaining gradients wait in this order; `update(context, value_slot)` consumes each before the first use of
  /// its parameter. @pre make_room_for_updates, and no tensor was placed again since
  void hold_updates(pending_updates::update_type update, void* context) noexcept
  {
    const auto order = gradients().order().all();
    for (std::size_t index = order.size(); index-- > 0;)
      if (has_waiting(order[index])) engine_->pending().add(slot_id{order[index]});
    engine_->pending().serve(update, context);
  }
  /// The update of this parameter waits.
  [[nodiscard]] bool waits(tensor_handle parameter) const
  {
    return engine_->pending().has(builder_->slot_of(parameter));
  }
  /// Before a tensor that is gathered from this parameter is used: runs the waiting updates in its chunk. @throws as
  /// finish_updates
  void catch_up(tensor_handle parameter)
  try {
    engine_->pending().catch_up(builder_->slot_of(parameter));
  } catch (error& failed) {
    engine_->annotator().annotate(failed);
    throw;
  }
  /// Runs all waiting updates. @throws usage_error   the object that runs them has ended; and the errors of the
  /// updates: call again
  void finish_updates()
  try {
    engine_->pending().finish();
  } catch (error& failed) {
    engine_->annotator().annotate(failed);
    throw;
  }

 private:
  static constexpr std::uint64_t most_named = 4;

  [[nodiscard]] bool is_rehearsing() const noexcept { return engine_->rehearsing().is_running(); }
  template <class Key>
  void arrange(Key key)
  {
    gradients().order().arrange(
        [&](std::uint32_t index) { return has_waiting(index) ? 1 + std::uint64_t{key(index)} : 0; });
  }
  [[nodiscard]] bool has_waiting(std::uint32_t ordinal) const noexcept { return !store_->is_fresh(slot_id{ordinal}); }

  [[nodiscard]] bool has_some_gradient() const
  {
    for (std::uint32_t index = 0; index < engine_->tensors().parameters(); ++index)
      if (has_waiting(index) && !pending().has(slot_id{index})) return true;
    return false;
  }
  void expect_some_gradient()
  {
    const std::uint32_t count = engine_->tensors().parameters();
    if (is_rehearsing() || count == 0 || gradients().measure_of_all() != nullptr) return;  // a part of a larger step
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
      if (has_waiting(index) && !pending().has(slot_id{index})) {
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
                                   << " (write one for each, declare untrained tensors with role::frozen, or call "
                                      "without_gradient(w) for parameters that may lack one)"};
  }

  void expect_every_micro_batch(std::uint32_t index)
  {
    const registry& tensors = engine_->tensors();
    const checks::micro_batch_watch::count seen = store_->micro_batches().seen(index);
    if (!seen.is_short() || engine_->checks().may_lack_gradient(index_of(tensors.parameter(index)))) return;
    throw usage_error{error_text{} << "chunkmem: an optimizer step: the gradient of " << tensors.label(slot_id{index})
                                   << " was opened in " << seen.opened << " of " << seen.expected
                                   << " micro-batches (add to it in each, name each by pass() first, or call "
                                      "without_gradient(w) for parameters that some micro-batches leave out)"};
  }

  Engine* engine_;
  Builder* builder_;
  gradient_store<Engine, Builder>* store_;
  const registered_states* states_;
  sequence<std::uint64_t> rank_;  // by parameter
};

}  // namespace chunkmem::inline v0
