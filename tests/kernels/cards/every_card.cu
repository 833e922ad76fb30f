// SPDX-License-Identifier: Apache-2.0
// A kernel of the library, compiled for every usual architecture: architectures.cmake looks at what the object holds.
#include <chunkmem/optimizer/launch_kernels.cuh>

#include <cstdint>

namespace {

struct counting_kernel {
  std::uint64_t* to;

  [[nodiscard]] __host__ __device__ std::uint64_t count() const noexcept { return 1024; }
  [[nodiscard]] __host__ __device__ const counting_kernel& prepared() const noexcept { return *this; }
  __host__ __device__ void operator()(std::uint64_t index) const noexcept { to[index] = index; }
};

}  // namespace

void count_on(cudaStream_t stream, std::uint64_t* to)
{
  chunkmem::optimizer::cuda_launcher{}(stream, counting_kernel{to});
}
