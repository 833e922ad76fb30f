// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/placement/memory_plan.hpp>
#include <chunkmem/planner/plan_memory.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

namespace planner {

/// Measurements of a training, of one rank. 0: not measured.
///
/// Use:
///
///     measured_training seen{.peak_leased = m.residency().tiers[tier::device].most_leased};
///     seen.flops_per_second = flops_of_a_step / seconds_of_computing;
///     const plan_drift drift = drift_of(plan, seen);
struct measured_training {
  /// `m.residency().tiers[tier::device].most_leased`, or most_leased of its profile
  bytes peak_leased;
  double flops_per_second = 0;  ///< achieved by the device: FLOP of a step over the time that it computes
  double to_device_bytes_per_second = 0;
  double to_host_bytes_per_second = 0;
  double host_updates_per_second = 0;  ///< parameters, by the optimizer of the plan
  double device_updates_per_second = 0;
};

/// Differences that do not count as drift. Rates of single steps scatter by some percent, and a split moves less than
/// its rate. A peak of leases does not move as long as shapes do not: its tolerance only avoids a new plan for a frame
/// or two.
///
///     const plan_drift drift = drift_of(plan, measured, {.rate = 0.05});
struct drift_tolerance {
  double rate = 0.1;          ///< of the larger one of both
  double peak_leased = 0.01;  ///< of the device's capacity
};

/// How far a training is from the assumptions of its plan.
///
///     const plan_drift drift = drift_of(plan, measured);
///     if (drift.drifted) std::cout << drift.which << '\n';
struct plan_drift {
  bool drifted = false;
  double peak_leased = 0;  ///< the difference of the peak of leases, as a part of the device's capacity
  double rate = 0;         ///< the difference of the worst rate, as a part of the larger rate; 0 to 1
  std::string_view which;  ///< the worst rate; empty where none differs
};

namespace detail {

struct rate_pair {
  std::string_view name;
  double assumed;
  double measured;
};

[[nodiscard]] constexpr std::array<rate_pair, 5> rates_of(const plan_assumptions& assumed,
                                                          const measured_training& measured) noexcept
{
  return {rate_pair{"flops_per_second", assumed.flops_per_second, measured.flops_per_second},
          {"to_device_bytes_per_second", assumed.rates.to_device_bytes_per_second, measured.to_device_bytes_per_second},
          {"to_host_bytes_per_second", assumed.rates.to_host_bytes_per_second, measured.to_host_bytes_per_second},
          {"host_updates_per_second", assumed.rates.host_updates_per_second, measured.host_updates_per_second},
          {"device_updates_per_second", assumed.rates.device_updates_per_second, measured.device_updates_per_second}};
}

/// The assumptions of the plan, with measurements in their place where there are some.
[[nodiscard]] constexpr workload::machine_rates measured_rates(const plan_assumptions& assumed,
                                                               const measured_training& measured,
                                                               double reached_share) noexcept
{
  workload::machine_rates rates = assumed.rates;
  const auto take = [](double& into, double value) {
    if (value > 0) into = value;
  };
  rates.device_flops_per_second =
      (measured.flops_per_second > 0 ? measured.flops_per_second : assumed.flops_per_second) / reached_share;
  take(rates.to_device_bytes_per_second, measured.to_device_bytes_per_second);
  take(rates.to_host_bytes_per_second, measured.to_host_bytes_per_second);
  take(rates.host_updates_per_second, measured.host_updates_per_second);
  take(rates.device_updates_per_second, measured.device_updates_per_second);
  return rates;
}

}  // namespace detail

/// Compares measurements with the assumptions of a plan. O(1).
/// @throws usage_error   a measured rate is negative or no number
[[nodiscard]] constexpr plan_drift drift_of(const memory_plan& plan, const measured_training& measured,
                                            const drift_tolerance& tolerance = {})
{
  plan_drift found;
  for (const detail::rate_pair& it : detail::rates_of(plan.assumed, measured)) {
    expects(it.measured >= 0 && it.measured <= std::numeric_limits<double>::max(),
            "a measured rate is negative or no number");
    if (it.measured == 0) continue;
    const double off = 1 - std::min(it.measured, it.assumed) / std::max(it.measured, it.assumed);
    if (off > found.rate) found.rate = off, found.which = it.name;
  }
  if (measured.peak_leased != bytes{}) {
    const auto [low, high] = std::minmax(measured.peak_leased, plan.assumed.peak_leased);
    found.peak_leased = static_cast<double>((high - low).count()) / static_cast<double>(plan.device_capacity.count());
  }
  found.drifted = found.rate > tolerance.rate || found.peak_leased > tolerance.peak_leased;
  return found;
}

/// A new plan from the measurements, or nothing where the plan still holds within the tolerance.
///
/// Measured rates take the place of assumed rates. A measured peak of leases may differ from the formulas of the model.
/// In every candidate, the device then has as much more or less room. Cost: that of plan_memory, where something
/// drifted.
///
/// @param plan    of this shape, set-up, share and layout; its assumptions hold where nothing was measured
/// @return        `fits` is false where no plan fits any more, as in plan_memory
/// @throws usage_error    the plan is not of this shape, set-up, share, settings and layout, or a rate is none; and as
///   plan_memory
template <eviction_policy Eviction = eviction::belady, transfer_policy Transfer = transfer::planned,
          chunk_layout Layout = size_class_layout, class Progress = no_progress>
  requires std::is_invocable_v<Progress&, const plan_trial&>
[[nodiscard]] std::optional<memory_plan_choice> replan(const memory_plan& plan, const measured_training& measured,
                                                       const workload::transformer_shape& shape,
                                                       const workload::training_setup& setup,
                                                       const workload::rank_share& share,
                                                       const rank_settings& settings = {},
                                                       const drift_tolerance& tolerance = {}, Progress&& progress = {})
{
  const std::uint64_t fingerprint = plan_fingerprint(shape, setup, share, settings);
  expects(plan.fingerprint == fingerprint,
          "this plan of memory was made for another model, training or amount of memory");
  expects(plan.layout == Layout::name, "this plan of memory was made for another layout of chunks");
  if (!drift_of(plan, measured, tolerance).drifted) return std::nullopt;
  const bytes peak_leased = measured.peak_leased == bytes{} ? plan.assumed.peak_leased : measured.peak_leased;
  const bytes modelled = plan.assumed.modelled_peak_leased;
  workload::rank_share now = share;
  now.rates = detail::measured_rates(plan.assumed, measured, settings.reached_share);
  now.rates.host_updates_per_second *= settings.states.update_over_adam();  // a share has the rates of Adam
  now.rates.device_updates_per_second *= settings.states.update_over_adam();
  const bytes more = peak_leased > modelled ? std::min(peak_leased - modelled, now.device_bytes) : bytes{};
  const bytes less = modelled > peak_leased ? modelled - peak_leased : bytes{};
  now.device_bytes = now.device_bytes + less - more;
  memory_plan_choice made =
      plan_memory<Eviction, Transfer, Layout>(shape, setup, now, settings, std::forward<Progress>(progress));
  if (!made.fits) return made;
  made.plan.fingerprint = fingerprint;
  made.plan.device_capacity = made.plan.device_capacity + more - less;
  made.plan.at_peak.leases = made.plan.at_peak.leases + more - less;
  made.plan.assumed.peak_leased = made.plan.assumed.peak_leased + more - less;
  return made;
}

}  // namespace planner

}  // namespace chunkmem::inline v0
