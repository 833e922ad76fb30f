// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/placement/memory_plan.hpp>
#include <chunkmem/planner/plan_candidates.hpp>
#include <chunkmem/planner/plan_fingerprint.hpp>
#include <chunkmem/planner/training_forecast.hpp>
#include <chunkmem/planner/update_split_search.hpp>
#include <chunkmem/profile/tide.hpp>
#include <chunkmem/transfer/update_split.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// A candidate that was simulated.
///
///     for (const plan_trial& it : choice.trials) std::cout << it.chunk_elements << ": " << it.nanoseconds << " ns\n";
struct plan_trial {
  std::uint64_t chunk_elements = 0;  ///< of an own chunk
  double device_update_share = 0;
  bool fits = false;
  std::uint64_t nanoseconds = 0;  ///< of a step, where it fits
  bytes missing;                  ///< on both tiers, where it does not fit and the number is known; else 0

  [[nodiscard]] constexpr bool operator==(const plan_trial&) const noexcept = default;
};

/// The result of a search for a plan of memory.
///
///     const memory_plan_choice choice = plan_memory(shape, how, share);
///     if (!choice.fits) std::cerr << choice.why_not << '\n';
struct memory_plan_choice {
  bool fits = false;
  std::string why_not;             ///< one sentence with the bytes that are missing; empty where it fits
  memory_plan plan;                ///< the fastest that fits
  training_forecast forecast;      ///< of the plan; where none fits, of the candidate that misses the fewest bytes
  std::vector<plan_trial> trials;  ///< all candidates, in the order of their simulations
};

/// The most simulations that plan_update_share asks for.
inline constexpr std::uint32_t most_split_trials = 12;
/// The most simulations that plan_memory asks for: the splits of one chunk size, and three splits of each of three
/// more.
inline constexpr std::uint32_t most_plan_trials = most_split_trials + 9;

/// Hears nothing.
///
///     const memory_plan_choice choice = plan_memory(shape, how, share, rank_settings{}, no_progress{});
struct no_progress {
  constexpr void operator()(const plan_trial&) const noexcept {}
};

namespace detail {

/// Simulates candidates, each once, and keeps the best.
template <class Forecast, class Progress>
class plan_trials {
 public:
  plan_trials(Forecast forecast, rank_settings settings, Progress& progress)
      : forecast_{std::move(forecast)}, settings_{settings}, progress_{progress}
  {
  }

  /// Seconds of a step; infinity where it does not fit.
  double attempt(std::uint64_t chunk_elements, double share)
  {
    for (const plan_trial& it : trials_)
      if (it.chunk_elements == chunk_elements && it.device_update_share == share) return seconds(it);
    settings_.chunk_elements = chunk_elements;
    settings_.device_update_share = share;
    training_forecast found = forecast_(std::as_const(settings_));
    plan_trial now{chunk_elements, share, found.fits, found.fits ? found.step.nanoseconds : 0, missing_of(found)};
    const bool is_best = trials_.empty() || is_better(now, trials_[best_]);
    trials_.push_back(now);
    if (is_best) {
      best_ = trials_.size() - 1;
      forecast_of_best_ = std::move(found);
    }
    progress_(trials_.back());
    return seconds(trials_.back());
  }

  [[nodiscard]] const std::vector<plan_trial>& all() const noexcept { return trials_; }
  /// @pre something was tried
  [[nodiscard]] const plan_trial& best() const noexcept { return trials_[best_]; }
  [[nodiscard]] training_forecast& forecast_of_best() noexcept { return forecast_of_best_; }

 private:
  [[nodiscard]] static double seconds(const plan_trial& it) noexcept
  {
    return it.fits ? static_cast<double>(it.nanoseconds) * 1e-9 : std::numeric_limits<double>::infinity();
  }
  [[nodiscard]] static bytes missing_of(const training_forecast& it)
  {
    if (it.fits || !it.need.rehearsed) return {};
    bytes all;
    if (it.need.smallest_device > it.capacity[tier::device]) all += it.need.smallest_device - it.capacity[tier::device];
    if (it.need.smallest_host > it.capacity[tier::host]) all += it.need.smallest_host - it.capacity[tier::host];
    return all;
  }
  /// Compares two trials: first a trial that fits, then the faster trial. Of two that do not fit, the trial that misses
  /// less; unknown misses come last. Of equal trials the first.
  [[nodiscard]] static bool is_better(const plan_trial& left, const plan_trial& right) noexcept
  {
    if (left.fits != right.fits) return left.fits;
    if (left.fits) return left.nanoseconds < right.nanoseconds;
    return left.missing != bytes{} && (right.missing == bytes{} || left.missing < right.missing);
  }

  Forecast forecast_;
  rank_settings settings_;
  Progress& progress_;
  std::vector<plan_trial> trials_;
  std::size_t best_ = 0;
  training_forecast forecast_of_best_;
};

/// The five lines of the update of one rank.
[[nodiscard]] inline transfer::update_bound bound_of(const workload::machine_rates& rates, double resident)
{
  return transfer::update_bound{
      {rates.host_updates_per_second, rates.device_updates_per_second, rates.to_device_bytes_per_second,
       rates.to_host_bytes_per_second, rates.host_memory_bytes_per_second},
      resident};
}

/// The shares of the updates that are worth a simulation, with chunks of one size.
struct split_trials {
  std::uint64_t own = 0;  ///< parameters of a rank
  per_tier<bytes> capacity;
  workload::machine_rates rates;

  /// Tries the least share that the host has room for, `split` or a share above the least one, and all. Where there is
  /// no `split` yet and something fits, it settles the split by search_update_split. It also tries the five lines' best
  /// above the share that stays on the device.
  template <class Trials>
  void attempt(Trials& trials, std::uint64_t size, std::optional<double>& split) const
  {
    const auto groups = static_cast<std::uint32_t>((own + size - 1) / size);
    const auto share_of = [&](std::uint32_t streamed) { return static_cast<double>(streamed) / groups; };
    const double least = share_of(least_device_groups(groups, size, capacity[tier::host]));
    const double more = least > 0 ? least + (1 - least) / 8 : 0;  // chunks and their host copies may not come out even
    for (const double each : {least, split.value_or(more), 1.0}) trials.attempt(size, each);
    if (split || !trials.best().fits) return;
    const double resident =
        resident_share(own, capacity[tier::device], most_leased(trials.forecast_of_best().record, tier::device));
    trials.attempt(size, std::min(1.0, resident + bound_of(rates, resident).best().device_share));
    (void)search_update_split(bound_of(rates, 0), groups,
                              [&](std::uint32_t streamed) { return trials.attempt(size, share_of(streamed)); });
    split = trials.best().device_update_share;
  }
};

[[nodiscard]] inline std::string refusal_of(const training_forecast& nearest)
{
  const bool is_short = nearest.need.smallest_device > nearest.capacity[tier::device] ||
                        nearest.need.smallest_host > nearest.capacity[tier::host];
  if (!nearest.need.rehearsed || !is_short) return nearest.why_not;
  return std::string{(error_text{} << "chunkmem: no plan of memory fits: the nearest one needs "
                                   << nearest.need.smallest_device.count() << " B on the device of a rank, which has "
                                   << nearest.capacity[tier::device].count() << " B, and "
                                   << nearest.need.smallest_host.count() << " B on its share of the host, which has "
                                   << nearest.capacity[tier::host].count()
                                   << " B (take a smaller batch, more ranks or more memory)")
                         .view()};
}

/// The best of the trials as a plan. Moves their forecast away.
template <class Trials>
[[nodiscard]] memory_plan_choice choice_of(Trials& trials, std::uint64_t fingerprint,
                                           const workload::machine_rates& rates, double reached_share)
{
  const plan_trial& best = trials.best();
  memory_plan_choice made;
  made.trials = trials.all();
  made.forecast = std::move(trials.forecast_of_best());
  made.fits = best.fits;
  if (!made.fits) {
    made.why_not = refusal_of(made.forecast);
    return made;
  }
  const training_forecast& it = made.forecast;
  const bytes tide = most_leased(it.record, tier::device);
  made.plan = {.fingerprint = fingerprint,
               .chunk_bytes = bytes{2} * best.chunk_elements,
               .device_capacity = it.capacity[tier::device],
               .host_capacity = it.capacity[tier::host],
               .device_update_share = best.device_update_share,
               .at_peak = it.timeline.at_peak,
               .host_peak = it.counts.peak[tier::host],
               .step_nanoseconds = it.step.nanoseconds,
               .assumed = {tide, tide, rates.device_flops_per_second * reached_share, rates}};
  return made;
}

}  // namespace detail

/// Chooses the chunk size and the place where each chunk is updated, together. It simulates candidates with the manager
/// itself.
///
/// 1. For the first size of chunk_candidates that fits, search_update_split settles the split of the updates. Two other
///    shares are tried as well: the least share that the host has room for, and the five lines' best above the share
///    that stays on the device.
/// 2. Every other size is tried with that split and with both pure splits. Where the host cannot have all states, the
///    least share takes the place of the pure split on the host.
/// 3. The fastest candidate that fits is taken. It is never slower than updating everything on the host, or on the
///    device.
///
/// Inside each simulation the manager's own planning decides which chunks stay on the device, and when they move. The
/// same arguments give the same plan. Cost: at most `most_plan_trials` simulations, each as forecast_training; one
/// forecast is kept.
///
/// Use:
///
///     const auto found = planner::plan_memory(shape, {.micro_batch = 4}, workload::share_of_rank(machine));
///     if (!found.fits) throw std::runtime_error{found.why_not};   // with the bytes that are missing
///     ... found.plan.chunk_bytes, found.plan.placement()          // for the manager
///
/// @param share      of one rank, as workload::share_of_rank gives it
/// @param settings   of every simulation; its chunk size and its share of updates are not looked at
/// @param progress   hears of each candidate that was simulated
/// @return           `fits` is false where no candidate fits, with the bytes that the nearest one needs
/// @throws config_error   a shape, set-up, share or setting that cannot be; size_overflow   a model whose costs 64 bits
///   cannot count
template <eviction_policy Eviction = eviction::belady, transfer_policy Transfer = transfer::planned,
          class Progress = no_progress>
  requires std::is_invocable_v<Progress&, const plan_trial&>
[[nodiscard]] memory_plan_choice plan_memory(const workload::transformer_shape& shape,
                                             const workload::training_setup& setup, const workload::rank_share& share,
                                             const rank_settings& settings = {}, Progress&& progress = {})
{
  settings.check(), share.check();
  detail::plan_trials trials{
      [&](const rank_settings& each) { return forecast_training<Eviction, Transfer>(shape, setup, share, each); },
      settings, progress};
  const detail::split_trials splits{(workload::parameters_of(shape) + share.ranks - 1) / share.ranks,
                                    capacities_of(share, settings), share.rates};
  std::optional<double> split;
  for (const std::uint64_t size : chunk_candidates(shape, share.ranks)) splits.attempt(trials, size, split);
  return detail::choice_of(trials, plan_fingerprint(shape, setup, share, settings), share.rates,
                           settings.reached_share);
}

/// Chooses the place where each chunk is updated, as plan_memory does, for the chunk size that `settings` name.
///
/// Good where the chunk size is given: at most `most_split_trials` simulations. The share in `settings` is not looked
/// at.
/// @return, @throws   as plan_memory
template <eviction_policy Eviction = eviction::belady, transfer_policy Transfer = transfer::planned,
          class Progress = no_progress>
  requires std::is_invocable_v<Progress&, const plan_trial&>
[[nodiscard]] memory_plan_choice plan_update_share(const workload::transformer_shape& shape,
                                                   const workload::training_setup& setup,
                                                   const workload::rank_share& share,
                                                   const rank_settings& settings = {}, Progress&& progress = {})
{
  settings.check(), share.check();
  detail::plan_trials trials{
      [&](const rank_settings& each) { return forecast_training<Eviction, Transfer>(shape, setup, share, each); },
      settings, progress};
  const detail::split_trials splits{(workload::parameters_of(shape) + share.ranks - 1) / share.ranks,
                                    capacities_of(share, settings), share.rates};
  std::optional<double> split;
  splits.attempt(trials, own_elements(settings.chunk_elements), split);
  return detail::choice_of(trials, plan_fingerprint(shape, setup, share, settings), share.rates,
                           settings.reached_share);
}

}  // namespace planner

}  // namespace chunkmem::inline v0
