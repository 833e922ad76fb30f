// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/planner/timed_adam.hpp>

#include <cstdint>
#include <type_traits>

namespace gpt {

/// A machine without bytes on which the trainer runs in virtual time: as host_arena, memory of the host plays the
/// device, and the calling thread computes and updates.
class virtual_clocks : public chunkmem::backend::simulated {
 public:
  static constexpr bool host_addressable = true;

  /// @param operations_per_second   of the products of a pass   @param updates   of the calling thread
  virtual_clocks(const chunkmem::backend::simulated_options& options, double operations_per_second,
                 const chunkmem::planner::update_rates& updates)
      : simulated{options}, nanoseconds_{1e9 / operations_per_second}, updates_{updates}
  {
  }

  /// The calling thread computes for as long as so many operations take.
  void compute(double operations)
  {
    operations_ += operations;
    advance(chunkmem::agent::host, static_cast<std::uint64_t>(operations * nanoseconds_));
  }
  [[nodiscard]] double operations() const noexcept { return operations_; }
  [[nodiscard]] const chunkmem::planner::update_rates& updates() const noexcept { return updates_; }

 private:
  double nanoseconds_;  // of an operation
  double operations_ = 0;
  chunkmem::planner::update_rates updates_;
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
using adam_of = std::conditional_t<has_clocks<Manager>, chunkmem::planner::timed_adam, chunkmem::optimizer::adam>;

template <class Manager>
[[nodiscard]] adam_of<Manager> make_adam(Manager& manager, const chunkmem::optimizer::adam_options& options)
{
  if constexpr (has_clocks<Manager>)
    return adam_of<Manager>{manager.backend().updates()};
  else
    return adam_of<Manager>{options};
}

}  // namespace gpt
