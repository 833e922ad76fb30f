#pragma once

#include <chunkmem/manager/registry.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

/// The part of a manager that optimizer steps go through: in which order they take the parameters. Not for users: see basic_manager.
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
  }
  /// As this iteration used the weights for the first time, which is how the next one will; then those that it did not use.
  /// O(accesses so far + parameters log parameters).
  void order_by_use()
  {
    first_use_.assign(engine_.tensors().parameters(), access_record::never);
    const auto entries = engine_.entries_so_far();
    for (std::uint32_t now = static_cast<std::uint32_t>(entries.size()); now-- > 0;)
      if (engine_.tensors().is_value_of_parameter(entries[now].slot)) first_use_[entries[now].slot] = now;
    arrange([this](std::uint32_t at) { return first_use_[at]; });
  }
  /// What a step measured, so that it is not measured again where the step is tried again. @pre it has a gradient
  void keep_measure(tensor_handle parameter, const gradient_measure& measure) { ledger_.keep_measure(this->slot_of(parameter), measure); }
  /// Calls `visit(handle, info)` for each parameter in that order, without the first `done`.
  template <class Visit>
  void for_each_in_order(std::uint32_t done, Visit visit)
  {
    this->ready();
    for (const std::uint32_t at : ledger_.order().all().subspan(done)) {
      const tensor_id id = engine_.tensors().parameter(at);
      visit(tensor_handle{id, this->owner()}, engine_.tensors().info(id));
    }
  }

 protected:
  using Keeper::engine_, Keeper::ledger_;

 private:
  template <class Key>
  void arrange(Key key)
  {
    ledger_.order().arrange([&](std::uint32_t at) {
      return this->state_in(engine_.tensors().gradient_of(at)) == tensor_state::free ? 0 : 1 + std::uint64_t{key(at)};
    });
  }

  std::vector<std::uint32_t> first_use_;  // by parameter
};

}  // namespace chunkmem::inline v0
