#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/eviction/by_retention.hpp>
#include <chunkmem/manager/chunk_table.hpp>
#include <chunkmem/manager/decision_log.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/manager/residency.hpp>
#include <chunkmem/manager/variant_trial.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <cstdint>
#include <optional>
#include <span>

namespace chunkmem::inline v0 {

/// Runs a recorded iteration as a transfer policy wants it that decides who stays: by that plan instead of the eviction policy.
///
/// What the plan asks for is carried out as far as it goes, so the answer is what an engine can do, windows and tide included.
/// Cost: a copy of the residency and a replay for each run; no allocation when sizes repeat.
class retained_run {
 public:
  using run_state = residency<eviction::by_retention>;

  /// From `now` on, by `plan`, which must outlive the runs.
  void start(const chunk_table& now, const transfer::retention& plan)
  {
    plan_ = plan;
    state_.take_places(now);
    state_.policy().place_below(plan.borders);
    replay_.follow(plan.stays_until);
  }

  /// Frames that the counted iterations copy, each planned where the one before it ended; not set where one does not fit.
  /// @pre start()
  [[nodiscard]] std::optional<std::uint64_t> frames_moved(const access_record& record, std::span<const std::uint32_t> chunk_of_slot,
                                                          trial_length length = {})
  {
    std::uint64_t moved = 0;
    for (int round = 0; round < length.rounds; ++round) {
      if (!run(record, chunk_of_slot)) return std::nullopt;
      if (round >= length.rounds - length.counted) moved += log_.frames_copied();
      ended_ = state_;
      state_.take_places(ended_);
    }
    return moved;
  }

  /// Runs it once more. @pre start()   @return   it fits; then state() is its end and log() what it did
  [[nodiscard]] bool run(const access_record& record, std::span<const std::uint32_t> chunk_of_slot)
  {
    state_.start_of(record, plan_.device_only);
    state_.expect_first(plan_.first_use);
    state_.tell_policy(record);
    log_.clear();
    try {
      replay_.run(record, chunk_of_slot, state_, log_, true);
    } catch (const out_of_memory&) {
      return false;
    }
    return true;
  }

  [[nodiscard]] const run_state& state() const noexcept { return state_; }
  [[nodiscard]] const decision_log& log() const noexcept { return log_; }

 private:
  transfer::retention plan_;
  run_state state_;
  chunk_table ended_;
  replay<eviction::by_retention> replay_;
  decision_log log_;
};

}  // namespace chunkmem::inline v0
