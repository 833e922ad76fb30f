// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/planned_optimizer.hpp>
#include <chunkmem/placement/memory_plan.hpp>
#include <chunkmem/planner/group_times.hpp>
#include <chunkmem/planner/timed_optimizer.hpp>
#include <chunkmem/sharding/zero.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <chunkmem/workload/machine.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace chunkmem::inline v0 {

namespace planner {

/// The knowledge before the first iteration of a simulated training.
enum class known_before : std::uint8_t {
  rehearsal,  ///< smallest capacities, proven; the first iteration records. Most of the time of a forecast
  /// profile of a run without limits, as if from a file: the first iteration has a plan already. No proof: over ranks
  /// `fits` is for groups of equal size
  profile,
};

/// The assumptions of a simulation of a rank.
///
///     const rank_settings settings{.reached_share = 0.4, .gather_units = 4};
///     const training_forecast forecast = forecast_training(shape, how, share, settings);
struct rank_settings {
  /// of an own chunk; rounded up to a multiple of 256 on one rank, and of 8,192 over ranks
  std::uint64_t chunk_elements = std::uint64_t{32} << 20;
  double reached_share = 0.5;           ///< of the peak FLOP/s of a device
  bytes device_context{1'200'000'000};  ///< of each device, taken by the runtime and its libraries
  bytes host_process{2'000'000'000};    ///< of the host, taken by each rank
  double host_reserve = 0.03;           ///< share of the host that stays free
  bool takes_norm = true;  ///< of all gradients, before the first update: clipping, or a check for non-finite gradients
  /// updates wait for the next use of their weights (optimizer::late_updates), if that use comes soon enough
  bool updates_late = true;
  planned_gradient gradient{gradient::in_place{}};  ///< where gradients lie: in_place or separate
  optimizer::listed_states states{};                ///< of the optimizer; an update has the bytes of these
  sharding::zero divided = sharding::zero_3;        ///< over ranks
  double device_update_share = 0;                   ///< of the states that are updated on the device, 0 to 1
  /// room for gathered groups: 1 (nothing is gathered ahead) to 1024. More of them let collectives run further ahead,
  /// and keep groups from the forward pass for the backward pass
  std::uint32_t gather_units = 3;
  /// the most groups that a step gathers for the next one, as sharding_options::gathers_ahead: over ranks, without a
  /// norm. Fewer where gather_units or the network's time in the backward pass do not suffice, or fewer are late
  std::uint32_t gathers_ahead = 0;
  std::optional<group_times> exchange{};            ///< prices of collectives; none: group_times::ring_of the share
  std::uint64_t link_latency_nanoseconds = 10'000;  ///< of each copy
  known_before known = known_before::rehearsal;
  std::uint32_t most_iterations = 12;  ///< until the step time is taken as it is; at least 5

  /// Gradients of 16-bit weights have 32 bits.
  [[nodiscard]] bool has_wide_gradients() const { return gradient.type_for(dtype::bfloat16) == dtype::float32; }

  /// @throws config_error   a setting is out of its range
  void check() const
  {
    if (chunk_elements == 0 || chunk_elements > (std::uint64_t{1} << 40))
      throw config_error{"chunk_elements is not from 1 to 2^40 (give the elements of a large matrix over the ranks)"};
    if (!(reached_share > 0 && reached_share <= 1)) throw config_error{"reached_share is not above 0 and at most 1"};
    if (!(host_reserve >= 0 && host_reserve < 1)) throw config_error{"host_reserve is not from 0 to below 1"};
    if (!(device_update_share >= 0 && device_update_share <= 1))
      throw config_error{"device_update_share is not from 0 to 1"};
    if (gather_units < 1 || gather_units > most_gather_units) throw config_error{"gather_units is not from 1 to 1024"};
    if (most_iterations < 5) throw config_error{"most_iterations is below 5, which a steady state takes"};
    states.check();
  }
};

/// The 16-bit elements of a chunk after rounding. Ranks divide a unit, a chunk of each of them, into whole blocks of
/// every element type.
[[nodiscard]] inline std::uint64_t chunk_elements_of(const rank_settings& settings, std::uint64_t ranks)
{
  const bytes grain = ranks == 1 ? tensor_alignment * 2 : bytes{measure_block * sizeof(float)};
  return align_up(bytes{2} * settings.chunk_elements, grain).count() / 2;
}

/// The division of a model over ranks: a unit has a chunk of each rank, and the settings give the number of units that
/// are gathered ahead. A plan may gather fewer than its settings allow:
///
///     settings.gathers_ahead = plan.gathers_ahead;
///     const auto division = planner::division_of(settings, ranks.ranks());
///     sharded_model m{memory, ranks, {.chunk_bytes = plan.chunk_bytes}, division};
[[nodiscard]] inline sharding::sharding_options division_of(const rank_settings& settings, std::uint64_t ranks)
{
  return {.divided = settings.divided,
          .unit_bytes = bytes{2} * chunk_elements_of(settings, ranks) * ranks,
          .gathers_ahead = settings.gathers_ahead};
}

/// The bytes that remain for chunks and leases. Never more than there is, also after the rounding of a share.
[[nodiscard]] inline per_tier<bytes> capacities_of(const workload::rank_share& share, const rank_settings& settings)
{
  const auto rest = [](bytes all, bytes taken) { return all > taken ? all - taken : bytes{}; };
  const double usable = static_cast<double>(share.host_bytes.count()) * (1 - settings.host_reserve);
  const bytes host =
      usable < 0x1p64 ? std::min(bytes{static_cast<std::uint64_t>(usable)}, share.host_bytes) : share.host_bytes;
  return {{rest(share.device_bytes, settings.device_context), rest(host, settings.host_process)}};
}

/// Copies on virtual links. Copies, updates and norms share the memory of the host.
[[nodiscard]] inline backend::cost_table costs_of(const workload::rank_share& share, const rank_settings& settings)
{
  backend::cost_table costs;
  costs.to_device = {settings.link_latency_nanoseconds, share.rates.to_device_bytes_per_second};
  costs.to_host = {settings.link_latency_nanoseconds, share.rates.to_host_bytes_per_second};
  costs.host_memory_bytes_per_second = share.rates.host_memory_bytes_per_second;
  return costs;
}

/// Updates by the optimizer of the settings, and norms of 16-bit gradients: both are as fast as their bytes. The rates
/// of the rank are those of Adam.
[[nodiscard]] inline update_rates update_rates_of(const workload::rank_share& share,
                                                  const rank_settings& settings) noexcept
{
  const double of_adam = optimizer::listed_states{}.update_bytes();
  const double updates = of_adam / settings.states.update_bytes();
  const double norms = of_adam / static_cast<double>(timed_optimizer::norm_bytes);
  return {updates * share.rates.host_updates_per_second, updates * share.rates.device_updates_per_second,
          norms * share.rates.host_updates_per_second, norms * share.rates.device_updates_per_second};
}

/// Bytes that the host needs for each parameter that it updates: states and masters, the gradient that comes down, and
/// the weight that goes up, which has the gradient's bytes where gradients are in place.
[[nodiscard]] inline std::uint64_t host_bytes_each(const rank_settings& settings)
{
  const std::uint64_t states = settings.states.bytes();
  constexpr std::uint64_t weight = 2;
  if (settings.gradient.takes_slot()) return states + weight;
  return states + weight + (settings.has_wide_gradients() ? 4 : 2);
}

/// The costs of collectives of a rank. @throws config_error   they belong to another machine
[[nodiscard]] inline group_times exchange_of(const workload::rank_share& share, const rank_settings& settings)
{
  group_times times = settings.exchange ? *settings.exchange : group_times::ring_of(share);
  times.check(share.ranks);
  return times;
}

}  // namespace planner

}  // namespace chunkmem::inline v0
