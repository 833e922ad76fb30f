// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>

#include <cuda_runtime_api.h>

#include <string>

namespace gpt::cuda {

/// Why nothing can run on a GPU here, and a remedy; empty where a GPU can be used.
[[nodiscard]] inline std::string why_no_gpu()
{
  int devices = 0;
  const cudaError_t answer = cudaGetDeviceCount(&devices);
  if (answer == cudaSuccess && devices > 0) return {};
  const int number = answer == cudaSuccess ? cudaErrorNoDevice : answer;
  return std::string{"no GPU: "} + cudaGetErrorName(static_cast<cudaError_t>(number)) + " (" +
         std::string{chunkmem::backend::remedy_of(chunkmem::backend::fault_of_cuda_error(number))} + ")";
}

}  // namespace gpt::cuda
