// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "display.hpp"
#include "options.hpp"
#include "text.hpp"

namespace gpt::cuda {

/// Trains over GPUs that NCCL connects, one for each rank: threads of this process (`--ranks`), or the processes that
/// an MPI launcher started. @return   the exit status of the program
/// @throws problem   this program was built without NCCL or MPI; config_error   fewer GPUs than ranks; the exception of
///   the first rank that failed
[[nodiscard]] int run_over_ranks(const options& chosen, const training_text& text, const display& show);

}  // namespace gpt::cuda
