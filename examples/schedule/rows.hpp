// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation.hpp"

#include <cstddef>
#include <iosfwd>
#include <string>

namespace schedule_example {

/// "one_f_one_b: 4 stages, 8 micro-batches".
[[nodiscard]] std::string title_of(const simulation& it);

/// A row of characters for each stage, time to the right, and above them the meaning of the characters.
/// @param columns   a longer row is cut, and a line below reports it
void print_rows(std::ostream& out, const simulation& it, std::size_t columns = 180);

/// A line for each stage, and below them the numbers of the whole schedule.
void print_table(std::ostream& out, const simulation& it);

/// The list of each stage, with letters of operation_letters: `F3`, or `F3/5` where a stage has several parts and 5 is
/// the part.
void print_steps(std::ostream& out, const simulation& it);

/// The numbers of both as one JSON object: `schedule`, `stages`, `parts`, `micro_batches`, `batches`, `versions`,
/// `seconds`, `bubble_rate` (a part of 1), `by_stage` and `steps`, which take time.
void print_json(std::ostream& out, const simulation& it);

}  // namespace schedule_example
