// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cost_table.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/planner/training_timeline.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/lease_tide.hpp>
#include <chunkmem/transfer/reachable_step.hpp>
#include <chunkmem/transfer/record_uses.hpp>
#include <chunkmem/transfer/step_input.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// An iteration of a manager in its steady state, as it was seen.
struct seen_iteration {
  const access_record& record;
  std::span<const std::uint32_t> chunk_of_slot;  ///< chunks of one frame
  std::uint32_t chunks = 0;
  std::uint32_t parameters = 0;
  std::span<const std::uint64_t> computed;  ///< by moment [ns]
  const training_timeline& timeline;
  bytes device{};  ///< its capacity
  bytes frame{};
  backend::cost_table costs;
  bool takes_norm = false;
  std::uint64_t collective_nanoseconds = 0;
};

namespace detail {

/// What transfer::find_reachable_step asks for, out of what was seen.
class seen_step {
 public:
  explicit seen_step(const seen_iteration& seen) : seen_{seen}
  {
    uses_.read(seen.record, seen.chunk_of_slot, seen.chunks, std::vector<std::uint8_t>(seen.chunk_of_slot.size(), 0));
    sizes_.assign(seen.chunks, seen.frame.count());
    for (const timed_copy& it : seen.timeline.copies) sizes_[it.chunk] = it.bytes;  // the last ones are not full
    transfer::lease_tide tide;
    (void)tide.read(seen.record, seen.device, seen.frame);
    for (std::uint32_t now = 0; now < seen.record.size(); ++now)
      room_.push_back(tide.dry_frames(now) * seen.frame.count());
    find_stays();
    find_tasks();
  }

  [[nodiscard]] transfer::step_input input() const
  {
    return {seen_.computed,
            sizes_,
            uses_.uses(),
            stays_,
            room_,
            tasks_,
            seen_.costs.to_device,
            seen_.costs.to_host,
            seen_.collective_nanoseconds};
  }

 private:
  /// A chunk stayed where nothing loaded it before its next use on the device.
  void find_stays()
  {
    std::vector<std::vector<std::uint32_t>> loads(seen_.chunks);
    for (const timed_copy& it : seen_.timeline.copies)
      if (it.to == tier::device) loads[it.chunk].push_back(it.moment);
    const auto uses = uses_.uses();
    // moment of the next use on the device, those of the next iteration behind this one
    std::vector<std::uint32_t> next(seen_.chunks, 0);
    stays_.assign(uses.size(), 1);
    for (const bool around : {true, false})
      for (std::size_t at = uses.size(); at-- > 0;) {
        const transfer::retention_use& it = uses[at];
        if (!transfer::is_on_device(it.kind)) continue;
        if (!around) {
          const std::uint32_t until = next[it.chunk];
          stays_[at] = std::ranges::none_of(loads[it.chunk], [&](std::uint32_t load) {
            return (load > it.begin && load <= until) || load + seen_.record.size() <= until;
          });
        }
        next[it.chunk] = it.begin + (around ? seen_.record.size() : 0);
      }
  }

  void find_tasks()
  {
    std::uint32_t last_gradient = transfer::host_task::none;
    for (std::uint32_t now = 0; now < seen_.record.size(); ++now) {
      const access_entry& it = seen_.record.entries()[now];
      const bool is_gradient = it.slot >= seen_.parameters && it.slot < 2 * seen_.parameters;
      if (is_gradient && is_access(it.kind) && place_of(it.kind) == at::device && writes(access_of(it.kind)))
        last_gradient = now;
    }
    for (const timed_update& it : seen_.timeline.updating) {
      const bool waits = seen_.takes_norm && it.end - it.moment > 1;  // a norm has one access
      if (it.place == at::host)
        tasks_.push_back({it.moment, it.end, it.nanoseconds, waits ? last_gradient : transfer::host_task::none});
    }
  }

  const seen_iteration& seen_;
  transfer::record_uses uses_;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::uint64_t> room_;
  std::vector<std::uint8_t> stays_;
  std::vector<transfer::host_task> tasks_;
};

}  // namespace detail

/// The least time of such an iteration, however its copies and its updates on the host are ordered: what stays on the
/// device between which uses is what was seen to. Collectives count with their busy time alone. Cost: see
/// transfer::find_reachable_step.
[[nodiscard]] inline transfer::reachable_step find_reachable(const seen_iteration& seen)
{
  const detail::seen_step step{seen};
  return transfer::find_reachable_step(step.input());
}

}  // namespace planner

}  // namespace chunkmem::inline v0
