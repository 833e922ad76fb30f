// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../eviction/gpt_trace.hpp"

#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/iteration_planner.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace transfer_bench {

namespace cm = chunkmem;

/// The solution of `planned` for one record and one capacity: solved at the first request, then shared.
class solved_once {
 public:
  using policy_kind = cm::transfer_kind;
  static constexpr std::string_view name = "solved_once";
  static constexpr bool plans = true;

  struct answer {
    cm::transfer::planned solver;
    cm::transfer::iteration_plan wanted;
    bool is_known = false;
  };
  explicit solved_once(answer& known) : known_{&known} {}

  void schedule(const cm::transfer::schedule_input& input, std::vector<cm::transfer::move>& actions)
  {
    ahead_.schedule(input, actions);
  }
  [[nodiscard]] cm::transfer::iteration_plan retain(const cm::transfer::retention_request& request)
  {
    if (!known_->is_known) known_->wanted = known_->solver.retain(request);
    known_->is_known = true;
    return known_->wanted;
  }

 private:
  answer* known_;
  cm::transfer::lookahead ahead_;
};

/// A manager's iterations without bytes: each starts where the last one ended, is planned anew where its plan is not
/// valid from there, and is executed action by action.
template <class Eviction, cm::transfer_policy Transfer>
class managed_run {
 public:
  static constexpr double never = std::numeric_limits<double>::infinity();

  /// @param missing_host_copies   frames by which the host is smaller than all chunks: then the first chunks begin on
  ///   the device
  managed_run(const eviction_bench::trace& what, std::uint32_t device_frames, Transfer transfer,
              std::uint32_t missing_host_copies = 0)
      : chunk_of_slot_{what.own_chunks()}, record_{what.record}, planner_{transfer}, lease_at_(record_.size(), 0)
  {
    std::uint32_t all = 0;
    for (const std::uint32_t frames : what.frames_of_chunk) all += frames;
    state_.reset(what.frames_of_chunk, what.chunks());
    const cm::bytes frame{eviction_bench::frame_bytes};
    state_.reset_tier(cm::tier::device, cm::bytes{device_frames * eviction_bench::frame_bytes}, frame, device_frames);
    const std::uint32_t host_copies = all - missing_host_copies;
    state_.reset_tier(cm::tier::host, cm::bytes{host_copies * eviction_bench::frame_bytes}, frame, host_copies);
    for (std::uint32_t index = what.chunks(); index-- > 0;) {
      const bool on_host = index >= missing_host_copies;
      state_.acquire(cm::slot_id{index}, cm::chunk_id{index},
                     on_host ? cm::entry_kind::write_on_host : cm::entry_kind::write, cm::access_record::never,
                     cm::access_index{0}, log_);
      state_.unpin(on_host ? cm::tier::host : cm::tier::device, cm::chunk_id{index}, true);
    }
  }

  /// Frames that an iteration moves in the steady state, on average; never where it cannot be planned.
  double settled(int warm_up, int measured)
  {
    return settled(warm_up, measured, [](const cm::decision_log& log) { return log.frames_copied(); });
  }
  /// The same for the value of `weigh(log)` of an iteration.
  template <class Weigh>
  double settled(int warm_up, int measured, Weigh weigh)
  {
    double sum = 0;
    for (int step = 0; step < warm_up + measured; ++step) {
      if (!run()) return never;
      if (step >= warm_up) sum += static_cast<double>(weigh(log_));
    }
    return sum / measured;
  }
  [[nodiscard]] const cm::planned_iteration& planned() const { return planned_; }
  /// True if the plan of retention is followed, not the eviction policy.
  [[nodiscard]] bool retains() const { return planned_.current.retains; }
  [[nodiscard]] int skipped() const { return skipped_; }

 private:
  bool run()
  {
    if (!planned_.current.valid || !planned_.current.start.same_places(state_.table()))
      planner_.make(planned_, state_, record_, chunk_of_slot_);
    if (!planned_.current.valid) return false;
    state_.start_of(record_, planned_.without_host_copies());
    state_.begin_round();
    log_.clear();
    std::size_t next = 0;
    std::size_t ended = 0;
    for (std::uint32_t now = 0; now <= record_.size(); ++now) {
      for (; ended < record_.releases().size() && record_.releases()[ended].until <= now; ++ended)
        end(record_.releases()[ended].access_index);
      if (now < record_.size()) next = act(now, next);
    }
    return true;
  }

  std::size_t act(std::uint32_t now, std::size_t next)
  {
    const cm::access_entry& entry = record_.entries()[now];
    for (; next < planned_.current.actions.size() && planned_.current.actions[next].access_index <= now; ++next) {
      const cm::transfer::move& it = planned_.current.actions[next];
      if (it.kind == cm::transfer::move_kind::lease)
        lease_at_[now] = it.place;
      else if (!move(it))
        ++skipped_;
    }
    if (entry.kind == cm::entry_kind::lease_device) {
      if (!state_.try_lease(cm::tier::device, lease_at_[now], record_.details()[now].bytes, log_)) ++skipped_;
    } else {
      state_.acquire(cm::slot_id{entry.slot}, cm::chunk_id{chunk_of_slot_[entry.slot]}, entry.kind, entry.next_of_chunk,
                     cm::access_index{now}, log_);
    }
    return next;
  }

  bool move(const cm::transfer::move& it)
  {
    const cm::frame_id first{static_cast<std::uint32_t>(it.place)};
    switch (it.kind) {
      case cm::transfer::move_kind::evict: return state_.try_evict(cm::chunk_id{it.chunk}, log_);
      case cm::transfer::move_kind::load: return state_.try_load(cm::chunk_id{it.chunk}, first, true, log_);
      case cm::transfer::move_kind::claim: return state_.try_load(cm::chunk_id{it.chunk}, first, false, log_);
      case cm::transfer::move_kind::write_back: return state_.try_write_back(cm::chunk_id{it.chunk}, log_);
      default: return true;
    }
  }

  void end(std::uint32_t index)
  {
    const cm::access_entry& entry = record_.entries()[index];
    if (entry.kind == cm::entry_kind::lease_device)
      state_.end_lease(cm::tier::device, lease_at_[index], record_.details()[index].bytes, log_);
    else
      state_.unpin(tier_of(entry.kind), cm::chunk_id{chunk_of_slot_[entry.slot]},
                   cm::writes(cm::access_of(entry.kind)));
  }

  std::vector<std::uint32_t> chunk_of_slot_;
  cm::access_record record_;
  cm::chunk_cache<Eviction> state_;
  cm::iteration_planner<Eviction, Transfer> planner_;
  cm::planned_iteration planned_;
  cm::decision_log log_;
  std::vector<std::uint64_t> lease_at_;
  int skipped_ = 0;
};

}  // namespace transfer_bench
