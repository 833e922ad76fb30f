// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "budget.hpp"
#include "options.hpp"
#include "run.hpp"

#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/configurator/profile_meter.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace gpt {

/// Steps of each size. The first two touch memory for the first time, and make a plan.
inline constexpr std::size_t profiled_steps = 5;

/// The numbers of rows of micro-batches in a profile: powers of two, and the maximum.
[[nodiscard]] inline std::vector<std::size_t> profiled_rows(std::size_t most)
{
  std::vector<std::size_t> all;
  for (std::size_t rows = 1; rows < most; rows *= 2) all.push_back(rows);
  all.push_back(most);
  return all;
}

/// A profile of the model: some steps of each size of a micro-batch, with device memory for everything.
/// @param rates   of a training on virtual clocks   @throws problem   as budget_for
template <class Training>
[[nodiscard]] chunkmem::configurator::model_profile measured_profile(const options& asked, const training_text& text,
                                                                     chunkmem::optimizer::thread_pool& workers,
                                                                     const clock_rates* rates = nullptr)
{
  chunkmem::configurator::model_profile found;
  for (const std::size_t rows : profiled_rows(asked.size.batch)) {
    options chosen = asked;
    chosen.size.batch = rows;
    training_setup setup{chosen, text, workers, chunk_for<Training>(chosen, text, workers)};
    setup.rates = rates;
    const memory_budget budget = budget_for<Training>(setup);
    session<Training> measured{setup, budget.unlimited_device, budget.unlimited_host, either_gradient{}};
    (void)measured.rehearse();
    measured.fill();
    auto of_rows = measured.profile(profiled_steps);
    if (found.parts.empty())
      found = std::move(of_rows);
    else
      add_measurements(found, of_rows);
  }
  return found;
}

}  // namespace gpt
