// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/pending_updates.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

/// The part of a manager that optimizer steps go through: in which order they take the parameters, and what waits for
/// later. Not for users: see basic_manager.
///
/// An order stays until the step is finished or forgotten, also where it is tried again. In each of them parameters
/// without a gradient come first.
template <class Keeper>
class step_keeper : public Keeper {
 public:
  using Keeper::Keeper;

  /// As gradients were completed: the copies of the first ones are on their way while the last ones are made.
  void order_by_completion()
  {
    arrange([this](std::uint32_t at) { return ledger_.completed(at); });
    if (!this->rehearsing()) engine_.note_update();
  }
  /// First these, then as this iteration used the weights for the first time, which is how the next one will; then
  /// those that it did not use. O(accesses so far + parameters log parameters).
  /// @return   how many parameters come before those that are not among `first`
  std::uint32_t order_by_use(std::span<const tensor_handle> first = {})
  {
    constexpr std::uint64_t behind = std::uint64_t{1} << 32;
    rank_.assign(engine_.tensors().parameters(), 2 * behind);
    const auto entries = engine_.entries_so_far();
    for (std::uint32_t now = static_cast<std::uint32_t>(entries.size()); now-- > 0;)
      if (engine_.tensors().is_value_of_parameter(entries[now].slot)) rank_[entries[now].slot] = behind + now;
    for (std::size_t at = 0; at < first.size(); ++at) rank_[this->slot_in(first[at], value_list)] = at;
    arrange([this](std::uint32_t at) { return rank_[at]; });
    const auto order = ledger_.order().all();
    return static_cast<std::uint32_t>(
        std::find_if(order.begin(), order.end(),
                     [&](std::uint32_t at) { return has_waiting(at) && rank_[at] >= behind; }) -
        order.begin());
  }
  /// What a step measured, so that it is not measured again where the step is tried again. @pre it has a gradient
  void keep_measure(tensor_handle parameter, const gradient_measure& measure)
  {
    ledger_.keep_measure(this->slot_of(parameter), measure);
  }
  /// What all gradients of this step measure together, where more take part than this manager knows: the step decides
  /// by it, and measures none. Good until a gradient is asked for or dropped, or the step is over.
  void keep_measure_of_all(const gradient_measure& measure) noexcept { ledger_.keep_measure_of_all(measure); }
  [[nodiscard]] const gradient_measure* measure_of_all() const noexcept { return ledger_.measure_of_all(); }
  /// Calls `visit(handle, info)` for each parameter in that order, without the first `done`.
  template <class Visit>
  void for_each_in_order(std::uint32_t done, Visit visit)
  {
    this->ready();
    for (const std::uint32_t at : ledger_.order().all().subspan(done)) with_parameter(at, visit);
  }
  /// Calls `visit(handle, info)` for one parameter. @param ordinal   in the order of declaration
  template <class Visit>
  void with_parameter(std::uint32_t ordinal, Visit&& visit)
  {
    const tensor_id id = engine_.tensors().parameter(ordinal);
    visit(tensor_handle{id, this->owner()}, engine_.tensors().info(id));
  }

  /// An update that overwrote a gradient in its weight's place was undone: the bytes are the gradient's again. @pre no
  /// pin holds them
  void take_place_again(tensor_handle parameter) noexcept { this->spend(this->slot_of(parameter)); }

  // Updates that wait until their weights are used: see optimizer::late_updates.

  /// @throws std::bad_alloc   @pre nothing waits
  void make_room_for_updates()
  {
    this->ready();
    engine_.pending().prepare(engine_.tensors().parameters(), engine_.tensors().frames_of_chunk().size());
  }
  /// The gradients that are left wait in this order; each is used up by `update(who, parameter)` before anything of its
  /// parameter is used. @pre make_room_for_updates, and nothing was placed elsewhere since
  void hold_updates(pending_updates::update_type update, void* who) noexcept
  {
    const auto order = ledger_.order().all();
    for (std::size_t at = order.size(); at-- > 0;)
      if (has_waiting(order[at])) engine_.pending().add(order[at], engine_.tensors().slots()[order[at]].chunk);
    engine_.pending().serve(update, who);
    engine_.mask_pending();
  }
  /// Does all that waits. @throws usage_error   whoever had to is gone; and as the updates: call again
  void finish_updates()
  try {
    engine_.finish_updates();
  } catch (error& failed) {
    engine_.teller().tell(failed);
    throw;
  }
  /// `who` ends: what waits for it stays unusable until a load.
  void abandon_updates(const void* who) noexcept { engine_.pending().leave(who); }

 protected:
  using Keeper::engine_, Keeper::ledger_;

 private:
  template <class Key>
  void arrange(Key key)
  {
    ledger_.order().arrange([&](std::uint32_t at) { return has_waiting(at) ? 1 + std::uint64_t{key(at)} : 0; });
  }

  [[nodiscard]] bool has_waiting(std::uint32_t at) const noexcept
  {
    return this->state_in(engine_.tensors().gradient_of(at)) != tensor_state::free;
  }

  std::vector<std::uint64_t> rank_;  // by parameter
};

}  // namespace chunkmem::inline v0
