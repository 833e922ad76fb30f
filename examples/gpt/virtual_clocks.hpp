// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "step_part.hpp"

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/planner/timed_optimizer.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace gpt {

/// The rates of one rank.
struct clock_rates {
  part_rates operations_per_second{};  ///< of products in the passes; of the update nothing is read
  chunkmem::backend::cost_table copies;
  chunkmem::planner::update_rates updates;
};

/// A machine without bytes on which the trainer runs in virtual time: as host_arena, memory of the host plays the
/// device, and the calling thread computes and updates.
class virtual_clocks : public chunkmem::backend::simulated {
 public:
  static constexpr bool host_addressable = true;

  /// @param rates   the calling thread computes and updates
  virtual_clocks(chunkmem::bytes device, chunkmem::bytes host, const clock_rates& rates)
      : simulated{{.device_capacity = device, .host_capacity = host, .costs = rates.copies}}, rates_{rates}
  {
  }

  /// From now on another part of a step computes.
  void begin(step_part part) noexcept { part_ = part; }
  /// The calling thread computes for as long as so many operations take.
  void compute(double operations)
  {
    const std::size_t part = index_of(part_);
    operations_[part] += operations;
    advance(chunkmem::agent::host, static_cast<std::uint64_t>(operations / rates_.operations_per_second[part] * 1e9));
  }
  /// By part of a step, since the beginning.
  [[nodiscard]] const part_operations& operations() const noexcept { return operations_; }
  [[nodiscard]] const chunkmem::planner::update_rates& updates() const noexcept { return rates_.updates; }

 private:
  clock_rates rates_;
  step_part part_ = step_part::ends;  // evaluations and weights that are filled are no part
  part_operations operations_{};
};

static_assert(chunkmem::stream_backend<virtual_clocks>);

template <class Manager>
inline constexpr bool has_clocks =
    std::is_same_v<std::remove_cvref_t<decltype(std::declval<Manager&>().backend())>, virtual_clocks>;

/// A kernel is to run. In a rehearsal none does; on virtual clocks its time passes instead.
/// @param operations   of a product; 0: it counts for nothing beside products
template <class Manager>
[[nodiscard]] bool computes(Manager& manager, double operations = 0)
{
  if (manager.rehearsing()) return false;
  if constexpr (has_clocks<Manager>) {
    manager.backend().compute(operations);
    return false;
  }
  return true;
}

/// Adam, which virtual clocks know the time of.
template <class Manager>
using adam_of = std::conditional_t<has_clocks<Manager>, chunkmem::planner::timed_optimizer, chunkmem::optimizer::adam>;

template <class Manager>
[[nodiscard]] adam_of<Manager> make_adam(Manager& manager, const chunkmem::optimizer::adam_options& options)
{
  if constexpr (has_clocks<Manager>)
    return adam_of<Manager>{manager.backend().updates()};
  else
    return adam_of<Manager>{options};
}

}  // namespace gpt
