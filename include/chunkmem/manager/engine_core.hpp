// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/checks/no_checks.hpp>
#include <chunkmem/manager/checked_bytes.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/copy_engine.hpp>
#include <chunkmem/manager/error_teller.hpp>
#include <chunkmem/manager/gradient_places.hpp>
#include <chunkmem/manager/manager_options.hpp>
#include <chunkmem/manager/pending_updates.hpp>
#include <chunkmem/manager/record_check.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/rehearsal_log.hpp>
#include <chunkmem/manager/rehearsal_scratch.hpp>
#include <chunkmem/manager/report.hpp>
#include <chunkmem/profile/recorder.hpp>
#include <chunkmem/profile/tide_watch.hpp>
#include <chunkmem/tensor/state_machine.hpp>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

/// What a manager is made of: declarations, residency, copies and the record, in arenas that are allocated once.
///
/// Not for users: see manager.
template <stream_backend Backend, tensor_rules Rules, eviction_policy Eviction, class Mover, trace_sink Sink,
          check_policy Checks = checks::none>
class engine_core {
 public:
  engine_core(Backend& backend, const manager_options& options, Eviction eviction, Mover mover, Sink sink)
      : backend_{&backend},
        options_{options},
        residency_{std::move(eviction)},
        health_{[](void* core) noexcept { static_cast<engine_core*>(core)->recorder_.stop(); }, this},
        copies_{backend, health_, std::move(mover), std::move(sink)}
  {
    copies_.tell(watch_);
  }
  engine_core(const engine_core&) = delete;
  ~engine_core() { release_arenas(); }

  [[nodiscard]] registry& tensors() noexcept { return registry_; }
  [[nodiscard]] const registry& tensors() const noexcept { return registry_; }
  [[nodiscard]] const manager_options& options() const noexcept { return options_; }
  /// @pre nothing is placed yet
  void set_chunk_bytes(bytes size) noexcept { options_.chunk_bytes = size; }
  [[nodiscard]] Backend& backend() const noexcept { return *backend_; }
  /// @throws device_error   the first error that the device did not recover from
  void expect_alive() const { health_.expect_alive(); }
  [[nodiscard]] device_health& health() noexcept { return health_; }
  [[nodiscard]] pending_updates& pending() noexcept { return pending_; }
  [[nodiscard]] const pending_updates& pending() const noexcept { return pending_; }
  /// Before these bytes are used: what waits in the chunk of their weight is updated.
  /// @throws usage_error   whoever had to do that is gone; and what an update throws
  void catch_up(std::uint32_t index)
  {
    if (!pending_.any() || pending_.is_running() || index >= registry_.lists() * registry_.parameters()) return;
    const std::uint32_t value = index % registry_.parameters();
    const std::uint32_t chunk = registry_.slots()[value].chunk;
    if (!(index == value ? pending_.has_in(chunk) : pending_.has(value))) return;
    expect_updater(index);
    pending_.run(chunk);
  }
  /// The same of all that waits.
  void finish_updates()
  {
    if (!pending_.any() || pending_.is_running()) return;
    expect_updater(0);
    pending_.run_all();
  }
  /// No resident access may pass by what waits.
  void mask_pending() noexcept
  {
    if (!pending_.any()) return;
    for (std::uint32_t at = 0; at < registry_.lists() * registry_.parameters(); ++at) {
      slot& value = registry_.slots()[at % registry_.parameters()];
      if (pending_.has(at % registry_.parameters()) || pending_.has_in(value.chunk))
        registry_.slots()[at].next_moment = access_record::never;
    }
  }
  /// The chunk of this slot becomes the sum of what all ranks have there, each in its share. @pre it is on the device
  void sum_over_ranks(std::uint32_t index, std::uint32_t label, collective::sum how)
  {
    const std::uint32_t at = registry_.slots()[index].chunk;
    copies_.sum(at, residency_[at], label, how);
  }
  /// The chunk of this slot, that has a window on the host too, is made from shares of all ranks now. @pre a pin of a
  /// write keeps it on the device
  void gather_over_ranks(std::uint32_t index)
  {
    copies_.make_whole(registry_.slots()[index].chunk, residency_[registry_.slots()[index].chunk].device);
  }
  /// Hears of every error that leaves the engine.
  [[nodiscard]] error_teller& teller() noexcept { return teller_; }
  /// Who looks for mistakes of the caller.
  [[nodiscard]] auto& checks() noexcept { return watch_.part(); }
  /// All agents are done with what they were given. An agent that fails is told elsewhere.
  void settle() noexcept
  {
    for (unsigned who = 1; who < backend_->agents(); ++who) {
      try {
        backend_->wait(agent::host, backend_->record(static_cast<agent>(who)));
      } catch (...) {
      }
    }
  }
  /// Where the trace goes.
  [[nodiscard]] const Sink& sink() const noexcept { return copies_.sink(); }
  /// Accesses, leases and drops that the current iteration has had.
  [[nodiscard]] std::uint32_t progress() const noexcept { return recorder_.progress(); }
  /// What they were; also of a rehearsal.
  [[nodiscard]] std::span<const access_entry> entries_so_far() const noexcept
  {
    return rehearsal_.is_running() ? rehearsal_.record(true).entries() : recorder_.so_far();
  }
  [[nodiscard]] rehearsal_log<Rules>& rehearsing() noexcept { return rehearsal_; }
  [[nodiscard]] const rehearsal_log<Rules>& rehearsing() const noexcept { return rehearsal_; }
  /// Pins and leases of the rehearsal that comes point to bytes. @throws std::bad_alloc   with nothing changed
  void begin_scratch()
  {
    std::uint64_t largest = 0;
    for (const slot& it : registry_.slots()) largest = std::max(largest, it.size);
    scratch_.begin(largest);
  }
  /// Kernels that were launched on them are waited for.
  [[nodiscard]] bool has_scratch() const noexcept { return scratch_.is_on(); }
  void end_scratch() noexcept
  {
    wait_for_all();
    scratch_.end();
  }
  [[nodiscard]] gradient_places& places() noexcept { return places_; }
  [[nodiscard]] const gradient_places& places() const noexcept { return places_; }
  [[nodiscard]] const access_record* record_of(std::string_view name) const noexcept { return recorder_.find(name); }
  /// Iterations of this name follow a record from elsewhere. @pre sealed @throws config_error, usage_error with nothing
  /// changed
  /// @throws config_error   the record is not of this model
  void expect_record(const access_record& record) const { expect_record_fits(record, registry_); }
  void use_record(std::string_view name, const access_record& record)
  {
    expect_record_fits(record, registry_);
    recorder_.adopt(name, begins_with_updates(record), record, registry_.chunk_of_slot(),
                    static_cast<std::uint32_t>(registry_.frames_of_chunk().size()));
    places_.learn(record, registry_);
  }
  /// Bytes of the device that are outside of the arena.
  [[nodiscard]] tide_watch& others() noexcept { return others_; }
  [[nodiscard]] const tide_watch& others() const noexcept { return others_; }
  [[nodiscard]] std::uint64_t size_of_slot(std::uint32_t at) const noexcept { return registry_.slots()[at].size; }
  using rules_type = Rules;
  using checks_type = Checks;
  static constexpr bool host_addressable = Backend::host_addressable;
  static constexpr bool has_bytes = chunkmem::has_bytes<Backend>();
  static constexpr std::uint64_t most_frames = UINT32_MAX / 2;

  /// Whole frames of a tier, as many as could ever be used; the rest of the arena serves leases.
  [[nodiscard]] std::uint32_t frames_in(bytes capacity) const
  {
    // Windows of different lengths cut each other's room: this many more frames make up for it (Robson 1971).
    std::uint64_t useful = total_frames();
    for (std::uint32_t longest = longest_window(); longest > 1; longest /= 2) useful += total_frames();
    return static_cast<std::uint32_t>(std::min({capacity.count() / options_.chunk_bytes.count(), useful, most_frames}));
  }
  [[nodiscard]] std::uint32_t longest_window() const noexcept
  {
    std::uint32_t longest = 1;
    for (const std::uint32_t frames : registry_.frames_of_chunk()) longest = std::max(longest, frames);
    return longest;
  }
  /// Of all chunks together.
  [[nodiscard]] std::uint64_t total_frames() const noexcept
  {
    std::uint64_t all = 0;
    for (const std::uint32_t frames : registry_.frames_of_chunk()) all += frames;
    return all;
  }

  [[nodiscard]] bool device_holds_all(const chunk_cache<Eviction>& state) const noexcept
  {
    return state.space(tier::device).frames() >= total_frames();
  }

  /// Sets up `target` as this manager's residency would be with the given capacities. Allocates bookkeeping only.
  void shape(chunk_cache<Eviction>& target, per_tier<bytes> capacity) const
  {
    target.reset(registry_.frames_of_chunk(), static_cast<std::uint32_t>(registry_.slots().size()));
    for (const tier where : {tier::device, tier::host})
      target.reset_tier(where, capacity[where], options_.chunk_bytes, frames_in(capacity[where]));
    for (const gathered_tensor& it : gathered_)
      if (!it.keeps) target.make_derived(chunk_of(it.whole));
  }

  /// The chunk of `whole` is made from shares of all ranks each time it is loaded. @param label   of it, the same on
  /// every rank
  /// @param keeps   it is loaded as others are, and made by `gather_over_ranks`
  /// @pre nothing is allocated; a mover that gathers; `whole` fills its chunk
  void gather(tensor_id whole, std::uint32_t label, bool keeps = false) { gathered_.push_back({whole, label, keeps}); }
  /// A part of this rank's share of it. @param begin   of the part in `whole` [bytes]
  void derive(tensor_id whole, tensor_id share, std::uint64_t begin) { derivations_.push_back({whole, share, begin}); }

  [[nodiscard]] per_tier<bytes> capacities() const
  {
    per_tier<bytes> result;
    for (const tier where : {tier::device, tier::host}) result[where] = backend_->capacity(where);
    return result;
  }

  void note_step_need(per_tier<bytes> need) noexcept { residency_.note_step_need(need); }

  [[nodiscard]] report snapshot() const
  {
    report result = counts_;
    for (const tier where : {tier::device, tier::host}) {
      result.capacity[where] = backend_->capacity(where);
      result.in_use[where] = bytes{residency_.space(where).in_use()};
      result.peak[where] = bytes{residency_.space(where).peak()};
    }
    copies_.describe(result);
    result.others_peak = others_.highest();
    return result;
  }

 protected:
  using machine = state_machine<Rules>;

  /// The one allocation of a manager in each tier. Guarantee: strong.
  /// @throws device_error   the first error that the device did not recover from
  void ensure_arenas()
  {
    expect_alive();
    if (ready_) [[likely]]
      return;
    expects(registry_.is_sealed(), "the manager is not sealed");
    const per_tier<bytes> capacity = capacities();
    shape(residency_, capacity);
    try {
      for (const tier where : {tier::device, tier::host})
        if (capacity[where] > bytes{})
          arena_[where] = health_.starting([&] { return backend_->allocate(where, capacity[where]); });
      copies_.reset(registry_.used(), options_.chunk_bytes.count(), arena_,
                    {{frames_in(capacity[tier::device]), frames_in(capacity[tier::host])}});
      if (!gathered_.empty()) copies_.derive(shares(), residency_.table());
      guard_arenas(capacity);
    } catch (...) {
      release_arenas();
      throw;
    }
    ready_ = true;
  }

  /// The bytes of two lists change places. @throws usage_error   as registry::exchange
  void exchange_lists(list_id left, list_id right)
  {
    ensure_arenas();
    expects(!registry_.has_masters() || (left != value_list && right != value_list),
            "weights with masters were to be exchanged with another list: the next update would undo it");
    places_.refuse_exchange(registry_, left, right);
    registry_.exchange(left, right, [this](std::uint32_t a, std::uint32_t b) { residency_.exchange_live(a, b); });
    places_.follow_values(registry_);
    recorder_.relink(registry_.chunk_of_slot(), residency_.chunks());
  }

  Backend* backend_;
  manager_options options_;
  registry registry_;
  gradient_places places_;
  chunk_cache<Eviction> residency_;
  device_health health_;
  using watch_type = typename copy_engine<Backend, Mover, Sink, Checks>::watch_type;
  copy_engine<Backend, Mover, Sink, Checks> copies_;
  recorder recorder_;
  rehearsal_log<Rules> rehearsal_;
  rehearsal_scratch scratch_;
  pending_updates pending_;
  tide_watch others_;
  report counts_;
  error_teller teller_;
  watch_type watch_;

 private:
  /// A tensor that fills a chunk of its own.
  struct gathered_tensor {
    tensor_id whole;
    std::uint32_t label = 0;
    bool keeps = false;
  };
  struct derivation {
    tensor_id whole;
    tensor_id share;
    std::uint64_t begin = 0;
  };

  [[nodiscard]] std::uint32_t chunk_of(tensor_id it) const noexcept
  {
    return registry_.slots()[registry_.value_slot(it)].chunk;
  }
  [[nodiscard]] chunk_shares shares() const
  {
    std::vector<chunk_share> all;
    for (const derivation& it : derivations_) {
      const slot& share = registry_.slots()[registry_.value_slot(it.share)];
      all.push_back({chunk_of(it.whole), share.chunk, share.offset, it.begin, share.size});
    }
    std::vector<std::uint32_t> labels(registry_.frames_of_chunk().size(), 0);
    for (const gathered_tensor& it : gathered_) labels[chunk_of(it.whole)] = it.label;
    return {std::move(all), std::move(labels)};
  }

  void expect_updater(std::uint32_t index) const
  {
    if (pending_.is_served()) return;
    throw usage_error{error_text{} << "chunkmem: " << registry_.label(index)
                                   << " was used although its late_updates ended before "
                                   << "its update was done (call finish() before it ends, or load a checkpoint)"};
  }
  /// Where the record does not say so: its first use of a gradient is not one that makes it, so it was there before the
  /// iteration.
  [[nodiscard]] bool begins_with_updates(const access_record& record) const noexcept
  {
    if (record.start() != record_start::unknown) return record.start() == record_start::with_updates;
    for (const access_entry& it : record.entries())
      if (it.slot >= registry_.parameters() && it.slot < 2 * registry_.parameters())
        return !is_access(it.kind) || access_of(it.kind) != access::write;
    return false;
  }
  void guard_arenas(per_tier<bytes> capacity)
  {
    watch_.reset(registry_);
    if constexpr (watch_type::sees_bytes)
      for (const tier where : {tier::device, tier::host})
        watch_.part().add_arena({arena_[where], capacity[where].count()});
  }
  /// Nothing may still write into what is given back.
  void wait_for_all() noexcept
  {
    try {
      for (unsigned who = 1; who < backend_->agents(); ++who)
        backend_->wait(agent::host, backend_->record(static_cast<agent>(who)));
    } catch (...) {  // a device that is going away cannot be waited for; its memory goes with it
    }
  }
  void release_arenas() noexcept
  {
    if (arena_[tier::device] == nullptr && arena_[tier::host] == nullptr) return;
    if constexpr (watch_type::sees_bytes) watch_.part().forget_arenas();
    wait_for_all();
    for (const tier where : {tier::device, tier::host})
      if (std::byte* const arena = std::exchange(arena_[where], nullptr); arena != nullptr)
        backend_->release(where, arena);
  }

  per_tier<std::byte*> arena_;
  std::vector<gathered_tensor> gathered_;
  std::vector<derivation> derivations_;
  bool ready_ = false;
};

}  // namespace chunkmem::inline v0
