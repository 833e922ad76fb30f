// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<cuda_runtime_api.h>)
#error "chunkmem: backend/cuda_runtime.hpp needs cuda_runtime_api.h: link chunkmem::cuda, or name its include folder"
#else

#include <chunkmem/backend/cuda_api.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cstddef>
#include <cstdint>

static_assert(CUDART_VERSION >= 12000, "chunkmem: backend/cuda_runtime.hpp needs CUDA 12 or newer");

namespace chunkmem::inline v0 {
namespace backend {

/// The CUDA runtime as a `cuda_api`. For any C++20 compiler: this header has no kernel.
///
///     cuda_device<cuda_runtime> memory{{.device_capacity = 20_GiB, .host_capacity = 100_GiB}};
///
/// Has no state. Cost: that of the runtime's functions. @threads   any, as the runtime's own
class cuda_runtime {
 public:
  using stream_type = cudaStream_t;
  using event_type = cudaEvent_t;
  using pool_type = cudaMemPool_t;
  using graph_type = cudaGraph_t;
  using executable_type = cudaGraphExec_t;
  /// The primary context of a device, and the driver's functions for it, so that programs need not link the driver.
  struct context_type {
    CUcontext handle = nullptr;
    decltype(&cuCtxPushCurrent) push = nullptr;
    decltype(&cuCtxPopCurrent) pop = nullptr;

    friend bool operator==(const context_type&, const context_type&) = default;
  };

  [[nodiscard]] int count_devices(int& count) const noexcept
  {
    int found = 0;
    const cudaError_t number = cudaGetDeviceCount(&found);
    if (number == cudaSuccess) count = found;
    return number;
  }
  [[nodiscard]] int current_device(int& ordinal) const noexcept
  {
    int found = 0;
    const cudaError_t number = cudaGetDevice(&found);
    if (number == cudaSuccess) ordinal = found;
    return number;
  }
  /// The runtime makes the device's primary context, and this thread's current device stays as it is (CUDA Runtime API,
  /// Device Management, cudaInitDevice). The reference is never released: the runtime also keeps primary contexts until
  /// the process ends. The driver's error numbers are the runtime's (driver_types.h, enum cudaError).
  [[nodiscard]] int open_context(context_type& context, int ordinal) const noexcept
  {
    context_type found;
    decltype(&cuDeviceGet) get = nullptr;
    decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
    CUdevice device = 0;
    int number = cudaInitDevice(ordinal, 0, 0);
    if (number == cudaSuccess) number = find_in_driver("cuCtxPushCurrent", found.push);
    if (number == cudaSuccess) number = find_in_driver("cuCtxPopCurrent", found.pop);
    if (number == cudaSuccess) number = find_in_driver("cuDeviceGet", get);
    if (number == cudaSuccess) number = find_in_driver("cuDevicePrimaryCtxRetain", retain);
    if (number == cudaSuccess) number = get(&device, ordinal);
    if (number == cudaSuccess) number = retain(&found.handle, device);
    if (number == cudaSuccess) context = found;
    return number;
  }
  /// The runtime works with the context that is current, also where the driver made it so (CUDA Runtime API,
  /// Interactions with the CUDA Driver API).
  [[nodiscard]] int push_context(const context_type& context) const noexcept { return context.push(context.handle); }
  /// Restores the context that was current before, or none (CUDA Driver API, Context Management).
  [[nodiscard]] int pop_context(const context_type& context) const noexcept
  {
    CUcontext popped = nullptr;
    return context.pop(&popped);
  }
  [[nodiscard]] int memory_info(std::size_t& free, std::size_t& total) const noexcept
  {
    std::size_t free_now = 0;
    std::size_t of_all = 0;
    const cudaError_t number = cudaMemGetInfo(&free_now, &of_all);
    if (number != cudaSuccess) return number;
    free = free_now;
    total = of_all;
    return number;
  }

  /// Gives none where the device has no pools, as on some virtual GPUs: memory is then allocated without a pool (CUDA
  /// Driver API 13.0, Stream Ordered Memory Allocator, Supported Platforms).
  [[nodiscard]] int create_pool(pool_type& pool, int ordinal, std::size_t limit) const noexcept
  {
    int has_pools = 0;
    if (const int number = cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, ordinal); number != 0)
      return number;
    if (has_pools == 0) {
      pool = nullptr;
      return cudaSuccess;
    }
    int number = make_pool(pool, ordinal, limit);
    if (number == cudaErrorInvalidValue && limit != 0) number = make_pool(pool, ordinal, 0);
    if (number != cudaErrorNotSupported) return number;
    (void)cudaGetLastError();
    pool = nullptr;
    return cudaSuccess;
  }
  [[nodiscard]] int destroy_pool(pool_type pool) const noexcept { return cudaMemPoolDestroy(pool); }

  /// Bytes that the pool holds on its device, in use or kept.
  [[nodiscard]] int pool_memory(pool_type pool, std::size_t& size) const noexcept
  {
    std::uint64_t held = 0;
    const cudaError_t number = cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &held);
    if (number == cudaSuccess) size = held;
    return number;
  }

  /// @param pool   none: plain memory of the current device
  [[nodiscard]] int allocate_device(void*& fresh, std::size_t size, pool_type pool, stream_type stream) const noexcept
  {
    void* place = nullptr;
    const cudaError_t number =
        pool != nullptr ? cudaMallocFromPoolAsync(&place, size, pool, stream) : cudaMalloc(&place, size);
    if (number == cudaSuccess) fresh = place;
    return number;
  }
  [[nodiscard]] int free_device(void* place, stream_type stream) const noexcept
  {
    const cudaError_t number = cudaFreeAsync(place, stream);
    if (number != cudaErrorNotSupported && number != cudaErrorInvalidValue) return number;
    (void)cudaGetLastError();
    return cudaFree(place);  // plain memory, of a device without pools; an error where the address is not allocated
  }
  [[nodiscard]] int allocate_pinned(void*& fresh, std::size_t size) const noexcept
  {
    void* place = nullptr;
    const cudaError_t number = cudaHostAlloc(&place, size, cudaHostAllocPortable);
    if (number == cudaSuccess) fresh = place;
    return number;
  }
  [[nodiscard]] int free_pinned(void* place) const noexcept { return cudaFreeHost(place); }

  [[nodiscard]] int place_of(const void* place, int& kind, int& device) const noexcept
  {
    cudaPointerAttributes found{};
    const cudaError_t number = cudaPointerGetAttributes(&found, place);
    if (number != cudaSuccess) return number;
    kind = found.type;
    device = found.device;
    return number;
  }

  /// The range of the current device; a lower number is a higher priority, and both are 0 where it has no priorities.
  [[nodiscard]] int stream_priorities(int& least, int& greatest) const noexcept
  {
    int last = 0;
    int first = 0;
    const cudaError_t number = cudaDeviceGetStreamPriorityRange(&last, &first);
    if (number != cudaSuccess) return number;
    least = last;
    greatest = first;
    return number;
  }
  [[nodiscard]] int create_stream(stream_type& stream, int priority) const noexcept
  {
    stream_type fresh = nullptr;
    const cudaError_t number = cudaStreamCreateWithPriority(&fresh, cudaStreamNonBlocking, priority);
    if (number == cudaSuccess) stream = fresh;
    return number;
  }
  [[nodiscard]] int destroy_stream(stream_type stream) const noexcept { return cudaStreamDestroy(stream); }
  [[nodiscard]] int synchronize_stream(stream_type stream) const noexcept { return cudaStreamSynchronize(stream); }

  [[nodiscard]] int create_event(event_type& event) const noexcept
  {
    event_type fresh = nullptr;
    const cudaError_t number = cudaEventCreateWithFlags(&fresh, cudaEventDisableTiming);
    if (number == cudaSuccess) event = fresh;
    return number;
  }
  [[nodiscard]] int destroy_event(event_type event) const noexcept { return cudaEventDestroy(event); }
  [[nodiscard]] int record_event(event_type event, stream_type stream) const noexcept
  {
    return cudaEventRecord(event, stream);
  }
  [[nodiscard]] int wait_event(stream_type stream, event_type event) const noexcept
  {
    return cudaStreamWaitEvent(stream, event, cudaEventWaitDefault);
  }
  [[nodiscard]] int synchronize_event(event_type event) const noexcept { return cudaEventSynchronize(event); }
  /// An event that is not reached is no failure (CUDA Runtime API 13.0, Data types, cudaErrorNotReady).
  [[nodiscard]] int query_event(event_type event, bool& is_over) const noexcept
  {
    const cudaError_t number = cudaEventQuery(event);
    if (number != cudaSuccess && number != cudaErrorNotReady) return number;
    if (number == cudaErrorNotReady) (void)cudaGetLastError();  // else a later cudaGetLastError returns it
    is_over = number == cudaSuccess;
    return cudaSuccess;
  }

  [[nodiscard]] int copy(void* to, const void* from, std::size_t size, stream_type stream) const noexcept
  {
    return cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, stream);
  }
  /// One call where the toolkit and the driver have it, else one call for each copy. The runtime cannot capture a
  /// batch.
  [[nodiscard]] int copy_batch(void* const* to, const void* const* from, const std::size_t* sizes, std::size_t count,
                               stream_type stream) const noexcept
  {
    const int number = copy_at_once(to, from, sizes, count, stream);
    if (number != cudaErrorNotSupported && number != cudaErrorCallRequiresNewerDriver) return number;
    (void)cudaGetLastError();
    for (std::size_t i = 0; i < count; ++i)
      if (const int failed = copy(to[i], from[i], sizes[i], stream); failed != 0) return failed;
    return cudaSuccess;
  }
  [[nodiscard]] int fill(void* to, int value, std::size_t size, stream_type stream) const noexcept
  {
    return cudaMemsetAsync(to, value, size, stream);
  }
  [[nodiscard]] int launch_host(stream_type stream, void (*work)(void*), void* argument) const noexcept
  {
    return cudaLaunchHostFunc(stream, work, argument);
  }
  [[nodiscard]] int last_error() const noexcept { return cudaGetLastError(); }

  [[nodiscard]] int begin_capture(stream_type stream) const noexcept
  {
    return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  }
  [[nodiscard]] int end_capture(stream_type stream, graph_type& graph) const noexcept
  {
    graph_type fresh = nullptr;
    const cudaError_t number = cudaStreamEndCapture(stream, &fresh);
    if (number == cudaSuccess) graph = fresh;
    return number;
  }
  [[nodiscard]] int instantiate(executable_type& executable, graph_type graph) const noexcept
  {
    executable_type fresh = nullptr;
    const cudaError_t number = cudaGraphInstantiate(&fresh, graph, 0);
    if (number == cudaSuccess) executable = fresh;
    return number;
  }
  [[nodiscard]] int destroy_graph(graph_type graph) const noexcept { return cudaGraphDestroy(graph); }
  [[nodiscard]] int destroy_executable(executable_type executable) const noexcept
  {
    return cudaGraphExecDestroy(executable);
  }
  [[nodiscard]] int launch_graph(executable_type executable, stream_type stream) const noexcept
  {
    return cudaGraphLaunch(executable, stream);
  }

  [[nodiscard]] const char* name_of(int number) const noexcept
  {
    return cudaGetErrorName(static_cast<cudaError_t>(number));
  }

 private:
  template <class Function>
  [[nodiscard]] static int find_in_driver(const char* name, Function& function) noexcept
  {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult answer{};
#if CUDART_VERSION >= 12050
    const cudaError_t number = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &answer);
#else
    const cudaError_t number = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &answer);
#endif
    if (number != cudaSuccess) return number;
    if (answer != cudaDriverEntryPointSuccess || found == nullptr) return cudaErrorSymbolNotFound;
    function = reinterpret_cast<Function>(found);
    return cudaSuccess;
  }

  [[nodiscard]] static int make_pool(pool_type& pool, int ordinal, [[maybe_unused]] std::size_t limit) noexcept
  {
    cudaMemPoolProps wanted{};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location.type = cudaMemLocationTypeDevice;
    wanted.location.id = ordinal;
#if CUDART_VERSION >= 12020  // CUDA Runtime API 12.2, Data Structures, cudaMemPoolProps
    wanted.maxSize = limit;
#endif
    pool_type fresh = nullptr;
    if (const cudaError_t number = cudaMemPoolCreate(&fresh, &wanted); number != cudaSuccess) return number;
    std::uint64_t kept = UINT64_MAX;  // freed memory stays in the pool
    if (const cudaError_t number = cudaMemPoolSetAttribute(fresh, cudaMemPoolAttrReleaseThreshold, &kept);
        number != cudaSuccess) {
      (void)cudaMemPoolDestroy(fresh);
      return number;
    }
    pool = fresh;
    return cudaSuccess;
  }

  [[nodiscard]] static int copy_at_once([[maybe_unused]] void* const* to, [[maybe_unused]] const void* const* from,
                                        [[maybe_unused]] const std::size_t* sizes, [[maybe_unused]] std::size_t count,
                                        [[maybe_unused]] stream_type stream) noexcept
  {
#if CUDART_VERSION >= 12080  // CUDA Runtime API 12.8, Memory Management, cudaMemcpyBatchAsync
    cudaMemcpyAttributes as_any_copy{};
    as_any_copy.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
#if CUDART_VERSION >= 13000  // without the index of the failed copy
    return cudaMemcpyBatchAsync(to, from, sizes, count, &as_any_copy, &first, 1, stream);
#else
    std::size_t failed = 0;
    return cudaMemcpyBatchAsync(const_cast<void**>(to), const_cast<void**>(from), const_cast<std::size_t*>(sizes),
                                count, &as_any_copy, &first, 1, &failed, stream);
#endif
#else
    return cudaErrorNotSupported;
#endif
  }
};

static_assert(cuda_api<cuda_runtime>);

}  // namespace backend
}  // namespace chunkmem::inline v0

#endif
