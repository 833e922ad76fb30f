// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/iteration_planner.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// Plans of all records, and plans put aside for other orders of lists.
///
/// Lists that exchange their bytes put other chunks under the slots of a record, so an order of lists has plans of its
/// own. Lists that exchange places in turn, as versions of weights do, come back to orders that were there before, and
/// find their plans. Cost: O(lists) for a change of order, without allocation for an order that is known.
///
///     plans_by_order plans;
///     plans.prepare(order), plans.change(order);      // lists have exchanged places
///     if (plans[record].valid) follow(plans[record]);
class plans_by_order {
 public:
  /// Orders that keep their plans: as many versions of weights can take turns.
  static constexpr std::size_t known_orders = 8;

  [[nodiscard]] std::size_t size() const noexcept { return now_.plans.size(); }
  [[nodiscard]] iteration_plan& operator[](std::size_t record) noexcept { return now_.plans[record]; }
  [[nodiscard]] const iteration_plan& operator[](std::size_t record) const noexcept { return now_.plans[record]; }
  /// Room for plans of so many records, in this order.
  void grow(std::size_t records)
  {
    if (now_.plans.size() < records) now_.plans.resize(records);
  }

  /// Memory for a change to this order, so that the change itself cannot fail. @throws std::bad_alloc
  void prepare(std::span<const list_id> order)
  {
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
    for (iteration_plan& it : now_.plans) it.is_marked = false;  // entries have the marks of the other plans
  }

  /// The record is another one now.
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
      for (iteration_plan& plan : it.plans) plan.forget();
  }

 private:
  struct arranged {
    sequence<list_id> order;  // empty: the place is free
    std::vector<iteration_plan> plans;
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
