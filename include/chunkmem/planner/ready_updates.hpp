// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/planner/training_script.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// An update on the host that is still to be done.
///
///     const awaited_update updates[] = {{.arrives = 100, .nanoseconds = 500}, {.arrives = 300, .nanoseconds = 200}};
///     const update_sequence sequence = order_updates(updates);
struct awaited_update {
  std::uint64_t arrives = 0;      ///< its gradient is on the host [ns]
  std::uint64_t nanoseconds = 0;  ///< that the update takes
};

/// The order in which the host updates, and the updates that may wait for the next use of their weights.
///
///     const update_sequence sequence = order_updates(updates);
struct update_sequence {
  std::vector<std::uint32_t> order;  ///< by index
  std::size_t at_once = 0;           ///< the first ones; from there on the order is that of the next uses
};

/// An idle host takes the arrived gradient whose weight is used first.
///
/// The last use of all is at most the longest update later than in the best order (Schrage's rule for one machine with
/// release times and tails: Carlier 1982, "The one-machine sequencing problem"). Cost: O(updates log updates).
///
/// @param updates   in the order in which their weights are used next
[[nodiscard]] inline update_sequence order_updates(std::span<const awaited_update> updates)
{
  std::vector<std::uint32_t> arriving(updates.size());
  for (std::uint32_t index = 0; index < updates.size(); ++index) arriving[index] = index;
  std::ranges::stable_sort(arriving, {}, [&](std::uint32_t index) { return updates[index].arrives; });
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> there;
  update_sequence made;
  std::uint64_t now = 0;
  std::size_t next = 0;
  while (made.order.size() < updates.size()) {
    if (there.empty()) now = std::max(now, updates[arriving[next]].arrives);
    for (; next < arriving.size() && updates[arriving[next]].arrives <= now; ++next) there.push(arriving[next]);
    made.order.push_back(there.top());
    now += updates[there.top()].nanoseconds;
    there.pop();
  }
  made.at_once = made.order.size();
  while (made.at_once > 0 &&
         (made.at_once == made.order.size() || made.order[made.at_once - 1] < made.order[made.at_once]))
    --made.at_once;
  return made;
}

/// The groups whose updates on the host do not wait for the next use of their weights, in the order in which they are
/// updated.
///
/// A gradient arrives when it was copied, one after the other, as if compute and the link never waited for anything
/// else.
/// @param updates   time of an update of each group on the host [ns]; 0: the device updates it
/// @param copies    time of a copy of each group's gradient to the host [ns]
[[nodiscard]] inline std::vector<std::uint32_t> groups_at_once(std::span<const act> acts,
                                                               std::span<const std::uint64_t> updates,
                                                               std::span<const std::uint64_t> copies)
{
  std::vector<std::uint64_t> arrives(updates.size(), 0);
  std::vector<std::uint32_t> by_use;
  std::vector<std::uint8_t> seen(updates.size(), 0);
  std::uint64_t computed = 0;
  std::uint64_t link = 0;
  for (const act& it : acts) {
    if (it.kind != act_kind::use) continue;
    computed += it.nanoseconds;
    if (updates[it.id] == 0) continue;
    if (std::exchange(seen[it.id], std::uint8_t{1}) == 0) by_use.push_back(it.id);
    if (it.finishes_gradient) arrives[it.id] = link = std::max(link, computed) + copies[it.id];
  }
  std::vector<awaited_update> waiting;
  for (const std::uint32_t group : by_use) waiting.push_back({arrives[group], updates[group]});
  const update_sequence found = order_updates(waiting);
  std::vector<std::uint32_t> first;
  for (std::size_t index = 0; index < found.at_once; ++index) first.push_back(by_use[found.order[index]]);
  return first;
}

}  // namespace planner

}  // namespace chunkmem::inline v0
