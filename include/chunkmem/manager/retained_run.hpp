// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/sort_records.hpp>
#include <chunkmem/eviction/by_retention.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/chunk_table.hpp>
#include <chunkmem/manager/decision_log.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/manager/variant_trial.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

/// Runs a recorded iteration by a plan that says which chunks stay, instead of the eviction policy.
///
/// The run carries out as much of the plan as the engine could. So its answer is what an engine can do, with runs of
/// frames and leases included. Cost: a copy of the chunk table and a replay for each run; no allocation when sizes
/// repeat.
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
  /// @param by_age   as eviction::by_retention::order_by_age
  void start(const chunk_table& now, const transfer::retention& plan, std::span<const std::uint32_t> frames = {},
             bool by_age = true)
  {
    plan_ = plan;
    frames_.assign(frames);
    state_.take_places(now);
    state_.policy().place_below(plan.borders);
    state_.policy().settle_in(plan.places);
    state_.policy().order_by_age(by_age);
    replay_.follow(plan.retained_until);
  }

  /// Frames that the counted iterations copy, each planned where the one before it ended; not set where one does not
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

  /// Runs it once more. @pre start()   @return   it fits; then state() is its end and log() what it did
  [[nodiscard]] bool run(const access_record& record, std::span<const std::uint32_t> chunk_of_slot)
  {
    state_.start_of(record, plan_.device_only);
    list_expected();
    state_.expect_first(expected_);
    state_.tell_policy(record);
    state_.policy().place_in(frames_);
    log_.clear();
    began_in_.clear();
    for (const chunk& chunk_state : state_.table().all()) began_in_.push_back(chunk_state.first_frame[tier::device]);
    try {
      replay_.run(record, chunk_of_slot, state_, log_, true, [this] { load_early(); });
    } catch (const out_of_memory&) {
      return false;
    }
    remember_frames(record, chunk_of_slot);
    return true;
  }

  /// By access index the frame that the chunk of its access came to in the last run, or none. Runs that choose the same
  /// frames again end where they began, sooner or later.
  [[nodiscard]] std::span<const std::uint32_t> frames() const noexcept { return frames_; }
  /// Room for longer runs than the last one.
  void make_room()
  {
    log_.make_room();
    ended_ = state_.table();
  }
  [[nodiscard]] const run_state& state() const noexcept { return state_; }
  [[nodiscard]] const decision_log& log() const noexcept { return log_; }

 private:
  /// What the next iteration uses first comes now, as far as there is room. What is still there stays.
  void load_early()
  {
    if (plan_.early.empty()) return;
    for (const transfer::early_load& load : plan_.early)
      if (is_in_place(chunk_id{load.chunk}, load.first_use)) state_.expect_use(chunk_id{load.chunk}, load.first_use);
    plan_.places.empty() ? load_early_anywhere() : load_early_in_places();
  }

  void load_early_in_places()
  {
    for (const transfer::early_load& load : plan_.early) {
      if (load.first_use >= plan_.places.size()) continue;
      if (const frame_id own{plan_.places[load.first_use]}; own != frame_pool::none)
        state_.bring_early(chunk_id{load.chunk}, own, load.border, access_index{load.first_use}, log_);
    }
  }

  void load_early_anywhere()
  {
    list_free_frames();
    for (const transfer::early_load& load : plan_.early) {
      if (state_[chunk_id{load.chunk}].frames != 1) continue;
      const auto found = choose_frame(load);
      const frame_id first = found != free_.end() ? *found : frame_pool::none;
      if (state_.bring_early(chunk_id{load.chunk}, first, load.border, access_index{load.first_use}, log_) &&
          found != free_.end())
        free_.erase(found);
    }
  }

  /// A chunk that lies in other frames than those of the plan is not kept there: it would be in the way of others.
  void list_expected()
  {
    expected_.assign(plan_.first_use);
    for (const chunk_id id : state_.table().chunk_ids())
      if (std::uint32_t& first_use = expected_[index_of(id)]; !is_in_place(id, first_use))
        first_use = access_record::never;
  }

  /// The plan has no other frames for the chunk at that access.
  [[nodiscard]] bool is_in_place(chunk_id id, std::uint32_t access) const noexcept
  {
    if (access >= plan_.places.size() || plan_.places[access] == index_of(frame_pool::none)) return true;
    return index_of(state_[id].first_frame[tier::device]) == plan_.places[access];
  }

  void remember_frames(const access_record& record, std::span<const std::uint32_t> chunk_of_slot)
  {
    frames_.assign(record.size(), index_of(frame_pool::none));
    for (const transfer::move& action : log_.moves()) {
      if (action.kind != transfer::move_kind::load && action.kind != transfer::move_kind::claim) continue;
      const std::uint32_t slot = record.entries()[action.access_index].slot;  // what comes early is not of this access
      if (slot != access_record::never && chunk_of_slot[slot] == action.chunk)
        frames_[action.access_index] = static_cast<std::uint32_t>(action.place);
    }
  }

  /// The frame in which the chunk lay when the iteration began, if no load has to wait for it, so that plans close on
  /// themselves; else the one that is free the longest.
  sequence<frame_id>::iterator choose_frame(const transfer::early_load& load)
  {
    const auto own = std::find(free_.begin(), free_.end(), began_in_[load.chunk]);
    if (own != free_.end() && index_of(*own) < load.border) return own;
    return std::find_if(free_.begin(), free_.end(), [&](frame_id frame) { return index_of(frame) < load.border; });
  }

  /// Those that are free the longest come first: loads into them can start first.
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

  transfer::retention plan_;
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
