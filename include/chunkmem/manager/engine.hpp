// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/checks/check_policy.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/copy_engine.hpp>
#include <chunkmem/manager/gathered_chunks.hpp>
#include <chunkmem/manager/gradients.hpp>
#include <chunkmem/manager/hazard_tracker.hpp>
#include <chunkmem/manager/manager_options.hpp>
#include <chunkmem/manager/registered_states.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/manager/rehearsal_log.hpp>
#include <chunkmem/manager/report.hpp>
#include <chunkmem/manager/residency_snapshot.hpp>
#include <chunkmem/manager/schedule.hpp>
#include <chunkmem/manager/slot_states.hpp>
#include <chunkmem/profile/external_memory_monitor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

/// The result of an acquire: an address that is valid until its release.
///
///     const access_token held = engine.acquire(slot, entry_kind::read, agent::host);
///     engine.release(held);
struct access_token {
  std::byte* data = nullptr;
  slot_id slot{0};
  std::uint32_t access_index = 0;
  std::uint32_t serial = 0;
  entry_kind kind = entry_kind::read;
  agent stream = agent::host;
  bool is_special = false;  ///< on the host, for a stream, or of a rehearsal: its release does more than count
};

/// The result of a lease: scratch bytes until its release.
///
///     const lease_token held = engine.lease(tier::device, 4'096, agent::host);
///     engine.release(held);
struct lease_token {
  std::byte* data = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
  std::uint32_t access_index = 0;
  std::uint32_t serial = 0;
  tier where = tier::device;
  agent stream = agent::host;
};

/// The parts that run a model, and the path of an access through them: acquire, release, lease and drop, for slots.
///
///     const access_token held = engine.acquire(slot, entry_kind::read, agent::host);
///     engine.release(held);
///
/// A part knows only the parts that its constructor takes; functions that need several parts are here. An access checks
/// the state, steps in the schedule, brings the chunk with the copy engine, and commits. A resident access that follows
/// its record is the hot path: no lock, no allocation, no search. Slow paths are tail calls, so that the fast path
/// spills no registers. Only they throw, and their errors get details. Cost of the hot path: see
/// `engine.acquire_release_instructions`.
template <stream_backend Backend, tensor_rules Rules, eviction_policy Eviction, transfer_policy Transfer,
          chunk_mover<Backend> Mover, trace_sink Sink, check_policy Checks = checks::none>
class engine {
 public:
  using checks_type = Checks;
  using place_type = typename Checks::part::place_type;
  using eviction_type = Eviction;
  using transfer_type = Transfer;
  using states = slot_states<Rules>;
  using copies_type = copy_engine<Backend, Mover, Sink, Checks>;
  using schedule_type = chunkmem::schedule<Eviction, Transfer, copies_type>;
  static constexpr bool host_addressable = Backend::host_addressable;
  static constexpr bool has_bytes = chunkmem::has_bytes<Backend>();
  static constexpr bool gathers = copies_type::gathers;

  engine(Backend& backend, const manager_options& options, Eviction eviction, Transfer transfer, Mover mover, Sink sink)
      : backend_{&backend},
        options_{options},
        pending_{tensors_},
        chunks_{std::move(eviction)},
        health_{[](void* lost) noexcept { static_cast<engine*>(lost)->schedule_.stop(); }, this},
        copies_{backend, health_, std::move(mover), std::move(sink)},
        schedule_{std::move(transfer), tensors_, gradients_.places(), chunks_, copies_, counts_},
        arenas_{backend, health_}
  {
    copies_.tell(watch_);
  }
  engine(const engine&) = delete;
  ~engine()
  {
    if constexpr (watch_type::sees_bytes) watch_.part().forget_arenas();
  }

  // Parts.

  [[nodiscard]] Backend& backend() const noexcept { return *backend_; }
  [[nodiscard]] const manager_options& options() const noexcept { return options_; }
  /// @pre nothing is placed yet
  void set_chunk_bytes(bytes size) noexcept { options_.chunk_bytes = size; }
  [[nodiscard]] registry& tensors() noexcept { return tensors_; }
  [[nodiscard]] const registry& tensors() const noexcept { return tensors_; }
  [[nodiscard]] model_gradients& gradients() noexcept { return gradients_; }
  [[nodiscard]] const model_gradients& gradients() const noexcept { return gradients_; }
  [[nodiscard]] gathered_chunks& gathered() noexcept { return gathered_; }
  [[nodiscard]] const gathered_chunks& gathered() const noexcept { return gathered_; }
  /// Waits of this agent do not count as stalls of the step; see hazard_tracker.
  void add_side_agent(agent stream) noexcept { copies_.tracker().add_side_agent(stream); }
  [[nodiscard]] model_frames frames() const noexcept { return {tensors_, gathered_, options_.chunk_bytes}; }
  [[nodiscard]] pending_updates& pending() noexcept { return pending_; }
  [[nodiscard]] const pending_updates& pending() const noexcept { return pending_; }
  [[nodiscard]] const chunk_cache<Eviction>& chunks() const noexcept { return chunks_; }
  /// What a rehearsed step needs, for messages.
  void note_step_need(per_tier<bytes> need) noexcept { chunks_.note_step_need(need); }
  [[nodiscard]] device_health& health() noexcept { return health_; }
  [[nodiscard]] const device_health& health() const noexcept { return health_; }
  [[nodiscard]] schedule_type& schedule() noexcept { return schedule_; }
  [[nodiscard]] const schedule_type& schedule() const noexcept { return schedule_; }
  [[nodiscard]] arena_set<Backend>& arenas() noexcept { return arenas_; }
  [[nodiscard]] const arena_set<Backend>& arenas() const noexcept { return arenas_; }
  [[nodiscard]] rehearsal_log<Rules>& rehearsing() noexcept { return rehearsal_; }
  [[nodiscard]] const rehearsal_log<Rules>& rehearsing() const noexcept { return rehearsal_; }
  [[nodiscard]] rehearsal_scratch& scratch() noexcept { return scratch_; }
  [[nodiscard]] external_memory_monitor& external_memory() noexcept { return external_memory_; }
  [[nodiscard]] const external_memory_monitor& external_memory() const noexcept { return external_memory_; }
  /// Adds details to every error that leaves the engine.
  [[nodiscard]] error_annotator& annotator() noexcept { return annotator_; }
  /// The check policy's part, which looks for mistakes of the caller.
  [[nodiscard]] auto& checks() noexcept { return watch_.part(); }
  [[nodiscard]] const Sink& sink() const noexcept { return copies_.sink(); }

  [[nodiscard]] std::uint64_t size_of_slot(slot_id slot) const noexcept { return tensors_[slot].size; }
  /// Activations have other sizes from now on: pins have as many elements, and copies of their chunks move no byte
  /// after the last one that has a use. Places, records and plans stay those of the declared sizes. Cost: O(slots).
  /// @param give   calls its argument with each slot and its bytes, at most those that the slot was placed with; called
  ///   twice
  /// @throws usage_error   a slot holds bytes: no size has changed
  template <class Give>
  void resize(Give give)
  {
    ensure_arenas();
    give([this](slot_id id, bytes) {
      tensors_.expects_of(id, tensors_[id].state == tensor_state::free && tensors_[id].pins == 0,
                          "a tensor cannot have another size while it holds bytes (drop it before)");
    });
    give([this](slot_id id, bytes size) {
      tensors_[id].size = size.count();
      copies_.set_used(tensors_[id].chunk, 0);
    });
    for (const slot& each : tensors_.slots()) {
      if (each.chunk == chunk_id::none || copies_.used(each.chunk) >= tensors_.used()[index_of(each.chunk)]) continue;
      const std::uint64_t end = each.offset + align_up(bytes{each.size}, tensor_alignment).count();
      copies_.set_used(each.chunk, std::max(copies_.used(each.chunk), end));
    }
  }
  /// A hash of the sizes that `resize` gave. Cost: O(slots).
  [[nodiscard]] std::uint64_t sizes() const noexcept
  {
    std::uint64_t sum = 0;
    for (const slot& each : tensors_.slots()) sum = (sum ^ each.size) * 0x9E3779B97F4A7C15U;
    return sum;
  }
  [[nodiscard]] report snapshot() const
  {
    report result = counts_;
    for (const tier where : all_tiers) {
      result.capacity[where] = backend_->capacity(where);
      result.in_use[where] = bytes{chunks_.space(where).in_use()};
      result.peak[where] = bytes{chunks_.space(where).peak()};
    }
    copies_.describe(result);
    result.external_peak = external_memory_.highest();
    return result;
  }

  // Iterations.

  /// Starts an iteration. Guarantee: basic, no iteration has begun.
  /// @throws usage_error   an iteration is running; out_of_memory, device_error
  void begin_iteration(std::string_view name)
  {
    ensure_arenas();
    if (gradients_.places().is_pending() && !schedule_.is_inside())
      settle_gradients();  // inside, the next line refuses
    schedule_.begin(name, pending_.any(), rehearsal_.turns(pending_.any()), [this] { pending_.mask(); });
  }
  /// An optimizer's step begins: the trace says so.
  void note_update() noexcept { copies_.note(trace_event_kind::update, tier::device, 0); }

  /// Iterations of this name follow a record from elsewhere.
  /// @throws config_error   the record is not of this model; usage_error   as schedule::adopt; with nothing changed
  /// @pre sealed
  void use_record(std::string_view name, const access_record& record)
  {
    expect_record_fits(record, tensors_);
    schedule_.adopt(name, begins_with_updates(record), record);
  }
  /// Iterations of this name follow a plan that another run solved. Gradients go to the places that the records name,
  /// and pending updates run, as at the beginning of an iteration.
  /// @throws config_error, usage_error   as schedule::use_plan, or inside an iteration; out_of_memory
  void use_plan(const transfer::iteration_plan& given, std::string_view name)
  {
    expects(!schedule_.is_inside(), "a plan was given to a manager in the middle of an iteration");
    ensure_arenas();
    if (gradients_.places().is_pending()) settle_gradients();
    schedule_.use_plan(given, name);
  }

  /// Gradients go to the places that the records allow. @pre outside of iterations
  void settle_gradients()
  {
    if (pending_.any() && gradients_.places().is_wanting()) pending_.finish();  // gradients that wait cannot move
    if (gradients_.places().settle(tensors_)) schedule_.relink();
  }

  /// The bytes of two lists change places; masters stay. @throws usage_error   inside an iteration, or as
  /// registry::exchange, or weights with masters that are not made yet, or with gradients in place
  void exchange(list_id left, list_id right)
  {
    expects(!schedule_.is_inside(), "lists can be exchanged only between iterations");
    pending_.finish();
    ensure_arenas();
    if (tensors_.has_masters() && (left == value_list || right == value_list)) expect_masters_stay_true(left, right);
    gradients_.places().refuse_exchange(tensors_, left, right);
    tensors_.expect_exchangeable(left, right);
    gathered_.expect_unpinned(tensors_, left, right);
    schedule_.prepare(tensors_.order_after(left, right));  // from here on nothing fails
    tensors_.exchange(left, right, [this](slot_id a, slot_id b) { chunks_.exchange_live(a, b); });
    gathered_.for_each_pair(tensors_, left, right, [this](slot_id a, slot_id b) {
      tensors_.exchange(a, b);
      chunks_.exchange_live(a, b);
    });
    gradients_.places().follow_values(tensors_);
    schedule_.rearrange();
    if constexpr (watch_type::is_on) {
      watch_.part().forget_all();
      if (left == gradient_list || right == gradient_list)
        for (std::uint32_t index = 0; index < tensors_.parameters(); ++index) watch_.part().gradient_gone(index);
    }
  }

  // Steps that are replayed as a graph; see captured_step.

  /// All chunks without pins leave the device, as far as the host has room. @throws device_error   some may have left
  void clear_device()
  {
    schedule_.disturb();
    chunks_.evict_all(copies_);
  }
  /// Restores the places of `before`, as far as no chunk has to be loaded. @param clears   onto a cleared device
  void return_to(const chunk_table& before, bool clears)
  {
    if (clears) clear_device();
    chunks_.give_up_copies(before, copies_);
  }
  /// One more iteration, done by the device alone. @pre   everything lies where the graph expects it
  template <class Graph>
  void replay(Graph& graph, const report& moved)
  {
    health_.starting([&] { backend_->launch(graph); });
    copies_.replayed(moved);
    schedule_.replayed();
    if constexpr (watch_type::sees_bytes) watch_.part().forget_all();
  }

  // Chunks that ranks share.

  /// The chunk of this slot becomes the sum of what all ranks have there, each in its share. @pre it is on the device
  void sum_over_ranks(slot_id id, std::uint32_t label, collective::sum how)
    requires(copies_type::gathers)
  {
    const chunk_id position = tensors_.chunk_of(id);
    copies_.sum(position, chunks_[position], label, how);
  }
  /// The chunk of this slot, that has a frame run on the host too, is made from shares of all ranks now. @pre a pin of
  /// a write keeps it on the device
  void gather_over_ranks(slot_id id)
  {
    const chunk_id position = tensors_.chunk_of(id);
    copies_.make_whole(position, chunks_[position].first_frame[tier::device]);
  }

  /// @throws comm_error   work of ranks has failed, and bytes of a stream may depend on it
  void check_ranks() { copies_.check_ranks(); }

  // Accesses.

  /// For the calling thread: a function for each kind of access, so that the hot path has no branch on the kind.
  /// @throws out_of_memory, usage_error, device_error; state unchanged, except that evicted chunks stay evicted
  template <entry_kind Kind>
  access_token acquire_as(slot_id id)
  {
    if constexpr (!watch_type::sees_bytes)
      return acquire_if_resident(id, Kind, agent::host);
    else
      return watched(id, [&] { return acquire_if_resident(id, Kind, agent::host); });
  }
  /// For any agent. @param kind   an access on the device; the host's is acquire_on_host
  access_token acquire(slot_id id, entry_kind kind, agent stream)
  {
    if constexpr (!watch_type::sees_bytes)
      return acquire_if_resident(id, kind, stream);
    else
      return watched(id, [&] { return acquire_if_resident(id, kind, stream); });
  }
  access_token acquire_on_host(slot_id id, entry_kind kind, agent stream = agent::host)
  {
    if constexpr (!watch_type::sees_bytes)
      return acquire_slowly(id, kind, stream);
    else
      return watched(id, [&] { return acquire_slowly(id, kind, stream); });
  }
  /// For reading, outside of the record: no record has this pin, also inside an iteration.
  access_token acquire_beside(slot_id id, memory_location place, agent stream)
  {
    const auto take = [&] { return acquire_slowly(id, kind_of(access::read, place), stream, false); };
    if constexpr (!watch_type::sees_bytes)
      return take();
    else
      return watched(id, take);
  }
  /// In the tier that `kind` names.
  access_token acquire_in_place(slot_id id, entry_kind kind, agent stream = agent::host)
  {
    return place_of(kind) == memory_location::host ? acquire_on_host(id, kind, stream) : acquire(id, kind, stream);
  }

  [[gnu::always_inline]] void release(const access_token& held) noexcept
  {
    if constexpr (watch_type::is_on)
      return release_watched(held);
    else
      end(held);
  }

  /// @throws out_of_memory, usage_error, device_error; as acquire
  [[gnu::noinline]] lease_token lease(tier where, std::uint64_t size, agent stream);

  void release(const lease_token& held) noexcept
  {
    [[maybe_unused]] const auto inside = watch_.part().enter_release();
    if (rehearsal_.made(held.serial)) return rehearsal_.end_lease(held.access_index, held.serial);
    if constexpr (watch_type::sees_bytes) {
      arenas_.wait_for(held.stream);
      watch_.part().lease_ended({held.data, held.size});
    }
    auto& tracker = copies_.tracker();
    copies_.for_lease(held.where, held.begin, held.size,
                      [&](frame_hazards& it) { tracker.stamp(held.stream, it, true); });
    chunks_.end_lease(held.where, held.begin, held.size, copies_);
    if (held.serial == schedule_.serial()) schedule_.lease_ended(held.access_index);
    copies_.note(trace_event_kind::lease_end, held.where, held.size);
  }

  /// The bytes of a slot are dead. For a slot without bytes, this only adds an entry to the record, where the rules
  /// allow it.
  /// @throws usage_error   it is pinned; device_error, out_of_memory from planned copies
  [[gnu::noinline]] void drop(slot_id id)
  try {
    pending_.catch_up(id);
    if (rehearsal_.is_running()) return rehearsal_.drop(id);
    health_.expect_alive();
    slot& slot_state = tensors_[id];
    states::expect(tensors_, id, tensor_event::drop);
    const bool planned = schedule_.step_to(id, entry_kind::drop, 0);
    if (planned) run_planned();
    if (slot_state.state != tensor_state::free) {  // else there may be no arenas yet
      chunks_.drop(id, slot_state.chunk, copies_);
      states::drop(slot_state);
      if constexpr (watch_type::is_on) bury(id);
    }
    schedule_.finish(planned, id, entry_kind::drop, 0);
  } catch (error& failed) {
    annotator_.annotate(failed);
    throw;
  }

  // For checks.

  /// Runs a public call of the manager. With checks: one thread at a time; mistakes noted before are thrown first; and
  /// an error names the place of the call in the caller's program. Without checks it only calls.
  /// @param call   a literal
  template <class Work>
  [[gnu::always_inline]] decltype(auto) within(const char* call, place_type from, Work&& work)
  {
    if constexpr (!watch_type::is_on)
      return work();
    else
      return within_checks(call, from, work);
  }
  /// The holder of a gradient has called `beta()`.
  void beta_was_read(const access_token& held) noexcept
  {
    if constexpr (watch_type::is_on)
      if (has_content(held)) watch_.part().beta_read(index_of(tensors_.value_of(held.slot)));
  }
  /// A pin on a gradient was given out. @param has_beta   the pin has a `beta()`
  void gradient_opened(slot_id value_slot, const access_token& held, bool first, bool has_beta)
  {
    if constexpr (watch_type::is_on)
      if (has_content(held)) watch_.gradient_opened(value_slot, held.data, first, has_beta);
  }
  /// @throws usage_error   the gradient was not written whole, or its holder did not call `beta()`
  void expect_written(slot_id value_slot, std::string_view before)
  {
    if constexpr (watch_type::is_on) {
      const slot_id id = tensors_.gradient_of(value_slot);
      if (rehearsal_.is_running() || tensors_[id].state == tensor_state::free) return;
      watch_.expect_written(value_slot, copy_of(id), before);
    }
  }
  /// As above, for a gradient whose pin is about to end: the agent of the pin may not have written yet.
  void expect_written(const access_token& held, std::string_view before)
  {
    if constexpr (watch_type::sees_bytes)
      if (has_content(held)) arenas_.wait_for(held.stream);
    expect_written(tensors_.value_of(held.slot), before);
  }
  /// Checks all bytes without a pin. @throws usage_error   the mistakes noted so far
  void verify()
  {
    if constexpr (watch_type::is_on) {
      for (const slot_id each : tensors_.slot_ids()) compare(each);
      watch_.part().expect_no_mistake();
    }
  }
  /// A valid copy of a slot's bytes where it lies now; none where it was not written. The calling thread waits for the
  /// agents that wrote it.
  [[nodiscard]] std::span<const std::byte> bytes_now(slot_id id)
  {
    const slot& slot_state = tensors_[id];
    const chunk& parent = chunks_[slot_state.chunk];
    if (slot_state.state == tensor_state::free) return {};
    for (const tier where : all_tiers) {
      if (!parent.is_valid(where) || !parent.has_frames(where)) continue;
      frame_hazards& frame = copies_.hazards_at(where, parent.first_frame[where]);
      copies_.follow(agent::host, frame, frame.writers, wait_cause::other);
      return {copies_.address(where, parent.first_frame[where]) + slot_state.offset, slot_state.size};
    }
    return {};
  }

 private:
  using watch_type = typename copies_type::watch_type;

  /// Masters belong to the newest weights, in whichever list these are. So every weight must have its master already,
  /// and no weight may wait to be made again from its master.
  void expect_masters_stay_true(list_id left, list_id right) const
  {
    expects(left != gradient_list && right != gradient_list,
            "weights with masters cannot be exchanged with their gradients");
    expects(!gradients_.places().is_enabled(),
            "weights with masters cannot be exchanged under gradient::in_place (use separate)");
    for (const slot_id each : ids<slot_id>(tensors_.parameters())) {
      const slot_id master = tensors_.master_of(each);
      tensors_.expects_of(each, master == slot_id::none || tensors_[master].state != tensor_state::free,
                          "weights cannot be exchanged with another list before their masters are made (the begin of "
                          "an iteration makes them)");
    }
  }

  /// The one allocation of a manager in each tier. Guarantee: strong.
  /// @throws device_error   the first error that the device did not recover from
  void ensure_arenas()
  {
    health_.expect_alive();
    if (ready_) [[likely]]
      return;
    expects(tensors_.is_sealed(), "the manager is not sealed");
    const per_tier<bytes> capacity = arenas_.capacities();
    frames().lay_out(chunks_, capacity);
    arenas_.allocate();
    try {
      copies_.reset(tensors_.used(), options_.chunk_bytes.count(), arenas_.begins(),
                    {{chunks_.space(tier::device).frames(), chunks_.space(tier::host).frames()}});
      if (!gathered_.empty()) copies_.derive(gathered_.shares(tensors_), chunks_.table());
      watch_.reset(tensors_);
      if constexpr (watch_type::sees_bytes)
        for (const tier where : all_tiers) watch_.part().add_arena({arenas_.begins()[where], capacity[where].count()});
    } catch (...) {
      if constexpr (watch_type::sees_bytes) watch_.part().forget_arenas();
      arenas_.release();
      throw;
    }
    ready_ = true;
  }

  /// For a record that does not say so: its first use of a gradient reads it, so the gradient existed before the
  /// iteration.
  [[nodiscard]] bool begins_with_updates(const access_record& record) const noexcept
  {
    if (record.start() != record_start::unknown) return record.start() == record_start::with_updates;
    for (const access_entry& entry : record.entries())
      if (tensors_.is_gradient(slot_id{entry.slot}))
        return !is_access(entry.kind) || access_of(entry.kind) != access::write;
    return false;
  }

  /// The record has this access: its planned copies start.
  void run_planned()
  {
    const std::uint32_t now = schedule_.cursor();
    if (schedule_.entry(now).has_actions) schedule_.run_actions(now);
  }

  [[gnu::always_inline]] void end(const access_token& held) noexcept
  {
    if (held.is_special || schedule_.is_logging()) [[unlikely]]
      return release_slowly(held);
    slot& slot_state = tensors_[held.slot];
    states::end_on_device(slot_state);
    chunks_.unpin(tier::device, slot_state.chunk, false);
  }

  [[gnu::always_inline]] access_token acquire_if_resident(slot_id id, entry_kind kind, agent stream)
  {
    slot& slot_state = tensors_[id];
    const std::uint32_t now = schedule_.cursor();
    if (slot_state.next_access_index != now || !states::can_begin(slot_state)) [[unlikely]]
      return acquire_slowly(id, kind, stream);
    const access_entry& entry = schedule_.entry(now);
    if (!entry.is_plain(kind)) [[unlikely]]
      return acquire_slowly(id, kind, stream);
    const chunk& parent = chunks_[slot_state.chunk];
    if (!parent.has_frames(tier::device) || parent.pins[tier::host] != 0) [[unlikely]]
      return acquire_slowly(id, kind, stream);
    const frame_hazards& frame = copies_.hazards_at(tier::device, parent.first_frame[tier::device]);
    if ((writes(access_of(kind)) ? frame.users : frame.writers) != 0) [[unlikely]]
      return acquire_after_others(id, kind, stream);
    return take_resident(slot_state, id, kind, stream);
  }

  /// Commits a resident access that follows its record. Nothing here can fail.
  access_token take_resident(slot& slot_state, slot_id id, entry_kind kind, agent stream) noexcept
  {
    const std::uint32_t now = schedule_.cursor();
    const access_entry& entry = schedule_.entry(now);
    const frame_id frame = chunks_[slot_state.chunk].first_frame[tier::device];  // read before anything is written
    chunks_.pin_resident(slot_state.chunk, writes(access_of(kind)), entry.next_of_chunk);
    slot_state.next_access_index = entry.next_of_slot;
    states::begin_resident(slot_state);
    schedule_.advance();
    std::byte* const data = copies_.address(tier::device, frame) + slot_state.offset;
    return {data, id, now, schedule_.serial(), kind, stream, stream != agent::host};
  }

  /// A resident access to a frame that other agents used: the pin's agent follows them first.
  [[gnu::noinline]] access_token acquire_after_others(slot_id id, entry_kind kind, agent stream)
  try {
    slot& slot_state = tensors_[id];
    frame_hazards& frame = copies_.hazards_at(tier::device, chunks_[slot_state.chunk].first_frame[tier::device]);
    copies_.follow(stream, frame, frame.writers, wait_cause::demand_miss);
    if (writes(access_of(kind))) copies_.follow(stream, frame, frame.users, wait_cause::other);
    return take_resident(slot_state, id, kind, stream);
  } catch (error& failed) {
    annotator_.annotate(failed);
    throw;
  }

  [[gnu::noinline]] void release_slowly(const access_token& held) noexcept
  {
    if (rehearsal_.made(held.serial)) return rehearsal_.release(held.slot, held.access_index, held.serial);
    slot& slot_state = tensors_[held.slot];
    states::end(slot_state, place_of(held.kind));
    if (held.stream != agent::host) stamp(held, slot_state.chunk);
    unpin_chunk(slot_state.chunk, held.kind);
    if (held.serial == schedule_.serial()) schedule_.log_release(held.access_index);
  }

  void unpin_chunk(chunk_id id, entry_kind kind) noexcept { chunks_.unpin(tier_of(kind), id, writes(access_of(kind))); }

  void stamp(const access_token& held, chunk_id id) noexcept
  {
    const chunk& parent = chunks_[id];
    const tier where = tier_of(held.kind);
    frame_hazards& frame = copies_.hazards_at(where, parent.first_frame[where]);
    copies_.tracker().stamp(held.stream, frame, writes(access_of(held.kind)));
  }

  /// The slow cases of acquire: a first use, a miss, the host, recording, a divergence, a mistake.
  /// @param is_recorded   false: as acquire_beside
  [[gnu::noinline, gnu::cold]] access_token acquire_slowly(slot_id id, entry_kind kind, agent stream,
                                                           bool is_recorded = true)
  try {
    pending_.catch_up(id);
    if (rehearsal_.is_running()) return rehearse(id, kind, stream);
    ensure_arenas();
    slot& slot_state = tensors_[id];
    const bool fresh = slot_state.state == tensor_state::free;
    const entry_kind asked = kind;  // the record has the kind of the call: equal calls make equal records
    if (fresh) kind = first_use(kind);
    if (slot_state.state == tensor_state::gradient)
      gradients_.places().keep_apart(id);  // allowed from the next iteration on
    states::expect(tensors_, id, states::event_of_access(slot_state, kind));
    refuse_conflicts(slot_state, id, kind);
    const bool planned = is_recorded && schedule_.step_to(id, asked, 0);
    if (planned) run_planned();
    if (!is_recorded && !(schedule_.is_inside() && chunks_[slot_state.chunk].is_valid(tier::host))) schedule_.disturb();
    const memory_location place = place_of(kind);
    if (place == memory_location::device && !chunks_[slot_state.chunk].has_frames(tier::device))
      schedule_.ensure_policy();
    using use_type = typename schedule_type::expected_use;
    const use_type use = is_recorded ? schedule_.use_of(slot_state, planned)
                                     : use_type{chunks_[slot_state.chunk].next_use, schedule_.now()};
    chunks_.acquire(id, slot_state.chunk, kind, use.next, use.now, copies_);
    std::byte* data = nullptr;
    try {
      data = make_ready(slot_state, kind, stream, fresh && access_of(kind) != access::write);
    } catch (...) {
      unpin_chunk(slot_state.chunk, kind);
      if (fresh) chunks_.drop(id, slot_state.chunk, copies_);
      throw;
    }
    states::begin(slot_state, place);
    const std::uint32_t access_index = is_recorded ? schedule_.finish(planned, id, asked, 0) : access_record::never;
    const bool on_host = place == memory_location::host;  // the host has read its bytes when the pin ends
    return {data,
            id,
            access_index,
            is_recorded ? schedule_.serial() : schedule_type::no_serial,
            kind,
            on_host ? agent::host : stream,
            stream != agent::host || on_host};
  } catch (error& failed) {
    annotator_.annotate(failed);
    throw;
  }

  [[nodiscard]] access_token rehearse(slot_id id, entry_kind kind, agent stream)
  {
    std::byte* const data = writes(access_of(kind)) ? scratch_.to_write(tensors_[id].size) : scratch_.to_read();
    return {data, id, rehearsal_.acquire(id, kind), rehearsal_.serial(), kind, stream, true};
  }

  /// The agent waits for all agents that still work on the bytes; a list that starts at zero is filled.
  std::byte* make_ready(const slot& slot_state, entry_kind kind, agent stream, bool zero)
  {
    const chunk& parent = chunks_[slot_state.chunk];
    const bool device = place_of(kind) == memory_location::device;
    if (!device && parent.is_gathered()) return &gathered_host_copy_;
    const tier where = device ? tier::device : tier::host;
    const frame_id first = parent.first_frame[where];
    frame_hazards& frame = copies_.hazards_at(where, first);
    const std::uint8_t mask = writes(access_of(kind)) ? frame.users : frame.writers;
    copies_.follow(stream, frame, mask, device ? wait_cause::demand_miss : wait_cause::optimizer_input);
    std::byte* const data = copies_.address(where, first) + slot_state.offset;
    if constexpr (watch_type::sees_bytes) {
      if (zero) watch_.part().lend({data, slot_state.size});
      if (zero && static_cast<std::size_t>(stream) >= built_in_agents)
        stream = agent::host;  // nobody waits for it here
    }
    if (zero) health_.starting([&] { backend_->fill(data, std::byte{0}, bytes{slot_state.size}, stream); });
    return data;
  }

  /// For messages: the first slot of this chunk that has a pin in that place, or `otherwise` where none has one.
  /// O(slots).
  [[nodiscard]] slot_id pinned_in(chunk_id chunk, memory_location place, slot_id otherwise) const noexcept
  {
    for (const slot_id each : tensors_.slot_ids())
      if (tensors_[each].chunk == chunk && tensors_[each].pins_in(place) > 0) return each;
    return otherwise;
  }

  /// A chunk is written in one tier at a time, with all of its tensors.
  void refuse_conflicts(const slot& slot_state, slot_id id, entry_kind kind) const
  {
    const chunk& parent = chunks_[slot_state.chunk];
    const bool writing = writes(access_of(kind));
    const bool device = place_of(kind) == memory_location::device;
    tensors_.expects_of(id, device || parent.pins[tier::host] < UINT16_MAX,
                        "its chunk has 65535 pins on the host (release some)");
    tensors_.expects_of(id, !(device && writing && parent.is_gathered()),
                        "a gathered tensor was written on the device: it is made from shards, so write the shards");
    const bool clash = device ? parent.writers > 0 || (writing && parent.pins[tier::host] > 0)
                              : parent.pins[tier::device] > 0 && (writing || !parent.is_valid(tier::host));
    if (!clash) return;
    const std::uint32_t pins = parent.pins[device ? tier::host : tier::device];
    error_text text;
    text << "chunkmem: " << tensors_.label(id) << " cannot be " << (writing ? "written" : "read") << " on the "
         << (device ? "device" : "host") << " now: its chunk is in use on the " << (device ? "host" : "device")
         << " by " << pins << (pins == 1 ? " pin" : " pins");
    if (const slot_id other = pinned_in(slot_state.chunk, device ? memory_location::host : memory_location::device, id);
        other != id)
      text << ", the first of them on " << tensors_.label(other);
    throw usage_error{text << " (release them first)"};
  }

  // With checks.

  template <class Work>
  decltype(auto) within_checks(const char* call, place_type from, Work& work)
  {
    bool is_callers_own = true;  // else the call is the library's, within a call that knows the caller's place
    try {
      const auto inside = watch_.part().enter(call, from);
      is_callers_own = inside.is_outermost();
      return work();
    } catch (error& failed) {
      if (is_callers_own) tell_place(failed, from);
      throw;
    }
  }
  void tell_place(error& failed, place_type from) noexcept
  try {
    error_text line;
    watch_.part().tell_place(line, from);
    failed.append_details(line.view());
  } catch (...) {  // no memory for a line about it
  }
  /// Checks the bytes before a chunk moves, and begins the pin for the check policy.
  template <class Take>
  access_token watched(slot_id id, Take take)
  {
    compare(id);
    const access_token given = take();
    try {
      if (has_content(given)) watch_.pinned(given.slot, given.data, access_of(given.kind));
    } catch (...) {
      end(given);
      throw;
    }
    return given;
  }
  void release_watched(const access_token& held) noexcept
  {
    [[maybe_unused]] const auto inside = watch_.part().enter_release();
    if (has_content(held)) {
      if constexpr (watch_type::sees_bytes) arenas_.wait_for(held.stream);
      watch_.released(held.slot, held.data, access_of(held.kind));
    }
    end(held);
  }
  [[nodiscard]] bool has_content(const access_token& it) const noexcept
  {
    return it.data != nullptr && it.data != &gathered_host_copy_ && !rehearsal_.made(it.serial);
  }

  /// Checks that the bytes of a slot without pins are unchanged, in a tier that has a valid copy.
  void compare(slot_id id) noexcept
  {
    if (rehearsal_.is_running() || !watch_.is_watched(id)) return;
    const slot& slot_state = tensors_[id];
    const chunk& parent = chunks_[slot_state.chunk];
    for (const tier where : all_tiers)
      if (parent.is_valid(where) && parent.has_frames(where))
        watch_.compare(id, copies_.address(where, parent.first_frame[where]) + slot_state.offset);
  }
  /// A valid copy of its bytes, or null.
  [[nodiscard]] std::byte* copy_of(slot_id id) const noexcept
  {
    const slot& slot_state = tensors_[id];
    const chunk& parent = chunks_[slot_state.chunk];
    for (const tier where : all_tiers)
      if (parent.is_valid(where) && parent.has_frames(where))
        return copies_.address(where, parent.first_frame[where]) + slot_state.offset;
    return nullptr;
  }
  /// A slot was dropped: its bytes are poison wherever they lie.
  void bury(slot_id id) noexcept
  {
    if (!watch_.dropped(id) || !watch_type::sees_bytes) return;
    const slot& slot_state = tensors_[id];
    const chunk& parent = chunks_[slot_state.chunk];
    for (const tier where : all_tiers)
      if (parent.has_frames(where))
        watch_.part().fresh({copies_.address(where, parent.first_frame[where]) + slot_state.offset, slot_state.size});
  }

  Backend* backend_;
  manager_options options_;
  registry tensors_;
  model_gradients gradients_;
  gathered_chunks gathered_;
  pending_updates pending_;
  chunk_cache<Eviction> chunks_;
  report counts_;
  device_health health_;
  copies_type copies_;
  schedule_type schedule_;
  rehearsal_log<Rules> rehearsal_;
  rehearsal_scratch scratch_;
  external_memory_monitor external_memory_;
  error_annotator annotator_;
  watch_type watch_;
  std::byte gathered_host_copy_{};  // a pin on the host of a gathered chunk points here: it has no bytes to read
  bool ready_ = false;
  arena_set<Backend> arenas_;  // the last member: its destructor waits for the agents, which use all others
};

// Outside of the class for compiled_manager.hpp, as in basic_manager.hpp.

template <stream_backend Backend, tensor_rules Rules, eviction_policy Eviction, transfer_policy Transfer,
          chunk_mover<Backend> Mover, trace_sink Sink, check_policy Checks>
lease_token engine<Backend, Rules, Eviction, Transfer, Mover, Sink, Checks>::lease(tier where, std::uint64_t size,
                                                                                   agent stream)
try {
  const auto kind = where == tier::device ? entry_kind::lease_device : entry_kind::lease_host;
  if (rehearsal_.is_running()) {
    std::byte* const data = scratch_.to_write(size);
    return {data, 0, size, rehearsal_.lease(kind, size), rehearsal_.serial(), where, stream};
  }
  ensure_arenas();
  const bool planned = schedule_.step_to(slot_id::none, kind, size);
  std::uint64_t begin = planned ? schedule_.run_actions(schedule_.cursor()) : tier_space::no_place;
  if (where == tier::host || begin == tier_space::no_place || !chunks_.try_lease(where, begin, size, copies_)) {
    if (where == tier::device) schedule_.ensure_policy();
    begin = chunks_.lease(where, size, copies_);
  }
  try {
    copies_.for_lease(where, begin, size,
                      [&](frame_hazards& it) { copies_.follow(stream, it, it.users, wait_cause::demand_miss); });
    if constexpr (watch_type::sees_bytes) watch_.part().leased({copies_.lease_address(where, begin), size});
  } catch (...) {
    chunks_.end_lease(where, begin, size, copies_);
    throw;
  }
  const std::uint32_t access_index = schedule_.finish(planned, slot_id::none, kind, size);
  return {copies_.lease_address(where, begin), begin, size, access_index, schedule_.serial(), where, stream};
} catch (error& failed) {
  annotator_.annotate(failed);
  throw;
}

}  // namespace chunkmem::inline v0
