// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/chunk_table.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace chunkmem::inline v0 {

/// A mover that moves nothing: it logs the decisions of a chunk_cache with their accesses.
///
/// `at(access, freed_from)` sets the access of the decisions that follow; `moves()` has them in order. Cost: O(1) for
/// each decision, amortised.
class decision_log {
 public:
  void clear() noexcept { moves_.clear(); }
  [[nodiscard]] const sequence<transfer::move>& moves() const noexcept { return moves_; }

  /// Makes room for twice as many moves. Runs of one record from other starts differ by less.
  void make_room() { moves_.reserve(2 * moves_.size() + 16); }

  /// The frames of all logged loads and write-backs.
  [[nodiscard]] std::uint64_t frames_copied() const noexcept
  {
    std::uint64_t frames = 0;
    for (const transfer::move& action : moves_)
      if (action.kind == transfer::move_kind::load || action.kind == transfer::move_kind::write_back)
        frames += action.frames;
    return frames;
  }

  /// Decisions from here on belong to this access; frames that they free are free from `freed_from`.
  void at(std::uint32_t access_index, std::uint32_t freed_from) noexcept
  {
    now_ = access_index;
    freed_from_ = freed_from;
  }

  void placed(tier, frame_id, std::uint32_t) noexcept {}
  void vacated(tier where, frame_id first, std::uint32_t count, bool evicted)
  {
    if (where == tier::device && !evicted)
      add(transfer::move_kind::vacate, freed_from_, chunk_id::none, index_of(first), count);
  }
  void copy(chunk_id id, const chunk& chunk_state, tier from, tier to)
  {
    add(to < from ? transfer::move_kind::load : transfer::move_kind::write_back, id, chunk_state);
  }
  void claimed(chunk_id id, const chunk& chunk_state, tier) { add(transfer::move_kind::claim, id, chunk_state); }
  void evicted(chunk_id id, const chunk& chunk_state, tier) { add(transfer::move_kind::evict, id, chunk_state); }
  void discarded(chunk_id, const chunk&, tier) noexcept {}
  void leased(tier, std::uint64_t begin, std::uint64_t)
  {
    add(transfer::move_kind::lease, now_, chunk_id::none, begin, 0);
  }

 private:
  void add(transfer::move_kind kind, chunk_id id, const chunk& chunk_state)
  {
    add(kind, now_, id, index_of(chunk_state.first_frame[tier::device]), chunk_state.frames);
  }
  void add(transfer::move_kind kind, std::uint32_t access_index, chunk_id chunk, std::uint64_t place,
           std::uint32_t frames)
  {
    moves_.push_back({access_index, index_of(chunk), place, frames, 0, kind});
  }

  sequence<transfer::move> moves_;
  std::uint32_t now_ = 0;
  std::uint32_t freed_from_ = 0;
};

/// Runs a recorded iteration on a chunk_cache without bytes, with the decisions that the manager would make.
///
/// The cache ends as the iteration would leave it. Cost: the manager's bookkeeping, O(accesses), and no copies.
/// @code
/// chunk_cache<Eviction> trial = cache;
/// replay.run(record, chunk_of_slot, trial, log, true);   // throws out_of_memory where the iteration does not fit
/// @endcode
template <class Eviction>
class replay {
  struct nothing {
    void operator()() const noexcept {}
  };

 public:
  /// Next uses by access index, for all runs from now on, instead of the record's; empty: the record's. `next_uses`
  /// outlives the runs.
  void follow(std::span<const std::uint32_t> next_uses) noexcept { next_uses_ = next_uses; }

  /// @param profiled   false: as the recording iteration, whose next uses are unknown
  /// @param before_last   called before the last entry, after all earlier releases
  /// @throws out_of_memory   the iteration does not fit; the residency is left in the middle
  template <class Early = nothing>
  void run(const access_record& record, std::span<const std::uint32_t> chunk_of_slot, chunk_cache<Eviction>& state,
           decision_log& log, bool profiled, Early before_last = {})
  {
    lease_at_.assign(record.size(), 0);
    state.begin_round();
    std::size_t ended = 0;
    for (std::uint32_t now = 0; now < record.size(); ++now) {
      log.at(now, now);
      ended = release_until(record, chunk_of_slot, state, log, ended, now);
      log.at(now, now + 1);
      if (now + 1 == record.size()) before_last();
      step(record, chunk_of_slot, state, log, now, profiled);
    }
    log.at(record.size(), record.size());
    release_until(record, chunk_of_slot, state, log, ended, record.size());
    // held beyond its end: a repeated iteration would hold it again
    for (std::uint32_t index = 0; index < record.size(); ++index)
      if (!record.is_drop(index) && record.details()[index].until == entry_detail::never)
        end(record, chunk_of_slot, state, log, index);
  }

  /// Repeats the record until it ends as it ended before: then it fits for any number of repetitions.
  /// @param profiled   false: the first run is the recording
  /// @param retold     the policy starts over with each iteration, as with plans
  /// @param before_each   called before each run; may throw, which ends the trial
  /// @return           false where it does not fit; true also where 64 iterations fit and none ended as one before
  template <class Before = nothing>
  bool settles(const access_record& record, std::span<const std::uint32_t> chunk_of_slot, chunk_cache<Eviction>& state,
               decision_log& log, bool profiled, bool retold, Before before_each = {})
  {
    constexpr int most = 64;
    before_ = state;
    int kept = 1;  // compared with one of the passes 1, 2, 4, ...: orbits of any length are found (Brent 1980)
    for (int pass = 0; pass < most; ++pass) {
      before_each();
      const bool known = profiled || pass > 0;
      if (known && (retold || pass == (profiled ? 0 : 1))) {
        state.start_of(record);
        state.tell_policy(record);
      }
      log.clear();
      try {
        run(record, chunk_of_slot, state, log, known);
      } catch (const out_of_memory&) {
        return false;
      }
      if (known && state.table().same_places(before_.table()) && state.same_order(before_)) return true;
      if (pass + 1 != kept) continue;
      before_ = state;
      kept *= 2;
    }
    return true;
  }

 private:
  void step(const access_record& record, std::span<const std::uint32_t> chunk_of_slot, chunk_cache<Eviction>& state,
            decision_log& log, std::uint32_t now, bool profiled)
  {
    const access_entry& entry = record.entries()[now];
    if (is_lease(entry.kind)) {
      lease_at_[now] = state.lease(tier_of(entry.kind), record.details()[now].bytes, log);
    } else if (entry.kind == entry_kind::drop) {
      state.drop(slot_id{entry.slot}, chunk_id{chunk_of_slot[entry.slot]}, log);
    } else {
      const std::uint32_t known = next_uses_.empty() ? entry.next_of_chunk : next_uses_[now];
      const std::uint32_t next = profiled ? known : access_record::never;
      state.acquire(slot_id{entry.slot}, chunk_id{chunk_of_slot[entry.slot]}, entry.kind, next, access_index{now}, log);
    }
  }

  std::size_t release_until(const access_record& record, std::span<const std::uint32_t> chunk_of_slot,
                            chunk_cache<Eviction>& state, decision_log& log, std::size_t ended, std::uint32_t now)
  {
    const auto releases = record.releases();
    for (; ended < releases.size() && releases[ended].until <= now; ++ended)
      end(record, chunk_of_slot, state, log, releases[ended].access_index);
    return ended;
  }

  void end(const access_record& record, std::span<const std::uint32_t> chunk_of_slot, chunk_cache<Eviction>& state,
           decision_log& log, std::uint32_t index)
  {
    const access_entry& entry = record.entries()[index];
    const tier where = tier_of(entry.kind);
    if (is_lease(entry.kind))
      state.end_lease(where, lease_at_[index], record.details()[index].bytes, log);
    else
      state.unpin(where, chunk_id{chunk_of_slot[entry.slot]}, writes(access_of(entry.kind)));
  }

  std::span<const std::uint32_t> next_uses_;
  sequence<std::uint64_t> lease_at_;  // by access index
  chunk_cache<Eviction> before_;      // kept between calls, so that a repeated proof allocates nothing
};

/// How often an iteration is repeated to count its moves: the first rounds settle, the last ones are counted.
///
///     const std::uint64_t moved = trial.frames_moved(now, record, chunk_of_slot, 0, {.rounds = 3, .counted = 1});
struct trial_length {
  int rounds = 5;
  int counted = 2;  ///< orbits of two are common
};

/// Long enough to compare two plans: orbits of two, three, four, six and twelve are counted whole.
inline constexpr trial_length long_trial{18, 12};

/// Finds the setting of a tuned eviction policy that moves the fewest bytes when a recorded iteration repeats.
///
///     variant_trial<eviction::cost_aware> trial;
///     cache.choose(trial.best(cache, record, chunk_of_slot));
///
/// Cost: five replays for each setting, none where there is one setting; no allocation when sizes repeat.
template <class Eviction>
class variant_trial {
 public:
  /// The best setting for iterations that start from `now`; the lowest of equal ones, and 0 where none fits.
  [[nodiscard]] std::uint32_t best(const chunk_cache<Eviction>& now, const access_record& record,
                                   std::span<const std::uint32_t> chunk_of_slot)
  {
    if (now.variants() == 1) return 0;
    std::uint32_t best = 0;
    std::uint64_t least = impossible;
    for (std::uint32_t variant = 0; variant < now.variants(); ++variant) {
      const std::uint64_t moved = frames_moved(now, record, chunk_of_slot, variant);
      if (moved >= least) continue;
      least = moved;
      best = variant;
    }
    return best;
  }

  static constexpr std::uint64_t impossible = UINT64_MAX;

  /// Frames that the counted iterations copy, from `now` on; impossible where one does not fit.
  [[nodiscard]] std::uint64_t frames_moved(const chunk_cache<Eviction>& now, const access_record& record,
                                           std::span<const std::uint32_t> chunk_of_slot, std::uint32_t variant,
                                           trial_length length = {})
  {
    std::uint64_t moved = 0;
    state_ = now;
    state_.choose(variant);
    try {
      for (int round = 0; round < length.rounds; ++round) {
        state_.start_of(record);
        state_.tell_policy(record);
        log_.clear();
        replay_.run(record, chunk_of_slot, state_, log_, true);
        if (round >= length.rounds - length.counted) moved += log_.frames_copied();
      }
    } catch (const out_of_memory&) {
      return impossible;
    }
    return moved;
  }

  /// Room for longer runs than the last one.
  void make_room() { log_.make_room(); }

 private:
  chunk_cache<Eviction> state_;
  replay<Eviction> replay_;
  decision_log log_;
};

/// The choices of a retained_run that its plan leaves open.
///
///     trial.start(cache.table(), plan, {}, {.writes_back_early = false});
struct retained_ways {
  bool by_age = true;             ///< as eviction::by_retention::order_by_age
  bool writes_back_early = true;  ///< chunks that the plan gives up, before the iteration ends
  bool takes_given_up = true;     ///< as eviction::by_retention::take_given_up
  bool finds_frames = false;      ///< loads find frames when they happen, also where the plan has places for chunks
};

/// Runs a recorded iteration by a plan that says which chunks stay, instead of the eviction policy.
///
/// The run carries out as much of the plan as the engine could, with frame runs and leases included. Cost: a copy of
/// the chunk table and a replay for each run; no allocation when sizes repeat.
/// @code
/// retained_run trial;
/// trial.start(cache.table(), plan);
/// if (trial.run(record, chunk_of_slot)) use(trial.log().moves(), trial.state().table());
/// @endcode
class retained_run {
 public:
  using run_state = chunk_cache<eviction::by_retention>;

  /// From `now` on, by `plan`, which must outlive the runs.
  /// @param frames   as frames() of an earlier run by this plan, or nothing
  void start(const chunk_table& now, const transfer::iteration_plan& plan, std::span<const std::uint32_t> frames = {},
             retained_ways ways = {})
  {
    plan_ = &plan;
    places_ = ways.finds_frames ? std::span<const std::uint32_t>{} : std::span{plan.places};
    ways_ = ways;
    has_written_back_early_ = false;
    frames_.assign(frames);
    state_.take_places(now);
    state_.policy().place_below(plan.lease_limits);
    state_.policy().settle_in(places_);
    state_.policy().order_by_age(ways.by_age);
    state_.policy().take_given_up(ways.takes_given_up);
    replay_.follow(plan.retained_until);
  }

  void start(const chunk_table&, const transfer::iteration_plan&&, std::span<const std::uint32_t> = {},
             retained_ways = {}) = delete;  // the plan would be gone

  /// Frames that the counted iterations copy, each planned from the end of the one before; not set where one does not
  /// fit.
  /// @pre start()
  [[nodiscard]] std::optional<std::uint64_t> frames_moved(const access_record& record,
                                                          std::span<const std::uint32_t> chunk_of_slot,
                                                          trial_length length = {})
  {
    std::uint64_t moved = 0;
    for (int round = 0; round < length.rounds; ++round) {
      frames_.clear();  // each by the rules alone
      if (!run(record, chunk_of_slot)) return std::nullopt;
      if (round >= length.rounds - length.counted) moved += log_.frames_copied();
      ended_ = state_.table();
      state_.take_places(ended_);
    }
    return moved;
  }

  /// Runs it once more. @pre start()   @return   it fits; then state() is its end and log() has its moves
  [[nodiscard]] bool run(const access_record& record, std::span<const std::uint32_t> chunk_of_slot)
  {
    state_.start_of(record, plan_->device_only);
    list_expected();
    state_.expect_first(expected_);
    state_.tell_policy(record);
    state_.policy().place_in(frames_);
    log_.clear();
    began_in_.clear();
    for (const chunk& chunk_state : state_.table().all()) began_in_.push_back(chunk_state.first_frame[tier::device]);
    try {
      replay_.run(record, chunk_of_slot, state_, log_, true, [&] {
        if (ways_.writes_back_early) write_back_early(record);
        load_early();
      });
    } catch (const out_of_memory&) {
      return false;
    }
    remember_frames(record, chunk_of_slot);
    return true;
  }

  /// Some run since start() made a move earlier because of retained_ways::writes_back_early.
  [[nodiscard]] bool has_written_back_early() const noexcept { return has_written_back_early_; }
  /// By access index: the frame to which the last run loaded the chunk of this access, or none. Runs that choose the
  /// same frames again end where they began, sooner or later.
  [[nodiscard]] std::span<const std::uint32_t> frames() const noexcept { return frames_; }
  /// By chunk: its first frame when the last run began, or none.
  [[nodiscard]] std::span<const frame_id> began_in() const noexcept { return began_in_; }
  /// Room for longer runs than the last one.
  void make_room()
  {
    log_.make_room();
    ended_ = state_.table();
  }
  [[nodiscard]] const run_state& state() const noexcept { return state_; }
  [[nodiscard]] const decision_log& log() const noexcept { return log_; }

 private:
  /// Chunks that the plan gives up are written back while this iteration ends: the next one finds frames that wait for
  /// no copy. Such a chunk may still be resident at its next use, and then this copy was unneeded. A chunk that is
  /// overwritten at its next use is left out.
  void write_back_early(const access_record& record)
  {
    for (const chunk_id id : state_.table().chunk_ids()) {
      const chunk& chunk_state = state_[id];
      const std::uint32_t first = record.first_of_chunk()[index_of(id)];
      if (chunk_state.next_use != access_record::never || first == access_record::never) continue;
      if (chunk_state.first_frame[tier::host] == chunk::nowhere || chunk_state.live == 0) continue;
      if (access_of(record.entries()[first].kind) != access::write && state_.try_write_back(id, log_))
        has_written_back_early_ = true;
    }
  }

  /// Loads the first chunks of the next iteration now, as far as there is room. Resident ones stay.
  void load_early()
  {
    if (plan_->early.empty()) return;
    for (const transfer::early_load& load : plan_->early)
      if (is_in_place(chunk_id{load.chunk}, load.first_use)) state_.expect_use(chunk_id{load.chunk}, load.first_use);
    places_.empty() ? load_early_anywhere() : load_early_in_places();
  }

  void load_early_in_places()
  {
    for (const transfer::early_load& load : plan_->early) {
      if (load.first_use >= places_.size()) continue;
      if (const frame_id own{places_[load.first_use]}; own != frame_pool::none)
        state_.bring_early(chunk_id{load.chunk}, own, load.lease_limit, access_index{load.first_use}, log_);
    }
  }

  void load_early_anywhere()
  {
    list_free_frames();
    for (const transfer::early_load& load : plan_->early) {
      if (state_[chunk_id{load.chunk}].frames != 1) continue;
      const auto found = choose_frame(load);
      const frame_id first = found != free_.end() ? *found : frame_pool::none;
      if (state_.bring_early(chunk_id{load.chunk}, first, load.lease_limit, access_index{load.first_use}, log_) &&
          found != free_.end())
        free_.erase(found);
    }
  }

  /// A chunk that lies in other frames than those of the plan is not kept there: it would block others.
  void list_expected()
  {
    expected_.assign(plan_->first_use);
    for (const chunk_id id : state_.table().chunk_ids())
      if (std::uint32_t& first_use = expected_[index_of(id)]; !is_in_place(id, first_use))
        first_use = access_record::never;
  }

  /// The plan has no other frames for the chunk at that access.
  [[nodiscard]] bool is_in_place(chunk_id id, std::uint32_t access) const noexcept
  {
    if (access >= places_.size() || places_[access] == index_of(frame_pool::none)) return true;
    return index_of(state_[id].first_frame[tier::device]) == places_[access];
  }

  void remember_frames(const access_record& record, std::span<const std::uint32_t> chunk_of_slot)
  {
    frames_.assign(record.size(), index_of(frame_pool::none));
    for (const transfer::move& action : log_.moves()) {
      if (action.kind != transfer::move_kind::load && action.kind != transfer::move_kind::claim) continue;
      const std::uint32_t slot = record.entries()[action.access_index].slot;  // an early load is not of this access
      if (slot != access_record::never && chunk_of_slot[slot] == action.chunk)
        frames_[action.access_index] = static_cast<std::uint32_t>(action.place);
    }
  }

  /// The frame of the chunk at the start of the iteration, if no load has to wait for it, so that plans end where they
  /// began; else the frame that is free the longest.
  sequence<frame_id>::iterator choose_frame(const transfer::early_load& load)
  {
    const auto own = std::find(free_.begin(), free_.end(), began_in_[load.chunk]);
    if (own != free_.end() && index_of(*own) < load.lease_limit) return own;
    return std::find_if(free_.begin(), free_.end(), [&](frame_id frame) { return index_of(frame) < load.lease_limit; });
  }

  /// Frames that are free the longest come first: loads into them can start first.
  void list_free_frames()
  {
    const frame_pool& pool = state_.space(tier::device).pool();
    since_.assign(state_.space(tier::device).frames(), 0);
    for (const transfer::move& action : log_.moves())
      if (action.kind == transfer::move_kind::vacate || action.kind == transfer::move_kind::evict)
        for (std::uint64_t frame = action.place; frame < action.place + action.frames; ++frame)
          since_[frame] = action.access_index;
    free_.clear();
    for (const frame_id frame : ids<frame_id>(static_cast<std::uint32_t>(since_.size())))
      if (pool.is_free(frame)) free_.push_back(frame);
    sort_records(std::span{free_}, [this](frame_id left, frame_id right) {
      const std::uint32_t first = since_[index_of(left)];
      const std::uint32_t second = since_[index_of(right)];
      return first != second ? first < second : left > right;
    });
  }

  const transfer::iteration_plan* plan_ = nullptr;
  std::span<const std::uint32_t> places_;  // the plan's, or none
  retained_ways ways_;
  bool has_written_back_early_ = false;
  run_state state_;
  chunk_table ended_;
  replay<eviction::by_retention> replay_;
  decision_log log_;
  sequence<std::uint32_t> since_;  // by frame: the access from which it is free
  sequence<frame_id> free_;
  sequence<std::uint32_t> frames_;    // by access index
  sequence<frame_id> began_in_;       // by chunk: its frame when the iteration began
  sequence<std::uint32_t> expected_;  // by chunk: its first use, if it lies in its frames by then
};

}  // namespace chunkmem::inline v0
