// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/thrust_device.hpp>

#include <chunkmem/backend/on_caller.hpp>
#include <chunkmem/backend/stream_backend.hpp>

#include <thrust/functional.h>
#include <thrust/transform.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

// Compiled and never run: thrust_device of CUDA through nvcc, every member of it, and a Thrust algorithm as its kernel.
using namespace chunkmem;
using device = backend::thrust_device<thrust::cuda::tag>;

template class chunkmem::backend::cuda_device<chunkmem::backend::cuda_runtime>;
static_assert(stream_backend<device> && graph_backend<device>);
static_assert(stream_backend<backend::on_caller<device>>);
static_assert(std::derived_from<device, backend::cuda_device<backend::cuda_runtime>>);
static_assert(!device::host_addressable && has_bytes<device>());
static_assert(std::is_constructible_v<device, backend::thrust_device_options>);
static_assert(!std::is_copy_constructible_v<device> && !std::is_move_constructible_v<device>);

/// Brings `count` values to the device and back, negated in between, each in its stream.
void negate(float* values, std::uint64_t count)
{
  const bytes size{count * sizeof(float)};
  device memory{{.device_capacity = size, .host_capacity = size}};
  std::byte* const there = memory.allocate(tier::device, size);
  std::byte* const bytes_here = reinterpret_cast<std::byte*>(values);
  memory.copy(there, bytes_here, size, agent::to_device);
  memory.wait(agent::compute, memory.record(agent::to_device));
  memory.launch(agent::compute, [there, count](cudaStream_t stream) {
    float* const all = reinterpret_cast<float*>(there);
    thrust::transform(thrust::cuda::par_nosync.on(stream), all, all + count, all, thrust::negate<float>{});
  });
  memory.wait(agent::to_host, memory.record(agent::compute));
  memory.copy(bytes_here, there, size, agent::to_host);
  memory.wait(agent::host, memory.record(agent::to_host));
}
