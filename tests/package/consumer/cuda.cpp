// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/version.hpp>

#include <cuda_runtime_api.h>

#include <cstdio>

#if defined(WITH_KERNEL)
float add_on_device(float left, float right);
#endif

// A user's program on the CUDA runtime, with or without a GPU.
int main()
{
  int version = 0;
  if (cudaRuntimeGetVersion(&version) != cudaSuccess || version < 12'000) return 1;
#if defined(WITH_KERNEL)
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 && add_on_device(1.5F, 2.25F) != 3.75F) return 2;
#endif
  std::printf("CUDA runtime %d\n", version);
  return 0;
}
