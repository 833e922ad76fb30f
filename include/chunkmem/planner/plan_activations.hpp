// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/planner/layer_activations.hpp>
#include <chunkmem/planner/training_forecast.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// A simulated candidate.
///
///     for (const activation_trial& it : choice.trials)
///       std::cout << it.what.recomputed() << " layers again: " << it.nanoseconds << " ns\n";
struct activation_trial {
  layer_activations what;
  bool fits = false;
  std::uint64_t nanoseconds = 0;  ///< of a step, where it fits
};

/// The result of a search over activations.
///
///     const activation_choice choice = plan_activations(shape, setup, share, settings);
///     if (!choice.fits) std::cerr << choice.why_not << '\n';
struct activation_choice {
  bool fits = false;
  std::string why_not;                   ///< of the first candidate, which needs the fewest bytes; empty where one fits
  layer_activations activations;         ///< the fastest that fits
  training_forecast forecast;            ///< of these; where none fits, of the first candidate
  std::vector<activation_trial> trials;  ///< all candidates, in the order of their simulations
};

/// Ignores progress.
///
///     const activation_choice choice = plan_activations(shape, setup, share, settings, no_activation_progress{});
struct no_activation_progress {
  constexpr void operator()(const activation_trial&) const noexcept {}
};

/// The most simulations of plan_activations.
inline constexpr std::uint32_t most_activation_trials = 32;

namespace detail {

/// Simulates candidates, each once, and keeps the fastest.
template <class Forecast, class Progress>
class activation_search {
 public:
  activation_search(std::uint64_t layers, Forecast forecast, Progress& progress)
      : layers_{layers}, forecast_{std::move(forecast)}, progress_{progress}
  {
  }

  activation_choice run()
  {
    attempt(layer_activations::all(layers_, true, true));   // takes the fewest bytes of both tiers
    attempt(layer_activations::all(layers_, true, false));  // no activation waits for a link
    attempt(layer_activations::all(layers_, false, false));
    attempt(layer_activations::spread(layers_, 0));
    if (!best_.fits) return std::move(best_);
    std::uint64_t step = std::max<std::uint64_t>(layers_ / 4, 1);
    for (std::uint64_t count = step; count < layers_; count += step) attempt(layer_activations::spread(layers_, count));
    for (step /= 2; step > 0; step /= 2) slide(step);
    if (best_.activations.moves) attempt(layer_activations::first(layers_, best_.activations.recomputed()));
    return std::move(best_);
  }

 private:
  /// Moves to a neighbour while it is faster.
  void slide(std::uint64_t step)
  {
    for (bool is_better = true; is_better;) {
      const std::uint64_t from = best_.activations.recomputed();
      is_better = from >= step && attempt(layer_activations::spread(layers_, from - step));
      if (!is_better && from + step <= layers_) is_better = attempt(layer_activations::spread(layers_, from + step));
    }
  }
  /// @return   it is the fastest now
  bool attempt(layer_activations what)
  {
    const auto is_same = [&](const activation_trial& it) { return it.what == what; };
    if (best_.trials.size() == most_activation_trials || std::ranges::any_of(best_.trials, is_same)) return false;
    training_forecast found = forecast_(std::as_const(what));
    best_.trials.push_back({what, found.fits, found.fits ? found.step.nanoseconds : 0});
    progress_(std::as_const(best_.trials.back()));
    if (!found.fits) {
      if (best_.trials.size() > 1) return false;
      best_.why_not = found.why_not;
      best_.forecast = std::move(found);
      return false;
    }
    if (best_.fits && found.step.nanoseconds >= best_.forecast.step.nanoseconds) return false;
    best_.fits = true;
    best_.why_not.clear();
    best_.activations = std::move(what);
    best_.forecast = std::move(found);
    return true;
  }

  std::uint64_t layers_;
  Forecast forecast_;
  Progress& progress_;
  activation_choice best_;
};

}  // namespace detail

/// Chooses the layers that run forward again, in the one budget of weights, states and activations. It simulates
/// candidates with the manager itself.
///
/// The bytes that the other layers keep are tensors of the manager. Where they have no room, its plan moves them to the
/// host, or moves weights or states instead: the plan takes the choice that moves the fewest bytes.
/// 1. All layers run again, with their inputs on the device or with inputs that move; no layer runs again, with kept
///    bytes on the device or with bytes that move.
/// 2. A quarter, half and three quarters of the layers run again, at equal distances. From the fastest, the search goes
///    to more or fewer layers, at last by one. At last the first layers run again instead.
///
/// The result is never slower than running every layer again, and fits wherever that fits. The same arguments give the
/// same choice. Chunks and the share of updates are those of the settings. Layers are equal: for other chains see
/// activation::planned. Cost: at most `most_activation_trials`
/// simulations, each as forecast_training.
///
/// Use:
///
///     const auto share = workload::share_of_rank(machine);
///     const auto found = planner::plan_activations(shape, {.micro_batch = 16}, share, settings);
///     if (!found.fits) throw std::runtime_error{found.why_not};
///     ... found.activations.again[layer], found.forecast.step.nanoseconds
///
/// @param setup      its `recomputes_layers` is ignored
/// @param settings   of every simulation, with the chunk size and the share of updates of a memory_plan
/// @param progress   called with each simulated candidate
/// @throws           as forecast_training
template <eviction_policy Eviction = eviction::belady, transfer_policy Transfer = transfer::planned,
          class Progress = no_activation_progress>
  requires std::is_invocable_v<Progress&, const activation_trial&>
[[nodiscard]] activation_choice plan_activations(const workload::transformer_shape& shape,
                                                 const workload::training_setup& setup,
                                                 const workload::rank_share& share, const rank_settings& settings = {},
                                                 Progress&& progress = {})
{
  const auto forecast = [&](const layer_activations& what) {
    return forecast_training<Eviction, Transfer>(shape, setup, share, settings, what);
  };
  return detail::activation_search{shape.layers, forecast, progress}.run();
}

}  // namespace planner

}  // namespace chunkmem::inline v0
