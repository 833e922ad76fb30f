// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/gradients.hpp>
#include <chunkmem/manager/iteration_planner.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/rehearsal_log.hpp>
#include <chunkmem/manager/report.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/profile/recorder.hpp>
#include <chunkmem/trace/trace_sink.hpp>
#include <chunkmem/transfer/iteration_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

/// Checks that a record from another run can be of this model: its slots exist, dropped or written tensors are not
/// pinned, and its leases have bytes. It may still be of another iteration, which is a divergence.
/// @throws config_error   names the first impossible access   @complexity O(entries + slots)
inline void expect_record_fits(const access_record& record, const registry& tensors)
{
  const auto refuse = [](std::uint32_t access_index, std::string_view why) {
    throw config_error{error_text{} << "chunkmem: a profile is not one of this model: at access " << access_index << " "
                                    << why << " (record it again with this model)"};
  };
  sequence<std::uint32_t> on_device(tensors.slots().size(), 0);  // pins
  sequence<std::uint32_t> on_host(tensors.slots().size(), 0);
  visit_in_order(record, [&](std::uint32_t index, bool begins) {
    const access_entry& entry = record.entries()[index];
    if (is_lease(entry.kind)) {
      if (record.details()[index].bytes == 0) refuse(index, "nothing is leased");
      return;
    }
    if (entry.slot >= tensors.slots().size() || tensors.chunk_of(slot_id{entry.slot}) == chunk_id::none)
      refuse(index, "a tensor is used that is not there");
    std::uint32_t& pins = place_of(entry.kind) == memory_location::device ? on_device[entry.slot] : on_host[entry.slot];
    std::uint32_t& others =
        place_of(entry.kind) == memory_location::device ? on_host[entry.slot] : on_device[entry.slot];
    if (entry.kind == entry_kind::drop) {
      if (pins + others > 0) refuse(index, "a tensor is dropped while it is pinned");
      return;
    }
    if (begins && writes(access_of(entry.kind)) && others > 0) refuse(index, "a tensor is written in two tiers");
    pins = begins ? pins + 1 : pins - 1;
  });
}

/// Chooses the record and the plan that an iteration follows, and handles divergences from both.
///
/// `begin(name)` and `end(complete)` frame an iteration. In between, every access, lease and drop is a `step_to` before
/// anything moves, `run_actions` for the planned copies of this access, and `finish` when nothing can fail any more. An
/// iteration from a start that was not proven is replayed first; where it would not fit, the device is cleared, which
/// is the start that a rehearsal proves. So a rehearsed step always fits where the host holds all chunks, also after a
/// failure or another loop in between. An access whose copy failed decides alike when it is repeated: the other ranks
/// have gone on, and gather by the same decisions. Cost: see iteration_planner; a followed access costs one compare.
/// @tparam Copies   carries out moves, see copy_engine
template <eviction_policy Eviction, transfer_policy Transfer, class Copies>
class schedule {
 public:
  /// All arguments outlive this object.
  schedule(Transfer transfer, registry& tensors, gradient_places& places, chunk_cache<Eviction>& chunks, Copies& copies,
           report& counts)
      : planner_{std::move(transfer)},
        tensors_{&tensors},
        places_{&places},
        chunks_{&chunks},
        copies_{&copies},
        counts_{&counts}
  {
  }
  schedule(const schedule&) = delete;

  // Iterations.

  /// Starts an iteration: follows its record with a plan, or records it. Guarantee: basic, no iteration has begun.
  /// @param updates_first   some of the last step's updates wait: the iteration has a record of its own
  /// @param rehearsed       variants of a rehearsed step; empty records: none is known
  /// @param mask            called when slots know their next accesses
  /// @pre arenas are allocated, gradients settled
  template <class Mask>
  void begin(std::string_view name, bool updates_first, std::span<const rehearsed_turn> rehearsed, Mask mask)
  {
    const bool reload = recorder_.begin(name, updates_first);
    try {
      places_->begin(recorder_.index());
      if (reload) load_access_indices();
      mask();
      chunks_->begin_round();
      recorder_.is_logging() ? start_recording(rehearsed) : start_following();
    } catch (...) {
      following_plan_ = exceptional_ = steady_ = false;
      recorder_.end(false, tensors_->chunk_of_slot(), chunks_->chunks(),
                    [](std::uint32_t, memory_location) { return 0U; });
      chunks_->start_of(recorder_.record());  // the policy gets this record before it is asked again
      throw;
    }
    ++serial_;
  }

  /// Ends it. @param complete   false where an exception ended it: its record is then kept as it was
  void end(bool complete)
  {
    set_pass(pass::none, 0);
    ++counts_->iterations;
    const bool planned = std::exchange(following_plan_, false);
    const bool exceptional = std::exchange(exceptional_, false);
    const bool counted = std::exchange(counted_divergence_, false);
    steady_ = has_repeated_ = false;
    auto outcome = iteration_outcome::abandoned;
    try {
      outcome = recorder_.end(complete && !exceptional, tensors_->chunk_of_slot(), chunks_->chunks(), pins_in());
    } catch (...) {
      chunks_->silence_policy();  // it starts over before it is asked again
      throw;
    }
    const std::size_t record = recorder_.index();
    last_changed_ = outcome == iteration_outcome::changed;
    const bool is_new = last_changed_ || outcome == iteration_outcome::recorded;
    if (is_new) places_->learn(recorder_.record(), *tensors_);
    if (last_changed_ && !counted) ++counts_->divergences;
    if (is_new) plans_.forget(record);
    if (last_changed_) chunks_->start_of(recorder_.record());
    has_repeated_ = outcome == iteration_outcome::repeated && planned;
    steady_ = !std::exchange(disturbed_, false) && outcome == iteration_outcome::repeated &&
              (!Transfer::plans || (planned && plans_[record].current.periodic));
    steady_record_ = record;
    copies_->note(trace_event_kind::iteration, tier::device, counts_->iterations);
  }

  /// This iteration is an exception: the record stays as it was.
  void keep_record() noexcept { exceptional_ = recorder_.is_inside(); }
  /// The trainer named a pass: the record and the trace say so.
  void enter_pass(pass during, std::uint16_t micro_batch) noexcept
  {
    set_pass(during, micro_batch);
    if (during != pass::none)
      copies_->note(during == pass::forward ? trace_event_kind::forward : trace_event_kind::backward, tier::device,
                    micro_batch);
  }
  [[nodiscard]] bool is_inside() const noexcept { return recorder_.is_inside(); }
  /// The last iteration was not the recorded one.
  [[nodiscard]] bool last_changed() const noexcept { return last_changed_; }
  /// The number of the iteration, so that a pin of an older one is not logged in this one.
  [[nodiscard]] std::uint32_t serial() const noexcept { return serial_; }
  /// The serial of an access that no iteration logs.
  static constexpr std::uint32_t no_serial = 0;
  /// Accesses, leases and drops so far in the current iteration: their number, and their entries.
  [[nodiscard]] std::uint32_t progress() const noexcept { return recorder_.progress(); }
  [[nodiscard]] std::span<const access_entry> entries_so_far() const noexcept { return recorder_.so_far(); }
  /// The record of the current or last iteration. Empty while it is recorded, and before any.
  [[nodiscard]] const access_record& last_record() noexcept { return recorder_.record(); }
  /// The record of iterations of this name, or null.
  [[nodiscard]] const access_record* record_of(std::string_view name) const noexcept { return recorder_.find(name); }
  /// Iterations of this name follow a record of another run. @throws usage_error   they have one, or an iteration is
  /// running; with nothing changed
  void adopt(std::string_view name, bool updates_first, const access_record& record)
  {
    recorder_.adopt(name, updates_first, record, tensors_->chunk_of_slot(), chunk_count());
    places_->learn(record, *tensors_);
  }
  /// Slots lie in other chunks now: all plans are void.
  void relink()
  {
    relink_records();
    plans_.forget_all();
  }
  /// Allocates for `rearrange`. @param order   the next order of lists   @throws std::bad_alloc
  void prepare(std::span<const list_id> order) { plans_.prepare(order); }
  /// Lists have exchanged places. Plans that were made for this order are used again. @pre prepare was called for it
  void rearrange()
  {
    relink_records();
    plans_.change(tensors_->order());
  }
  /// The device is lost: nothing is recorded any more.
  void stop() noexcept { recorder_.stop(); }

  // Accesses, leases and drops.

  /// The hot path: the access that comes next, and the entry that the record has there.
  [[nodiscard]] std::uint32_t cursor() const noexcept { return recorder_.cursor(); }
  [[nodiscard]] const access_entry& entry(std::uint32_t index) const noexcept { return recorder_.entry(index); }
  void advance() noexcept { recorder_.advance(); }
  [[nodiscard]] bool is_logging() const noexcept { return recorder_.is_logging(); }

  /// The access index for decisions.
  [[nodiscard]] access_index now() const noexcept { return access_index{recorder_.now()}; }
  /// Makes room in the log and compares with the record; diverges where they differ.
  /// @param slot   none for a lease   @param size   of a lease [bytes]
  /// @return   equal: the plan's actions for this access come next
  bool step_to(slot_id slot, entry_kind kind, std::uint64_t size)
  {
    steady_ = steady_ && recorder_.is_inside();  // an access outside may move what a plan relies on
    recorder_.make_room();
    const bool expected = recorder_.expects_entry(index_of(slot), kind, size);
    if (!expected && recorder_.is_following()) diverge();
    return expected;
  }
  /// Nothing can fail any more: the cursor moves, or the log grows. @return   the access index
  std::uint32_t finish(bool expected, slot_id slot, entry_kind kind, std::uint64_t size) noexcept
  {
    if (expected) {
      const std::uint32_t now = recorder_.cursor();
      if (slot != slot_id::none) (*tensors_)[slot].next_access_index = recorder_.entry(now).next_of_slot;
      recorder_.advance();
      return now;
    }
    if (!recorder_.is_logging()) return access_record::never;
    if (recorder_.has_diverged() && is_access(kind)) recorder_.resync((*tensors_)[slot].next_access_index);
    return recorder_.log({index_of(slot), 0, 0, kind, false, micro_batch_}, {size, entry_detail::never, pass_});
  }
  /// Where the iteration is in its record.
  [[nodiscard]] recorder::position here() const noexcept { return recorder_.here(); }
  /// Undoes the accesses after this position: one of them failed, and the caller repeats all of them.
  void go_back(const recorder::position& to) noexcept
  {
    recorder_.go_back(
        to, [this](std::uint32_t slot, std::uint32_t next) { (*tensors_)[slot_id{slot}].next_access_index = next; });
  }
  void log_release(std::uint32_t access_index) noexcept { recorder_.log_release(access_index); }
  void lease_ended(std::uint32_t access_index) noexcept { recorder_.lease_ended(access_index); }

  struct expected_use {
    std::uint32_t next;  ///< access at which the chunk is used again
    access_index now;    ///< access index for decisions
  };
  /// The next use of the chunk of this slot. Changes nothing: an access that fails and is repeated decides as before.
  /// @param expected   the result of step_to
  [[nodiscard]] expected_use use_of(const slot& slot_state, bool expected) const noexcept
  {
    if (expected) return {recorder_.entry(recorder_.cursor()).next_of_chunk, now()};
    const std::uint32_t known = (*chunks_)[slot_state.chunk].next_use;
    if (!recorder_.has_diverged()) return {known, now()};
    const auto found = recorder_.found_again(slot_state.next_access_index);
    return {found.next_of_chunk != access_record::never ? found.next_of_chunk : known, access_index{found.now}};
  }

  /// Makes the policy ready for the next decision.
  void ensure_policy()
  {
    if (following_plan_) return leave_plan();
    if (!chunks_->is_telling()) chunks_->tell_policy(recorder_.record());
  }

  /// Carries out the planned moves of this access. @return   the planned place of a lease, or no_place
  [[gnu::noinline]] std::uint64_t run_actions(std::uint32_t now)
  {
    std::uint64_t lease = tier_space::no_place;
    if (!following_plan_) return lease;
    const auto& actions = plans_[recorder_.index()].current.actions;
    try {  // a failed copy is tried again: ranks whose copies succeed go on with the plan, and gather by it
      for (; next_action_ < actions.size() && actions[next_action_].access_index <= now; ++next_action_) {
        const transfer::move& action = actions[next_action_];
        if (action.kind == transfer::move_kind::lease)
          lease = action.place;
        else if (!run(action))
          ++counts_->skipped_moves;
      }
    } catch (const device_error&) {
      throw;
    } catch (...) {
      leave_plan();
      throw;
    }
    return lease;
  }

  // Steps that are replayed as a graph; see captured_step.

  /// The last iteration was as recorded and planned.
  [[nodiscard]] bool has_repeated() const noexcept { return has_repeated_; }
  /// The last iteration ended where it began, and nothing moved since.
  [[nodiscard]] bool is_steady() const noexcept { return steady_; }
  /// A chunk moved outside of an iteration, or outside of the record of the running one.
  void disturb() noexcept
  {
    steady_ = false;
    disturbed_ = is_inside();
  }
  /// A number that changes whenever slots get other places in their chunks.
  [[nodiscard]] std::uint64_t arrangement() const noexcept { return arrangement_; }
  /// One more iteration was done by a graph.
  void replayed() noexcept
  {
    ++counts_->iterations;
    ++serial_;
    copies_->note(trace_event_kind::iteration, tier::device, counts_->iterations);
  }

  // Plans of other runs.

  /// @throws usage_error   iterations of this name were not planned yet
  [[nodiscard]] transfer::iteration_plan plan_of(std::string_view name) const
  {
    const std::size_t index = recorder_.index_of(name);
    if (index >= plans_.size() || !plans_[index].tuned)
      throw usage_error{error_text{} << "chunkmem: iterations named " << name << " have no plan yet ("
                                     << (Transfer::plans ? "run two of them before"
                                                         : "name a transfer policy that plans, such as lookahead")
                                     << ")"};
    const planned_iteration& planned = plans_[index];
    transfer::iteration_plan made{.moved_bytes = planned.plan.moved_bytes,
                                  .bound_bytes = planned.plan.bound_bytes,
                                  .variant = planned.variant,
                                  .retained_until = planned.plan.retained_until,
                                  .first_use = planned.plan.first_use,
                                  .lease_limits = planned.plan.lease_limits,
                                  .device_only = planned.plan.device_only,
                                  .places = planned.plan.places,
                                  .early = {}};
    name_origin(made, *recorder_.find(name));
    return made;
  }

  /// The next iteration of this name is planned from this plan. Its numbers of moved bytes and of the bound are not
  /// taken over: their certificate is not in the plan. Where memory ends, the record is solved again. Guarantee: a plan
  /// that is refused leaves those that are there.
  /// @throws config_error   the plan is for another iteration, layout of chunks or capacity
  /// @throws usage_error    there is no record of this name
  /// @pre arenas are allocated, gradients settled, not inside
  void use_plan(const transfer::iteration_plan& given, std::string_view name)
  {
    const std::size_t index = recorder_.index_of(name);
    expects(index != recorder_.none,
            "a plan was given for iterations that have no record: give their profile first, or run one");
    const access_record& record = *recorder_.find(name);
    expect_same_origin(given, record);
    plans_.grow(index + 1);
    auto early = planner_.early_of(record, tensors_->chunk_of_slot(), given, bytes{given.device_bytes},
                                   bytes{given.frame_bytes});
    planned_iteration& planned = plans_[index];
    steady_ = false;
    planned.forget();
    planned.keep(given);
    planned.variant = given.variant;
    planned.plan.moved_bytes = planned.plan.bound_bytes = 0;
    planned.plan.early = std::move(early);
    planned.tuned = true;
  }

 private:
  [[nodiscard]] std::uint32_t chunk_count() const noexcept
  {
    return static_cast<std::uint32_t>(tensors_->frames_of_chunk().size());
  }
  /// Pins of a slot in a place, for the recorder.
  [[nodiscard]] auto pins_in() const noexcept
  {
    return [this](std::uint32_t slot, memory_location place) { return (*tensors_)[slot_id{slot}].pins_in(place); };
  }
  void set_pass(pass during, std::uint16_t micro_batch) noexcept
  {
    pass_ = during;
    micro_batch_ = micro_batch;
  }

  /// The iteration differs from its record.
  [[gnu::noinline, gnu::cold]] void diverge()
  {
    recorder_.diverge(pins_in());
    counted_divergence_ = true;
    ++counts_->divergences;
    copies_->note(trace_event_kind::divergence, tier::device, 0);
    if (following_plan_) leave_plan();
  }

  /// Leaves the plan for the rest of this iteration; the policy decides again.
  [[gnu::noinline, gnu::cold]] void leave_plan()
  {
    following_plan_ = false;
    give_up_plan();
  }

  bool run(const transfer::move& action)
  {
    const frame_id first{static_cast<std::uint32_t>(action.place)};
    switch (action.kind) {
      case transfer::move_kind::evict: return chunks_->try_evict(chunk_id{action.chunk}, *copies_);
      case transfer::move_kind::load: return chunks_->try_load(chunk_id{action.chunk}, first, true, *copies_);
      case transfer::move_kind::claim: return chunks_->try_load(chunk_id{action.chunk}, first, false, *copies_);
      case transfer::move_kind::write_back: return chunks_->try_write_back(chunk_id{action.chunk}, *copies_);
      case transfer::move_kind::lease:
      case transfer::move_kind::vacate: break;
    }
    return true;
  }

  void relink_records()
  {
    recorder_.relink(tensors_->chunk_of_slot(), chunk_count());
    steady_ = false;
    ++arrangement_;
  }

  void load_access_indices() noexcept
  {
    const auto first = recorder_.record().first_of_slot();
    auto& slots = tensors_->slots();
    for (std::size_t index = 0; index < slots.size(); ++index) slots[index].next_access_index = first[index];
  }

  void restart_policy()
  {
    chunks_->start_of(recorder_.record());
    chunks_->tell_policy(recorder_.record());
  }

  /// Starts an iteration without a record, perhaps with a rehearsal: where it may not fit from here, it starts on an
  /// empty device, as in the rehearsal.
  void start_recording(std::span<const rehearsed_turn> rehearsed)
  {
    const bool fits_at_once = chunks_->space(tier::device).frames() >= tensors_->total_frames();
    if (is_clearing_ || !fits_at_once || !std::ranges::all_of(rehearsed, [this](const rehearsed_turn& it) {
          return planner_.can_record(*chunks_, it.record, tensors_->chunk_of_slot());
        }))
      clear_device();
    restart_policy();
  }

  /// Where a copy fails, the next iteration clears the rest: the residency that is left was not proven.
  void clear_device()
  {
    is_clearing_ = true;
    chunks_->evict_all(*copies_);
    is_clearing_ = false;
  }

  void start_following()
  {
    next_action_ = 0;
    if (steady_ && steady_record_ == recorder_.index()) {  // the last iteration ended as this one begins
      following_plan_ = Transfer::plans;
      return;
    }
    if (!is_clearing_ && follow_from_here()) return;
    clear_device();
    ++counts_->clean_starts;
    if (follow_from_here()) return;
    chunks_->start_of(recorder_.record());
    give_up_plan();
  }

  /// Follows the record from the present residency. @return   false where it would not fit
  bool follow_from_here()
  {
    access_record& record = recorder_.record();
    if constexpr (Transfer::plans) {
      plans_.grow(recorder_.index() + 1);
      planned_iteration& planned = plans_[recorder_.index()];
      if (!planned.current.valid || !planned.current.start.same_places(chunks_->table()))
        plan_from_here(planned, record);
      else if (!planned.is_marked)
        planner_.mark(planned, record);
      planned.is_marked = true;
      if (!planned.current.valid) return false;
      chunks_->start_of(record, planned.without_host_copies());
      following_plan_ = true;
      return true;
    } else {
      if (!planner_.settles(*chunks_, record, tensors_->chunk_of_slot())) return false;
      restart_policy();
      return true;
    }
  }

  /// Takes an earlier plan for this start, or makes a plan.
  void plan_from_here(planned_iteration& planned, access_record& record)
  {
    if (planned.recall(chunks_->table())) return planner_.mark(planned, record);
    const bool is_first = planned.made++ == 0;
    if (!is_first) {
      ++counts_->replans;
      copies_->note(trace_event_kind::replan, tier::device, 0);
    }
    planned.put_aside();
    if (planned.tuned) planner_.settle(planned, *chunks_, record, tensors_->chunk_of_slot());
    planner_.make(planned, *chunks_, record, tensors_->chunk_of_slot());
    if (!is_first) return;
    if (planned.current.valid) planner_.reserve_search(planned, *chunks_, record, tensors_->chunk_of_slot());
    planned.reserve();
  }

  void give_up_plan()
  {
    ++counts_->abandoned_plans;
    chunks_->tell_policy(recorder_.record());
  }

  /// Writes the record and the capacities into the plan.
  void name_origin(transfer::iteration_plan& plan, const access_record& record) const
  {
    plan.record = transfer::fingerprint_of(record, tensors_->chunk_of_slot(), tensors_->frames_of_chunk());
    plan.frame_bytes = chunks_->space(tier::device).frame_bytes();
    plan.device_bytes = chunks_->space(tier::device).capacity();
    plan.host_bytes = chunks_->space(tier::host).capacity();
  }
  void expect_same_origin(const transfer::iteration_plan& given, const access_record& record) const
  {
    transfer::iteration_plan wanted;
    name_origin(wanted, record);
    expect_same("record", given.record, wanted.record);
    expect_same("frame_bytes", given.frame_bytes, wanted.frame_bytes);
    expect_same("device_bytes", given.device_bytes, wanted.device_bytes);
    expect_same("host_bytes", given.host_bytes, wanted.host_bytes);
    if (given.variant >= chunks_->variants()) expect_same("variant", given.variant, chunks_->variants() - 1);
    transfer::expect_plan_fits(given, record, tensors_->chunk_of_slot(), chunks_->chunks());
  }
  static void expect_same(std::string_view key, std::uint64_t given, std::uint64_t wanted)
  {
    if (given != wanted)
      throw config_error{error_text{} << "chunkmem: a plan is for another model or another capacity: its " << key
                                      << " is " << given << " and should be " << wanted
                                      << " (leave it out, and save the plan of this run)"};
  }

  recorder recorder_;
  iteration_planner<Eviction, Transfer> planner_;
  plans_by_order plans_;  // by record
  registry* tensors_;
  gradient_places* places_;
  chunk_cache<Eviction>* chunks_;
  Copies* copies_;
  report* counts_;
  std::size_t next_action_ = 0;
  std::size_t steady_record_ = 0;
  std::uint64_t arrangement_ = 0;
  std::uint32_t serial_ = 0;
  pass pass_ = pass::none;
  std::uint16_t micro_batch_ = 0;
  bool following_plan_ = false;
  bool steady_ = false;  // nothing moved since an iteration that can be repeated from its end
  bool has_repeated_ = false;
  bool last_changed_ = false;
  bool counted_divergence_ = false;
  bool exceptional_ = false;
  bool is_clearing_ = false;  // a copy failed while the device was cleared
  bool disturbed_ = false;    // this iteration
};

}  // namespace chunkmem::inline v0
