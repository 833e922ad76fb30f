// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/planner/own_chunks.hpp>
#include <chunkmem/planner/parameter_groups.hpp>
#include <chunkmem/planner/rank_settings.hpp>
#include <chunkmem/planner/training_script.hpp>
#include <chunkmem/workload/rank_share.hpp>
#include <chunkmem/workload/transformer_tensors.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// What a step of one rank needs, and what the rank has, before anything is decided. Seconds, bytes, and their rates.
///
///     const step_needs needs = step_needs_of(shape, setup, share, settings);
struct step_needs {
  double parameters = 0;          ///< of the rank; each has a 16-bit weight and 12 B of states
  double forward_seconds = 0;     ///< of compute
  double backward_seconds = 0;    ///< of compute, layers that are computed again included
  double gather_seconds = 0;      ///< of all weights once; sums of gradients take as long
  double gathered_bytes = 0;      ///< of all weights of all ranks
  double device_at_peak = 0;      ///< bytes beside activations when these need most; below 0: they do not fit
  double device_at_turn = 0;      ///< the same at the end of the forward pass
  double device_between = 0;      ///< the same between two steps
  double host = 0;                ///< bytes of the rank's share of the host
  workload::machine_rates rates;  ///< of the rank
  bool takes_norm = false;        ///< no update before the last gradient
};

/// What a step has to wait for.
enum class step_limit : std::uint8_t {
  compute,         ///< products, and updates on the device
  host_updates,    ///< updates on the host
  to_device,       ///< bytes of the link to the device
  to_host,         ///< bytes of the link to the host
  host_memory,     ///< bytes of host memory
  collectives,     ///< gathers of weights, sums of gradients
  norm_compute,    ///< forward pass and updates on the device behind the norm, beside the backward pass
  norm_updates,    ///< updates on the host behind the norm, beside the backward pass
  norm_to_device,  ///< bytes of the link to the device behind the norm, beside the backward pass
  norm_to_host,    ///< bytes of the link to the host behind the norm, beside the backward pass
  norm_memory,     ///< bytes of host memory behind the norm, beside the backward pass
  norm_gathers,    ///< gathers of weights behind the norm, beside the backward pass
};

/// The decisions that a step is free in, as shares of the rank's parameters.
///
///     const step_freedom none{};   // the host updates everything
struct step_freedom {
  double on_device = 0;  ///< updated on the device
  double resident = 0;   ///< of these, whose states never leave the device
};

/// A time below which no step ends, whatever is decided.
///
///     const step_bound bound = step_bound_of(shape, setup, share, settings);
///     std::cout << "no step is faster than " << bound.seconds << " s\n";
struct step_bound {
  bool fits = false;                       ///< else not even the bound finds room
  double seconds = 0;                      ///< from step to step
  step_limit limit = step_limit::compute;  ///< the greatest part at the decisions below
  step_freedom best;                       ///< the decisions for which the bound is this low
};

/// The name of a limit. @return   "compute" for step_limit::compute, and so on
[[nodiscard]] constexpr const char* name_of(step_limit it) noexcept
{
  constexpr const char* names[] = {"compute",
                                   "host updates",
                                   "to device",
                                   "to host",
                                   "host memory",
                                   "collectives",
                                   "compute behind the norm",
                                   "host updates behind the norm",
                                   "to device behind the norm",
                                   "to host behind the norm",
                                   "host memory behind the norm",
                                   "gathers behind the norm"};
  return names[static_cast<std::size_t>(it)];
}

namespace detail {

/// The least bytes that a step moves for each parameter of the rank, when it decides so.
///
/// - A weight that the host updates comes to the device once before its next forward pass, and its gradient went to the
///   host: the host made its value, the device made its gradient.
/// - States that the device updates and that do not stay there come and go once: a step reads and writes all of them.
/// - At the turn from forward to backward each weight lies on the device beside the activations, or comes once more:
///   every weight is used before the turn and after it.
/// - Between two steps each weight that the device updated lies on the device, or went and comes once more.
struct step_bytes {
  double up = 0;
  double down = 0;
  double behind_turn = 0;  ///< of those up, the weights that did not lie on the device at the turn

  step_bytes(const step_needs& needs, const step_freedom& how)
  {
    const double each = needs.parameters;
    const double streamed = how.on_device - how.resident;
    const double at_turn = std::clamp((needs.device_at_turn / each - states * how.resident) / weight, 0.0, 1.0);
    const double between = std::clamp((needs.device_between / each - states * how.resident) / weight, 0.0, 1.0);
    const double left = std::max(0.0, how.on_device - between);
    behind_turn = each * weight * (1 - at_turn);
    up = behind_turn + each * (weight * (1 - how.on_device) + states * streamed + weight * left);
    down = each * (weight * (1 - how.on_device) + states * streamed + weight * left);
  }

  static constexpr double weight = 2;   // B, and of a gradient
  static constexpr double states = 12;  // B
};

/// The time of each step_limit under these decisions. Each is a maximum of sums that are linear in the decisions, so
/// the greatest is convex in them.
[[nodiscard]] inline std::array<double, 12> limits_of(const step_needs& needs, const step_freedom& how)
{
  const workload::machine_rates& rates = needs.rates;
  const step_bytes bytes{needs, how};
  const double all = needs.parameters;
  const double by_host = all * (1 - how.on_device);
  const double updated = by_host * timed_adam::update_bytes;
  // All weights pass through the ring for the forward pass, all gradients behind the backward pass. Weights that lie
  // whole on the device at the turn need not pass once more.
  const double kept = needs.gathered_bytes > 0 ? std::clamp(needs.device_at_turn / needs.gathered_bytes, 0.0, 1.0) : 1;
  // Behind the norm, before the turn of the next step: the weights that the host makes go up. What the device updates
  // had no more room than the device when the norm was known, and the rest comes up. What it made has no more room than
  // there is at the turn, and the rest goes down.
  const double updates = all * how.on_device;
  const double up = step_bytes::weight * by_host +
                    std::max(0.0, (step_bytes::states + step_bytes::weight) * updates - needs.device_between);
  const double down = std::max(0.0, step_bytes::states * updates - needs.device_at_turn);
  // From the turn to the norm: the backward pass. Weights that did not lie on the device at the turn come up. Those
  // that did not lie there whole pass through the ring, as all gradients do.
  const double backward = std::max({needs.backward_seconds, bytes.behind_turn / rates.to_device_bytes_per_second,
                                    needs.gather_seconds * (2 - kept)});
  const auto behind_norm = [&](double seconds) { return needs.takes_norm ? backward + seconds : 0; };
  const double computing = needs.forward_seconds + updates / rates.device_updates_per_second;
  return {needs.backward_seconds + computing,
          by_host / rates.host_updates_per_second,
          bytes.up / rates.to_device_bytes_per_second,
          bytes.down / rates.to_host_bytes_per_second,
          (bytes.up + bytes.down + updated) / rates.host_memory_bytes_per_second,
          needs.gather_seconds * (3 - kept),
          behind_norm(computing),
          behind_norm(by_host / rates.host_updates_per_second),
          behind_norm(up / rates.to_device_bytes_per_second),
          behind_norm(down / rates.to_host_bytes_per_second),
          behind_norm((updated + up + down) / rates.host_memory_bytes_per_second),
          behind_norm(needs.gather_seconds)};
}

/// The least of a convex function between two numbers, to a billionth of their distance.
template <class Function>
[[nodiscard]] double least_between(double low, double high, Function of)
{
  constexpr double golden = 0.6180339887498949;
  for (int round = 0; round < 48; ++round) {
    const double one = high - golden * (high - low);
    const double other = low + golden * (high - low);
    of(one) <= of(other) ? high = other : low = one;
  }
  return low + (high - low) / 2;
}

}  // namespace detail

/// The bound of a rank with these needs. It takes nothing from a run: shares, residency and order are free.
///
/// The greatest of twelve times that every step takes (step_limit), at the decisions that make it least. A step may
/// move more, wait for a chunk, or find no room, so the bound need not be reached.
/// - Two resources at once are never counted together, except where one must follow the other: a host update behind the
///   norm follows the backward pass.
/// - With a norm all updates begin behind the last gradient, and all weights that they make are used by the end of the
///   next forward pass. So between the two, which the backward pass is no part of, all of them are made.
/// - Resident states lie on the device also when activations need most. All other states lie on the host.
///
/// Source: the lines of transfer::update_bound (after Deep Optimizer States, Maurya et al. 2024, arXiv 2410.21316), for
/// a whole step. Cost: some thousand evaluations of twelve lines; a millisecond.
[[nodiscard]] inline step_bound step_bound_of(const step_needs& needs)
{
  step_bound found;
  const double states = detail::step_bytes::states * needs.parameters;
  const double least = std::clamp(1 - needs.host / states, 0.0, 1.0);
  const double most = std::min(1.0, needs.device_at_peak / states);
  if (needs.device_at_peak < 0 || least > most) return found;
  const auto longest = [&](const step_freedom& how) { return std::ranges::max(detail::limits_of(needs, how)); };
  const auto resident_at = [&](double on_device) {
    return detail::least_between(least, std::min(most, on_device), [&](double resident) {
      return longest({on_device, resident});
    });
  };
  const double share = detail::least_between(least, 1, [&](double on_device) {
    return longest({on_device, resident_at(on_device)});
  });
  found.fits = true;
  found.best = {share, resident_at(share)};
  for (const step_freedom& end : {step_freedom{least, least}, step_freedom{1, most}})
    if (longest(end) < longest(found.best)) found.best = end;
  const auto limits = detail::limits_of(needs, found.best);
  const auto greatest = std::ranges::max_element(limits);
  constexpr double search_error = 1e-6;
  found.seconds = *greatest * (1 - search_error);
  found.limit = static_cast<step_limit>(greatest - limits.begin());
  return found;
}

/// The needs of a workload on one rank of a machine. Of the settings, the chunk size, the share of updates and the room
/// for gathered weights are not looked at. @throws   as forecast_training
[[nodiscard]] inline step_needs step_needs_of(const workload::transformer_shape& shape,
                                              const workload::training_setup& setup, const workload::rank_share& share,
                                              const rank_settings& settings = {})
{
  settings.check(), share.check();
  constexpr std::uint64_t pieces = 256;  // fine enough for ends of passes
  const double whole = static_cast<double>(workload::parameters_of(shape));
  const parameter_groups groups{shape, setup,
                                own_elements(workload::parameters_of(shape) / share.ranks / pieces + 1) * share.ranks};
  const training_script script{groups, setup.recomputes_layers,
                               share.rates.device_flops_per_second * settings.reached_share};
  const per_tier<bytes> capacity = capacities_of(share, settings);
  step_needs made;
  made.parameters = whole / static_cast<double>(share.ranks);
  made.rates = share.rates;
  made.takes_norm = settings.takes_norm;
  made.device_between = static_cast<double>(capacity[tier::device].count());
  made.host = static_cast<double>(capacity[tier::host].count());
  made.device_at_peak = made.device_between;
  if (share.ranks > 1) {
    const bytes gathered{2 * workload::parameters_of(shape)};
    made.gathered_bytes = static_cast<double>(gathered.count());
    made.gather_seconds = static_cast<double>(exchange_of(share, settings).nanoseconds(gathered)) * 1e-9;
  }
  std::vector<bytes> sizes(script.leases());
  double leased = 0;
  double* pass = &made.forward_seconds;
  for (const act& it : script.acts()) switch (it.kind) {
      case act_kind::lease: leased += static_cast<double>((sizes[it.id] = it.size).count()); break;
      case act_kind::give: leased -= static_cast<double>(sizes[it.id].count()); break;
      case act_kind::backward:
        made.device_at_turn = made.device_between - leased;
        pass = &made.backward_seconds;
        break;
      case act_kind::use: {
        made.device_at_peak = std::min(made.device_at_peak, made.device_between - leased);
        *pass += static_cast<double>(it.nanoseconds - std::min<std::uint64_t>(it.nanoseconds, 1)) * 1e-9;
        break;
      }
    }
  return made;
}

/// The bound of a workload on one rank of a machine.
///
/// Use:
///
///     const planner::step_bound bound = planner::step_bound_of(shape, {.micro_batch = 4}, share);
///     if (bound.fits) std::cout << "at least " << bound.seconds << " s, for " << name_of(bound.limit) << '\n';
///
/// @throws   as forecast_training
[[nodiscard]] inline step_bound step_bound_of(const workload::transformer_shape& shape,
                                              const workload::training_setup& setup, const workload::rank_share& share,
                                              const rank_settings& settings = {})
{
  return step_bound_of(step_needs_of(shape, setup, share, settings));
}

}  // namespace planner

}  // namespace chunkmem::inline v0
