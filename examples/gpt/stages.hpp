// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "display.hpp"
#include "options.hpp"
#include "text.hpp"

namespace gpt {

/// Trains in a pipeline whose stages are threads of this process, or the processes that a launcher of MPI started.
/// @return   the exit code of the program   @throws the error of the first stage that failed
[[nodiscard]] int run_stages(const options& chosen, const training_text& text, const display& show);

}  // namespace gpt
