// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/placement/memory_plan.hpp>
#include <chunkmem/planner/plan_candidates.hpp>
#include <chunkmem/planner/plan_fingerprint.hpp>
#include <chunkmem/planner/step_bound.hpp>
#include <chunkmem/planner/training_forecast.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// The decisions of a plan of memory.
///
///     const plan_point same{.chunk_elements = 1 << 20, .device_update_share = 0.5};
struct plan_point {
  std::uint64_t chunk_elements = 0;  ///< of an own chunk
  double device_update_share = 0;
  std::uint32_t gather_units = 1;  ///< room for so many gathered groups, over several ranks

  [[nodiscard]] constexpr bool operator==(const plan_point&) const noexcept = default;
};

/// A simulated candidate.
///
///     for (const plan_trial& it : choice.trials)
///       std::cout << it.what.gather_units << ": " << it.nanoseconds << " ns\n";
struct plan_trial {
  plan_point what;
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

/// The most simulations of plan_memory.
inline constexpr std::uint32_t most_plan_trials = 96;

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
  plan_trials(Forecast forecast, rank_settings settings, std::uint32_t most, Progress& progress)
      : forecast_{std::move(forecast)}, settings_{settings}, most_{most}, progress_{progress}
  {
  }

  /// Seconds of a step; infinity where it does not fit, or where enough were tried.
  double attempt(const plan_point& what)
  {
    for (const plan_trial& it : trials_)
      if (it.what == what) return seconds(it);
    if (trials_.size() == most_) return std::numeric_limits<double>::infinity();
    settings_.chunk_elements = what.chunk_elements;
    settings_.device_update_share = what.device_update_share;
    settings_.gather_units = what.gather_units;
    training_forecast found = forecast_(std::as_const(settings_));
    plan_trial now{what, found.fits, found.fits ? found.step.nanoseconds : 0, missing_of(found)};
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
  std::uint32_t most_;
  Progress& progress_;
  std::vector<plan_trial> trials_;
  std::size_t best_ = 0;
  training_forecast forecast_of_best_;
};

/// The needs of ranks. Candidates that differ in their room for gathered groups alone have the same model over ranks,
/// which is rehearsed once. Where the settings allow gathers ahead, their number depends on this room, and no need is
/// known.
class known_needs {
 public:
  /// Null: none is known.
  [[nodiscard]] const memory_requirement* of(const rank_settings& settings) const
  {
    if (settings.gathers_ahead != 0) return nullptr;
    for (const entry& it : entries_)
      if (it.chunk_elements == settings.chunk_elements && it.device_update_share == settings.device_update_share)
        return &it.need;
    return nullptr;
  }
  void add(const rank_settings& settings, const memory_requirement& need)
  {
    if (of(settings) == nullptr) entries_.push_back({settings.chunk_elements, settings.device_update_share, need});
  }

 private:
  struct entry {
    std::uint64_t chunk_elements = 0;
    double device_update_share = 0;
    memory_requirement need;
  };
  std::vector<entry> entries_;
};

/// The candidates of a search, over simulations that are made once each.
template <class Trials>
class plan_search {
 public:
  /// @param own     parameters of a rank   @param sizes   of own chunks, the first one first
  /// @param units   room for gathered groups to begin with; 0: one rank, which gathers nothing
  /// @param host_each   bytes of the host for a parameter that it updates
  plan_search(Trials& trials, std::uint64_t own, bytes host, std::uint64_t host_each, std::vector<std::uint64_t> sizes,
              std::uint32_t units, double free_share)
      : trials_{trials},
        own_{own},
        host_{host},
        host_each_{host_each},
        sizes_{std::move(sizes)},
        units_{units},
        free_share_{free_share}
  {
  }

  /// Every size with the share of the bound, the least share that the host has room for, and all. Then downhill from
  /// the best of these. On one rank then every size with a share between those of the bound and all, and downhill
  /// again.
  void run()
  {
    for (const std::uint64_t size : sizes_) start(size, std::max(units_, 1U));
    if (!trials_.best().fits && units_ > 1)
      for (const std::uint64_t size : sizes_) start(size, 1);
    if (!trials_.best().fits) return;
    spread();
    std::ranges::sort(sizes_);
    descend();
    if (units_ != 0) return;
    // a size whose chunks of states have parameters of both places is slow with some shares: the way down ends there
    for (const std::uint64_t size : sizes_) {
      const auto ideal = static_cast<std::uint32_t>(std::lround(free_share_ * groups(size)));
      attempt(size, (ideal + groups(size)) / 2, 1);
    }
    descend();
  }

 private:
  [[nodiscard]] std::uint32_t groups(std::uint64_t size) const noexcept
  {
    return static_cast<std::uint32_t>((own_ + size - 1) / size);
  }
  double attempt(std::uint64_t size, std::uint32_t on_device, std::uint32_t units)
  {
    return trials_.attempt({size, static_cast<double>(on_device) / groups(size), units});
  }
  [[nodiscard]] std::uint32_t on_device(const plan_point& it) const noexcept
  {
    return static_cast<std::uint32_t>(std::lround(it.device_update_share * groups(it.chunk_elements)));
  }

  void start(std::uint64_t size, std::uint32_t units)
  {
    const std::uint32_t all = groups(size);
    const std::uint32_t least = least_device_groups(all, size, host_, host_each_);
    const auto ideal = static_cast<std::uint32_t>(std::lround(free_share_ * all));
    for (const std::uint32_t each : {least, std::max(least, ideal), all}) attempt(size, each, units);
    // chunks and their host copies may not come out even
    if (!trials_.best().fits && least > 0) attempt(size, least + (all - least) / 8, units);
  }

  static constexpr double infinity = std::numeric_limits<double>::infinity();

  /// From the best point, while a round is worth one more.
  void descend()
  {
    constexpr double worth = 0.998;  // of the step before, for one more round
    double before = infinity;
    bool is_resized = true;  // neighbours of the new size were not tried
    while (is_resized || seconds() < worth * before) {
      before = seconds();
      widen(), shift();
      is_resized = resize();
      first_step_ = 32;
    }
  }

  /// Shares between the least and all, so that the way down begins on the right side.
  void spread()
  {
    const plan_point from = trials_.best().what;
    const std::uint32_t all = groups(from.chunk_elements);
    const std::uint32_t least = least_device_groups(all, from.chunk_elements, host_, host_each_);
    for (const std::uint32_t quarter : {1U, 2U, 3U})
      attempt(from.chunk_elements, least + quarter * (all - least) / 4, from.gather_units);
    // updates on the host end while the backward pass runs, and room then lets a step gather for the next one
    if (units_ != 0) attempt(from.chunk_elements, least, std::min(4 * from.gather_units, most_gather_units));
  }

  [[nodiscard]] double seconds() const noexcept { return static_cast<double>(trials_.best().nanoseconds) * 1e-9; }

  /// Moves one number of the best point by `step` while that is better, then by half of it, at last by one.
  /// @param get, put   the number of a point, and the same point with another number
  template <class Get, class Put>
  void slide(std::uint32_t step, std::uint32_t low, std::uint32_t high, Get get, Put put)
  {
    for (; step > 0; step /= 2)
      for (bool moved = true; moved;) {
        const plan_point from = trials_.best().what;
        const std::uint32_t here = get(from);
        if (here + step <= high) (void)trials_.attempt(put(from, here + step));
        if (here >= low + step) (void)trials_.attempt(put(from, here - step));
        moved = trials_.best().what != from;
      }
  }

  /// The room for gathered groups: twice as much while that is better, then more or less.
  void widen()
  {
    if (units_ == 0) return;
    const auto get = [](const plan_point& it) { return it.gather_units; };
    const auto put = [](plan_point it, std::uint32_t units) {
      it.gather_units = units;
      return it;
    };
    for (plan_point from{}; trials_.best().what != from;) {
      from = trials_.best().what;
      (void)trials_.attempt(put(from, std::min(2 * from.gather_units, most_gather_units)));
    }
    slide(std::max(get(trials_.best().what) / 4, 1U), 1, most_gather_units, get, put);
  }

  /// The share of the updates: a quarter of the chunks more or less in the first round, at last one chunk.
  void shift()
  {
    const std::uint32_t all = groups(trials_.best().what.chunk_elements);
    slide(
        std::max(all / first_step_, 1U), 0, all, [&](const plan_point& it) { return on_device(it); },
        [&](plan_point it, std::uint32_t groups) {
          it.device_update_share = static_cast<double>(groups) / all;
          return it;
        });
  }

  /// The next smaller and the next larger chunks with the same share, and as much room for gathered weights.
  /// @return   one of them is better
  bool resize()
  {
    const plan_point before = trials_.best().what;
    const auto at = std::ranges::find(sizes_, before.chunk_elements) - sizes_.begin();
    for (const std::ptrdiff_t other : {at - 1, at + 1}) {
      if (other < 0 || other >= std::ssize(sizes_)) continue;
      const std::uint64_t size = sizes_[static_cast<std::size_t>(other)];
      const double units = static_cast<double>(before.gather_units) * static_cast<double>(before.chunk_elements) /
                           static_cast<double>(size);
      attempt(size, static_cast<std::uint32_t>(std::lround(before.device_update_share * groups(size))),
              units_ == 0 ? 1 : static_cast<std::uint32_t>(std::clamp(units, 1.0, 1.0 * training_script::most_units)));
    }
    return trials_.best().what != before;
  }

  Trials& trials_;
  std::uint64_t own_;
  bytes host_;
  std::uint64_t host_each_;
  std::vector<std::uint64_t> sizes_;
  std::uint32_t units_;
  double free_share_;
  std::uint32_t first_step_ = 4;  // the first move of a share is this part of the chunks
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
                                   << " B (use a smaller batch, more ranks or more memory)")
                         .view()};
}

/// The best of the trials as a plan. Moves their forecast away.
template <class Trials>
[[nodiscard]] memory_plan_choice choice_of(Trials& trials, std::uint64_t fingerprint,
                                           const workload::machine_rates& rates, const rank_settings& settings,
                                           std::string_view layout)
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
  workload::machine_rates assumed = rates;
  assumed.host_updates_per_second /= settings.states.update_over_adam();
  assumed.device_updates_per_second /= settings.states.update_over_adam();
  const bytes peak_leased = it.need.rehearsed ? it.need.largest_leases : most_leased(it.record, tier::device);
  made.plan = {.fingerprint = fingerprint,
               .chunk_bytes = bytes{2} * best.what.chunk_elements,
               .device_capacity = it.capacity[tier::device],
               .host_capacity = it.capacity[tier::host],
               .device_update_share = best.what.device_update_share,
               .gather_units = it.gather_units,
               .gathers_ahead = it.gathers_ahead,
               .gradient = std::string{settings.gradient.chosen()},
               .has_wide_gradients = settings.has_wide_gradients(),
               .layout = std::string{layout},
               .at_peak = it.timeline.at_peak,
               .host_peak = std::min(it.counts.peak[tier::host], it.capacity[tier::host]),
               .step_nanoseconds = it.step.nanoseconds,
               .assumed = {peak_leased, peak_leased, rates.device_flops_per_second * settings.reached_share, assumed}};
  return made;
}

}  // namespace detail

/// Chooses the chunk size, the place where each chunk is updated, and the room for gathered groups, together. It
/// simulates candidates with the manager itself.
///
/// 1. Every size of chunk_candidates is tried with three shares of the updates: the best one of step_bound, the least
///    one that the host has room for, and all. The fastest size is tried with three shares between the least and all.
/// 2. From the fastest, the search goes downhill: more or less room for gathered groups, a larger or smaller share, the
///    next sizes. It ends after a round that gains less than 0.2 % and keeps the size, or after
///    `most_plan_trials` simulations.
///
/// Neighbours differ in one chunk of the share, one gathered group of room, or are the next size of chunk_candidates.
/// The plan is never slower than updating everything on the device, or as much on the host as there is room for.
/// Inside each simulation the manager's own planning decides which chunks stay on the device, and when they move. The
/// same arguments give the same plan. Cost: at most `most_plan_trials` simulations, each as forecast_training; one
/// forecast is kept. With known_before::profile a simulation takes a fraction of the time.
///
/// Use:
///
///     const auto found = planner::plan_memory(shape, {.micro_batch = 4}, workload::share_of_rank(machine));
///     if (!found.fits) throw std::runtime_error{found.why_not};   // with the bytes that are missing
///     const manager_options options{.chunk_bytes = found.plan.chunk_bytes};  // and plan.placement(), plan.gradients()
///
/// @param share      of one rank, as workload::share_of_rank gives it
/// @param settings   of every simulation; its chunk size and its share of updates are ignored, and its room for
///   gathered groups is the first to try
/// @param progress   called with each simulated candidate
/// @return           `fits` is false where no candidate fits, with the bytes that the nearest one needs
/// @throws config_error   an impossible shape, set-up, share or setting; size_overflow   costs of the model need more
///   than 64 bits
template <eviction_policy Eviction = eviction::belady, transfer_policy Transfer = transfer::planned,
          chunk_layout Layout = size_class_layout, class Progress = no_progress>
  requires std::is_invocable_v<Progress&, const plan_trial&>
[[nodiscard]] memory_plan_choice plan_memory(const workload::transformer_shape& shape,
                                             const workload::training_setup& setup, const workload::rank_share& share,
                                             const rank_settings& settings = {}, Progress&& progress = {})
{
  settings.check(), share.check();
  const auto activations = layer_activations::all(shape.layers, setup.recomputes_layers);
  detail::known_needs needs;
  detail::plan_trials trials{[&](const rank_settings& each) {
                               training_forecast found = forecast_training<Eviction, Transfer, Layout>(
                                   shape, setup, share, each, activations, {}, {}, {}, needs.of(each));
                               if (share.ranks > 1 && found.fits && found.need.rehearsed) needs.add(each, found.need);
                               return found;
                             },
                             settings, most_plan_trials, progress};
  const std::uint64_t own = (workload::parameters_of(shape) + share.ranks - 1) / share.ranks;
  detail::plan_search search{trials,
                             own,
                             capacities_of(share, settings)[tier::host],
                             host_bytes_each(settings),
                             chunk_candidates(shape, share.ranks),
                             share.ranks > 1 ? settings.gather_units : 0,
                             step_bound_of(shape, setup, share, settings).best.on_device};
  search.run();
  return detail::choice_of(trials, plan_fingerprint(shape, setup, share, settings), share.rates, settings,
                           Layout::name);
}

}  // namespace planner

}  // namespace chunkmem::inline v0
