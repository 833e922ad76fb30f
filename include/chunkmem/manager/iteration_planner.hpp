// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/chunk_table.hpp>
#include <chunkmem/manager/decision_log.hpp>
#include <chunkmem/manager/policy_retention.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/manager/retained_run.hpp>
#include <chunkmem/manager/variant_trial.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

/// What was planned for one start of an iteration, put aside while the iteration is followed from another one.
///
///     kept_plan other;
///     other.start = table;
///     other.actions.swap(actions);
///     other.valid = true;
struct kept_plan {
  chunk_table start;
  std::vector<transfer::move> actions;
  bool retains = false;
  bool valid = false;
  bool periodic = false;
};

/// The actions of one recorded iteration, good for one start, and those for other starts, from which it was followed
/// before.
///
///     iteration_plan plan;
///     planner.make(plan, cache, record, chunk_of_slot);
///     if (plan.valid && plan.start.same_places(cache.table())) std::cout << plan.actions.size() << " moves\n";
struct iteration_plan {
  chunk_table start;  ///< where everything lay when it was made
  std::vector<transfer::move> actions;
  sequence<std::uint32_t> retained_until;  ///< as transfer::retention; empty where the eviction policy moves less
  sequence<std::uint32_t> first_use;
  sequence<std::uint32_t> borders;
  sequence<transfer::early_load> early;
  sequence<std::uint32_t> places;  ///< empty also where the plan moves no less in them
  sequence<std::uint32_t> frames;  ///< as retained_run
  static constexpr std::uint32_t free_tries = 4;
  std::uint32_t tries = 0;   ///< plans of who stays since it was chosen
  std::uint64_t copied = 0;  ///< frames that the last one by the rules alone copies
  bool by_age = true;        ///< as eviction::by_retention::order_by_age
  sequence<std::uint8_t> device_only;
  std::uint64_t moved_bytes = 0;  ///< as transfer::retention; 0 where the eviction policy moves less
  std::uint64_t bound_bytes = 0;
  std::uint64_t made = 0;
  std::uint32_t variant = 0;  ///< the eviction policy's setting, chosen for the record
  bool tuned = false;         ///< that, and who stays
  bool retains = false;       ///< it is made of who stays, not of what the eviction policy decides
  bool valid = false;
  bool periodic = false;  ///< the iteration ends where it began, frame addresses included: the plan is good again
  /// as many as a round of other iterations needs to come back; the one that was left last is first
  std::array<kept_plan, 7> others;
  std::uint32_t unlike = 0;  ///< plans made since its record is this one
  /// `retained_until` is what the eviction policy kept, so that the iteration ends where it began
  bool closes = false;
  bool is_marked = true;  ///< entries of the record know which of them have actions

  void keep(const transfer::retention& wanted)
  {
    retained_until.assign(wanted.retained_until);
    first_use.assign(wanted.first_use);
    borders.assign(wanted.borders);
    early.assign(wanted.early);
    places.assign(wanted.places);
    tries = 0;
    by_age = true;
    device_only.assign(wanted.device_only);
    moved_bytes = wanted.moved_bytes;
    bound_bytes = wanted.bound_bytes;
  }
  /// It is made again: what it was is put aside.
  void put_aside() noexcept
  {
    if (!valid) return;
    std::rotate(others.begin(), others.end() - 1, others.end());
    exchange(others.front());
  }
  /// Takes back what was planned for this start. @return   false where nothing was
  [[nodiscard]] bool recall(const chunk_table& now) noexcept
  {
    for (auto it = others.begin(); it != others.end(); ++it) {
      if (!it->valid || !it->start.same_places(now)) continue;
      std::rotate(others.begin(), it, it + 1);
      exchange(others.front());
      return true;
    }
    return false;
  }
  /// Room for what is put aside, so that later plans of the same size allocate nothing.
  void reserve()
  {
    for (kept_plan& it : others) {
      it.start = start;
      it.actions.reserve(actions.size() + actions.size() / 4 + 16);
    }
  }
  [[nodiscard]] transfer::retention retained() const noexcept
  {
    return {retained_until, first_use, borders, moved_bytes, bound_bytes, device_only, early, places};
  }
  /// The same, for a run that finds frames when it needs them.
  [[nodiscard]] transfer::retention retained_anywhere() const noexcept
  {
    transfer::retention answer = retained();
    answer.places = {};
    return answer;
  }
  [[nodiscard]] std::span<const std::uint8_t> without_host_copies() const noexcept
  {
    return retains ? std::span<const std::uint8_t>{device_only} : std::span<const std::uint8_t>{};
  }

  /// Its record is another one now.
  void forget() noexcept
  {
    valid = tuned = closes = false;
    unlike = 0;
    for (kept_plan& it : others) it.valid = false;
  }

 private:
  void exchange(kept_plan& other) noexcept
  {
    std::swap(start, other.start);
    std::swap(actions, other.actions);
    std::swap(retains, other.retains);
    std::swap(valid, other.valid);
    std::swap(periodic, other.periodic);
  }
};

/// Makes plans: runs the record on a copy of the chunk cache, and lets the transfer policy move the decisions forward.
///
/// Cost: two copies of the cache and one replay for each plan, and a trial of the settings of a tuned eviction policy
/// for each record. No allocation when sizes repeat. The search for a plan that ends where it began costs fifteen
/// replays, at most once for a record.
/// @code
/// iteration_planner<Eviction, Transfer> planner{transfer};
/// planner.make(plan, cache, record, chunk_of_slot);    // plan.valid: the iteration fits from here
/// planner.mark(plan, record);                          // a plan of before is followed again
/// @endcode
template <class Eviction, transfer_policy Transfer>
class iteration_planner {
 public:
  explicit iteration_planner(Transfer transfer) : transfer_{std::move(transfer)} {}

  /// Makes `plan` for an iteration that starts from `now`; not valid where the iteration does not fit.
  void make(iteration_plan& plan, const chunk_cache<Eviction>& now, access_record& record,
            std::span<const std::uint32_t> chunk_of_slot)
  {
    plan.valid = plan.retains = false;
    plan.start = now.table();
    if (!plan.tuned) tune(plan, now, record, chunk_of_slot);
    if (!plan.retained_until.empty()) {
      plan.retains = retain(plan, now, record, chunk_of_slot);
      if (plan.retains)
        return finish(plan, now, record, chunk_of_slot, retained_.state().table(), retained_.log(),
                      retained_.state().reclaims() == 0);
    }
    // What a rehearsal proves holds for the first setting.
    if (!runs(now, record, chunk_of_slot, plan.variant) && (plan.variant == 0 || !runs(now, record, chunk_of_slot, 0)))
      return;
    finish(plan, now, record, chunk_of_slot, state_.table(), log_, state_.reclaims() == now.reclaims());
  }

  /// One more plan is to be made for a record that has some. An eviction policy may leave every iteration elsewhere, so
  /// that each costs a plan. After some of them a plan is sought that ends where it began; where it does not do so
  /// either, it is given up.
  /// @pre make() was called for the record
  void settle(iteration_plan& plan, const chunk_cache<Eviction>& now, const access_record& record,
              std::span<const std::uint32_t> chunk_of_slot)
  {
    constexpr std::uint32_t patience = 4;
    constexpr std::uint32_t enough = 24;
    if (++plan.unlike == patience) close(plan, now, record, chunk_of_slot);
    if (plan.unlike != enough || !plan.closes) return;
    plan.keep({});
    plan.closes = false;
  }

  /// All memory that a later search of `settle` will want, so that a steady iteration allocates nothing. Three replays.
  /// @pre make() was called for the record   @throws std::bad_alloc   the plan is as before
  void reserve_search(iteration_plan& plan, const chunk_cache<Eviction>& now, const access_record& record,
                      std::span<const std::uint32_t> chunk_of_slot)
  try {
    if (!plan.retained_until.empty() || !runs(now, record, chunk_of_slot, plan.variant)) return;
    ended_ = state_;
    plan.keep(policy_retention_.of(record, chunk_of_slot, now.chunks(), log_.moves()));
    retained_.start(now.table(), plan.retained());
    (void)retained_.run(record, chunk_of_slot);
    plan.frames.assign(retained_.frames());
    (void)trial_.frames_moved(now, record, chunk_of_slot, plan.variant, {1, 1});
    log_.make_room();
    retained_.make_room();
    trial_.make_room();
    plan.keep({});
    plan.frames.clear();
  } catch (...) {
    plan.keep({});  // of less than there was: this asks for no memory
    plan.frames.clear();
    throw;
  }

  /// The entries know which of them have actions, of the plan that is followed now.
  static void mark(const iteration_plan& plan, access_record& record) noexcept
  {
    for (access_entry& entry : record.entries()) entry.has_actions = false;
    for (const transfer::move& action : plan.actions) record.entries()[action.access_index].has_actions = true;
  }

  /// An iteration like this one can be recorded from `now` on, when nothing is known of it, and repeated.
  [[nodiscard]] bool can_record(const chunk_cache<Eviction>& now, const access_record& record,
                                std::span<const std::uint32_t> chunk_of_slot)
  {
    state_ = now;
    return record.empty() || replay_.settles(record, chunk_of_slot, state_, log_, false, Transfer::plans);
  }

  /// The iteration fits from `now` on, without a plan and however often it is repeated.
  [[nodiscard]] bool settles(const chunk_cache<Eviction>& now, const access_record& record,
                             std::span<const std::uint32_t> chunk_of_slot)
  {
    state_ = now;
    return replay_.settles(record, chunk_of_slot, state_, log_, true, false);
  }

  /// What a plan that says only who stays loads before an iteration ends.
  [[nodiscard]] static std::vector<transfer::early_load> early_of(const access_record& record,
                                                                  std::span<const std::uint32_t> chunk_of_slot,
                                                                  const transfer::retention& plan, bytes device,
                                                                  bytes frame)
  {
    if constexpr (early_loading_transfer<Transfer>)
      return Transfer::early_of(record, chunk_of_slot, plan, device, frame);
    else
      return {};
  }

 private:
  struct nothing {};

  /// Runs the plan of who stays, in the frames that it has. By its rules alone it may never end where it began: from
  /// some plan on it repeats the frames of the plan before, as long as that moves no more. @return   it fits
  bool retain(iteration_plan& plan, const chunk_cache<Eviction>& now, const access_record& record,
              std::span<const std::uint32_t> chunk_of_slot)
  {
    if (!plan.places.empty()) {
      retained_.start(now.table(), plan.retained());
      if (retained_.run(record, chunk_of_slot)) return true;
    }
    bool fits = false;
    if (plan.tries++ >= plan.free_tries) {
      retained_.start(now.table(), plan.retained_anywhere(), plan.frames, plan.by_age);
      fits = retained_.run(record, chunk_of_slot) && retained_.log().frames_copied() <= plan.copied;
    }
    if (!fits) {
      retained_.start(now.table(), plan.retained_anywhere(), {}, plan.by_age);
      fits = retained_.run(record, chunk_of_slot);
      plan.copied = retained_.log().frames_copied();
    }
    plan.frames.assign(retained_.frames());
    return fits;
  }

  /// From now on the chunks stay that stayed in an iteration by the policy. Not where that copies more than one chunk
  /// more.
  void close(iteration_plan& plan, const chunk_cache<Eviction>& now, const access_record& record,
             std::span<const std::uint32_t> chunk_of_slot)
  {
    if (!plan.retained_until.empty() || !runs(now, record, chunk_of_slot, plan.variant)) return;
    std::uint32_t saved = 0;
    for (int round = 0; round < 4; ++round) {
      ended_ = state_;
      if (!runs(ended_, record, chunk_of_slot, plan.variant)) break;
      const transfer::retention seen = policy_retention_.of(record, chunk_of_slot, now.chunks(), log_.moves());
      if (policy_retention_.saved() > saved) plan.keep(seen);
      saved = std::max(saved, policy_retention_.saved());
    }
    if (saved == 0) return;
    plan.tries = plan.free_tries;
    retained_.start(now.table(), plan.retained());
    const auto moved = retained_.frames_moved(record, chunk_of_slot);
    const std::uint64_t least = trial_.frames_moved(now, record, chunk_of_slot, plan.variant);
    if (!moved || *moved > least + trial_length{}.counted * longest(now.table())) return plan.keep({});
    plan.closes = true;
  }

  /// What is chosen once for a record: the policy's setting, and whether the transfer policy's own plan moves less.
  void tune(iteration_plan& plan, const chunk_cache<Eviction>& now, const access_record& record,
            std::span<const std::uint32_t> chunk_of_slot)
  {
    plan.variant = trial_.best(now, record, chunk_of_slot);
    plan.keep({});  // what it says of another record, or of other chunks
    if constexpr (retaining_transfer<Transfer>) {
      const tier_space& device = now.space(tier::device);
      const transfer::retention wanted =
          transfer_.retain({record, chunk_of_slot, now.table().all(), now.table().live(), bytes{device.frame_bytes()},
                            bytes{device.capacity()}, bytes{now.space(tier::host).capacity()}});
      plan.keep(wanted);
      const auto moved = frames_moved(plan, now, record, chunk_of_slot);
      if (!moved || *moved > trial_.frames_moved(now, record, chunk_of_slot, plan.variant, long_trial)) plan.keep({});
    }
    plan.tuned = true;
  }

  /// What a plan of who stays copies, in the frames that it has or in any: it keeps its frames where they are no worse.
  [[nodiscard]] std::optional<std::uint64_t> frames_moved(iteration_plan& plan, const chunk_cache<Eviction>& now,
                                                          const access_record& record,
                                                          std::span<const std::uint32_t> chunk_of_slot)
  {
    if (plan.retained_until.empty()) return std::nullopt;
    const std::uint64_t solved = long_trial.counted * (plan.moved_bytes / now.space(tier::device).frame_bytes());
    std::optional<std::uint64_t> in_places;
    if (!plan.places.empty()) {
      retained_.start(now.table(), plan.retained());
      in_places = retained_.frames_moved(record, chunk_of_slot, long_trial);
      if (in_places && *in_places <= solved) return in_places;
    }
    const auto anywhere = frames_moved_anywhere(plan, now, record, chunk_of_slot, solved);
    if (in_places && (!anywhere || *in_places <= *anywhere)) return in_places;
    plan.places.clear();
    return anywhere;
  }

  /// The order by age lets loads begin earlier. The other order is chosen where it moves at least 1 % less.
  [[nodiscard]] std::optional<std::uint64_t> frames_moved_anywhere(iteration_plan& plan,
                                                                   const chunk_cache<Eviction>& now,
                                                                   const access_record& record,
                                                                   std::span<const std::uint32_t> chunk_of_slot,
                                                                   std::uint64_t solved)
  {
    plan.by_age = true;
    retained_.start(now.table(), plan.retained_anywhere());
    const auto by_age = retained_.frames_moved(record, chunk_of_slot, long_trial);
    if (by_age && *by_age <= solved + solved / 100) return by_age;
    retained_.start(now.table(), plan.retained_anywhere(), {}, false);
    const auto highest_first = retained_.frames_moved(record, chunk_of_slot, long_trial);
    if (!highest_first || (by_age && *by_age <= *highest_first + *highest_first / 100)) return by_age;
    plan.by_age = false;
    return highest_first;
  }

  void finish(iteration_plan& plan, const chunk_cache<Eviction>& now, access_record& record,
              std::span<const std::uint32_t> chunk_of_slot, const chunk_table& end, const decision_log& log,
              bool may_move_early)
  {
    transfer_.schedule(
        {record, chunk_of_slot, log.moves(), now.chunks(), now.space(tier::device).frames(), may_move_early},
        plan.actions);
    mark(plan, record);
    plan.periodic = end.same_places(now.table());
    plan.valid = true;
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

}  // namespace chunkmem::inline v0
