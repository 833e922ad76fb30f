// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// Handles of a CUDA runtime: plain values whose default is "none".
template <class Api>
concept names_cuda_handles = std::regular<typename Api::stream_type> && std::regular<typename Api::event_type> &&
                             std::regular<typename Api::pool_type> && std::regular<typename Api::graph_type> &&
                             std::regular<typename Api::executable_type> && std::regular<typename Api::context_type>;

/// Devices and their memory.
template <class Api>
concept gives_cuda_memory =
    requires(const Api& api, int number, std::size_t size, void* place, typename Api::pool_type pool,
             typename Api::stream_type stream, typename Api::context_type& context, int& current, std::size_t& free,
             void*& fresh) {
      {
        api.count_devices(current)
      } noexcept -> std::same_as<int>;
      {
        api.current_device(current)
      } noexcept -> std::same_as<int>;
      {
        api.open_context(context, number)
      } noexcept -> std::same_as<int>;
      {
        api.push_context(context)
      } noexcept -> std::same_as<int>;
      {
        api.pop_context(context)
      } noexcept -> std::same_as<int>;
      {
        api.memory_info(free, free)
      } noexcept -> std::same_as<int>;
      {
        api.create_pool(pool, number, size)
      } noexcept -> std::same_as<int>;
      {
        api.destroy_pool(pool)
      } noexcept -> std::same_as<int>;
      {
        api.pool_memory(pool, free)
      } noexcept -> std::same_as<int>;
      {
        api.allocate_device(fresh, size, pool, stream)
      } noexcept -> std::same_as<int>;
      {
        api.free_device(place, stream)
      } noexcept -> std::same_as<int>;
      {
        api.allocate_pinned(fresh, size)
      } noexcept -> std::same_as<int>;
      {
        api.free_pinned(place)
      } noexcept -> std::same_as<int>;
      {
        api.place_of(place, current, current)
      } noexcept -> std::same_as<int>;
    };

/// Streams, events, and the work on them.
template <class Api>
concept orders_cuda_work =
    requires(const Api& api, void* to, const void* from, std::size_t size, void* const* tos, const void* const* froms,
             const std::size_t* sizes, typename Api::stream_type stream, typename Api::event_type event, bool& is_over,
             void (*work)(void*), int& number) {
      {
        api.stream_priorities(number, number)
      } noexcept -> std::same_as<int>;
      {
        api.create_stream(stream, number)
      } noexcept -> std::same_as<int>;
      {
        api.destroy_stream(stream)
      } noexcept -> std::same_as<int>;
      {
        api.synchronize_stream(stream)
      } noexcept -> std::same_as<int>;
      {
        api.create_event(event)
      } noexcept -> std::same_as<int>;
      {
        api.destroy_event(event)
      } noexcept -> std::same_as<int>;
      {
        api.record_event(event, stream)
      } noexcept -> std::same_as<int>;
      {
        api.wait_event(stream, event)
      } noexcept -> std::same_as<int>;
      {
        api.synchronize_event(event)
      } noexcept -> std::same_as<int>;
      {
        api.query_event(event, is_over)
      } noexcept -> std::same_as<int>;
      {
        api.copy(to, from, size, stream)
      } noexcept -> std::same_as<int>;
      {
        api.copy_batch(tos, froms, sizes, size, stream)
      } noexcept -> std::same_as<int>;
      {
        api.fill(to, 0, size, stream)
      } noexcept -> std::same_as<int>;
      {
        api.launch_host(stream, work, to)
      } noexcept -> std::same_as<int>;
      {
        api.last_error()
      } noexcept -> std::same_as<int>;
    };

/// Graphs of captured work.
template <class Api>
concept captures_cuda_graphs = requires(const Api& api, typename Api::stream_type stream,
                                        typename Api::graph_type graph, typename Api::executable_type executable) {
  {
    api.begin_capture(stream)
  } noexcept -> std::same_as<int>;
  {
    api.end_capture(stream, graph)
  } noexcept -> std::same_as<int>;
  {
    api.instantiate(executable, graph)
  } noexcept -> std::same_as<int>;
  {
    api.destroy_graph(graph)
  } noexcept -> std::same_as<int>;
  {
    api.destroy_executable(executable)
  } noexcept -> std::same_as<int>;
  {
    api.launch_graph(executable, stream)
  } noexcept -> std::same_as<int>;
};

/// The few functions of the CUDA runtime that `backend::cuda_device` uses, as members of an object.
///
/// Each returns the runtime's own error number, 0 for success (`cudaError_t`). Results come through references, written
/// only on success. `cuda_runtime` is the real one; tests have one on threads, which can fail at every call.
///
/// - count_devices, current_device: cudaGetDeviceCount, cudaGetDevice
/// - open_context(context, device): cudaInitDevice, and the driver's cuDevicePrimaryCtxRetain: nothing becomes current
/// - push_context, pop_context: the driver's cuCtxPushCurrent, cuCtxPopCurrent
/// - memory_info(free, total): cudaMemGetInfo, of the current device [bytes]
/// - create_pool(pool, device, limit), destroy_pool: cudaMemPoolCreate (at most `limit` bytes, kept when freed),
///   cudaMemPoolDestroy
/// - pool_memory(pool, size): cudaMemPoolGetAttribute, cudaMemPoolAttrReservedMemCurrent
/// - allocate_device, free_device: cudaMallocFromPoolAsync, cudaFreeAsync
/// - allocate_pinned, free_pinned: cudaHostAlloc (portable), cudaFreeHost
/// - place_of(place, kind, device): cudaPointerGetAttributes: 1 pinned memory of the host, 2 of a device, else neither
/// - stream_priorities(least, greatest): cudaDeviceGetStreamPriorityRange
/// - create_stream(stream, priority): cudaStreamCreateWithPriority, non-blocking: not ordered with the legacy stream
/// - create_event: cudaEventCreateWithFlags, without timing
/// - wait_event(stream, event): cudaStreamWaitEvent
/// - copy, fill: cudaMemcpyAsync with cudaMemcpyDefault, cudaMemsetAsync
/// - copy_batch: cudaMemcpyBatchAsync where the toolkit has it, else as many copies
/// - launch_host(stream, work, argument): cudaLaunchHostFunc
/// - last_error: cudaGetLastError: of a kernel launch; resets errors that are not sticky
/// - begin_capture: cudaStreamBeginCapture, thread-local mode
/// - end_capture, instantiate, launch_graph: cudaStreamEndCapture, cudaGraphInstantiate, cudaGraphLaunch
///
/// The backend relies on these rules. Each has its section of the CUDA Runtime API 13.0, where no other document is
/// named:
/// - An event is the work that its stream had when it was recorded last. A wait that was enqueued before keeps its
///   meaning. An event may be destroyed before it is reached: Event Management, cudaEventRecord and cudaEventDestroy.
/// - A non-blocking stream is not ordered with the legacy stream: Stream synchronization behavior.
/// - A stream may be destroyed while it works: Stream Management, cudaStreamDestroy.
/// - A host function calls no function of the runtime. It is not called after an error of the context. Host functions
///   of several streams may be serialised: Execution Control, cudaLaunchHostFunc.
/// - Each call may return an error of work that was enqueued before it. Asking for an error that is not sticky resets
///   it: Error Handling, cudaGetLastError. The sticky ones: Data types, enum cudaError.
/// - A copy finds its direction in the addresses: Unified Addressing. The host may wait in a copy whose memory is not
///   pinned, and in any call where resources are short: API synchronization behavior.
/// - Copies of a batch are in no order, and their sources are read in the order of the stream: Memory Management,
///   cudaMemcpyBatchAsync. A capture takes no batch: cuda.core, utils.copy_batch.
/// - Memory of a pool may be used by other streams only after the allocation in the order of its stream. Freed memory
///   stays in the pool up to its release threshold: CUDA Programming Guide, Stream-Ordered Memory Allocator.
/// - A capture in thread-local mode ends on its thread. An invalidated capture gives no graph: Stream Management,
///   cudaStreamBeginCapture and cudaStreamEndCapture. One thread at a time uses a graph: Graph object thread safety.
/// - A graph that is destroyed while it runs is freed afterwards: CUDA Driver API 13.0, Graph Management,
///   cuGraphExecDestroy.
/// - A program of CUDA 12 or 13 runs on drivers from 525 or 580 on: CUDA Compatibility, Minor Version Compatibility.
///
/// `name_of(code)` is the runtime's name of a code, such as "cudaErrorIllegalAddress".
template <class Api>
concept cuda_api = std::copy_constructible<Api> && names_cuda_handles<Api> && gives_cuda_memory<Api> &&
                   orders_cuda_work<Api> && captures_cuda_graphs<Api> && requires(const Api& api, int code) {
                     {
                       api.name_of(code)
                     } noexcept -> std::convertible_to<const char*>;
                   };

namespace backend {

/// The kinds of error numbers of the CUDA runtime, by what the caller can do next.
enum class cuda_fault : std::uint8_t {
  none,
  passing,       ///< not sticky: this call did nothing; the next one may work
  memory,        ///< the same, for lack of memory
  no_gpu,        ///< the driver shows no device
  unavailable,   ///< the device is not ready, or another process has it
  old_driver,    ///< no driver, or one that is older than the runtime
  mixed_driver,  ///< parts of the driver that do not belong together
  no_code,       ///< the program has no code for this device
  new_code,      ///< the program's code is newer than the driver
  unloading,     ///< the program is ending, and the runtime is already unloaded
  sticky,        ///< every later call fails too, until the process starts again
};

namespace detail {

struct cuda_error_range {
  int first;
  int last;
};

/// The numbers that CUDA 13.0 knows. Those of older versions are among them.
inline constexpr cuda_error_range known_cuda_errors[] = {
    {0, 9},     {12, 13},   {16, 28},   {31, 32},   {34, 37},   {43, 46},   {49, 49},   {52, 53},
    {65, 69},   {98, 98},   {100, 103}, {127, 127}, {200, 201}, {205, 226}, {300, 304}, {400, 402},
    {500, 500}, {600, 600}, {700, 705}, {708, 721}, {800, 812}, {900, 915}, {999, 999}, {10000, 10000}};

/// Errors that CUDA documents as the end of a process, and errors after which the state is unknown: memory and links
/// that lost bits (214, 220), a destroyed context (709, 810), an assertion of a kernel (710), a wait that timed out
/// (909), errors without a name in the runtime (999, 10000).
inline constexpr int sticky_cuda_errors[] = {214, 220, 226, 700, 702, 709, 710, 714, 715,  716,
                                             717, 718, 719, 721, 810, 909, 911, 999, 10000};

}  // namespace detail

[[nodiscard]] constexpr bool is_known_cuda_error(int number) noexcept
{
  for (const detail::cuda_error_range& range : detail::known_cuda_errors)
    if (number >= range.first && number <= range.last) return true;
  return false;
}

/// Whether the process has to start again. A number that CUDA 13.0 does not know counts as sticky: better stop than
/// guess. Source: the comments of `enum cudaError` in CUDA 13.0, driver_types.h. Cost: some 40 compares, only after
/// errors.
[[nodiscard]] constexpr bool is_sticky_cuda_error(int number) noexcept
{
  for (const int sticky : detail::sticky_cuda_errors)
    if (number == sticky) return true;
  return !is_known_cuda_error(number);
}

/// Source: the comments of `enum cudaError` in CUDA 13.0, driver_types.h.
[[nodiscard]] constexpr cuda_fault fault_of_cuda_error(int number) noexcept
{
  if (number == 0) return cuda_fault::none;
  if (is_sticky_cuda_error(number)) return cuda_fault::sticky;
  switch (number) {
    case 2: return cuda_fault::memory;
    case 4: return cuda_fault::unloading;
    case 100: return cuda_fault::no_gpu;
    case 35:  // a runtime that finds no libcuda.so says this too
    case 36: return cuda_fault::old_driver;
    case 34:  // the stub that a toolkit has for linking
    case 803:
    case 804: return cuda_fault::mixed_driver;
    case 3:  // the driver does not start
    case 103:
    case 127:
    case 46:   // another process has the device alone
    case 102:  // no licence
    case 802:  // a daemon of the driver does not run
    case 805:  // MPS, to 809
    case 806:
    case 807:
    case 808:
    case 809: return cuda_fault::unavailable;
    case 98:
    case 200:
    case 209:
    case 221:  // PTX, and a driver that may not or cannot compile it
    case 223: return cuda_fault::no_code;
    case 218:
    case 222: return cuda_fault::new_code;
    default: return cuda_fault::passing;
  }
}

/// True where no later call can work.
[[nodiscard]] constexpr bool ends_cuda(cuda_fault fault) noexcept
{
  return fault == cuda_fault::sticky || fault == cuda_fault::unloading;
}

/// The remedy for a fault, as the end of an error's sentence.
[[nodiscard]] constexpr std::string_view remedy_of(cuda_fault fault) noexcept
{
  switch (fault) {
    case cuda_fault::memory: return "make the capacities smaller, or free memory";
    case cuda_fault::no_gpu:
      return "there is no GPU to use: look at nvidia-smi and CUDA_VISIBLE_DEVICES, or take backend::host_arena";
    case cuda_fault::unavailable:
      return "the GPU cannot be used now: nvidia-smi -q tells its compute mode and licence, and a daemon of the driver "
             "may not run (nvidia-fabricmanager where NVSwitch joins the GPUs, MPS)";
    case cuda_fault::old_driver:
      return "there is no driver, or it is older than the program: CUDA 13 needs driver 580 or newer, CUDA 12 needs "
             "525; install one, build the program with a toolkit of the CUDA that nvidia-smi names, or take "
             "backend::host_arena where no GPU is";
    case cuda_fault::mixed_driver:
      return "the libcuda.so.1 that was loaded is not the one of the running driver: take folders of stubs and of "
             "cuda-compat out of LD_LIBRARY_PATH; after an update of the driver start the machine again";
    case cuda_fault::no_code:
      return "the program has no code for this device: compile it for the device's architecture "
             "(CMAKE_CUDA_ARCHITECTURES, nvcc -arch=native)";
    case cuda_fault::new_code:
      return "the driver is older than the PTX of the program and cannot compile it: compile for the device's own "
             "architecture (CMAKE_CUDA_ARCHITECTURES, nvcc -arch=native), or install a newer driver";
    case cuda_fault::unloading: return "the program is ending: destroy the backend before main returns";
    case cuda_fault::sticky: return "the device does not recover: start the process again, from a checkpoint";
    default: return "the call did nothing and may be tried again";
  }
}

}  // namespace backend
}  // namespace chunkmem::inline v0
