// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reachable_step.hpp"
#include "ring_chain.hpp"
#include "step_work.hpp"

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/planner/training_forecast.hpp>
#include <chunkmem/planner/training_timeline.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/record_uses.hpp>
#include <chunkmem/transfer/stays.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace step_bound {

namespace detail {

/// An iteration of a manager in its steady state, as recorded.
struct seen_iteration {
  const cm::access_record& record;
  std::span<const std::uint32_t> chunk_of_slot;
  std::span<const std::uint32_t> frames;  ///< of each chunk
  std::uint32_t parameters = 0;
  std::span<const std::uint64_t> computed;  ///< by access index [ns]
  const cm::planner::training_timeline& timeline;
  cm::bytes device{};  ///< its capacity
  cm::bytes frame{};
  cm::backend::cost_table costs;
  bool takes_norm = false;
  std::uint64_t collective_nanoseconds = 0;
};

/// The step_input of a simulated iteration.
class seen_step {
 public:
  explicit seen_step(const seen_iteration& seen) : seen_{seen}
  {
    const auto chunks = static_cast<std::uint32_t>(seen.frames.size());
    uses_.read(seen.record, seen.chunk_of_slot, chunks, std::vector<std::uint8_t>(seen.chunk_of_slot.size(), 0));
    for (const std::uint32_t it : seen.frames) sizes_.push_back(it * seen.frame.count());
    for (const cm::planner::timed_copy& it : seen.timeline.copies)
      sizes_[it.chunk] = it.bytes;  // the last chunks are not full
    cm::transfer::lease_usage leased;
    (void)leased.read(seen.record, seen.device, seen.frame);
    for (std::uint32_t now = 0; now < seen.record.size(); ++now)
      room_.push_back(leased.frames_below_leases(now) * seen.frame.count());
    find_retained();
    find_tasks();
  }

  [[nodiscard]] step_input input() const
  {
    return {seen_.computed,
            sizes_,
            uses_.uses(),
            retained_,
            room_,
            tasks_,
            seen_.costs.to_device,
            seen_.costs.to_host,
            seen_.collective_nanoseconds};
  }

 private:
  /// A chunk was retained where nothing loaded it before its next use on the device.
  void find_retained()
  {
    std::vector<std::vector<std::uint32_t>> loads(seen_.frames.size());
    for (const cm::planner::timed_copy& it : seen_.timeline.copies)
      if (it.to == cm::tier::device) loads[it.chunk].push_back(it.access_index);
    const auto uses = uses_.uses();
    // access of the next use on the device; accesses of the next iteration come after this one
    std::vector<std::uint32_t> next(seen_.frames.size(), 0);
    retained_.assign(uses.size(), 1);
    for (const bool around : {true, false})
      for (std::size_t index = uses.size(); index-- > 0;) {
        const retention_use& it = uses[index];
        if (!is_on_device(it.kind)) continue;
        if (!around) {
          const std::uint32_t until = next[it.chunk];
          retained_[index] = std::ranges::none_of(loads[it.chunk], [&](std::uint32_t load) {
            return (load > it.begin && load <= until) || load + seen_.record.size() <= until;
          });
        }
        next[it.chunk] = it.begin + (around ? seen_.record.size() : 0);
      }
  }

  void find_tasks()
  {
    std::uint32_t last_gradient = host_task::none;
    for (std::uint32_t now = 0; now < seen_.record.size(); ++now) {
      const cm::access_entry& it = seen_.record.entries()[now];
      const bool is_gradient = it.slot >= seen_.parameters && it.slot < 2 * seen_.parameters;
      if (is_gradient && cm::is_access(it.kind) && cm::place_of(it.kind) == cm::memory_location::device &&
          cm::writes(cm::access_of(it.kind)))
        last_gradient = now;
    }
    for (const cm::planner::timed_update& it : seen_.timeline.updating) {
      const bool waits = seen_.takes_norm && it.end - it.access_index > 1;  // a norm has one access
      if (it.place == cm::memory_location::host)
        tasks_.push_back({it.access_index, it.end, it.nanoseconds, waits ? last_gradient : host_task::none});
    }
  }

  seen_iteration seen_;
  cm::transfer::record_uses uses_;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::uint64_t> room_;
  std::vector<std::uint8_t> retained_;
  std::vector<host_task> tasks_;
};

/// Updates and norms have a rate; their bytes follow from the rate and the time.
[[nodiscard]] inline double host_memory_nanoseconds(const cm::planner::step_forecast& step,
                                                    const cm::workload::machine_rates& rates)
{
  const double updates = static_cast<double>(step.updating) * 1e-9 * rates.host_updates_per_second *
                         cm::optimizer::listed_states{}.update_bytes();
  const auto copies = static_cast<double>(step.loaded_bytes + step.written_back_bytes);
  return (copies + updates) / rates.host_memory_bytes_per_second * 1e9;
}

}  // namespace detail

/// The least time of a simulated step, with the parts that make it.
struct least_step {
  reachable_step reachable;      ///< no order of the same copies and updates is faster
  std::uint64_t ring_chain = 0;  ///< time of gathers and compute alone; 0 for one rank [ns]
  double host_memory = 0;        ///< time of the host memory's bytes in copies, updates and norms [ns]

  /// No order of the same work is faster [ns].
  [[nodiscard]] double nanoseconds() const noexcept
  {
    return std::max({reachable.nanoseconds, static_cast<double>(ring_chain), host_memory});
  }
};

/// A lower bound of the step of a forecast, for any order of its copies and its updates on the host.
///
///     const training_forecast found = forecast_training(shape, setup, share, settings);
///     const least_step least = find_least_step(found, shape, setup, share, settings);
///     const double ratio = found.step.nanoseconds / least.nanoseconds();
///
/// The chunks that stay on the device between their uses are those that stayed in the forecast. Collectives count with
/// their busy time, and with ring_chain. Host memory counts with its bytes. Cost: see find_reachable_step.
/// @pre `found` fits, and is the forecast of the other arguments
[[nodiscard]] inline least_step find_least_step(const cm::planner::training_forecast& found,
                                                const cm::workload::transformer_shape& shape,
                                                const cm::workload::training_setup& setup,
                                                const cm::workload::rank_share& share,
                                                const cm::planner::rank_settings& settings)
{
  const std::uint64_t chunk = cm::planner::chunk_elements_of(settings, share.ranks);
  const detail::seen_step seen{{found.record, found.chunk_of_slot, found.frames, found.parameters, found.computed,
                                found.timeline, found.capacity[cm::tier::device], cm::bytes{2} * chunk,
                                cm::planner::costs_of(share, settings), settings.takes_norm, found.step.collecting}};
  least_step least{find_reachable_step(seen.input())};
  least.host_memory = detail::host_memory_nanoseconds(found.step, share.rates);
  if (share.ranks == 1) return least;
  const cm::planner::parameter_groups groups = cm::planner::groups_of(shape, setup, share, settings);
  const cm::planner::training_script script{groups, setup.recomputes_layers,
                                            share.rates.device_flops_per_second * settings.reached_share,
                                            settings.gather_units};
  const cm::planner::group_times exchange = cm::planner::exchange_of(share, settings);
  std::vector<std::uint64_t> rings;
  for (std::uint32_t group = 0; group < groups.groups(); ++group)
    rings.push_back(exchange.nanoseconds(cm::bytes{2 * groups.elements_of(group)}));
  least.ring_chain = ring_chain(script, rings);
  return least;
}

}  // namespace step_bound
