// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/interop/stream_memory.cuh>

#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>

#include <cuda/memory_resource>

// Compiled and never run: CCCL's concepts on this resource, in the installed release.
namespace cm = chunkmem;

namespace {

/// What the resource asks of a manager. The whole one takes nvcc twice the time.
struct lender {
  struct lease_type {
    bool is_live() const { return true; }
    std::byte* data() const { return nullptr; }
  };
  lease_type lease(cm::tier, cm::bytes, cm::agent) { return {}; }
  cm::backend::cuda_device<cm::backend::cuda_runtime>& backend() { return *device; }
  cm::backend::cuda_device<cm::backend::cuda_runtime>* device = nullptr;
};

}  // namespace

using on_device = cm::interop::stream_memory<lender>;
using on_host = cm::interop::stream_memory<lender, cm::tier::host>;

#if CCCL_VERSION >= 3001000
static_assert(cuda::mr::synchronous_resource<on_device> && cuda::mr::resource<on_device>);
static_assert(cuda::mr::resource_with<on_device, cuda::mr::device_accessible>);
static_assert(!cuda::mr::resource_with<on_device, cuda::mr::host_accessible>);
static_assert(cuda::mr::resource_with<on_host, cuda::mr::device_accessible, cuda::mr::host_accessible>);
using any_of_them = cuda::mr::resource_ref<cuda::mr::device_accessible>;
#else
static_assert(cuda::mr::resource<on_device> && cuda::mr::async_resource<on_device>);
static_assert(cuda::mr::async_resource_with<on_device, cuda::mr::device_accessible>);
static_assert(!cuda::mr::async_resource_with<on_device, cuda::mr::host_accessible>);
static_assert(cuda::mr::async_resource_with<on_host, cuda::mr::device_accessible, cuda::mr::host_accessible>);
using any_of_them = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;
#endif

template class chunkmem::interop::stream_memory<lender>;

/// A library that takes CCCL's own handle of a resource, and asks and gives back in a stream.
void* through_a_handle(any_of_them memory, cuda::stream_ref stream)
{
#if CCCL_VERSION >= 3001000
  void* const data = memory.allocate(stream, 1024, 256);
  memory.deallocate(stream, data, 1024, 256);
#else
  void* const data = memory.allocate_async(1024, 256, stream);
  memory.deallocate_async(data, 1024, 256, stream);
#endif
  return data;
}

void* through_ours(on_device& memory, cudaStream_t stream)
{
  return through_a_handle(memory, cuda::stream_ref{stream});
}
