// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_runtime.hpp>

#include <cstddef>

namespace gpu {

/// The CUDA runtime with memory of the host in the place of device memory: real streams, events and copies, and kernels
/// that the host's compiler made can read the "device". For trainers whose kernels are host functions.
struct visible_runtime : chunkmem::backend::cuda_runtime {
  [[nodiscard]] int allocate_device(void*& place, std::size_t size, pool_type, stream_type) const noexcept
  {
    return allocate_pinned(place, size);
  }
  [[nodiscard]] int free_device(void* place, stream_type) const noexcept { return free_pinned(place); }
};

static_assert(chunkmem::cuda_api<visible_runtime>);

}  // namespace gpu
