// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace chunkmem::inline v0 {

/// Handles of a CUDA runtime: plain values whose default is "none".
template <class Api>
concept names_cuda_handles = std::regular<typename Api::stream_type> && std::regular<typename Api::event_type> &&
                             std::regular<typename Api::pool_type> && std::regular<typename Api::graph_type> &&
                             std::regular<typename Api::executable_type>;

/// Devices and their memory.
template <class Api>
concept gives_cuda_memory =
    requires(const Api& api, int number, std::size_t size, void* place, typename Api::pool_type pool,
             typename Api::stream_type stream, int& current, std::size_t& free, void*& fresh) {
      {
        api.count_devices(current)
      } noexcept -> std::same_as<int>;
      {
        api.current_device(current)
      } noexcept -> std::same_as<int>;
      {
        api.use_device(number)
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
    };

/// Streams, events, and the work that goes to them.
template <class Api>
concept orders_cuda_work =
    requires(const Api& api, void* to, const void* from, std::size_t size, void* const* tos, const void* const* froms,
             const std::size_t* sizes, typename Api::stream_type stream, typename Api::event_type event, bool& is_over,
             void (*work)(void*)) {
      {
        api.create_stream(stream)
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
/// Each returns the runtime's own number, 0 for success (`cudaError_t`). Results come through references, written only
/// on success. `cuda_runtime` is the real one; tests have one on threads, which can fail at every call.
///
/// | member | function of the runtime | |---|---| | count_devices, current_device, use_device | cudaGetDeviceCount,
/// cudaGetDevice, cudaSetDevice | | memory_info(free, total) | cudaMemGetInfo, of the current device [bytes] | |
/// create_pool(pool, device, limit), destroy_pool | cudaMemPoolCreate (at most `limit` bytes, kept when freed),
/// cudaMemPoolDestroy | | allocate_device, free_device | cudaMallocFromPoolAsync, cudaFreeAsync | | allocate_pinned,
/// free_pinned | cudaHostAlloc (portable), cudaFreeHost | | create_stream | cudaStreamCreateWithFlags, not blocking;
/// without ties to the legacy stream | | create_event | cudaEventCreateWithFlags, without timing | | wait_event(stream,
/// event) | cudaStreamWaitEvent | | copy, fill | cudaMemcpyAsync with cudaMemcpyDefault, cudaMemsetAsync | | copy_batch
/// | cudaMemcpyBatchAsync where the toolkit has it, else as many copies | | launch_host(stream, work, argument) |
/// cudaLaunchHostFunc | | last_error | cudaGetLastError: of a kernel launch; forgets errors that pass | | begin_capture
/// | cudaStreamBeginCapture, thread-local mode | | end_capture, instantiate, launch_graph | cudaStreamEndCapture,
/// cudaGraphInstantiate, cudaGraphLaunch |
///
/// `name_of(code)` is the runtime's name of a code, such as "cudaErrorIllegalAddress".
template <class Api>
concept cuda_api = std::copy_constructible<Api> && names_cuda_handles<Api> && gives_cuda_memory<Api> &&
                   orders_cuda_work<Api> && captures_cuda_graphs<Api> && requires(const Api& api, int code) {
                     {
                       api.name_of(code)
                     } noexcept -> std::convertible_to<const char*>;
                   };

}  // namespace chunkmem::inline v0
