// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "display.hpp"
#include "options.hpp"
#include "text.hpp"

namespace gpt {

/// Trains over ranks that are threads of this process, and prints the lines of rank 0.
/// @return the exit status of the program   @throws the exception of the first rank that failed
[[nodiscard]] int run_on_threads(const options& chosen, const training_text& text, const display& show);

/// The same where ranks are processes that an MPI launcher started; each process calls it.
/// @throws problem   this program was built without MPI
[[nodiscard]] int run_on_processes(const options& chosen, const training_text& text, const display& show);

}  // namespace gpt
