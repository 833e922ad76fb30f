// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "display.hpp"
#include "options.hpp"
#include "text.hpp"

namespace gpt::cuda {

/// Trains over GPUs that NCCL joins, one for each rank: threads of this process (`--ranks`), or the processes that a
/// launcher of MPI started. @return   what the program exits with
/// @throws problem   this program was built without NCCL or MPI; config_error   fewer GPUs than ranks; what the first
///   rank that failed threw
[[nodiscard]] int run_over_ranks(const options& chosen, const training_text& text, const display& show);

}  // namespace gpt::cuda
