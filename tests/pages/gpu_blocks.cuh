// SPDX-License-Identifier: Apache-2.0
// The blocks of docs/gpu.md, each as it stands there. They are compiled, and not run.
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_optimizer.hpp>
#include <chunkmem/optimizer/device_updates.hpp>
#include <chunkmem/optimizer/launch_kernels.cuh>
#include <chunkmem/optimizer/step.hpp>

#include <memory_resource>

namespace cm = chunkmem;
using namespace cm::literals;

__global__ void my_kernel(const float*) {}
constexpr int grid = 1;
constexpr int block = 32;

inline void on_a_stream(const cm::tensor<float>& w)
{
#include "gpu.inc"
}
using device = cm::backend::cuda_device<cm::backend::cuda_runtime>;
inline void on_memory_of_mine(std::pmr::memory_resource& my_resource, void* mapping)
{
#include "gpu_memory.inc"
}
void warm_up(device& memory);
inline void beside_libraries()
{
#include "gpu_rest.inc"
}
inline void updates(cm::manager<device>& m)
{
#include "gpu_updates.inc"
}
inline void updates_that_the_host_decides(cm::manager<device>& m, cm::optimizer::adam& host_adam)
{
#include "gpu_device_updates.inc"
}
