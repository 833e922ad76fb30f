// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comparison.hpp"

#include <cstdio>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

namespace max_model {

/// The question of the comparison: the machine, the model, the assumptions.
void print_question(std::FILE* out, const training_job& job, std::string_view model);

/// The largest model of each strategy.
void print_models(std::FILE* out, std::span<const comparison_row> rows);

/// The bytes of one rank in that model, by kind of data.
void print_bytes(std::FILE* out, std::span<const comparison_row> rows);

/// One step of the given model with each strategy, in virtual time.
void print_steps(std::FILE* out, const training_job& job, std::span<const step_row> rows);

/// All numbers, sizes in bytes. A line of names, then one line for each row of the table.
void write_csv(std::ostream& out, std::span<const comparison_row> rows, std::span<const step_row> steps);

/// The same as one JSON object: `machine`, `model`, `left_out` (a sentence or null), `models` and `steps`. Sizes are in
/// bytes and times in nanoseconds, as in the table of numbers.
void print_json(std::FILE* out, const training_job& job, std::string_view model, std::span<const comparison_row> rows,
                std::span<const step_row> steps, const std::string& left_out);

}  // namespace max_model
