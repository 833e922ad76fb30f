// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/residency_snapshot.hpp>
#include <chunkmem/placement/memory_plan.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace planner {

/// The bytes that a device holds, by their use. Gradients that lie in the place of their weights count as values.
[[nodiscard]] inline device_use device_use_of(const residency_snapshot& now)
{
  device_use use;
  const tier_snapshot& device = now.tiers[tier::device];
  use.leases = device.leased;
  for (const chunk_snapshot& it : now.chunks)
    if (it.place.has_frames(tier::device))
      (it.list <= index_of(gradient_list) ? use.values : use.states) += now.frame * it.place.frames;
  use.free = device.capacity - use.leases - use.values - use.states;
  return use;
}

/// Records the bytes on the device at the peak of leases, once in each iteration that follows a record.
///
///     peak_watch watch;
///     device_use most;
///     watch.see(m, leased, most);  // after each use
///
/// The record has the peak of leases, so snapshots are rare. Cost: one snapshot for each.
class peak_watch {
 public:
  /// Call this after each use. @param leased   bytes leased now @param into   changed where this is the peak
  template <class Manager>
  void see(const Manager& manager, bytes leased, device_use& into)
  {
    if (leased < most_ || leased == bytes{}) return;
    const std::uint64_t iteration = manager.report().iterations;
    const bool is_new = leased > most_ || seen_in_ != iteration;
    most_ = leased;
    if (!is_new || manager.profile() == nullptr) return;
    seen_in_ = iteration;
    into = device_use_of(manager.residency());
  }

 private:
  bytes most_;
  std::uint64_t seen_in_ = UINT64_MAX;
};

}  // namespace planner

}  // namespace chunkmem::inline v0
