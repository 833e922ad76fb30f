// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "problem.hpp"

#include <chunkmem/core/bytes.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpt::cuda {

/// What the calling thread's GPU has free, less what libraries and the driver may still want.
/// @throws problem   the GPU does not say
[[nodiscard]] inline chunkmem::bytes free_on_device()
{
  constexpr std::uint64_t headroom = std::uint64_t{512} << 20;
  std::size_t free = 0;
  std::size_t total = 0;
  if (const cudaError_t failed = cudaMemGetInfo(&free, &total); failed != cudaSuccess)
    throw problem{std::string{"the GPU does not say what memory it has: "} + cudaGetErrorName(failed)};
  return chunkmem::bytes{free > headroom ? free - headroom : 0};
}

}  // namespace gpt::cuda
