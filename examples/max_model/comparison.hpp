#pragma once

#include "largest_model.hpp"
#include "options.hpp"
#include "strategies.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace max_model {

/// One line of the comparison.
struct comparison_row {
  std::string_view strategy;
  largest_model found;
};

/// Whether a command line asks for a strategy.
[[nodiscard]] inline bool is_asked_for(const options& chosen, std::string_view name)
{
  return chosen.strategies.empty() ||
         std::find(chosen.strategies.begin(), chosen.strategies.end(), name) != chosen.strategies.end();
}

/// Every asked-for strategy at every width. `begin(strategy, width, number, of)` is called before each, numbers from 1.
/// @throws config_error   there is no model of that width
template <class Begin>
[[nodiscard]] std::vector<comparison_row> compare(const training_job& job, const options& chosen, const Begin& begin)
{
  std::vector<std::uint64_t> widths = chosen.widths;
  if (widths.empty()) widths.push_back(job.shape.hidden);
  std::vector<training_job> jobs;
  for (const std::uint64_t width : widths) {
    jobs.push_back(job);
    jobs.back().shape = with_width(job.shape, width);
  }
  std::size_t count = 0;
  for (const std::string_view name : strategy_names()) count += is_asked_for(chosen, name) ? jobs.size() : 0;
  std::vector<comparison_row> rows;
  for (const training_job& each : jobs) {
    for_each_strategy([&](const auto& which) {
      if (!is_asked_for(chosen, which.name)) return;
      begin(which.name, each.shape.hidden, rows.size() + 1, count);
      rows.push_back({which.name, find_largest(which, each)});
    });
  }
  return rows;
}

}  // namespace max_model
