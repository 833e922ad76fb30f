// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <chunkmem/workload/machine.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

/// The use of a rank's device memory at one moment, in whole frames.
///
///     const device_use now = planner::device_use_of(m.residency());
struct device_use {
  bytes values;  ///< 16-bit chunks: weights, or the gradients in their place
  bytes states;  ///< chunks of the optimizer's states and masters
  bytes leases;  ///< activations, and weights of other ranks
  bytes free;    ///< for early loads

  [[nodiscard]] constexpr bool operator==(const device_use&) const noexcept = default;
  /// @throws size_overflow
  [[nodiscard]] constexpr bytes sum() const { return values + states + leases + free; }
};

/// The most gathered groups of a plan.
inline constexpr std::uint32_t most_gather_units = 1024;

/// The assumptions of a plan of memory. Later measurements are compared with them.
///
///     const bytes peak_leased = plan.assumed.peak_leased;
struct plan_assumptions {
  bytes peak_leased;              ///< the most that is leased on the device at once
  bytes modelled_peak_leased;     ///< the part of it by the formulas of the model; the rest was measured
  double flops_per_second = 0;    ///< achieved by the device
  workload::machine_rates rates;  ///< of the rank: its device, its links, its share of the host

  [[nodiscard]] constexpr bool operator==(const plan_assumptions&) const noexcept = default;
};

/// The gradient policies that a plan can name.
///
///     manager<backend::host_arena, planned_gradient> m{memory, {}, planned_gradient{"separate"}};
using planned_gradient = gradient::any_gradient<gradient::in_place, gradient::separate>;

/// The use of one rank's memory in training: plain data, made by planner::plan_memory, with the settings of a manager.
///
/// The simulated manager has `{.chunk_bytes = plan.chunk_bytes}`, a backend of these capacities, the layout that
/// `layout` names, and the policies `plan.placement()` and `plan.gradients()`. All bytes are those of one rank. Source:
/// chunk size, residency and place of updates as one question instead of three in a row (PatrickStar, Fang et al. 2021,
/// arXiv 2108.05818; Elixir, Huang et al. 2022, arXiv 2212.05339).
struct memory_plan {
  /// of the model, its training, and the bytes of the rank: planner::plan_fingerprint
  std::uint64_t fingerprint = 0;
  bytes chunk_bytes;      ///< of a frame
  bytes device_capacity;  ///< of the manager
  bytes host_capacity;
  double device_update_share = 0;   ///< of the states, updated on the device; 0 to 1
  std::uint32_t gather_units = 1;   ///< over several ranks: the number of groups of gathered weights with room at once
  std::uint32_t gathers_ahead = 0;  ///< over several ranks: sharding_options::gathers_ahead
  std::string gradient = "in_place";  ///< the name of the gradient policy: gradient::in_place or gradient::separate
  bool has_wide_gradients = false;    ///< gradient::separate::wide
  std::string layout = "size_class_layout";  ///< the name of the layout policy
  device_use at_peak;                        ///< at the peak of leases; its sum is the device's capacity
  bytes host_peak;                           ///< the peak of the host
  std::uint64_t step_nanoseconds = 0;        ///< of one step in the steady state, as simulated
  plan_assumptions assumed;

  [[nodiscard]] bool operator==(const memory_plan&) const noexcept = default;

  /// The placement policy of the plan.
  [[nodiscard]] constexpr placement::update_share placement() const noexcept
  {
    return {.device_share = device_update_share};
  }
  /// The gradient policy of the plan. @throws config_error   the plan names no such policy
  [[nodiscard]] planned_gradient gradients() const
  {
    if (has_wide_gradients) return planned_gradient{gradient::separate{.wide = true}};
    return planned_gradient{std::string_view{gradient}};
  }
};

}  // namespace chunkmem::inline v0
