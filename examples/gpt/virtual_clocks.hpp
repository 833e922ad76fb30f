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
  part_rates operations_per_second{};  ///< of products in the passes; the entry of updates is unused
  chunkmem::backend::cost_table copies;
  chunkmem::planner::update_rates updates;
};

/// A machine without bytes on which the trainer runs in virtual time. As in host_arena, memory of the host stands in
/// for the device, and the calling thread computes and updates.
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
  /// The calling thread computes for the time of this many operations.
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
  step_part part_ = step_part::ends;  // so are evaluations and the filling of weights
  part_operations operations_{};
};

static_assert(chunkmem::stream_backend<virtual_clocks>);

template <class Manager>
inline constexpr bool has_clocks =
    std::is_same_v<std::remove_cvref_t<decltype(std::declval<Manager&>().backend())>, virtual_clocks>;

/// True where a kernel runs: never in a rehearsal. On virtual clocks the time of the kernel passes instead.
/// @param operations   of a product; 0: negligible compared to products
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

/// Adam; on virtual clocks an optimizer with its lists and the time of its updates. A bench specializes this for a
/// manager of its own.
template <class Manager>
struct adam_for {
  using type = std::conditional_t<has_clocks<Manager>, chunkmem::planner::timed_optimizer, chunkmem::optimizer::adam>;
};
template <class Manager>
using adam_of = typename adam_for<Manager>::type;

template <class Manager>
[[nodiscard]] adam_of<Manager> make_adam(Manager& manager, const chunkmem::optimizer::adam_options& options)
{
  if constexpr (has_clocks<Manager>)
    return adam_of<Manager>{manager.backend().updates()};
  else
    return adam_of<Manager>{options};
}

}  // namespace gpt
