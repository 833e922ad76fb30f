// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "largest_model.hpp"
#include "options.hpp"
#include "simulation.hpp"
#include "strategies.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace max_model {

/// One line of the comparison.
struct comparison_row {
  std::string_view strategy;
  largest_model found;
};

/// One step of the given model, by one strategy.
struct step_row {
  std::string_view strategy;
  std::uint64_t layers = 0;
  bool has_room = false;  ///< by the strategy's own rules
  planner::training_forecast forecast;
};

/// Whether a command line asks for a strategy.
[[nodiscard]] inline bool is_asked_for(const options& chosen, std::string_view name)
{
  if (chosen.only_bytes && name == planned::name) return false;
  return chosen.strategies.empty() ||
         std::find(chosen.strategies.begin(), chosen.strategies.end(), name) != chosen.strategies.end();
}

/// The job at each asked-for width. @throws config_error   there is no model of that width
[[nodiscard]] inline std::vector<training_job> at_widths(const training_job& job, const options& chosen)
{
  std::vector<std::uint64_t> widths = chosen.widths;
  if (widths.empty()) widths.push_back(job.shape.hidden);
  std::vector<training_job> jobs;
  for (const std::uint64_t width : widths) {
    jobs.push_back(job);
    jobs.back().shape = with_width(job.shape, width);
  }
  return jobs;
}

/// The largest model of every asked-for strategy for every job. `progress.begins(strategy, width, number, of)` is
/// called before each, numbers from 1, and `progress.tries(layers)` before a simulation.
template <class Progress>
[[nodiscard]] std::vector<comparison_row> compare(const std::vector<training_job>& jobs, const options& chosen,
                                                  Progress& progress)
{
  std::size_t count = 0;
  for (const std::string_view name : strategy_names()) count += is_asked_for(chosen, name) ? jobs.size() : 0;
  std::vector<comparison_row> rows;
  for (const training_job& each : jobs) {
    for_each_strategy([&](const auto& which) {
      using strategy_type = std::remove_cvref_t<decltype(which)>;
      if (!is_asked_for(chosen, which.name)) return;
      progress.begins(which.name, each.shape.hidden, rows.size() + 1, count);
      if constexpr (std::is_same_v<strategy_type, planned>)
        rows.push_back({which.name, which.find_largest(each, [&](std::uint64_t layers) { progress.tries(layers); })});
      else
        rows.push_back({which.name, find_largest(which, each)});
    });
  }
  return rows;
}

/// One step of the job's own model by every asked-for strategy that has one.
template <class Progress>
[[nodiscard]] std::vector<step_row> compare_steps(const training_job& job, const options& chosen, Progress& progress)
{
  std::vector<step_row> rows;
  for_each_strategy([&](const auto& which) {
    using strategy_type = std::remove_cvref_t<decltype(which)>;
    if constexpr (simulated_strategy<strategy_type>) {
      if (!is_asked_for(chosen, which.name)) return;
      progress.simulates(which.name);
      step_row& row = rows.emplace_back();
      row.strategy = which.name;
      row.layers = job.shape.layers;
      if constexpr (std::is_same_v<strategy_type, planned>) {
        row.forecast = which.fastest(job);
        row.has_room = row.forecast.fits;
      } else {
        const memory_use use = which.memory(job);
        row.has_room = use.fits();
        if (row.has_room) row.forecast = simulate(job, which.moves(job, use));
      }
    }
  });
  return rows;
}

}  // namespace max_model
