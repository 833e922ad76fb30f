// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "training_grid.hpp"

#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/core/call_ref.hpp>

namespace gpt {

/// A training in pipelines: the options of each rank, and how the ranks divide the training.
struct planned_training {
  options chosen;
  training_grid grid;
};

/// A training by a plan of configure. @pre   the options name a plan and its cluster
/// @throws problem   a plan that this program does not run, or a build without JSON
/// @throws chunkmem::format_error, chunkmem::config_error   no plan, or that of another model or cluster
[[nodiscard]] planned_training read_plan(const options& chosen);

/// Writes the model to the file that the options name, in the format of configure. @throws problem   it cannot be
/// written
void write_model(const options& chosen);

/// Makes the file of a profile, and writes it after `measure` has measured the model.
/// @throws problem   the file cannot be written, or this is a build without JSON
void write_profile(const options& chosen, chunkmem::call_ref<chunkmem::configurator::model_profile()> measure);

}  // namespace gpt
