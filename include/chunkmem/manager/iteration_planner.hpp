// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/chunk_table.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// Finds, in the decisions of an eviction policy, the chunks that stayed on the device and between which uses.
///
/// An eviction policy may leave each iteration with other chunks on the device than the iteration before: a scan over n
/// chunks under belady comes back after n - 1 iterations. Chunks that stayed in one iteration can stay in every
/// iteration. Belady often keeps a chunk until its use, and then another chunk in the same frames; here the first chunk
/// stays on. Cost: O(accesses + moves + chunks log chunks); no allocation when sizes repeat.
/// @code
/// const transfer::iteration_plan& seen = reader.of(record, chunk_of_slot, chunks, log.moves());
/// if (reader.saved() > 0) planned.keep(seen);
/// @endcode
class policy_retention {
 public:
  /// @param moves   of an iteration that began where an equal iteration had ended, by the access that needed them
  /// @return        valid until the next call; a stay across the end of the iteration has to hold in both parts
  [[nodiscard]] const transfer::iteration_plan& of(const access_record& record,
                                                   std::span<const std::uint32_t> chunk_of_slot, std::uint32_t chunks,
                                                   std::span<const transfer::move> moves)
  {
    read_stays(record, chunk_of_slot, chunks, moves);
    join_halves(record);
    return seen_;
  }

  /// Reads from a run of a plan which chunks stayed in which frames: a plan that repeats the run from other starts too.
  /// A chunk that ended the run in other frames than it began in does not stay across the end.
  /// @param moves      as of `of`   @param began_in   by chunk: its first frame when the run began, or none
  /// @param followed   the plan of the run
  [[nodiscard]] const transfer::iteration_plan& in_frames(const access_record& record,
                                                          std::span<const std::uint32_t> chunk_of_slot,
                                                          std::span<const transfer::move> moves,
                                                          std::span<const frame_id> began_in,
                                                          const transfer::iteration_plan& followed)
  {
    read_stays(record, chunk_of_slot, static_cast<std::uint32_t>(began_in.size()), moves);
    seen_.bound_bytes = followed.bound_bytes;
    note_places(record, chunk_of_slot, moves, began_in);
    for (std::uint32_t now = 0; now < record.size(); ++now) {
      if (seen_.retained_until[now] > now) continue;
      const std::uint32_t chunk = chunk_of_slot[record.entries()[now].slot];
      if (lies_in_[chunk] != began_in[chunk]) seen_.retained_until[now] = seen_.first_use[chunk] = access_record::never;
    }
    for (const transfer::early_load& load : followed.early) {
      if (first_break_[load.chunk] <= load.first_use) continue;
      seen_.early.push_back(load);
      seen_.first_use[load.chunk] = load.first_use;
    }
    return seen_;
  }
  /// The number of uses that the last answer serves without a copy.
  [[nodiscard]] std::uint32_t saved() const noexcept { return saved_; }

 private:
  /// A chunk that is resident for one part of a stay across the end.
  struct half {
    std::uint32_t access_index = 0;  ///< of its last use, or of its arrival
    chunk_id chunk{0};
    std::uint32_t frames = 0;
  };

  void read_stays(const access_record& record, std::span<const std::uint32_t> chunk_of_slot, std::uint32_t chunks,
                  std::span<const transfer::move> moves)
  {
    seen_.clear();
    seen_.retained_until.assign(record.size(), access_record::never);
    seen_.lease_limits.assign(record.size(), UINT32_MAX);
    seen_.first_use.assign(chunks, access_record::never);
    first_break_.assign(chunks, access_record::never);
    next_break_.assign(chunks, access_record::never);
    last_break_.assign(chunks, {});
    early_.clear();
    late_.clear();
    early_.reserve(chunks);
    late_.reserve(chunks);
    for (const transfer::move& action : moves) {
      if (!breaks(action)) continue;
      first_break_[action.chunk] = std::min(first_break_[action.chunk], action.access_index);
      last_break_[action.chunk] = {action.access_index, chunk_id{action.chunk}, action.frames};
    }
    saved_ = 0;
    std::size_t left = moves.size();
    for (std::uint32_t now = record.size(); now-- > 0;) {
      for (; left > 0 && moves[left - 1].access_index > now; --left) note(moves[left - 1]);
      mark(record.entries()[now], now, chunk_of_slot);
    }
  }

  /// By access the first frame of its chunk.
  void note_places(const access_record& record, std::span<const std::uint32_t> chunk_of_slot,
                   std::span<const transfer::move> moves, std::span<const frame_id> began_in)
  {
    seen_.places.assign(record.size(), index_of(frame_id::none));
    lies_in_.assign(began_in);
    std::size_t next = 0;
    for (std::uint32_t now = 0; now < record.size(); ++now) {
      for (; next < moves.size() && moves[next].access_index <= now; ++next)
        if (moves[next].kind == transfer::move_kind::load || moves[next].kind == transfer::move_kind::claim)
          lies_in_[moves[next].chunk] = frame_id{static_cast<std::uint32_t>(moves[next].place)};
      const access_entry& entry = record.entries()[now];
      if (is_access(entry.kind) && place_of(entry.kind) == memory_location::device)
        seen_.places[now] = index_of(lies_in_[chunk_of_slot[entry.slot]]);
    }
  }

  [[nodiscard]] static bool breaks(const transfer::move& action) noexcept
  {
    return action.kind == transfer::move_kind::evict || action.kind == transfer::move_kind::load ||
           action.kind == transfer::move_kind::claim;
  }
  void note(const transfer::move& action) noexcept
  {
    if (breaks(action)) next_break_[action.chunk] = action.access_index;
  }

  /// @pre next_break_ has all breaks after this access
  void mark(const access_entry& entry, std::uint32_t now, std::span<const std::uint32_t> chunk_of_slot) noexcept
  {
    if (!is_access(entry.kind) || entry.next_of_chunk == access_record::never) return;
    const std::uint32_t chunk = chunk_of_slot[entry.slot];
    const std::uint32_t next = entry.next_of_chunk;
    const std::uint32_t broken = next_break_[chunk];
    if (next > now) {
      if (broken > next) stay(now, next);
      return;
    }
    const bool until_first = first_break_[chunk] > next;
    const bool until_end = broken == access_record::never;
    if (until_first && until_end)
      stay_around(chunk_id{chunk}, now, next);
    else if (until_first)
      early_.push_back({now, chunk_id{chunk}, last_break_[chunk].frames});
    else if (until_end)
      late_.push_back(last_break_[chunk]);
  }

  /// A chunk that is resident until its first use stays after its last use, where another chunk arrived in the meantime
  /// that stays until the end.
  void join_halves(const access_record& record)
  {
    const auto earlier = [](const half& left, const half& right) {
      return left.access_index != right.access_index ? left.access_index < right.access_index
                                                     : left.chunk < right.chunk;
    };
    sort_records(std::span{early_}, earlier);
    sort_records(std::span{late_}, earlier);
    auto other = late_.begin();
    for (const half& it : early_) {
      while (other != late_.end() && other->access_index <= it.access_index && other->frames < it.frames) ++other;
      if (other == late_.end() || other->access_index > it.access_index) continue;
      stay_around(it.chunk, it.access_index, record.entries()[it.access_index].next_of_chunk);
      ++other;
    }
  }

  void stay(std::uint32_t now, std::uint32_t next) noexcept
  {
    seen_.retained_until[now] = next;
    ++saved_;
  }
  void stay_around(chunk_id chunk, std::uint32_t now, std::uint32_t next) noexcept
  {
    stay(now, next);
    seen_.first_use[index_of(chunk)] = next;
  }

  transfer::iteration_plan seen_;
  std::uint32_t saved_ = 0;
  sequence<std::uint32_t> first_break_;  // by chunk: the first access at which it arrives or leaves
  sequence<std::uint32_t> next_break_;   // by chunk: the same, after the current access
  sequence<half> last_break_;            // by chunk: when it arrived or left last
  sequence<frame_id> lies_in_;           // by chunk: its first frame after its last move
  sequence<half> early_;
  sequence<half> late_;
};

/// The moves of an iteration that begins with one residency.
///
///     planned_start other;
///     other.start = table;
///     other.actions.swap(actions);
///     other.valid = true;
struct planned_start {
  chunk_table start;  ///< the places of all chunks then
  std::vector<transfer::move> actions;
  bool retains = false;  ///< made from the plan of stays, not by the eviction policy
  bool valid = false;
  bool periodic = false;  ///< the iteration ends where it began, frame addresses included: the moves are valid again
};

/// The state of a planner for one recorded iteration: its plan, the moves from the residency at its start, moves from
/// other residencies from which it was followed before, and the progress of the search of plans.
///
///     planned_iteration planned;
///     planner.make(planned, cache, record, chunk_of_slot);
///     const planned_start& now = planned.current;
///     if (now.valid && now.start.same_places(cache.table())) std::cout << now.actions.size() << " moves\n";
struct planned_iteration {
  transfer::iteration_plan plan;  ///< its vectors are empty where the eviction policy moves less
  std::uint32_t variant = 0;      ///< setting of the eviction policy; the plan's own number is not used
  planned_start current;
  /// as many as a cycle of other iterations needs to return; the last one left is first
  std::array<planned_start, 7> others;

  sequence<std::uint32_t> frames;  ///< as retained_run
  static constexpr std::uint32_t free_tries = 4;
  static constexpr std::uint32_t given_up_tries = 12;  ///< then frames that are given up are no longer taken for free
  std::uint32_t tries = 0;                             ///< moves made by the stays since these were chosen
  std::uint64_t copied = 0;           ///< frames copied by the last moves that followed the rules alone
  std::optional<retained_ways> ways;  ///< of the plan of stays; not set: none was tried
  std::uint64_t made = 0;
  std::uint32_t unlike = 0;  ///< moves made since its record is this one
  bool tuned = false;        ///< the eviction policy's setting and the stays are chosen for the record
  bool closes = false;       ///< the stays are those of the eviction policy, so that the iteration ends where it began
  bool is_marked = true;     ///< entries of the record are marked where they have actions

  /// Follows this plan of stays from now on. A copy allocates nothing where its vectors fit into the capacity of
  /// earlier ones.
  /// @throws std::bad_alloc   the eviction policy decides, as after keep_nothing()
  template <class Plan>
  void keep(Plan&& wanted)
  {
    keep_nothing();
    try {
      plan = std::forward<Plan>(wanted);
    } catch (...) {
      keep_nothing();  // some of its vectors are copies, and others are not
      throw;
    }
  }
  /// The eviction policy decides from now on.
  void keep_nothing() noexcept
  {
    plan.clear();
    tries = 0;
    ways.reset();
  }
  /// Its moves are made again: the present ones are put aside.
  void put_aside() noexcept
  {
    if (!current.valid) return;
    std::rotate(others.begin(), others.end() - 1, others.end());
    std::swap(current, others.front());
  }
  /// Takes back the moves that were planned for this start. @return   false where there are none
  [[nodiscard]] bool recall(const chunk_table& now) noexcept
  {
    for (auto it = others.begin(); it != others.end(); ++it) {
      if (!it->valid || !it->start.same_places(now)) continue;
      std::rotate(others.begin(), it, it + 1);
      std::swap(current, others.front());
      return true;
    }
    return false;
  }
  /// Makes room for moves that are put aside, so that later moves of the same size allocate nothing.
  void reserve()
  {
    for (planned_start& it : others) {
      it.start = current.start;
      it.actions.reserve(current.actions.size() + current.actions.size() / 4 + 16);
    }
  }
  [[nodiscard]] std::span<const std::uint8_t> without_host_copies() const noexcept
  {
    return current.retains ? std::span{plan.device_only} : std::span<const std::uint8_t>{};
  }

  /// The record of this iteration has changed.
  void forget() noexcept
  {
    current.valid = tuned = closes = false;
    unlike = 0;
    for (planned_start& it : others) it.valid = false;
  }
};

/// Makes plans: runs the record on a copy of the chunk cache, and lets the transfer policy move the decisions forward.
///
/// Cost: two copies of the cache and one replay for each plan, and a trial of the settings of a tuned eviction policy
/// for each record. No allocation when sizes repeat. The search for a plan that ends where it began costs fifteen
/// replays, at most once for a record.
/// @code
/// iteration_planner<Eviction, Transfer> planner{transfer};
/// planner.make(planned, cache, record, chunk_of_slot);    // planned.current.valid: the iteration fits from this start
/// planner.mark(planned, record);                          // an earlier plan is followed again
/// @endcode
template <class Eviction, transfer_policy Transfer>
class iteration_planner {
 public:
  explicit iteration_planner(Transfer transfer) : transfer_{std::move(transfer)} {}

  /// Makes `planned` for an iteration that starts from `now`; not valid where the iteration does not fit.
  void make(planned_iteration& planned, const chunk_cache<Eviction>& now, access_record& record,
            std::span<const std::uint32_t> chunk_of_slot)
  {
    planned.current.valid = planned.current.retains = false;
    planned.current.start = now.table();
    if (!planned.tuned) tune(planned, now, record, chunk_of_slot);
    if (!planned.plan.retained_until.empty()) {
      planned.current.retains = retain(planned, now, record, chunk_of_slot);
      if (planned.current.retains)
        return finish(planned, now, record, chunk_of_slot, retained_.state().table(), retained_.log(),
                      retained_.state().reclaims() == 0);
    }
    // What a rehearsal proves holds for the first setting.
    if (!runs(now, record, chunk_of_slot, planned.variant) &&
        (planned.variant == 0 || !runs(now, record, chunk_of_slot, 0)))
      return;
    finish(planned, now, record, chunk_of_slot, state_.table(), log_, state_.reclaims() == now.reclaims());
  }

  /// One more plan is needed for a record that has some. An eviction policy may end every iteration in another
  /// residency, so that each costs a plan. After some of them, a plan is searched that ends where it began. If that
  /// plan does not end there either, it is given up.
  /// @pre make() was called for the record
  void settle(planned_iteration& planned, const chunk_cache<Eviction>& now, const access_record& record,
              std::span<const std::uint32_t> chunk_of_slot)
  {
    constexpr std::uint32_t patience = 4;
    constexpr std::uint32_t enough = 24;
    if (++planned.unlike == patience) close(planned, now, record, chunk_of_slot);
    if (planned.unlike != enough || !planned.closes) return;
    planned.keep_nothing();
    planned.closes = false;
  }

  /// Allocates all memory that a later search of `settle` needs, so that a steady iteration allocates nothing. Three
  /// replays.
  /// @pre make() was called for the record   @throws std::bad_alloc   the plan is as before
  void reserve_search(planned_iteration& planned, const chunk_cache<Eviction>& now, const access_record& record,
                      std::span<const std::uint32_t> chunk_of_slot)
  try {
    if (!planned.plan.retained_until.empty() || !runs(now, record, chunk_of_slot, planned.variant)) return;
    ended_ = state_;
    planned.keep(policy_retention_.of(record, chunk_of_slot, now.chunks(), log_.moves()));
    retained_.start(now.table(), planned.plan);
    (void)retained_.run(record, chunk_of_slot);
    planned.frames.assign(retained_.frames());
    (void)trial_.frames_moved(now, record, chunk_of_slot, planned.variant, {1, 1});
    log_.make_room();
    retained_.make_room();
    trial_.make_room();
    planned.keep_nothing();
    planned.frames.clear();
  } catch (...) {
    planned.keep_nothing();  // a smaller plan than before: this allocates nothing
    planned.frames.clear();
    throw;
  }

  /// Marks the entries that have actions in the present plan.
  static void mark(const planned_iteration& planned, access_record& record) noexcept
  {
    for (access_entry& entry : record.entries()) entry.has_actions = false;
    for (const transfer::move& action : planned.current.actions)
      record.entries()[action.access_index].has_actions = true;
  }

  /// An equal iteration can be recorded from `now` on, without a record yet, and repeated.
  [[nodiscard]] bool can_record(const chunk_cache<Eviction>& now, const access_record& record,
                                std::span<const std::uint32_t> chunk_of_slot)
  {
    state_ = now;
    return record.empty() || replay_.settles(record, chunk_of_slot, state_, log_, false, Transfer::plans);
  }

  /// The iteration fits from `now` on without a plan, for any number of repetitions.
  [[nodiscard]] bool settles(const chunk_cache<Eviction>& now, const access_record& record,
                             std::span<const std::uint32_t> chunk_of_slot)
  {
    state_ = now;
    return replay_.settles(record, chunk_of_slot, state_, log_, true, false);
  }

  /// The loads before the end of an iteration, for a plan that has stays alone.
  [[nodiscard]] static std::vector<transfer::early_load> early_of(const access_record& record,
                                                                  std::span<const std::uint32_t> chunk_of_slot,
                                                                  const transfer::iteration_plan& plan, bytes device,
                                                                  bytes frame)
  {
    if constexpr (early_loading_transfer<Transfer>)
      return Transfer::early_of(record, chunk_of_slot, plan, device, frame);
    else
      return {};
  }

 private:
  struct nothing {};

  /// Runs the plan of stays, in the frames that it has. By its rules alone it may never end where it began: after some
  /// plans it repeats the frames of the plan before, as long as this moves no more. Some models return much sooner
  /// where given-up frames do not count as free. @return   it fits
  bool retain(planned_iteration& planned, const chunk_cache<Eviction>& now, const access_record& record,
              std::span<const std::uint32_t> chunk_of_slot)
  {
    if (!planned.ways) planned.ways = try_ways(now, record, chunk_of_slot, planned.plan, {}, long_trial).ways;
    if (!planned.plan.places.empty()) {
      retained_.start(now.table(), planned.plan, {}, *planned.ways);
      if (retained_.run(record, chunk_of_slot)) return true;
    }
    bool fits = false;
    planned.ways->takes_given_up = planned.tries < planned.given_up_tries;
    retained_ways anywhere = *planned.ways;
    anywhere.finds_frames = true;
    if (planned.tries++ >= planned.free_tries) {
      retained_.start(now.table(), planned.plan, planned.frames, anywhere);
      fits = retained_.run(record, chunk_of_slot) && retained_.log().frames_copied() <= planned.copied;
    }
    if (!fits) {
      retained_.start(now.table(), planned.plan, {}, anywhere);
      fits = retained_.run(record, chunk_of_slot);
      planned.copied = retained_.log().frames_copied();
    }
    planned.frames.assign(retained_.frames());
    return fits;
  }

  /// From now on, the chunks stay that the eviction policy kept in an iteration. Not where this copies more than one
  /// extra chunk.
  void close(planned_iteration& planned, const chunk_cache<Eviction>& now, const access_record& record,
             std::span<const std::uint32_t> chunk_of_slot)
  try {
    if (!planned.plan.retained_until.empty() || !runs(now, record, chunk_of_slot, planned.variant)) return;
    std::uint32_t saved = 0;
    for (int round = 0; round < 4; ++round) {
      ended_ = state_;
      if (!runs(ended_, record, chunk_of_slot, planned.variant)) break;
      const transfer::iteration_plan& seen = policy_retention_.of(record, chunk_of_slot, now.chunks(), log_.moves());
      if (policy_retention_.saved() > saved) planned.keep(seen);
      saved = std::max(saved, policy_retention_.saved());
    }
    if (saved == 0) return;
    planned.tries = planned.free_tries;
    const way_tried found = try_ways(now, record, chunk_of_slot, planned.plan, {}, {});
    const std::uint64_t least = trial_.frames_moved(now, record, chunk_of_slot, planned.variant);
    if (found.moved > least + trial_length{}.counted * longest(now.table())) return planned.keep_nothing();
    planned.ways = found.ways;
    planned.closes = true;
  } catch (...) {
    planned.keep_nothing();  // a plan that was not compared with the eviction policy may copy more
    throw;
  }

  /// Chooses once for a record: the policy's setting, and whether the transfer policy's own plan moves less.
  void tune(planned_iteration& planned, const chunk_cache<Eviction>& now, const access_record& record,
            std::span<const std::uint32_t> chunk_of_slot)
  {
    planned.variant = trial_.best(now, record, chunk_of_slot);
    planned.keep_nothing();  // the kept plan is of another record, or of other chunks
    if constexpr (retaining_transfer<Transfer>) {
      const tier_space& device = now.space(tier::device);
      transfer::retention_request request{record,
                                          chunk_of_slot,
                                          now.table().all(),
                                          now.table().live(),
                                          bytes{device.frame_bytes()},
                                          bytes{device.capacity()},
                                          bytes{now.space(tier::host).capacity()}};
      transfer::iteration_plan wanted = transfer_.retain(request);
      if (!wanted.retained_until.empty()) {  // an empty plan would take the room that reserve_search() made
        const bool finds_places = !wanted.places.empty();
        const std::uint64_t least = long_trial.counted * (wanted.bound_bytes / device.frame_bytes());
        const bool gives_up_stays = long_trial.counted * (wanted.moved_bytes / device.frame_bytes()) > least;
        planned.keep(std::move(wanted));
        std::uint64_t moved = frames_moved(planned, now, record, chunk_of_slot);
        request.again = true;
        if (finds_places && moved > least) {
          request.delays_loads = false;
          moved = try_other(planned, now, record, chunk_of_slot, transfer_.retain(request), moved);
          request.delays_loads = true;
        }
        if (finds_places && (moved > least || gives_up_stays)) {  // for the frames of stays
          request.finds_places = false;
          moved =
              std::min(moved, try_frames_of_run(planned, now, record, chunk_of_slot, transfer_.retain(request), moved));
        }
        if (moved == impossible || moved > trial_.frames_moved(now, record, chunk_of_slot, planned.variant, long_trial))
          planned.keep_nothing();
      }
    }
    planned.tuned = true;
  }

  /// Takes another plan where it copies fewer frames than the planned one.
  /// @return   the frames that the plan copies then
  [[nodiscard]] std::uint64_t try_other(planned_iteration& planned, const chunk_cache<Eviction>& now,
                                        const access_record& record, std::span<const std::uint32_t> chunk_of_slot,
                                        transfer::iteration_plan other, std::uint64_t than)
  {
    if (other.retained_until.empty()) return than;
    transfer::iteration_plan planned_now = planned.plan;
    const std::optional<retained_ways> ways = planned.ways;
    planned.keep(std::move(other));
    const std::uint64_t moved = frames_moved(planned, now, record, chunk_of_slot);
    if (moved < than) return moved;
    planned.keep(std::move(planned_now));
    planned.ways = ways;
    return than;
  }

  /// A way to run a plan of stays, and the frames that it copies; impossible where it does not fit.
  struct way_tried {
    std::uint64_t moved = impossible;
    retained_ways ways;
  };
  static constexpr std::uint64_t impossible = variant_trial<Eviction>::impossible;

  /// Frames that `wanted` copies by `ways`, with early write-backs where these copy no more.
  [[nodiscard]] way_tried try_ways(const chunk_cache<Eviction>& now, const access_record& record,
                                   std::span<const std::uint32_t> chunk_of_slot, const transfer::iteration_plan& wanted,
                                   retained_ways ways, trial_length length)
  {
    way_tried found;
    for (const bool early : {true, false}) {
      ways.writes_back_early = early;
      retained_.start(now.table(), wanted, {}, ways);
      const std::uint64_t moved = retained_.frames_moved(record, chunk_of_slot, length).value_or(impossible);
      if (early || moved < found.moved) found = {moved, ways};
      if (early && !retained_.has_written_back_early()) break;  // without it every run is the same
    }
    return found;
  }

  /// Frames that a plan of stays copies, in its own frames or in any: it keeps its own where they are no worse.
  [[nodiscard]] std::uint64_t frames_moved(planned_iteration& planned, const chunk_cache<Eviction>& now,
                                           const access_record& record, std::span<const std::uint32_t> chunk_of_slot)
  {
    const std::uint64_t solved =
        long_trial.counted * (planned.plan.moved_bytes / now.space(tier::device).frame_bytes());
    way_tried best;
    if (!planned.plan.places.empty()) best = try_ways(now, record, chunk_of_slot, planned.plan, {}, long_trial);
    if (best.moved > solved) {
      const way_tried anywhere = try_anywhere(planned.plan, now, record, chunk_of_slot, solved);
      if (planned.plan.places.empty() || anywhere.moved < best.moved) {
        planned.plan.places.clear();
        best = anywhere;
      }
    }
    planned.ways = best.ways;
    return best.moved;
  }

  /// Runs a plan that leaves frames open. Where this moves no more than `than`, the stays and the frames of its last
  /// run are kept. A run takes frames by age, so its copies begin earlier than those of a plan that takes the lowest
  /// frames. A plan with frames ends where it began sooner than one that finds them. Where chunks change frames from
  /// run to run, so that this would move more than 1 % more, the open plan is kept, if it moves less than `than`.
  /// @return   frames that the kept plan moves; impossible: nothing was changed
  [[nodiscard]] std::uint64_t try_frames_of_run(planned_iteration& planned, const chunk_cache<Eviction>& now,
                                                const access_record& record,
                                                std::span<const std::uint32_t> chunk_of_slot,
                                                const transfer::iteration_plan& open, std::uint64_t than)
  {
    if (open.retained_until.empty()) return impossible;
    const std::uint64_t frame = now.space(tier::device).frame_bytes();
    const way_tried anywhere =
        try_anywhere(open, now, record, chunk_of_slot, long_trial.counted * (open.moved_bytes / frame));
    if (anywhere.moved == impossible || anywhere.moved > than) return impossible;
    retained_.start(now.table(), open, {}, anywhere.ways);
    (void)retained_.frames_moved(record, chunk_of_slot, long_trial);
    const transfer::iteration_plan& seen =
        policy_retention_.in_frames(record, chunk_of_slot, retained_.log().moves(), retained_.began_in(), open);
    const way_tried found = try_ways(now, record, chunk_of_slot, seen, {.by_age = anywhere.ways.by_age}, long_trial);
    const bool in_frames = found.moved <= than && found.moved <= anywhere.moved + anywhere.moved / 100;
    if (!in_frames && anywhere.moved == than) return impossible;
    const way_tried& best = in_frames ? found : anywhere;
    planned.keep(in_frames ? seen : open);
    planned.ways = best.ways;
    planned.plan.moved_bytes = best.moved / long_trial.counted * frame;
    return best.moved;
  }

  /// The order by age lets loads begin earlier. The other order is chosen where it moves at least 1 % less.
  [[nodiscard]] way_tried try_anywhere(const transfer::iteration_plan& plan, const chunk_cache<Eviction>& now,
                                       const access_record& record, std::span<const std::uint32_t> chunk_of_slot,
                                       std::uint64_t solved)
  {
    const auto with = [&](bool age) {
      return try_ways(now, record, chunk_of_slot, plan, {.by_age = age, .finds_frames = true}, long_trial);
    };
    const way_tried by_age = with(true);
    if (by_age.moved <= solved + solved / 100) return by_age;
    const way_tried highest_first = with(false);
    const bool is_less = highest_first.moved < by_age.moved;
    return is_less && by_age.moved - highest_first.moved > highest_first.moved / 100 ? highest_first : by_age;
  }

  void finish(planned_iteration& planned, const chunk_cache<Eviction>& now, access_record& record,
              std::span<const std::uint32_t> chunk_of_slot, const chunk_table& end, const decision_log& log,
              bool may_move_early)
  {
    transfer_.schedule(
        {record, chunk_of_slot, log.moves(), now.chunks(), now.space(tier::device).frames(), may_move_early},
        planned.current.actions);
    mark(planned, record);
    planned.current.periodic = end.same_places(now.table());
    planned.current.valid = true;
  }

  [[nodiscard]] bool runs(const chunk_cache<Eviction>& now, const access_record& record,
                          std::span<const std::uint32_t> chunk_of_slot, std::uint32_t variant)
  {
    state_ = now;
    state_.choose(variant);
    state_.start_of(record);
    state_.tell_policy(record);
    log_.clear();
    try {
      replay_.run(record, chunk_of_slot, state_, log_, true);
    } catch (const out_of_memory&) {
      return false;
    }
    return true;
  }

  [[nodiscard]] static std::uint64_t longest(const chunk_table& of) noexcept
  {
    std::uint64_t frames = 0;
    for (const chunk& chunk_state : of.all()) frames = std::max<std::uint64_t>(frames, chunk_state.frames);
    return frames;
  }

  Transfer transfer_;
  variant_trial<Eviction> trial_;
  chunk_cache<Eviction> state_;
  chunk_cache<Eviction> ended_;
  policy_retention policy_retention_;
  replay<Eviction> replay_;
  decision_log log_;
  [[no_unique_address]] std::conditional_t<Transfer::plans, retained_run, nothing> retained_;
};

/// The plans of all records, and plans put aside for other orders of lists.
///
/// Lists that exchange their bytes put other chunks under the slots of a record, so an order of lists has plans of its
/// own. Lists that exchange places in turn, as versions of weights do, return to earlier orders and find their plans.
/// Cost: O(lists) for a change of order, without allocation for an order that is known.
///
///     plans_by_order plans;
///     plans.prepare(order), plans.change(order);      // lists have exchanged places
///     if (plans[record].current.valid) follow(plans[record]);
class plans_by_order {
 public:
  /// Orders that keep their plans: enough for as many weight versions.
  static constexpr std::size_t known_orders = 8;

  [[nodiscard]] std::size_t size() const noexcept { return now_.plans.size(); }
  [[nodiscard]] planned_iteration& operator[](std::size_t record) noexcept { return now_.plans[record]; }
  [[nodiscard]] const planned_iteration& operator[](std::size_t record) const noexcept { return now_.plans[record]; }
  /// Makes room for plans of so many records, in this order.
  void grow(std::size_t records)
  {
    if (now_.plans.size() < records) now_.plans.resize(records);
  }

  /// Allocates for a change to this order, so that the change itself cannot fail. @throws std::bad_alloc
  void prepare(std::span<const list_id> order)
  {
    now_.order.reserve(order.size());  // the order of declaration is filled in as a whole
    if (now_.order.empty())
      for (const list_id each : ids<list_id>(static_cast<std::uint32_t>(order.size()))) now_.order.push_back(each);
    if (now_.plans.empty() || std::ranges::equal(now_.order, order) || find(order) != nullptr) return;
    arranged& place = free_place();
    place.order.assign(order);
    place.plans.clear();
  }
  /// Lists have this order now. The plans of the order before are put aside, in the place of the oldest others.
  /// @pre prepare(order) was the last call
  void change(std::span<const list_id> order) noexcept
  {
    if (!std::ranges::equal(now_.order, order)) bring(order);
    for (planned_iteration& it : now_.plans) it.is_marked = false;  // entries have the marks of the other plans
  }

  /// The record has changed.
  void forget(std::size_t record) noexcept
  {
    forget_in(now_, record);
    for (arranged& it : aside_) forget_in(it, record);
  }
  /// Slots lie in other chunks now.
  void forget_all() noexcept
  {
    for (std::size_t record = 0; record < size(); ++record) now_.plans[record].forget();
    for (arranged& it : aside_)
      for (planned_iteration& plan : it.plans) plan.forget();
  }

 private:
  struct arranged {
    sequence<list_id> order;  // empty: the place is free
    std::vector<planned_iteration> plans;
  };

  void bring(std::span<const list_id> order) noexcept
  {
    arranged* const known = find(order);
    if (known == nullptr) return now_.order.assign(order);  // on the way to another order: nothing to put aside
    std::swap(now_, *known);
    if (known->plans.empty()) known->order.clear();
  }
  [[nodiscard]] arranged* find(std::span<const list_id> order) noexcept
  {
    for (arranged& it : aside_)
      if (std::ranges::equal(it.order, order)) return &it;
    return nullptr;
  }
  [[nodiscard]] arranged& free_place() noexcept
  {
    for (arranged& it : aside_)
      if (it.order.empty()) return it;
    return aside_[oldest_++ % aside_.size()];
  }

  static void forget_in(arranged& it, std::size_t record) noexcept
  {
    if (record < it.plans.size()) it.plans[record].forget();
  }

  arranged now_;
  std::array<arranged, known_orders> aside_;  // all of them, on the way from one to another
  std::size_t oldest_ = 0;
};

}  // namespace chunkmem::inline v0
