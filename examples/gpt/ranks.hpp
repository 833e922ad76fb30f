// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "display.hpp"
#include "options.hpp"
#include "text.hpp"

namespace gpt {

/// Trains over ranks that are threads of this process, and prints what rank 0 sees.
/// @return what the program exits with   @throws what the first rank that failed threw
[[nodiscard]] int run_on_threads(const options& chosen, const training_text& text, const display& show);

/// The same where ranks are the processes that a launcher of MPI started; each calls it.
/// @throws problem   this program was built without MPI
[[nodiscard]] int run_on_processes(const options& chosen, const training_text& text, const display& show);

}  // namespace gpt
