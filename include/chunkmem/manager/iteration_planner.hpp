#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/decision_log.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/manager/residency.hpp>
#include <chunkmem/manager/retained_run.hpp>
#include <chunkmem/manager/variant_trial.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// The actions of one recorded iteration, good for one start.
template <class Eviction>
struct iteration_plan {
  residency<Eviction> start;  ///< where everything lay when it was made
  std::vector<transfer::move> actions;
  std::vector<std::uint32_t> stays_until;  ///< as transfer::retention; empty where the eviction policy moves less
  std::vector<std::uint32_t> first_use;
  std::vector<std::uint32_t> borders;
  std::vector<transfer::early_load> early;
  std::vector<std::uint32_t> frames;  ///< as retained_run
  static constexpr std::uint32_t free_tries = 4;
  std::uint32_t tries = 0;   ///< plans of who stays since it was chosen
  std::uint64_t copied = 0;  ///< frames that the last one by the rules alone copies
  std::vector<std::uint8_t> device_only;
  std::uint64_t moved_bytes = 0;  ///< as transfer::retention; 0 where the eviction policy moves less
  std::uint64_t bound_bytes = 0;
  std::uint64_t made = 0;
  std::uint32_t variant = 0;  ///< the eviction policy's setting, chosen for the record
  bool tuned = false;         ///< that, and who stays
  bool retains = false;       ///< it is made of who stays, not of what the eviction policy decides
  bool valid = false;
  bool periodic = false;      ///< the iteration ends where it began, frame addresses included: the plan is good again

  void keep(const transfer::retention& wanted)
  {
    stays_until.assign(wanted.stays_until.begin(), wanted.stays_until.end());
    first_use.assign(wanted.first_use.begin(), wanted.first_use.end());
    borders.assign(wanted.borders.begin(), wanted.borders.end());
    early.assign(wanted.early.begin(), wanted.early.end());
    tries = 0;
    device_only.assign(wanted.device_only.begin(), wanted.device_only.end());
    moved_bytes = wanted.moved_bytes;
    bound_bytes = wanted.bound_bytes;
  }
  [[nodiscard]] transfer::retention who_stays() const noexcept
  {
    return {stays_until, first_use, borders, moved_bytes, bound_bytes, device_only, early};
  }
  [[nodiscard]] std::span<const std::uint8_t> without_homes() const noexcept
  {
    return retains ? std::span<const std::uint8_t>{device_only} : std::span<const std::uint8_t>{};
  }

  /// Its record is another one now.
  void forget() noexcept { valid = tuned = false; }
};

/// Makes plans: runs the record on a copy of the residency, and lets the transfer policy move the decisions forward.
///
/// Cost: two copies of the residency and one replay for each plan, a trial of the settings of a tuned eviction policy for
/// each record; no allocation when sizes repeat.
template <class Eviction, transfer_policy Transfer>
class iteration_planner {
 public:
  explicit iteration_planner(Transfer transfer) : transfer_{std::move(transfer)} {}

  /// Makes `plan` for an iteration that starts from `now`; not valid where the iteration does not fit.
  void make(iteration_plan<Eviction>& plan, const residency<Eviction>& now, access_record& record,
            std::span<const std::uint32_t> chunk_of_slot)
  {
    plan.valid = plan.retains = false;
    plan.start = now;
    if (!plan.tuned) tune(plan, now, record, chunk_of_slot);
    if constexpr (retaining_transfer<Transfer>) {
      if (!plan.stays_until.empty()) {
        plan.retains = retain(plan, now, record, chunk_of_slot);
        if (plan.retains)
          return finish(plan, now, record, chunk_of_slot, retained_.state(), retained_.log(), retained_.state().reclaims() == 0);
      }
    }
    // What a rehearsal proves holds for the first setting.
    if (!runs(now, record, chunk_of_slot, plan.variant) && (plan.variant == 0 || !runs(now, record, chunk_of_slot, 0))) return;
    finish(plan, now, record, chunk_of_slot, state_, log_, state_.reclaims() == now.reclaims());
  }

  /// An iteration like this one can be recorded from `now` on, when nothing is known of it, and repeated.
  [[nodiscard]] bool can_record(const residency<Eviction>& now, const access_record& record, std::span<const std::uint32_t> chunk_of_slot)
  {
    state_ = now;
    return record.empty() || replay_.settles(record, chunk_of_slot, state_, log_, false, Transfer::plans);
  }

  /// The iteration fits from `now` on, without a plan and however often it is repeated.
  [[nodiscard]] bool settles(const residency<Eviction>& now, const access_record& record, std::span<const std::uint32_t> chunk_of_slot)
  {
    state_ = now;
    return replay_.settles(record, chunk_of_slot, state_, log_, true, false);
  }

  /// What a plan that says only who stays loads before an iteration ends.
  [[nodiscard]] static std::vector<transfer::early_load> early_of(const access_record& record, std::span<const std::uint32_t> chunk_of_slot,
                                                                  const transfer::retention& plan, bytes device, bytes frame)
  {
    if constexpr (requires { Transfer::early_of(record, chunk_of_slot, plan, device, frame); })
      return Transfer::early_of(record, chunk_of_slot, plan, device, frame);
    else return {};
  }

 private:
  struct nothing {};

  /// Runs the plan of who stays. By its rules alone it may never end where it began: from some plan on it repeats the frames of
  /// the plan before, as long as that moves no more. @return   it fits
  bool retain(iteration_plan<Eviction>& plan, const residency<Eviction>& now, const access_record& record,
              std::span<const std::uint32_t> chunk_of_slot)
  {
    bool fits = false;
    if (plan.tries++ >= plan.free_tries) {
      retained_.start(now, plan.who_stays(), plan.frames);
      fits = retained_.run(record, chunk_of_slot) && retained_.log().frames_copied() <= plan.copied;
    }
    if (!fits) {
      retained_.start(now, plan.who_stays());
      fits = retained_.run(record, chunk_of_slot);
      plan.copied = retained_.log().frames_copied();
    }
    plan.frames.assign(retained_.frames().begin(), retained_.frames().end());
    return fits;
  }

  /// What is chosen once for a record: the policy's setting, and whether the transfer policy's own plan moves less.
  void tune(iteration_plan<Eviction>& plan, const residency<Eviction>& now, const access_record& record,
            std::span<const std::uint32_t> chunk_of_slot)
  {
    plan.variant = trial_.best(now, record, chunk_of_slot);
    if constexpr (retaining_transfer<Transfer>) {
      const tier_space& device = now.space(tier::device);
      const transfer::retention wanted = transfer_.retain({record, chunk_of_slot, now.all(), now.live(), bytes{device.frame_bytes()},
                                                           bytes{device.capacity()}, bytes{now.space(tier::host).capacity()}});
      plan.keep(wanted);
      retained_.start(now, plan.who_stays());
      const auto moved = wanted.stays_until.empty() ? std::nullopt : retained_.frames_moved(record, chunk_of_slot, long_trial);
      if (!moved || *moved > trial_.frames_moved(now, record, chunk_of_slot, plan.variant, long_trial)) plan.keep({});
    }
    plan.tuned = true;
  }

  void finish(iteration_plan<Eviction>& plan, const residency<Eviction>& now, access_record& record,
              std::span<const std::uint32_t> chunk_of_slot, const chunk_table& end, const decision_log& log, bool may_move_early)
  {
    transfer_.schedule({record, chunk_of_slot, log.moves(), now.chunks(), now.space(tier::device).frames(), may_move_early},
                       plan.actions);
    for (access_entry& entry : record.entries()) entry.has_actions = false;
    for (const transfer::move& action : plan.actions) record.entries()[action.moment].has_actions = true;
    plan.periodic = end.same_places(now);
    plan.valid = true;
  }

  [[nodiscard]] bool runs(const residency<Eviction>& now, const access_record& record, std::span<const std::uint32_t> chunk_of_slot,
                          std::uint32_t variant)
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

  Transfer transfer_;
  variant_trial<Eviction> trial_;
  residency<Eviction> state_;
  replay<Eviction> replay_;
  decision_log log_;
  [[no_unique_address]] std::conditional_t<retaining_transfer<Transfer>, retained_run, nothing> retained_;
};

}  // namespace chunkmem::inline v0
